"""The options that select samples, for every verb that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import printable

from .program import option_group

if TYPE_CHECKING:
    from tarkit.steps.selection import Selection

_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
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

selection_options = option_group(*(click.option(*flags, name, **more) for name, (flags, more) in _OPTIONS.items()))
"""Options of :class:`tarkit.steps.selection.Selection`."""


def selection_of(parameters: dict[str, Any]) -> Selection:
    """Take the options of a selection out of those of a command, and return the selection."""
    from tarkit.steps.selection import Selection

    return Selection(**{name: parameters.pop(name) or None for name in _OPTIONS})


def selected(selection: Selection) -> list[str]:
    """Return phrases on samples that were dropped, and on fields that were missing."""
    parts = []
    if selection.dropped:
        by_option = (f"--{name.replace('_', '-')} {number}" for name, number in selection.dropped.items())
        parts.append(f"samples dropped by {', '.join(by_option)}")
    if selection.lacking:
        lacking = (f"{printable(name)} {number}" for name, number in sorted(selection.lacking.items()))
        parts.append(f"samples without a field of --fields: {', '.join(lacking)}")
    for name, (number, examples) in selection.unknown_keys.items():
        shown = f" ({', '.join(map(printable, examples))}{', …' if number > len(examples) else ''})" if examples else ""
        parts.append(f"keys of --{name.replace('_', '-')} that no sample has: {number}{shown}")
    return parts
