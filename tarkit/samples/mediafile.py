"""Give a file to a decoder that is not written in Python, without losing the errors of its reads.

Such a decoder reads by calls back into Python, and takes an exception there for the end of the
file, or prints it. A part of a recording would be missing without an error.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from tarkit.errors import DecodeError, TarkitError, printable

_NOISE = re.compile(r" <_io\.BytesIO object at 0x[0-9a-f]+>|^\w+, \S+\.cpp:\d+, ")
"""Names of Python's objects and of source files in C++."""


def decoder_reason(error: Exception) -> str:
    """Return the text of a decoder's error for a message, or the name of its class."""
    text = str(getattr(error, "error_string", error))  # of soundfile, without the object that was read
    return printable(_NOISE.sub("", text) or type(error).__name__)


class MediaFile:
    """A file for a decoder. After an error it has no more bytes, and the error is kept.

    Args:
        file: a seekable file, or the content of one.
    """

    def __init__(self, file: bytes | BinaryIO) -> None:
        self._file: Any = io.BytesIO(file) if isinstance(file, bytes) else file
        self.name = None if isinstance(file, bytes) else getattr(file, "name", None)
        """Name of the file for errors; None if it has none."""
        self._error: Exception | None = None

    def _attempt(self, call: str, *values: Any, default: Any) -> Any:
        if self._error is not None:
            return default
        try:
            return getattr(self._file, call)(*values)
        except Exception as error:
            self._error = error
            return default

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; b"" at the end."""
        data: bytes = self._attempt("read", size, default=b"")
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        count: int = self._attempt("readinto", buffer, default=0)
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, and return it from the beginning of the file."""
        before = self._error
        at: int = self._attempt("seek", offset, whence, default=0)
        is_new = self._error is not before
        if is_new and type(self._error) in (ValueError, OverflowError) and not self._file.closed:
            # The decoder has the offset from a header.
            self._error = DecodeError(f"a header names a place that no file has ({self._error})", url=self.name)
        return at

    def tell(self) -> int:
        """Return the position."""
        at: int = self._attempt("tell", default=0)
        return at

    @contextmanager
    def decoding(self, what: str, hint: str | None = None) -> Iterator[None]:
        """Raise the error of a read, or else that of the decoder in the block.

        Args:
            what: kind of content, such as ``audio``, for the message.
            hint: what the user can do, for the message.

        Raises:
            DecodeError: the decoder cannot decode the file. Errors of tarkit, such as those of a
                read, are raised unchanged.
        """
        try:
            yield
        except TarkitError:
            if self._error is not None:
                raise self._error from None
            raise
        except Exception as error:  # each decoder has classes of its own
            if self._error is not None:
                raise self._error from None
            reason = f"the {what} cannot be decoded: {decoder_reason(error)}"
            raise DecodeError(reason, url=self.name, hint=hint) from error
        if self._error is not None:
            raise self._error
