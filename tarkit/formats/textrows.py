"""Split text into rows like CSV (RFC 4180): a row continues over line breaks in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tarkit.errors import DataError

_LONGEST_ROW = 64 << 20
_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8 at the beginning of a file."""
_QUOTED = re.compile(rb'(?:^|,)"[^"]*("?)')
_QUOTED_BEHIND_BLANKS = re.compile(rb'(?:^|,) *"[^"]*("?)')


def text_rows(
    blocks: Iterable[bytes], url: str, offset: int = 0, *, skip_blanks: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, row without its line end) of the text that begins at ``offset``.

    Empty lines are not rows. UTF-8's byte order mark at the beginning of a file is not part of a
    row. A quote begins or ends quoted text only where it does so for Python's csv module: elsewhere
    it is a character, as in ``5" disk``.

    Args:
        blocks: the text, in pieces of any size.
        url: URL of the file, for errors.
        offset: offset of the first block in the file, in bytes.
        skip_blanks: True if a quote may follow blanks at the beginning of a field.

    Raises:
        DataError: a quote is not closed, or a row has more than 64 MiB.
    """
    quoted = _QUOTED_BEHIND_BLANKS if skip_blanks else _QUOTED
    parts: list[bytes] = []
    size, is_open = 0, False
    for line in text_lines(blocks):
        size += len(line)
        if size > _LONGEST_ROW:
            reason = "a quote is open" if is_open else "a row has no end"
            raise DataError(f"{reason} for more than {_LONGEST_ROW >> 20} MiB", url=url, offset=offset)
        if offset == 0 and not parts:
            line = line.removeprefix(_MARK)
        if b'"' in line:
            is_open = _ends_in_quotes(line, is_open, quoted)
        parts.append(line)
        if is_open:
            continue
        row = b"".join(parts).removesuffix(b"\n").removesuffix(b"\r")
        if row:
            yield offset, row
        offset += size
        parts, size = [], 0
    if parts:
        raise DataError("ends inside of a quoted field", url=url, offset=offset)


def _ends_in_quotes(line: bytes, is_open: bool, quoted: re.Pattern[bytes]) -> bool:
    """Return True if quoted text continues after a line.

    Args:
        is_open: True if the line begins in quoted text; False if a row begins here.
        quoted: pattern of a quoted field.
    """
    # Two quotes stand for one, or for an empty field. Without them, quoted text has no quote in it.
    line = line.replace(b'""', b"")
    begin = line.find(b'"') + 1 if is_open else 0
    if is_open and not begin:
        return True
    ends = quoted.findall(line, begin)
    return bool(ends) and not ends[-1]


def text_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends.

    A line that is too long for a row is yielded without its end, and is the last.

    Args:
        blocks: the text, in pieces of any size.
    """
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(rest) > _LONGEST_ROW:
            break
    if rest:
        yield rest
