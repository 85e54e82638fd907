"""Expand brace patterns, ``train-{0000..0147}.tar``, as bash does, one name at a time.

A pattern is parsed once, into parts that know how many texts they stand for; so the millionth name
is found by arithmetic. Tests compare the results with those of the library braceexpand, which makes
all names before it returns the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from tarkit.errors import UsageError, printable
from tarkit.names.url import display_name

_INTEGERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?\n?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?\n?")
_LONG_NUMBER = re.compile(r"\.\.-?\d{31}|\{-?\d{31,}\.\.")
_PADDED = re.compile(r"-?0\d")
_LETTER_ORDER = ascii_uppercase + ascii_lowercase
_ESCAPE = re.compile(r"\\(.)")
_MOST_BRACES, _MOST_DIGITS = 100, 30
"""Limits of a pattern; each brace is one level of recursion."""


@dataclass(frozen=True)
class Range:
    """A range of numbers, ``{first..last..step}``: ``count`` numbers from ``first`` on.

    Attributes:
        width: digits to which a number is padded with zeros; 0 for no padding.
    """

    first: int
    step: int
    count: int
    width: int

    def items(self, start: int, stop: int) -> Iterator[str]:
        """Yield the texts with numbers from ``start`` up to, not including, ``stop``."""
        first, step, width = self.first, self.step, self.width
        return (f"{first + step * number:0{width}d}" for number in range(start, stop))


class Choice:
    """A list of alternatives, ``{a,b}``: the texts of each option in turn.

    A literal is a choice of one text.
    """

    def __init__(self, options: tuple[str | Product, ...]) -> None:
        self.options = options
        self.count: int = sum(1 if isinstance(option, str) else option.count for option in options)

    def items(self, start: int, stop: int) -> Iterator[str]:
        """Yield the texts with numbers from ``start`` up to, not including, ``stop``."""
        for option in self.options:
            if stop <= 0:
                return
            count = 1 if isinstance(option, str) else option.count
            if start < count:
                if isinstance(option, str):
                    yield option
                else:
                    yield from option.items(max(0, start), min(stop, count))
            start, stop = start - count, stop - count


Part = Choice | Range


class Product:
    """A sequence of parts, each combined with each; the last part changes fastest."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self._tails = [1]
        for part in reversed(parts):
            self._tails.append(self._tails[-1] * part.count)
        self._tails.reverse()
        self.count: int = self._tails[0]

    def items(self, start: int, stop: int) -> Iterator[str]:
        """Yield the texts with numbers from ``start`` up to, not including, ``stop``."""
        return self._from(0, start, stop)

    def _from(self, at: int, start: int, stop: int) -> Iterator[str]:
        if start >= stop:
            return
        if at == len(self.parts):
            yield ""
            return
        part, tail = self.parts[at], self._tails[at + 1]
        if tail == 1 and at + 1 == len(self.parts):
            yield from part.items(start, stop)
            return
        number = start // tail
        for first in part.items(number, -(-stop // tail)):
            base = number * tail
            for rest in self._from(at + 1, max(0, start - base), min(tail, stop - base)):
                yield first + rest
            number += 1


def parse_braces(pattern: str) -> Product:
    """Parse a brace pattern into its parts.

    A pattern without braces is a literal, in which a backslash stands for itself.

    Raises:
        UsageError: the braces are not balanced, or there are too many.
    """
    if "{" not in pattern and "}" not in pattern:
        return Product((Choice((pattern,)),))
    if pattern.count("{") > _MOST_BRACES:
        reason = f"it has more than {_MOST_BRACES} braces; name the shards in an @list"
    elif _LONG_NUMBER.search(pattern):
        reason = f"a number in braces has more than {_MOST_DIGITS} digits; name the shards in an @list"
    elif _pieces(pattern) is None:
        reason = "the braces are not balanced; write \\{ and \\} for plain braces"
    else:
        return _product(pattern)
    raise UsageError(f"{printable(display_name(pattern))}: {reason}")


def expand_braces(pattern: str) -> Iterator[str]:
    """Yield the names that a pattern stands for; the first of a million comes at once.

    Raises:
        UsageError: the braces are not balanced.
    """
    found = parse_braces(pattern)
    return found.items(0, found.count)


def _pieces(pattern: str, separator: str = "") -> list[str] | None:
    """Cut a pattern at its outer braces, so that each piece is a literal or one group.

    With a ``separator``, cut the inside of a group at each one outside of inner braces instead.
    None if the braces are not balanced.
    """
    parts, start, depth, position = [], 0, 0, 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 1
        elif character == "{":
            if depth == 0 and not separator:
                parts.append(pattern[start:position])
                start = position
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and not separator:
                parts.append(pattern[start : position + 1])
                start = position + 1
            elif depth < 0:
                return None
        elif character == separator and depth == 0:
            parts.append(pattern[start:position])
            start = position + 1
        position += 1
    parts.append(pattern[start:])
    return None if depth else parts


def _product(pattern: str) -> Product:
    parts: list[Part] = []
    for piece in _pieces(pattern) or ():
        if piece.startswith("{"):
            parts += _group(piece[1:-1])
        elif piece:
            parts.append(Choice((_ESCAPE.sub(r"\1", piece),)))
    return Product(tuple(parts))


def _group(inside: str) -> list[Part]:
    """Parse the inside of a pair of braces."""
    match = _INTEGERS.fullmatch(inside)
    if match is not None:
        return [_range(match)]
    match = _LETTERS.fullmatch(inside)
    if match is not None:
        first, last, step = _LETTER_ORDER.index(match[1]), _LETTER_ORDER.index(match[2]), _step(match[3])
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        return [Choice(tuple(_LETTER_ORDER[number] for number in numbers))]
    options = _pieces(inside, ",") or []
    if len(options) > 1:
        return [Choice(tuple(_product(option) for option in options))]
    return [Choice(("{",)), *_product(inside).parts, Choice(("}",))]


def _range(match: re.Match[str]) -> Range:
    first, last, step = int(match[1]), int(match[2]), _step(match[3])
    width = max(len(match[1]), len(match[2])) if any(_PADDED.match(end) for end in match.group(1, 2)) else 0
    number = abs(last - first) // step + 1
    return Range(first, step if first < last else -step, number, width)


def _step(text: str | None) -> int:
    return int(text or "1") or 1
