"""Messages between tarproc and its mappers' processes: a header, then the bytes of the fields.

The header is written by ``marshal``: both ends are the same interpreter, it is as fast as pickle
for plain values, and it cannot create other objects. Its limit of 2 GiB does not matter, since it
has only the lengths of the fields.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

from tarkit.samples.sample import Sample

MARK = b"\x93tarkit\n"
"""Mark at both ends of a message. Other bytes in its place show that a mapper wrote to the socket
by mistake.
"""

HEAD = struct.Struct(f"<{len(MARK)}sQQ")
"""Format of the head of each message: the mark, the length of its header, and of all fields."""

_JOINED = 256 * 1024


def pack(
    header: Any, samples: Iterable[Sample] = (), known: Iterable[Mapping[int, str]] = repeat({})
) -> list[memoryview]:
    """Return a message in pieces, for os.writev.

    Args:
        header: plain values.
        samples: dicts of str and bytes.
        known: for each sample, the objects that the receiver already has, by id, and their names.
            Such an object is sent as a tuple of its name: a mapper that adds or changes a field
            returns the others unchanged.
    """
    contents: list[bytes] = []
    shapes: list[dict[str, str | int | tuple[str]]] = []
    size = 0
    for sample, names in zip(samples, known, strict=False):
        shape: dict[str, str | int | tuple[str]] = {}
        for name, value in sample.items():
            if type(value) is not bytes:
                shape[name] = value
            elif (source := names.get(id(value))) is not None:
                shape[name] = (source,)
            else:
                contents.append(value)
                size += len(value)
                shape[name] = len(value)
        shapes.append(shape)
    text = marshal.dumps((header, shapes))
    head = HEAD.pack(MARK, len(text), size) + text
    if size <= _JOINED:
        return [memoryview(b"".join((head, *contents, MARK)))]
    return [memoryview(head), *(memoryview(content) for content in contents if content), memoryview(MARK)]


def unpack(text: bytes | memoryview, content: Callable[[int], bytes]) -> tuple[Any, list[Sample]]:
    """Return the header and the samples of a message.

    Args:
        text: the header as received.
        content: called with a number of bytes, returns so many that follow the header; called once
            for each field, in order.

    Raises:
        ValueError, EOFError, TypeError: the bytes are not a message.
    """
    header, shapes = marshal.loads(text)
    samples = [
        {name: content(value) if type(value) is int else value for name, value in shape.items()} for shape in shapes
    ]
    return header, samples


def next_message(buffer: bytearray) -> tuple[Any, list[Sample]] | None:
    """Remove the first message from the received bytes and return it; None if it is not complete.

    Raises:
        ValueError, EOFError, TypeError: the bytes are not a message.
    """
    # Looked at with the first byte: no more may come, and then the rest would be waited for without
    # end.
    check_mark(buffer[: len(MARK)], MARK[: len(buffer)])
    if len(buffer) < HEAD.size:
        return None
    _, length, size = HEAD.unpack_from(buffer)
    position = HEAD.size + length
    end = position + size + len(MARK)
    if len(buffer) < end:
        return None
    check_mark(buffer[end - len(MARK) : end])
    with memoryview(buffer) as view:

        def content(wanted: int) -> bytes:
            nonlocal position
            position += wanted
            return bytes(view[position - wanted : position])

        message = unpack(bytes(view[HEAD.size : position]), content)
    del buffer[:end]
    return message


def check_mark(found: bytes | bytearray, mark: bytes = MARK) -> None:
    """Check the mark at the beginning of a message.

    Raises:
        ValueError: the bytes are not the mark.
    """
    if found != mark:
        raise ValueError("this is not a message")


def unsent(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """Return the rest of some pieces, of which the first ``sent`` bytes were sent."""
    while pieces and sent >= len(pieces[0]):
        sent -= len(pieces[0])
        pieces = pieces[1:]
    return [pieces[0][sent:], *pieces[1:]] if pieces else []
