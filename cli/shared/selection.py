"""The options that select samples, for every verb that reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_SET_ASIDE, counted, printable
from tarkit.names.redaction import redact

from .program import dry_run_notes, dry_run_option, json_option, option_group, say, work_option, write_stdout
from .results import exit_code_of, met

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.steps.select import SelectedShards
    from tarkit.steps.selection import Selection

SELECTION = ("match", "keys", "without_keys", "where", "fields", "drop_fields", "rename", "rekey")
"""Names of the options."""

selection_options = option_group(
    click.option("--match", metavar="REGEX", help="Keep the samples whose key matches anywhere."),
    click.option(
        "--keys", metavar="FILE", help="Keep the samples whose key is in this list, or data.csv:COLUMN of a table.",
    ),
    click.option("--without-keys", metavar="FILE", help="Drop the samples whose key is in this list."),
    click.option(
        "--where", metavar="EXPR",
        help="Keep the samples for which this holds, such as 'json.width >= 512 and cls != 7'.",
    ),
    click.option(
        "-f", "--fields", metavar="FIELDS",
        help="Keep only these fields, separated by blanks or commas; jpg|png is the first that a sample has.",
    ),
    click.option("--drop-fields", metavar="FIELDS", help="Leave out these fields."),
    click.option(
        "--rename", metavar="NEW=OLD", multiple=True, help="Rename a field; OLD may be jpeg|JPG.  [repeatable]",
    ),
    click.option(
        "--rekey", metavar="TEXT", help="Give new keys: %s is the old key, %06d the number of the sample from 0.",
    ),
)  # fmt: skip
"""Options of :class:`tarkit.steps.selection.Selection`."""

choosing_options = option_group(
    selection_options, work_option("allow_empty", help="Accept a selection of no sample: do not exit with 3.")
)
"""The options of a verb that writes the selected samples."""


def selection_of(parameters: dict[str, Any]) -> Selection:
    """Take the options of a selection out of those of a command, and return the selection."""
    from tarkit.steps.selection import Selection

    return Selection(**{name: parameters.pop(name, None) or None for name in SELECTION})


def selected(selection: Selection) -> list[str]:
    """Return phrases on samples that were dropped, and on fields and values that were missing."""
    parts = ["no sample is selected"] if selection.selects and not selection.kept else []
    if selection.dropped:
        by_option = (
            f"--{name.replace('_', '-')} {selection.dropped[name]}" for name in SELECTION if selection.dropped[name]
        )
        parts.append(f"samples dropped by {', '.join(by_option)}")
    if selection.lacking:
        lacking = (f"{printable(name)} {number}" for name, number in sorted(selection.lacking.items()))
        parts.append(f"samples without a field of --fields: {', '.join(lacking)}")
    if selection.unknown_values:
        parts.append(f"values of --where that no sample has: {printable(', '.join(selection.unknown_values))}")
    for name, (number, examples) in selection.unknown_keys.items():
        shown = f" ({', '.join(map(printable, examples))}{', …' if number > len(examples) else ''})" if examples else ""
        parts.append(f"keys of --{name.replace('_', '-')} that no sample has: {number}{shown}")
    return parts


def exit_code_of_selected(selection: Selection, tally: Tally, allow_empty: bool) -> int:
    """Return 0, or 3 if something was lost, or no sample is selected and that is not allowed."""
    is_empty = selection.selects and not selection.kept and not allow_empty
    return EXIT_SET_ASIDE if is_empty else exit_code_of(tally)


joining_options = option_group(
    choosing_options,
    work_option("key_rule"),
    work_option("on_repeated_key", help="If two samples of a shard would have the same key: stop, or accept that."),
    work_option(
        "on_damage",
        help="If a shard is damaged: stop, or leave out the damaged part and its samples, count them, and exit with 3.",
    ),
    work_option("parallel", help="Number of shards to open, read and decompress at once; the output is the same."),
    dry_run_option,
    json_option,
)
"""Options of the verbs that copy samples with the bytes of their members."""
JOINING = (*SELECTION, "key_rule", "on_repeated_key", "on_damage", "allow_empty", "parallel", "dry_run", "as_json")


def report_joined(
    program: str, made: SelectedShards, selection: Selection, tally: Tally, *, quiet: bool, allow_empty: bool,
    as_json: bool, dry_run: bool, skipped: str = "skipped members",
) -> int:  # fmt: skip
    """Print the summary of a verb that copies samples, and return its exit code.

    Args:
        made: what was written.
        quiet: print a line only if something was lost, or no sample is selected.
        allow_empty: True if a selection of no sample is a success.
        as_json: also print an object on standard output.
        dry_run: nothing was written.
        skipped: noun for the members that are not part of a sample.
    """
    code = exit_code_of_selected(selection, tally, allow_empty)
    if as_json:
        unknown = {name: number for name, (number, _) in selection.unknown_keys.items()}
        names = {"shards": [*map(redact, made.shards)], "removed": [*map(redact, made.removed)]}
        found = {"samples": made.samples, "bytes": made.size, **names, "dropped": selection.dropped}
        write_stdout(f"{json.dumps({**found, 'unknown_keys': unknown})}\n".encode())
    parts = [
        f"{counted(made.samples, 'sample')} of {counted(made.read, 'shard')}, {made.size} bytes of tar",
        *dry_run_notes(),
    ]
    if tally.reopened:
        parts.append(f"keys that came back in their shard: {tally.reopened}")
    if made.removed:
        verb = "would remove" if dry_run else "removed"
        parts.append(f"{verb} {counted(len(made.removed), 'shard')} of an earlier run")
    if code or not quiet:
        say(program, "; ".join([*parts, *selected(selection), *met(tally, skipped=skipped)]))
    return code
