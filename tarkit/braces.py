"""Brace patterns, ``train-{0000..0147}.tar``, as bash has them, without holding all the names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tarkit.errors import UsageError, printable
from tarkit.transport.sources import display_name

_INTEGERS = re.compile(r"\{(-?[0-9]+)\.\.(-?[0-9]+)\}")


def expand_braces(pattern: str) -> Iterator[str]:
    """The names that a pattern stands for, one at a time; the first of a million at once.

    Raises:
        UsageError: the braces are not balanced.
    """
    if "{" not in pattern and "}" not in pattern:
        return iter((pattern,))
    return _product(_segments(pattern))


def _segments(pattern: str) -> list[str]:
    """The pattern cut at its outer braces, so that each part is a literal or one group."""
    parts, start, depth, position = [], 0, 0, 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 1
        elif character == "{":
            if depth == 0:
                parts.append(pattern[start:position])
                start = position
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                parts.append(pattern[start : position + 1])
                start = position + 1
            elif depth < 0:
                break
        position += 1
    if depth != 0:
        raise UsageError(
            f"{printable(display_name(pattern))}: the braces are not balanced; write \\{{ and \\}} for plain braces"
        )
    parts.append(pattern[start:])
    return [part for part in parts if part]


def _product(parts: Sequence[str]) -> Iterator[str]:
    if not parts:
        yield ""
        return
    for first in _one_group(parts[0]):
        for rest in _product(parts[1:]):
            yield first + rest


def _one_group(part: str) -> Iterator[str]:
    if not part.startswith("{") and "\\" not in part:
        return iter((part,))
    match = _INTEGERS.fullmatch(part)
    if match is None:
        from braceexpand import braceexpand

        return iter(braceexpand(part))
    # The library holds a whole range in memory before its first item; {000000..999999} must begin at once.
    first, last = int(match[1]), int(match[2])
    padded = any(re.match(r"-?0[0-9]", end) for end in match.groups())
    width = max(len(match[1]), len(match[2])) if padded else 0
    numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
    return (f"{number:0{width}d}" for number in numbers)
