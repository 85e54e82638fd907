"""``tarkit create``: make a shard of files, or of the sources in a plan."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import DataError, MissingInputError, UsageError, counted
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import gathering_options, refuse_terminal_input, say, standard_options, work_option, work_options
from ..shared.results import Results
from ..shared.series import Series, reject_series_options, series_options

if TYPE_CHECKING:
    from tarkit.samples.gather import MemberFile
    from tarkit.samples.sample import KeyRule
    from tarkit.writer import ShardWriter, TarWriter

_NAME = "tarkit create"
_EPILOG = """\b
Examples:
  tarkit create -o train.tar images/
  tarkit create -o train.tar.gz -C /data/images .
  tarkit create -o 'train-%06d.tar' --maxcount 1000 images/
  printf '%s\\n' '000001.jpg s3://bucket/cat.jpg' '000001.cls text:3' | tarkit create --plan - -o one.tar
"""


@click.command("create", epilog=_EPILOG)
@click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Shard to write; - is standard output; out-%06d.tar is a series.",
)
@series_options
@click.option("--plan", metavar="FILE", help="File of lines NAME SOURCE that list the members; - is standard input.")
@click.option("--allow-pipe", is_flag=True, help="Allow the plan to run commands: sources such as pipe:CMD.")
@click.option("-C", "--directory", default=".", metavar="FOLDER", help="Folder in which relative paths begin.")
@gathering_options
@work_option("key_rule")
@work_options("mtime", "format", "index")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
@standard_options
def command(
    paths: tuple[str, ...], output: str, plan: str | None, allow_pipe: bool, directory: str, on_same_extension: str,
    skip_others: bool, key_rule: str, mtime: float | None, format: str, index: bool, quiet: bool, verbose: bool,
    **limits: Any,
) -> int:  # fmt: skip
    """Make a shard, or a series of shards, of files and folders, or of a plan's sources.

    With a number in its name, as in -o out-%06d.tar, the output is a series of shards, as tarkit
    split writes it; their names are printed as they are published.

    Members are named as on the command line, without a leading / or ./. Samples are sorted by key,
    so that the files of each are adjacent; use a plan for a different order. A file whose name has
    no key or field is an error, unless --skip-others. Links to files are followed.

    Everything after the first dot of a file's name is the field. So img_0.5.jpg and img_0.7.jpg
    would be one sample, img_0, where two were meant (--key-rule last-dot makes two); but
    a.input.png and a.output.png are one sample, a. Files of one sample that have the same last
    extension are an error; --on-same-extension allow accepts them. This comparison
    ignores case, and treats jpeg as jpg and tiff as tif.

    A line of a plan is NAME SOURCE. SOURCE is text:TEXT (the rest of the line), file:PATH, a URL, a
    plain path, or with --allow-pipe, pipe:COMMAND. Blank lines and lines that begin with # are
    skipped. Samples keep the plan's order; lines of one sample must be adjacent. Content is not
    decompressed. Content above 32 MiB from a URL or a command is kept in $TMPDIR until it is
    written.
    """
    if (plan is None) == (not paths):
        raise UsageError("give files or folders, or --plan FILE" if plan is None else "give files or --plan, not both")
    if plan is None and allow_pipe:
        raise UsageError("--allow-pipe goes with --plan")
    from tarkit.names.outputnames import is_pattern
    from tarkit.samples.gather import refuse_same_extension
    from tarkit.samples.sample import key_rule as rule_of
    from tarkit.specs.outputcheck import check_other_than, check_tar_output
    from tarkit.writer import TarWriter

    rule = rule_of(key_rule)
    if not os.path.isdir(directory):
        raise MissingInputError("-C names no folder", url=directory)
    series = Series(_NAME, output, **limits) if is_pattern(output) else None
    earlier: list[str] = []
    if series is not None:
        earlier = series.earlier()
    else:
        reject_series_options()
        check_tar_output(output)
    files, notes = (
        _gathered(paths, earlier or [output], rule, directory, skip_others)
        if plan is None
        else (_planned(plan, rule, directory, skip_others, allow_pipe), [])
    )
    if series is None:
        check_other_than([output], (file.source for file in files if not str(file.source).startswith("text:")))
    if on_same_extension == "error":
        refuse_same_extension(files, rule)
    with Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:

        def published(name: str) -> None:
            with meter.hidden():
                results.now(redact(name))

        if series is None:
            with TarWriter(output, encoder=False, rule=rule, mtime=mtime, format=format, index=index) as shard:
                size = _write(files, shard, meter)
            written = counted(shard.samples, "sample")
        else:
            sources = [file.source for file in files]
            with series.open(
                sources, earlier, published, key_rule=key_rule, mtime=mtime, format=format, index=index
            ) as shards:
                size = _write(files, shards, meter)
            written = f"{counted(shards.total, 'sample')} in {counted(len(shards.shards), 'shard')}"
    if rule is not rule_of("first-dot"):
        say(_NAME, f"read it with --key-rule {key_rule!r}: by another rule these names are other samples")
    if not quiet:
        say(_NAME, "; ".join([f"{written}, {size} bytes of content", *notes]))
    return 0


def _write(files: Sequence[MemberFile], writer: TarWriter | ShardWriter, meter: Meter) -> int:
    """Write the samples of the files; return their size in bytes."""
    from tarkit.samples.gather import samples_of

    size = done = 0
    for sample in samples_of(files):
        size += writer.write(sample)
        done += len(sample) - 1
        if meter.is_due():
            meter.show(f"{done} of {len(files)} files so far, {size} bytes", done / len(files))
    return size


def _gathered(
    paths: Iterable[str], outputs: Iterable[str], rule: KeyRule, directory: str, skip_others: bool
) -> tuple[list[MemberFile], list[str]]:
    """Return the files to write, and notes on files that were skipped.

    Args:
        outputs: files that are outputs, and so never inputs.
    """
    from tarkit.samples.gather import gather

    gathered = gather(paths, rule=rule, folder=directory, leave_out=outputs)
    unasked = [(name, reason) for name, reason in gathered.others if reason != "the output itself"]
    if unasked and not skip_others:
        name, reason = unasked[0]
        more = f" (and {len(unasked) - 1} more)" if len(unasked) > 1 else ""
        hint = "rename it KEY.FIELD, or leave it out with --skip-others"
        raise DataError(f"no part of a sample: {reason}{more}", url=name, hint=hint)
    if not gathered.files:
        hint = "a sample's files are called KEY.FIELD"
        raise MissingInputError("no file of a sample is in what was given", hint=hint)
    notes = []
    if gathered.stripped:
        notes.append(f"{counted(gathered.stripped, 'name')} lost a leading / or ./")
    if kinds := Counter(reason for _, reason in gathered.others):
        notes.append("left out: " + ", ".join(f"{reason} {count}" for reason, count in sorted(kinds.items())))
    return gathered.files, notes


def _planned(plan: str, rule: KeyRule, directory: str, skip_others: bool, allow_pipe: bool) -> list[MemberFile]:
    """Yield the names and sources of a plan.

    All of its lines are checked before the first source is opened.
    """
    from tarkit.samples.gather import parse_plan

    if skip_others:
        raise UsageError("--skip-others goes with files; take the line out of the plan")
    refuse_terminal_input([plan])
    files = parse_plan(plan, rule=rule, folder=directory, allow_pipe=allow_pipe)
    if not files:
        raise MissingInputError("the plan has no lines", url=plan)
    return files
