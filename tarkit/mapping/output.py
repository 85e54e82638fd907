"""Output of a command: short texts in memory, long ones in the files that it was printed to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from tarkit.store.fieldfile import PIECE, FieldFile

IN_MEMORY = 64 * 1024


class Output:
    """Bytes that a command printed to one stream, kept until they are used or discarded.

    Args:
        path: path of their file.
    """

    def __init__(self, text: bytes = b"", *, path: str | None = None, size: int = 0) -> None:
        self._text = text
        self.path = path
        self.size = size if path is not None else len(text)

    @classmethod
    def of_file(cls, path: str) -> Output:
        """Take over a complete file: a short one is read and removed at once."""
        size = os.path.getsize(path)
        if size > IN_MEMORY:
            return cls(path=path, size=size)
        with open(path, "rb") as file:
            text = file.read(IN_MEMORY)
        os.unlink(path)
        return cls(text)

    @property
    def held(self) -> int:
        """Number of bytes that are in memory."""
        return len(self._text)

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from ``start`` on, in pieces of at most 1 MiB."""
        if self.path is None:
            if text := self._text[start:]:
                yield text
            return
        with open(self.path, "rb") as file:
            file.seek(start)
            # No further than it was when the command ended: something it left behind may go on.
            left = self.size - start
            while left and (piece := file.read(min(left, PIECE))):
                left -= len(piece)
                yield piece

    def read(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.pieces())

    def tail(self, size: int) -> bytes:
        """Return the last ``size`` bytes."""
        return b"".join(self.pieces(max(0, self.size - size)))

    def show(self, write: Callable[[bytes], object]) -> None:
        """Pass all bytes to ``write``, then discard them."""
        try:
            for piece in self.pieces():
                write(piece)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            self.path, self._text, self.size = None, b"", 0


@dataclass
class Printed:
    """Output of a command on stdout and stderr."""

    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)

    @property
    def size(self) -> int:
        """Number of bytes of both streams."""
        return self.stdout.size + self.stderr.size

    @property
    def held(self) -> int:
        """Number of bytes of both streams that are in memory."""
        return self.stdout.held + self.stderr.held

    def read(self) -> bytes:
        """Return all bytes: standard output, then standard error."""
        return self.stdout.read() + self.stderr.read()

    def kept(self) -> bytes | FieldFile:
        """Return all bytes; if they are many, in an unnamed file beside those of the streams.

        Raises:
            StreamError: the file cannot be written.
        """
        path = self.stdout.path or self.stderr.path
        if path is None or self.size <= PIECE:
            return self.read()
        return FieldFile.keep(chain(self.stdout.pieces(), self.stderr.pieces()), os.path.dirname(path))

    def last_line(self) -> str:
        """Return the last line of standard error, or of standard output if the former is empty."""
        for output in (self.stderr, self.stdout):
            lines = output.tail(400).decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1].strip()
        return ""

    def report(self, size: int) -> bytes:
        """Return the last ``size`` bytes for a message: all of stderr, then the end of stdout."""
        text = b""
        for name, output in (("stderr", self.stderr), ("stdout", self.stdout)):
            if not output.size:
                continue
            tail = output.tail(size)
            size -= len(tail)
            cut = f" (the last {len(tail)} of {output.size} bytes)" if len(tail) < output.size else ""
            text += b"\n" if text and not text.endswith(b"\n") else b""
            text += f"--- {name}{cut} ---\n".encode() + tail
        return text

    def discard(self) -> None:
        """Remove the files, if there are any."""
        self.stdout.discard()
        self.stderr.discard()


class PrintFiles:
    """Files for the output of commands, one command at a time: BASE.out and BASE.err.

    A file is reused as long as it stays empty: to create and remove it would cost more than all
    other disk accesses for a command without output.
    """

    def __init__(self, base: str) -> None:
        self.out, self.err = f"{base}.out", f"{base}.err"

    def take(self, name: str) -> Printed:
        """Return the output since the last call.

        Args:
            name: name of the file for a long output, different in each call.
        """
        return Printed(_taken(self.out, name), _taken(self.err, name))


def _taken(path: str, name: str) -> Output:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        # Nothing was run yet, or the command removed it.
        return Output()
    try:
        if not os.fstat(file).st_size:
            return Output()
    finally:
        os.close(file)
    os.rename(path, f"{path}-{name}")
    return Output.of_file(f"{path}-{name}")
