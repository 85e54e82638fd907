"""Text to rows, as CSV has them (RFC 4180): a row goes on over line breaks in quotes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tarkit.errors import DataError

_LONGEST_ROW = 64 << 20


def text_rows(blocks: Iterable[bytes], url: str, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, row without its line end) of what begins at ``offset``. Empty lines are not rows.
    Raises: DataError: a quote is not closed."""
    parts: list[bytes] = []
    size = quotes = 0
    for line in _lines(blocks):
        parts.append(line)
        size += len(line)
        quotes += line.count(b'"')
        if quotes % 2:
            if size > _LONGEST_ROW:
                raise DataError(f"a quote is open for more than {_LONGEST_ROW >> 20} MiB", url=url, offset=offset)
            continue
        row = b"".join(parts).rstrip(b"\r\n")
        if row:
            yield offset, row
        offset += size
        parts, size, quotes = [], 0, 0
    if parts:
        raise DataError("ends inside of a quoted field", url=url, offset=offset)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest
