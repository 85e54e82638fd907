"""The header of a SequenceFile: version, classes, compression, metadata and sync mark.

Layout: ``SEQ``, version (1 byte), key class, value class; from version 3 a flag: compressed; from 4
a flag: in blocks; from 5, if compressed, the codec's class; from 6 metadata: int32 count, and as
many pairs of Text; from 2 the sync mark, 16 bytes. Class names are Text from version 4 on; before,
they have a length of two bytes and are Java's modified UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarkit.errors import CorruptHeaderError, EncodeError, TruncatedError, printable
from tarkit.formats.sequencefile.codecs import PACKAGE
from tarkit.formats.sequencefile.vint import vint_at, vint_bytes, vint_size
from tarkit.formats.sequencefile.writables import java_text
from tarkit.store.window import Window

MAGIC = b"SEQ"
VERSION = 6
"""The newest version, which is written."""

SYNC_BYTES = 16
ESCAPE = b"\xff\xff\xff\xff"
"""Value in place of a record's length before a sync mark."""

_CUT = "the file was cut; fetch or write it again"
_MOST_TEXT = 1 << 20
_MOST_METADATA = 1 << 16


@dataclass(frozen=True)
class Header:
    """The fields of a file's header.

    Attributes:
        key_class: class name of the keys.
        value_class: class name of the values.
        compression: none, record or block.
        codec: class name of the codec, "" for no compression.
        metadata: names and values.
        sync: the sync mark, b"" in version 1.
        version: version of the format, 1 to 6.
        size: size of the header in bytes; 0 if it was not read from a file.
    """

    key_class: str
    value_class: str
    compression: str = "none"
    codec: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    sync: bytes = b""
    version: int = VERSION
    size: int = field(default=0, compare=False)

    def encode(self) -> bytes:
        """Return the bytes of the header, in version 6.

        Raises:
            EncodeError: a text is not Unicode, or the header exceeds the limits of readers.
        """
        texts = (self.key_class, self.value_class, *self.metadata, *self.metadata.values())
        if len(self.metadata) > _MOST_METADATA or any(len(_text(text)) > _MOST_TEXT for text in texts):
            raise EncodeError(
                f"a header has at most {_MOST_METADATA} entries of metadata, and texts of at most {_MOST_TEXT} bytes"
            )
        flags = {"none": b"\0\0", "record": b"\1\0", "block": b"\1\1"}[self.compression]
        parts = [MAGIC, bytes([VERSION]), _text(self.key_class), _text(self.value_class), flags]
        if self.codec:
            parts.append(_text(self.codec))
        parts.append(len(self.metadata).to_bytes(4, "big"))
        for name in sorted(self.metadata, key=str.encode):
            parts += (_text(name), _text(self.metadata[name]))
        parts.append(self.sync)
        return b"".join(parts)


def _text(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{printable(value)!r} cannot be written as UTF-8") from None
    return vint_bytes(len(data)) + data


class _Fields:
    """The fields after the magic, read one by one."""

    def __init__(self, window: Window, url: str) -> None:
        self._window = window
        self._url = url

    def take(self, count: int) -> bytes:
        """Read the next bytes."""
        window = self._window
        if not window.have(count):
            raise TruncatedError("the file ends in its header", url=self._url, offset=window.offset, hint=_CUT)
        data = window.buffer[window.at : window.at + count]
        window.at += count
        return data

    def fail(self, reason: str) -> CorruptHeaderError:
        """Return an error at the current position."""
        return CorruptHeaderError(
            reason,
            url=self._url,
            offset=self._window.offset,
            hint="fetch the file again; without its header it is lost",
        )

    def flag(self, what: str) -> bool:
        """Read one byte, 0 or 1."""
        value = self.take(1)
        if value not in (b"\0", b"\1"):
            raise self.fail(f"the header's flag for {what} is {value[0]}, not 0 or 1")
        return value == b"\1"

    def text(self) -> str:
        """Read a Text."""
        head = self.take(1)
        length = vint_at(head + self.take(vint_size(head[0]) - 1), 0)[0]
        if not 0 <= length <= _MOST_TEXT:
            raise self.fail(f"a text in the header has {length} bytes")
        return self._decoded(self.take(length), old=False)

    def old_text(self) -> str:
        """Read a text as it was before version 4."""
        return self._decoded(self.take(int.from_bytes(self.take(2), "big")), old=True)

    def _decoded(self, data: bytes, old: bool) -> str:
        try:
            return java_text(data) if old else data.decode()
        except UnicodeError:
            raise self.fail("a text in the header is not UTF-8") from None


def read_header(window: Window, url: str) -> Header:
    """Read the header at the beginning of a file, and leave the window after it.

    Raises:
        CorruptHeaderError: the data is not a header, or its version is above 6.
        TruncatedError: the file ends in it.
    """
    fields = _Fields(window, url)
    if not window.have(1):
        raise TruncatedError("the file is empty", url=url, offset=0, hint=_CUT)
    window.have(len(MAGIC))
    if not MAGIC.startswith(window.buffer[: len(MAGIC)]):
        raise CorruptHeaderError("this is not a SequenceFile: it does not begin with SEQ", url=url, offset=0)
    version = fields.take(len(MAGIC) + 1)[-1]
    if not 1 <= version <= VERSION:
        raise CorruptHeaderError(
            f"this SequenceFile has version {version}; tarkit reads 1 to {VERSION}", url=url, offset=3
        )
    text = fields.text if version >= 4 else fields.old_text
    key_class, value_class = text(), text()
    compressed = version >= 3 and fields.flag("compression")
    block = version >= 4 and fields.flag("blocks")
    if block and not compressed:
        raise fields.fail("the header has blocks without compression")
    codec = (fields.text() if version >= 5 else f"{PACKAGE}DefaultCodec") if compressed else ""
    metadata = _metadata(fields) if version >= 6 else {}
    sync = fields.take(SYNC_BYTES) if version >= 2 else b""
    compression = "block" if block else "record" if compressed else "none"
    return Header(key_class, value_class, compression, codec, metadata, sync, version, window.offset)


def _metadata(fields: _Fields) -> dict[str, str]:
    count = int.from_bytes(fields.take(4), "big", signed=True)
    if not 0 <= count <= _MOST_METADATA:
        raise fields.fail(f"the header has {count} entries of metadata")
    return {fields.text(): fields.text() for _ in range(count)}
