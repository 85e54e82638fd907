"""Options and messages of the verbs that write samples: one shard, or a series of shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import counted, printable
from tarkit.names.redaction import redact

from .meter import Meter
from .program import (
    dry_run_notes,
    dry_run_option,
    json_option,
    option_group,
    refuse_mixed_output,
    reject_options,
    say,
    size,
    work_options,
)
from .results import Results

if TYPE_CHECKING:
    from pathlib import PurePath

    from typing_extensions import Unpack

    from tarkit.steps.rowshards import RowsResult
    from tarkit.steps.shardsoutput import OutputOptions, ShardsOutput

F = TypeVar("F", bound=Callable[..., Any])

_SERIES: dict[str, dict[str, Any]] = {
    "maxcount": {"type": click.IntRange(1), "default": 100000, "help": "Most samples in a shard."},
    "maxsize": {"type": size, "default": "3G", "help": "Most bytes of content in a shard."},
    "start": {"type": click.IntRange(0), "default": 0, "help": "Number of the first shard."},
    "manifest": {
        "metavar": "FILE.json",
        "help": "Also list this run's shards in this file, with samples, bytes and MD5 of each; implies --index.",
    },
    "force": {
        "is_flag": True,
        "help": "Replace existing shards of this pattern; remove the remaining ones at the end.",
    },
}
OUTPUT = (*_SERIES, "mtime", "format", "index", "dry_run")
"""Names of the options of :class:`tarkit.steps.shardsoutput.ShardsOutput`."""
shard_count_option = click.option(
    "--shards", "shard_count", type=click.IntRange(1), metavar="N", help="Write N shards of equal length."
)
"""Option --shards of the verbs that can count their samples first."""
maxcount_option = click.option("--maxcount", show_default=True, **_SERIES["maxcount"])
"""Option --maxcount of the verbs that cut their output otherwise than a series."""
_OUTPUT_HELP = "Shard to write; - is standard output; out-%06d.tar is a series."


def shards_options(*, output: str = _OUTPUT_HELP, metavar: str = "OUT", required: bool = True) -> Callable[[F], F]:
    """Return a decorator that adds the options of :class:`tarkit.steps.shardsoutput.ShardsOutput`.

    Args:
        output: help of --output.
        metavar: placeholder of its value.
        required: True if there must be an output.
    """
    named = click.option("-o", "--output", required=required, metavar=metavar, help=output)
    series = (click.option(f"--{name}", show_default="default" in each, **each) for name, each in _SERIES.items())
    return option_group(named, *series, work_options("mtime", "format", "index"), dry_run_option, json_option)


@contextmanager
def open_shards(
    program: str,
    output: str,
    meter: Meter,
    results: Results,
    inputs: Callable[[ShardsOutput], Collection[str | PurePath]] = lambda shards: (),
    **options: Unpack[OutputOptions],
) -> Iterator[ShardsOutput]:
    """Open the output of a verb, and print the names of the shards of a series as published.

    With --json, the summary has these names.

    Args:
        program: name of the program, for messages.
        inputs: called after the output was checked; returns the names of the inputs, none of which
            may be an output.
        options: those of :func:`shards_options` without --json, and ``rule``.
    """
    from tarkit.steps.shardsoutput import ShardsOutput

    refuse_mixed_output(output, click.get_current_context().params["as_json"])
    check_series_options(output)
    shards = ShardsOutput(output, **options)
    if shards.warning is not None:
        reason = "shards of an earlier run are replaced, but none is removed, since they cannot be listed"
        say(program, f"{reason}: {shards.warning}")
    with shards.open(inputs(shards), name_printer(meter, results)) as opened:
        yield opened
    report_removed(program, shards, dry_run=options.get("dry_run", False))


def check_series_options(output: str) -> None:
    """Reject options of a series if the output is one shard."""
    from tarkit.names.outputnames import is_pattern

    if not is_pattern(output):
        reject_options(_SERIES, "goes with a series of shards, such as -o out-%06d.tar")


def name_printer(meter: Meter, results: Results) -> Callable[[str], None]:
    """Return a function that prints the name of a published shard; with --json, it does nothing."""
    as_json = click.get_current_context().params["as_json"]

    def published(name: str) -> None:
        if not as_json:
            with meter.hidden():
                results.now(redact(name))

    return published


def report_removed(program: str, shards: ShardsOutput | RowsResult, *, dry_run: bool = False) -> None:
    """Print a line on shards of an earlier run that were removed."""
    if shards.removed:
        first = printable(redact(shards.removed[0]))
        verb = "would remove" if dry_run else "removed"
        say(program, f"{verb} {counted(len(shards.removed), 'shard')} of an earlier run, from {first} on")


def phrase_of(*outputs: ShardsOutput | RowsResult, content: str = "content") -> str:
    """Return phrases on what was written; ``content`` is the noun for what the bytes are of."""
    total, size = sum(each.total for each in outputs), sum(each.size for each in outputs)
    number = sum(len(each.shards) for each in outputs)
    is_one = number == 1 and not any(each.is_series for each in outputs)
    where = "" if is_one else f" in {counted(number, 'shard')}"
    return "; ".join([f"{counted(total, 'sample')}{where}, {size} bytes of {content}", *dry_run_notes()])


def counts_of(*outputs: ShardsOutput | RowsResult) -> dict[str, Any]:
    """Return what was written, for JSON."""
    total, size = sum(each.total for each in outputs), sum(each.size for each in outputs)
    shards = [redact(name) for each in outputs for name in each.shards]
    removed = [redact(name) for each in outputs for name in each.removed]
    return {"samples": total, "bytes": size, "shards": shards, "removed": removed}


def summarize(
    program: str,
    shards: ShardsOutput | RowsResult,
    results: Results,
    *,
    notes: Sequence[str] = (),
    quiet: bool = False,
    content: str = "content",
    **more: Any,
) -> None:
    """Print what was written: a line on stderr, or with --json an object on stdout.

    Args:
        notes: phrases for the line, such as those of :meth:`tarkit.formats.tally.Tally.phrases`.
        quiet: print no line.
        content: noun for the content whose bytes are counted.
        more: further entries of the object.
    """
    if click.get_current_context().params["as_json"]:
        results.line(json.dumps({**counts_of(shards), **more}))
    if not quiet:
        say(program, "; ".join([phrase_of(shards, content=content), *notes]))
