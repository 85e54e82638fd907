"""Encode and decode the 512-byte header of a tar member. No input or output.

Layout: POSIX.1-1988 ustar (IEEE Std 1003.1, pax, "ustar Interchange Format"), with the extensions
that programs write: base-256 numbers and long names of GNU tar, extended headers of pax, and the
older v7 layout, which ends after the link name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

BLOCK = 512
ZERO_BLOCK = bytes(BLOCK)
END_OF_ARCHIVE = bytes(2 * BLOCK)
RECORD = 20 * BLOCK
"""Archives are padded to a multiple of this size in bytes, as by every tar (20 blocks)."""

# name, size digits, checksum, type, link name, magic with version, prefix.
_FIELDS = struct.Struct("100s24x12s12x8sc100x6s2x32x32x16x155s12x")
POSIX_MAGIC = b"ustar\0"
_MAGIC_AND_VERSION = POSIX_MAGIC + b"00"
_GNU_MAGIC = b"ustar  \0"
_PREFIX = 345  # its offset
FORMATS = ("pax", "gnu", "ustar")
"""Forms of a name or size that does not fit a ustar header.

A PAX header, the form of GNU tar, or an error.
"""
REGULAR_TYPES = frozenset(b"0\x007")
CONTENTLESS_TYPES = frozenset(b"123456")
"""Links, devices, folders, fifos: no content follows, even if their size field is not 0."""
_NOT_FILES = {
    **{ord(kind): "symlink" for kind in "2"},
    **{ord(kind): "device" for kind in "34"},
    # D: the list of a folder, in GNU tar's incremental archives.
    **{ord(kind): "folder" for kind in "5D"},
    **{ord(kind): "fifo" for kind in "6"},
    # Volume labels of GNU tar, access control lists of Solaris.
    **{ord(kind): "metadata" for kind in "VA"},
}
_HARD_LINK = ord("1")
_ELSEWHERE = {_HARD_LINK: "hard-link", ord("S"): "sparse", ord("M"): "continuation"}
REFUSALS = {
    "hard-link": (
        "a hard link, whose content is only under the name of another member",
        "make the shard with tar --hard-dereference",
    ),
    "sparse": (
        "a sparse file, whose bytes in the shard are not its content",
        "make the shard without tar --sparse, or with bsdtar --no-read-sparse",
    ),
    "continuation": ("the rest of a file that begins on another volume", "make the shard without tar --multi-volume"),
    "unknown-type": ("a member of a type that tar programs do not agree on", "write it as a regular file"),
}
"""Reason -> (description of a member whose content cannot be delivered, what the user can do)."""

MAX_SIZE = 8**11 - 1
"""Largest size of a member in eleven octal digits; a larger one needs an extended header."""

_CHECKSUM_MODULUS = 65521
_MOST_DIGITS = 30
_MOST_KEPT = 8192

_Value = TypeVar("_Value")


class MemberHeader(NamedTuple):
    """The header of one member.

    Attributes:
        name: bytes up to the first NUL, prefix joined.
        size: size in bytes of the content that follows.
        kind: the type flag, an integer as in ``ord(b"0")``.
    """

    name: bytes
    size: int
    kind: int


def number(digits: bytes) -> int:
    """Parse a numeric field: octal ASCII padded with blanks or NUL, or GNU's base-256.

    Raises:
        ValueError: the field has neither form, or is negative.
    """
    if digits[0] & 0x80:
        if digits[0] & 0x40:
            raise ValueError("negative number")
        return int.from_bytes(bytes([digits[0] & 0x7F]) + digits[1:], "big")
    text = digits.partition(b"\0")[0].strip(b" ")
    if not text:
        return 0
    if text.strip(b"01234567"):
        raise ValueError("not an octal number")
    return int(text, 8)


def expected_adler(checksum_field: bytes) -> int:
    """Return the low half of ``zlib.adler32(header)`` for a header with this checksum field.

    The checksum is the sum of all bytes with the checksum field taken as blanks; the low half of
    Adler-32 is one more than the plain sum, modulo 65,521 (RFC 1950). So one call of a C function
    checks a header.

    Raises:
        ValueError: the field is not a number.
    """
    return (number(checksum_field) - 8 * 0x20 + sum(checksum_field) + 1) % _CHECKSUM_MODULUS


def signed_checksum_matches(header: bytes) -> bool:
    """Return True if the checksum matches the sum of signed bytes, as some old tars wrote it."""
    try:
        stated = number(header[148:156])
    except ValueError:
        return False
    body = header[:148] + header[156:]
    return stated == 8 * 0x20 + sum(b - 256 if b > 127 else b for b in body)


def parse(header: bytes) -> MemberHeader:
    """Parse one header; its checksum must have been checked.

    Raises:
        ValueError: the size is not a number.
    """
    name, size, _, kind, magic, prefix = _FIELDS.unpack(header)
    name = name.partition(b"\0")[0]
    if magic == POSIX_MAGIC and prefix[0]:
        # GNU tar's own magic has no prefix: times or sparse maps are in its place.
        name = prefix.partition(b"\0")[0] + b"/" + name
    return MemberHeader(name, number(size), kind[0])


def parse_pax(records: bytes) -> dict[str, bytes]:
    r"""Parse the records of an extended header, a sequence of ``"LENGTH KEY=VALUE\n"``.

    Raises:
        ValueError: a record is malformed.
    """
    found: dict[str, bytes] = {}
    position = 0
    # Some writers pad with NUL inside the stated size.
    records = records.rstrip(b"\0")
    while position < len(records):
        blank = records.find(b" ", position)
        length = _decimal(records[position:blank] if blank > 0 else b"")
        if length < 0:
            raise ValueError(f"record at byte {position} has no length")
        end = position + length
        key, equals, value = records[blank + 1 : end - 1].partition(b"=")
        if end <= blank + 1 or end > len(records) or records[end - 1 : end] != b"\n" or not equals:
            raise ValueError(f"record at byte {position} is malformed")
        found[key.decode("utf-8", "surrogateescape")] = value
        position = end
    return found


def pax_size(value: bytes) -> int:
    """Parse the size of a member in an extended header.

    Raises:
        ValueError: the text is not a size.
    """
    size = _decimal(value)
    if not 0 <= size < 1 << 64:
        raise ValueError(f"extended header says size={value[:20]!r}")
    return size


def _decimal(digits: bytes) -> int:
    """Parse a number of any number of digits; -1 if it is not one."""
    # If a number has more digits without its leading zeros, the first digits alone exceed every
    # length.
    return int(digits.lstrip(b"0")[:_MOST_DIGITS] or b"0") if digits.isdigit() else -1


def why_not_a_file(header: MemberHeader, records: dict[str, bytes], header_bytes: bytes) -> str | None:
    """Return the reason why a member is not a regular file followed by its content, or None.

    Args:
        records: records of the extended headers before it. A hard link with a size and a pax header
            is followed by its content (pax -o linkdata), as libarchive takes it; in other archives
            the size has no meaning.
        header_bytes: the 512 bytes of the header.
    """
    if any(key.startswith("GNU.sparse.") for key in records):
        return "sparse"
    if header.kind in REGULAR_TYPES:
        return None
    if header.kind == _HARD_LINK and header.size and records and header_bytes[257:263] == POSIX_MAGIC:
        return None
    return _NOT_FILES.get(header.kind) or _ELSEWHERE.get(header.kind, "unknown-type")


def encode_pax(name: bytes, records: dict[str, bytes]) -> bytes:
    """Return an extended header for the next member, with its content, padded to whole blocks."""
    content = b"".join(_pax_record(key.encode("utf-8"), value) for key, value in records.items())
    short = b"PaxHeaders/" + name.rpartition(b"/")[2][:80]
    template = header_template(mode=0o644, mtime=0, user="", group="", kind=b"x")
    padding = bytes(-len(content) % BLOCK)
    return template.encode(short, len(content)) + content + padding


def _pax_record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(body) + len(str(length)) != length:
        length = len(body) + len(str(length))
    return str(length).encode("ascii") + body


class _Table(dict[int, _Value]):
    """A function of a number, whose first results are kept: sizes and checksums come back."""

    def __init__(self, function: Callable[[int], _Value]) -> None:
        self._function = function

    def __missing__(self, number: int) -> _Value:
        value = self._function(number)
        if len(self) < _MOST_KEPT:
            self[number] = value
        return value


class HeaderTemplate:
    """A maker of ustar headers that differ only in name and size.

    Args:
        mode: permission bits.
        mtime: time of change in seconds since 1970.
        user: name of the owner, at most 31 bytes of UTF-8.
        group: name of the group, at most 31 bytes of UTF-8.
        kind: type flag.
        format: one of FORMATS.

    Attributes:
        middles: size -> (bytes between name and checksum; checksum of a header without a name), for
            a writer that joins headers itself.
        ends: checksum -> bytes from the checksum on, for a header without a prefix.

    Raises:
        ValueError: a value does not fit a header.
    """

    def __init__(
        self, *, mode: int, mtime: int, user: str, group: str, kind: bytes = b"0", format: str = "pax"
    ) -> None:
        names = [name.encode("utf-8") for name in (user, group)]
        if max(map(len, names)) > 31:
            raise ValueError(f"user {user!r} or group {group!r} is longer than 31 bytes")
        if not 0 <= mtime <= MAX_SIZE or not 0 <= mode <= 0o7777777:
            raise ValueError(f"mtime {mtime} or mode {mode:o} does not fit a tar header")
        before_size, after_size = b"%07o\0%07o\0%07o\0" % (mode, 0, 0), b"\0%011o\0" % mtime
        self._format = format
        magic = _GNU_MAGIC if format == "gnu" else _MAGIC_AND_VERSION
        owner = names[0].ljust(32, b"\0") + names[1].ljust(32, b"\0")
        tail = (kind + bytes(100) + magic + owner + b"%07o\0%07o\0" % (0, 0)).ljust(BLOCK - 156, b"\0")
        # The checksum is the sum of all bytes, with blanks in its own place.
        constant = sum(tail) + 8 * 0x20

        def middle(size: int) -> tuple[bytes, int]:
            between = b"%b%011o%b" % (before_size, size, after_size)
            return between, constant + sum(between)

        self.middles = _Table(middle)
        self.ends = _Table(lambda checksum: b"%06o\0 %b" % (checksum, tail))

    def encode(self, name: bytes, size: int) -> bytes:
        """Return the header for a name that fits (:func:`split_name`) and a size below 8 GiB."""
        parts = split_name(name)
        if parts is None or not 0 <= size <= MAX_SIZE:
            raise ValueError("name or size does not fit a ustar header")
        middle, checksum = self.middles[size]
        checksum += sum(parts[0]) + sum(parts[1])
        header = parts[1].ljust(100, b"\0") + middle + self.ends[checksum]
        return header[:_PREFIX] + parts[0].ljust(BLOCK - _PREFIX, b"\0")

    def encode_any(self, name: bytes, size: int) -> bytes:
        """Return the header for any name and size, with the headers that it needs before it."""
        if self._format == "gnu":
            return self._encode_gnu(name, size)
        fits = split_name(name) is not None
        if fits and size <= MAX_SIZE:
            return self.encode(name, size)
        if self._format == "ustar":
            raise ValueError("the name or the size needs an extended header, which the format ustar does not have")
        records, short_name = {}, name
        if not fits:
            try:
                name.decode("utf-8")
            except UnicodeDecodeError:
                # POSIX.1, pax: values are UTF-8 unless this record is set.
                records["hdrcharset"] = b"BINARY"
            records["path"] = name
            short_name = name[:100]
        if size > MAX_SIZE:
            records["size"] = b"%d" % size
        return encode_pax(name, records) + self.encode(short_name, min(size, MAX_SIZE))

    def _encode_gnu(self, name: bytes, size: int) -> bytes:
        """Return the headers of GNU tar: type L for long names, base-256 for large sizes.

        Source: the manual of GNU tar, "Basic Tar Format".
        """
        header = self.encode(name[:100], min(size, MAX_SIZE))
        if size > MAX_SIZE:
            header = header[:124] + b"\x80" + size.to_bytes(11, "big") + header[136:148] + b" " * 8 + header[156:]
            header = _with_checksum(header)
        if len(name) <= 100:
            return header
        long_name = name + b"\0"
        before = header_template(mode=0o644, mtime=0, user="", group="", kind=b"L", format="gnu")
        padding = bytes(-len(long_name) % BLOCK)
        return before.encode(b"././@LongLink", len(long_name)) + long_name + padding + header


header_template = lru_cache(maxsize=8, typed=True)(HeaderTemplate)
"""Return a template like :class:`HeaderTemplate`; the shards of a run share one."""


def _with_checksum(header: bytes) -> bytes:
    """Fill in the checksum of a header that has blanks in its place."""
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a long name into (prefix, name) for ustar; None if it does not fit."""
    if len(name) <= 100:
        return b"", name
    # The prefix holds at most 155 bytes and ends before a slash.
    slash = name.find(b"/", len(name) - 101)
    if slash <= 0 or slash > 155 or slash == len(name) - 1:
        return None
    return name[:slash], name[slash + 1 :]


