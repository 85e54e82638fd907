"""``tarkit split``: samples into a numbered series of shards."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import click

from tarkit.errors import CommandNotRunnableError, TarkitError, UsageError, counted, printable
from tarkit.redaction import redact

from ..shared.meter import Meter
from ..shared.program import reader_options, refuse_terminal_input, say, standard_options, work_options
from ..shared.results import Results, exit_code_of, met
from ..shared.series import Series, series_options

_EPILOG = """\b
Examples:
  tarkit split big.tar -o 'part-%06d.tar.gz' --maxcount 1000
  tarkit split - -o 'part-%06d.tar' --maxsize 1G --post 'aws s3 mv {} s3://bucket/'
"""


class PostError(TarkitError):
    """The command that was to run after a shard was published has failed."""


@click.command("split", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", required=True, metavar="PATTERN", help="Shards to write, such as out-%06d.tar.")
@series_options
@click.option("--post", metavar="COMMAND", help="Run with bash after each shard was published; {} is its name.")
@work_options("mtime", "format", "index")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary; only what was lost.")
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], output: str, post: str | None, mtime: float | None, format: str, index: bool, quiet: bool,
    key_rule: str, on_duplicate_field: str, on_repeated_key: str, on_damage: str, allow_pipe: bool, verbose: bool,
    **limits: Any,
) -> int:  # fmt: skip
    """Cut shards into a numbered series of shards.

    Samples stay whole and in order. A shard is full when the next sample would exceed --maxcount or
    --maxsize; a sample that is bigger than --maxsize gets a shard of its own. The names of the shards
    are printed, one a line, as they are published. Members get new headers, as tarproc writes them.

    Fields above 32 MiB are not held in memory: they wait in $TMPDIR until their sample is complete.

    Shards of the same pattern, with numbers from --start on, that are there from an earlier run are an
    error: of a longer run, some would stay. --force replaces them, and at the end removes the rest; an
    INPUT cannot be one of them. What a command or another program reads into a pipe is not checked.

    If the --post command fails, the run ends there: the shards before are published, what has not
    been written yet is not. What it prints goes to stderr.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt or dataset.json (a manifest), or -
    (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    if output == "-" or output.startswith("pipe:"):
        raise UsageError(
            "-o takes a name with a number, such as out-%06d.tar; a series of shards does not go into a pipe"
        )
    series = Series("tarkit split", output, **limits)
    earlier = series.earlier()
    with Meter("tarkit split", quiet=quiet) as meter, Results(only_messages=True) as results:
        from tarkit.formats.tally import Tally
        from tarkit.formats.tar.large import KeepInFiles
        from tarkit.samples.read import read_samples
        from tarkit.specs.shardspec import counted_shards, fixed_names

        tally = Tally()
        found, number = counted_shards(urls, allow_pipe_in_lists=allow_pipe)
        # Looked up before the first shard is written, which a glob might match, and with --force replace.
        known = [*found] if series.force or None in map(fixed_names, urls) else []
        with series.open(
            known, earlier, _published(meter, results, post),
            key_rule=key_rule, mtime=mtime, format=format, on_repeated_key=on_repeated_key, index=index,
        ) as writer:  # fmt: skip
            samples = read_samples(
                known or found, literal=True, split=True, rule=key_rule, on_duplicate_field=on_duplicate_field,
                on_repeated_key=on_repeated_key, on_damage=on_damage, tally=tally, large=KeepInFiles(),
            )  # fmt: skip
            for sample in samples:
                writer.write(sample)
                if meter.is_due():
                    so_far = f"{writer.total} samples so far, {counted(len(writer.shards), 'shard')} written"
                    meter.show(so_far, None if number is None else tally.shards_read() / number)
    code = exit_code_of(tally)
    if code or not quiet:
        parts = [f"{counted(writer.total, 'sample')} in {counted(len(writer.shards), 'shard')}", *met(tally)]
        say("tarkit split", "; ".join(parts))
    return code


def _published(meter: Meter, results: Results, post: str | None) -> Callable[[str], None]:
    """What is done for each shard once it is there."""
    bash = shutil.which("bash") if post is not None else None
    if post is not None and bash is None:
        raise CommandNotRunnableError("--post needs bash, which is not on the path", 127)

    def published(name: str) -> None:
        with meter.hidden():
            results.now(redact(name))
            if post is not None and bash is not None:
                _run_post(bash, post, name)

    return published


def _run_post(bash: str, post: str, name: str) -> None:
    text = post.replace("{}", shlex.quote(name))
    # Standard output is the list of names.
    done = subprocess.run([bash, "-c", text], stdin=subprocess.DEVNULL, stdout=2, check=False)
    if done.returncode:
        how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        # Tokens are passed in arguments: the first word has to do.
        shown = printable(redact(f"pipe:{text}").removeprefix("pipe:"))
        raise PostError(f"{printable(redact(name))} is published, but --post failed with {how}: {shown}")
