"""Statistics of one data set, or of two side by side: lines of text, and a page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tarkit.errors import printable
from tarkit.steps.distribution import DISTINCT, QUANTILES, edges_of
from tarkit.steps.htmlpage import page, page_part
from tarkit.steps.stats import NOT_MEASURED, UNREADABLE, Statistics

Sets = Mapping[str, Statistics]
"""Label of a data set -> its statistics."""
_COLUMNS = ("count", "min", *QUANTILES, "max", "mean", "total")
_MOST_ROWS = 20
_LEAST_ROWS = 5
_FEW = 8
_MOST_SHOWN = 1000  # values of a measure, on a page
_FAR = 0.1


def lines_of(sets: Sets) -> Iterator[str]:
    """Yield the lines of a report."""
    several = len(sets) > 1
    for label, found in sets.items():
        noun = "sample" if found.samples == 1 else "samples"
        yield f"{f'{label}: ' if several else ''}{found.samples:,} {noun}, {found.size:,} bytes of content"
    if several:
        yield from ("", "Differences", *(differences(sets) or ["none of fields, values, shares or medians"]))
    rows = [["numbers", *_COLUMNS]]
    for name in _names(sets, "numbers"):
        for label, found in sets.items():
            if name in found.numbers:
                summary = found.numbers[name].summary()
                about = "~" if summary["about"] else ""
                cells = (f"{about if each in QUANTILES else ''}{_shown(summary[each])}" for each in _COLUMNS)
                rows.append([f"{_title(name)}{f' ({label})' if several else ''}", *cells])
    yield from ("", *_aligned(rows))
    if not all(numbers.exact for found in sets.values() for numbers in found.numbers.values()):
        yield "~ about: there are more than a million numbers"
    for name in _names(sets, "values"):
        yield from ("", *_value_lines(sets, name))


def _value_lines(sets: Sets, name: tuple[str, str]) -> Iterator[str]:
    """Yield the most frequent values and the least frequent ones, with numbers and shares."""
    counts = _counts(sets, name)
    values = list(counts)
    most, least = (5, 0) if name[1] == UNREADABLE else (_MOST_ROWS, _LEAST_ROWS)
    least = least if len(values) > most + least else 0
    heads = (text for label in sets for text in (label if len(sets) > 1 else "count", "share"))
    rows = [[f"{_title(name)} ({len(values):,})", *heads]]
    for value in (*values[:most], *values[len(values) - least :]):
        cells = ((f"{times:,}", f"{share:.1%}") for times, share in counts[value])
        rows.append([value, *chain.from_iterable(cells)])
    lines = _aligned(rows)
    if len(values) >= len(rows):
        lines.insert(1 + most, f"… {len(values) - len(rows) + 1:,} more, listed by --json")
    yield from lines
    if rest := _rest(sets, name):
        yield f"{rest:,} times a value after the first {DISTINCT:,}"


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" + ">" * len(widths)
    cells = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=False)] for row in rows]
    return ["  ".join(row).rstrip() for row in cells]


def differences(sets: Sets) -> list[str]:
    """List what differs between two data sets: values of one only, other shares, other medians."""
    found = []
    one, other = sets
    for name in _names(sets, "values"):
        # What is not in one data set at all is reported for its field.
        both = not name[0] or all((name[0], "bytes") in each.numbers for each in sets.values())
        counts = _counts(sets, name) if both and name[1] not in (UNREADABLE, NOT_MEASURED) else {}
        for label, lacks in ((one, 1), (other, 0)):
            if only := [value for value, each in counts.items() if not each[lacks][0]]:
                more = f" and {len(only) - _FEW:,} more" if len(only) > _FEW else ""
                found.append(f"{_title(name)}: only in {label}: {', '.join(map(printable, only[:_FEW]))}{more}")
        shares = [(a, b, value) for value, ((in_a, a), (in_b, b)) in counts.items() if in_a and in_b]
        a, b, value = max(shares, key=lambda each: abs(each[0] - each[1]), default=(0, 0, ""))
        if abs(a - b) >= _FAR:
            found.append(f"{_title(name)}: {printable(value)}: {a:.1%} of {one}, {b:.1%} of {other}")
    for name in _names(sets, "numbers"):
        if all(name in each.numbers for each in sets.values()):
            low, high = (each.numbers[name].summary()["median"] for each in sets.values())
            if abs(high - low) > _FAR * max(low, high):
                found.append(f"{_title(name)}: median {_shown(low)} in {one}, {_shown(high)} in {other}")
    return found


def _counts(sets: Sets, name: tuple[str, str]) -> dict[str, list[tuple[int, float]]]:
    """Return value -> (times, share of the samples that have the field) in each data set.

    The most frequent values come first.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for number, each in enumerate(sets.values()):
        for value, times in each.values[name].values.items() if name in each.values else ():
            row = found.setdefault(value, [(0, 0.0)] * len(sets))
            row[number] = times, times / each.numbers[name[0], "bytes"].count
    return dict(sorted(found.items(), key=lambda item: (-sum(share for _, share in item[1]), item[0])))


def _rest(sets: Sets, name: tuple[str, str]) -> int:
    return sum(found.values[name].rest for found in sets.values() if name in found.values)


def _names(sets: Sets, kind: str) -> list[tuple[str, str]]:
    """List the measures that are numbers or values, those of whole samples first."""
    return sorted({name for found in sets.values() for name in getattr(found, kind)})


def _title(name: tuple[str, str]) -> str:
    return f"{name[0] or 'sample'} {name[1].replace('_', ' ')}"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 or number == int(number) else f"{number:.3g}"


def report_page(sets: Sets, names: Sequence[str]) -> bytes:
    """Return a page with tables and plots, which needs no other file and no server.

    Args:
        names: their names, for people.
    """
    numbers, values = [], []
    for name in _names(sets, "numbers"):
        known = [found.numbers.get(name) for found in sets.values()]
        edges = edges_of([each for each in known if each is not None])
        rows = [None if each is None else {**each.summary(), "bars": each.bars(edges)} for each in known]
        numbers.append({"field": name[0], "measure": name[1], "edges": edges, "sets": rows})
    for name in _names(sets, "values"):
        counts = _counts(sets, name)
        table = {"field": name[0], "measure": name[1], "distinct": len(counts), "rest": _rest(sets, name)}
        values.append({**table, "rows": list(counts.items())[:_MOST_SHOWN]})
    data: dict[str, Any] = {"labels": list(sets), "names": names, "numbers": numbers, "values": values}
    data |= {"sizes": [(found.samples, found.size) for found in sets.values()]}
    data |= {"differences": differences(sets) if len(sets) > 1 else []}
    title = f"Statistics of {' and '.join(names)}"
    return page(title, '<main id="report"></main>', data, page_part("statsreport.js"), page_part("statsreport.css"))