_LOOKS = (
    (b"PK\x03\x04", "a zip file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"%PDF", "a PDF file"),
    (b"\x7fELF", "an ELF program"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"SEQ", "a Hadoop SequenceFile"),
    (b"Obj\x01", "an Avro file"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format", "an SQLite database"),
    (b"\x1f\x8b", "gzip inside the compression already undone"),
    (b"\x1f\x9d", "a file of the old compress program"),
    (b"070701", "a cpio archive"),
    (b"!<arch>", "an ar archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"#!", "a script"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
)


def looks_like(head: bytes) -> str:
    """Describe a stream that is not a tar by its first bytes, as a phrase for messages."""
    return known_look(head) or f"it begins with the bytes {head[:8].hex(' ')}"


def known_look(head: bytes) -> str | None:
    """Return a phrase such as "it looks like a PNG image", or None for an unknown beginning."""
    for magic, phrase in _LOOKS:
        if head.startswith(magic):
            return f"it looks like {phrase}"
    text = head.decode("utf-8-sig", "replace").rstrip("\ufffd")  # it may end inside of a character
    begin = text.lstrip()
    if begin[:1] == "<":
        return "it looks like an HTML or XML page, perhaps a server's error message"
    if begin[:1] == "{" and '"wids_version"' in begin:
        return "it looks like a data set's manifest, which is named as a spec and not as a shard"
    if begin[:1] in ("{", "["):
        return "it looks like JSON lines" if "}\n{" in begin else "it looks like JSON, perhaps a server's error message"
    if text and "\ufffd" not in text and all(c.isprintable() or c in "\t\r\n" for c in text):
        return f"it looks like text beginning {text[:40]!r}"
    return None
