"""The options that select samples, for every verb that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_SET_ASIDE, printable

from .program import option_group, say
from .results import exit_code_of, met

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.steps.selection import Selection

SELECTION: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "match": (("--match",), {"metavar": "REGEX", "help": "Keep the samples whose key matches anywhere."}),
    "keys": (
        ("--keys",),
        {"metavar": "FILE", "help": "Keep the samples whose key is in this list, or data.csv:COLUMN of a table."},
    ),
    "without_keys": (("--without-keys",), {"metavar": "FILE", "help": "Drop the samples whose key is in this list."}),
    "where": (
        ("--where",),
        {"metavar": "EXPR", "help": "Keep the samples for which this holds, such as 'json.width >= 512 and cls != 7'."},
    ),
    "fields": (
        ("-f", "--fields"),
        {
            "metavar": "FIELDS",
            "help": "Keep only these fields, separated by blanks or commas; jpg|png is the first that a sample has.",
        },
    ),
    "drop_fields": (("--drop-fields",), {"metavar": "FIELDS", "help": "Leave out these fields."}),
    "rename": (
        ("--rename",),
        {"metavar": "NEW=OLD", "multiple": True, "help": "Rename a field; OLD may be jpeg|JPG.  [repeatable]"},
    ),
    "rekey": (
        ("--rekey",),
        {"metavar": "TEXT", "help": "Give new keys: %s is the old key, %06d the number of the sample from 0."},
    ),
}
"""Option -> (its flags, the other arguments of click's option)."""

selection_options = option_group(*(click.option(*flags, name, **more) for name, (flags, more) in SELECTION.items()))
"""Options of :class:`tarkit.steps.selection.Selection`."""


def selection_of(parameters: dict[str, Any]) -> Selection:
    """Take the options of a selection out of those of a command, and return the selection."""
    from tarkit.steps.selection import Selection

    return Selection(**{name: parameters.pop(name) or None for name in SELECTION})


def selected(selection: Selection) -> list[str]:
    """Return phrases on samples that were dropped, and on fields that were missing."""
    parts = ["no sample is selected"] if selection.selects and not selection.kept else []
    if selection.dropped:
        by_option = (
            f"--{name.replace('_', '-')} {selection.dropped[name]}" for name in SELECTION if selection.dropped[name]
        )
        parts.append(f"samples dropped by {', '.join(by_option)}")
    if selection.lacking:
        lacking = (f"{printable(name)} {number}" for name, number in sorted(selection.lacking.items()))
        parts.append(f"samples without a field of --fields: {', '.join(lacking)}")
    for name, (number, examples) in selection.unknown_keys.items():
        shown = f" ({', '.join(map(printable, examples))}{', …' if number > len(examples) else ''})" if examples else ""
        parts.append(f"keys of --{name.replace('_', '-')} that no sample has: {number}{shown}")
    return parts


def exit_code_of_selected(selection: Selection, tally: Tally, allow_empty: bool) -> int:
    """Return 0, or 3 if something was lost, or no sample is selected and that is not allowed."""
    is_empty = selection.selects and not selection.kept and not allow_empty
    return EXIT_SET_ASIDE if is_empty else exit_code_of(tally)


def report_selected(
    program: str, parts: list[str], selection: Selection, tally: Tally, *, quiet: bool, allow_empty: bool,
    skipped: str = "skipped members",
) -> int:  # fmt: skip
    """Print the summary of a verb that copies selected samples, and return its exit code.

    Args:
        parts: phrases of the summary.
        quiet: print it only if something was lost, or no sample is selected.
        allow_empty: True if a selection of no sample is a success.
        skipped: noun for the members that are not part of a sample.
    """
    code = exit_code_of_selected(selection, tally, allow_empty)
    if code or not quiet:
        say(program, "; ".join([*parts, *selected(selection), *met(tally, skipped=skipped)]))
    return code
