"""``tarkit split``: write samples to a numbered series of shards."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import UsageError, counted
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import reader_options, refuse_terminal_input, say, standard_options, work_options
from ..shared.results import Results, exit_code_of, met
from ..shared.series import Series, series_options

_EPILOG = """\b
Examples:
  tarkit split big.tar -o 'part-%06d.tar.gz' --maxcount 1000
  tarkit split - -o 's3://bucket/part-%06d.tar' --maxsize 1G
"""


@click.command("split", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", required=True, metavar="PATTERN", help="Shards to write, such as out-%06d.tar.")
@series_options
@work_options("mtime", "format", "index")
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], output: str, mtime: float | None, format: str, index: bool, quiet: bool,
    key_rule: str, on_duplicate_field: str, on_repeated_key: str, on_damage: str, allow_pipe: bool, verbose: bool,
    **limits: Any,
) -> int:  # fmt: skip
    """Cut shards into a numbered series of shards.

    Samples stay whole and in order. A shard is full when the next sample would exceed --maxcount or
    --maxsize; a sample that is larger than --maxsize gets a shard of its own. The names of the
    shards are printed, one a line, as they are published. Members get new headers, as tarproc
    writes them.

    Fields above 32 MiB are kept in $TMPDIR until their sample is complete.

    Existing shards of the same pattern, numbered from --start on, are an error, since those of a
    longer run would remain. --force replaces them, and removes the remaining ones at the end; no
    INPUT may be one of them. Only INPUT is protected: --force may
    replace a shard that another program in the pipeline is reading.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
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

        def published(name: str) -> None:
            with meter.hidden():
                results.now(redact(name))

        tally = Tally()
        found, number = counted_shards(urls, allow_pipe_in_lists=allow_pipe)
        # Looked up before the first shard is written, which a glob might match, and with --force
        # replace.
        known = [*found] if series.force or None in map(fixed_names, urls) else []
        with series.open(
            known, earlier, published,
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
