"""``tarkit create``: make a shard of files, or of the sources in a plan."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import DataError, MissingInputError, UsageError, counted

from ..shared.meter import Meter
from ..shared.program import gathering_options, refuse_terminal_input, say, standard_options, work_option
from ..shared.results import Results
from ..shared.series import open_shards, shards_options, summarize

if TYPE_CHECKING:
    from pathlib import PurePath

    from tarkit.samples.content import MemberFile
    from tarkit.samples.sample import KeyRule
    from tarkit.steps.shardsoutput import ShardsOutput

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
@shards_options()
@click.option("--plan", metavar="FILE", help="File of lines NAME SOURCE that list the members; - is standard input.")
@click.option("--allow-pipe", is_flag=True, help="Allow the plan to run commands: sources such as pipe:CMD.")
@click.option("-C", "--directory", default=".", metavar="FOLDER", help="Folder in which relative paths begin.")
@gathering_options
@work_option("key_rule")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
@standard_options
def command(
    paths: tuple[str, ...], output: str, plan: str | None, allow_pipe: bool, directory: str, on_same_extension: str,
    skip_others: bool, key_rule: str, quiet: bool, as_json: bool, verbose: bool, **options: Any,
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
    from tarkit.samples.gather import refuse_same_extension
    from tarkit.samples.sample import key_rule as rule_of

    rule = rule_of(key_rule)
    if not os.path.isdir(directory):
        raise MissingInputError("-C names no folder", url=directory)
    files: list[MemberFile] = []
    notes: list[str] = []

    def sources(shards: ShardsOutput) -> list[str | PurePath]:
        if plan is None:
            outputs = shards.earlier or [output]
            found, named, found_notes = _gathered(paths, outputs, rule, directory, skip_others)
            notes.extend(found_notes)
        else:
            found = _planned(plan, rule, directory, skip_others, allow_pipe)
        files.extend(found)
        if on_same_extension == "error":
            refuse_same_extension(files, rule)
        return [*named] if plan is None else [file.source for file in files if not str(file.source).startswith("text:")]

    with Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        with open_shards(_NAME, output, meter, results, sources, rule=key_rule, **options) as shards:
            _write(files, shards, meter)
        if rule is not rule_of("first-dot"):
            say(_NAME, f"read it with --key-rule {key_rule!r}: by another rule these names are other samples")
        summarize(_NAME, shards, results, notes=notes, quiet=quiet)
    return 0


def _write(files: Sequence[MemberFile], shards: ShardsOutput, meter: Meter) -> None:
    """Write the samples of the files."""
    from tarkit.samples.content import samples_of

    done = 0
    for sample in samples_of(files):
        shards.write(sample)
        done += len(sample) - 1
        if meter.is_due():
            meter.show(f"{done} of {len(files)} files so far, {shards.size} bytes", done / len(files))


def _gathered(
    paths: Iterable[str], outputs: Iterable[str], rule: KeyRule, directory: str, skip_others: bool
) -> tuple[list[MemberFile], list[str], list[str]]:
    """Return the files to write, the paths that were named, and notes on files that were skipped.

    Args:
        outputs: files that are outputs, and so never inputs.
    """
    from tarkit.samples.gather import OUTPUT_ITSELF, gather

    gathered = gather(paths, rule=rule, folder=directory, leave_out=outputs)
    unasked = [(name, reason) for name, reason in gathered.others if reason != OUTPUT_ITSELF]
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
    return gathered.files, gathered.named, notes


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
