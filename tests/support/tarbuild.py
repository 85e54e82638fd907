"""Tar archives made by hand, byte by byte, so that they can be wrong on purpose."""

from __future__ import annotations

import io
import random
import struct
import tarfile
from collections.abc import Callable, Iterable, Mapping

from tarkit.formats.tally import Tally
from tarkit.formats.tar.walk import Archive, Member
from tarkit.samples.read import read_members
from tarkit.samples.sample import Sample, group_by_keys

BLOCK = 512
END = bytes(2 * BLOCK)
POSIX, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}

_LAYOUT = struct.Struct("100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12x")


def header(
    name: bytes,
    size: int = 0,
    *,
    kind: bytes = b"0",
    magic: bytes = POSIX,
    prefix: bytes = b"",
    size_field: bytes | None = None,
    signed: bool = False,
) -> bytes:
    """One header with a good checksum, whatever else is wrong with it."""
    digits = b"%011o\0" % size if size_field is None else size_field
    number = b"0000000\0"
    fields = [name, b"0000644\0", number, number, digits, b"%011o\0" % 0, b" " * 8, kind, b"", magic]
    block = bytearray(_LAYOUT.pack(*fields, b"user", b"group", number, number, prefix))
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in block)
    block[148:156] = b"%06o\0 " % total
    return bytes(block)


def padded(content: bytes) -> bytes:
    """Content, filled up to whole blocks."""
    return content + bytes(-len(content) % BLOCK)


def member(
    name: bytes, content: bytes = b"", *, kind: bytes = b"0", magic: bytes = POSIX, prefix: bytes = b""
) -> bytes:
    """One member: header and content."""
    return header(name, len(content), kind=kind, magic=magic, prefix=prefix) + padded(content)


def record(key: bytes, value: bytes) -> bytes:
    """One record of an extended header."""
    rest = b" " + key + b"=" + value + b"\n"
    length = next(n for n in range(len(rest), len(rest) + 12) if len(b"%d" % n) + len(rest) == n)
    return b"%d" % length + rest


def pax(records: Mapping[bytes, bytes], *, kind: bytes = b"x") -> bytes:
    """An extended header that holds the records."""
    return member(b"PaxHeaders/x", b"".join(record(*item) for item in records.items()), kind=kind)


def long_name(name: bytes, *, kind: bytes = b"L") -> bytes:
    """A long name (or, with K, a long link name) as GNU tar writes it."""
    return member(b"././@LongLink", name + b"\0", kind=kind, magic=GNU)


def archive_of(files: Iterable[tuple[str, bytes]], format: int) -> bytes:
    """What Python's tarfile makes of the files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def whole_reads(data: bytes) -> Callable[[int], bytes]:
    """A ``read`` that gives all that was asked for."""
    return io.BytesIO(data).read


def short_reads(data: bytes, seed: int, most: int = 700) -> Callable[[int], bytes]:
    """A ``read`` that gives 1 to ``most`` bytes at random, always the same for one seed."""
    stream, chance = io.BytesIO(data), random.Random(seed)
    return lambda count: stream.read(min(count, chance.randint(1, most)))


def members_of(data: bytes, *, tally: Tally | None = None, on_damage: str = "error") -> list[Member]:
    """The members of an archive, marks included."""
    return list(read_members(whole_reads(data), url="x.tar", tally=tally, on_damage=on_damage))


def samples_of(
    data: bytes | Callable[[int], bytes],
    *,
    tally: Tally | None = None,
    on_damage: str = "error",
    on_duplicate_field: str = "error",
    on_repeated_key: str = "error",
) -> list[Sample]:
    """The samples of an archive, or of what a ``read`` gives."""
    read = whole_reads(data) if isinstance(data, bytes) else data
    tally = Tally() if tally is None else tally
    return list(
        group_by_keys(
            read_members(read, url="x.tar", tally=tally, on_damage=on_damage),
            url="x.tar",
            tally=tally,
            on_duplicate_field=on_duplicate_field,
            on_repeated_key=on_repeated_key,
        )
    )


def until_error(data: bytes | Callable[[int], bytes]) -> tuple[list[Member], Exception | None]:
    """What is delivered, and the error that ends it."""
    read = whole_reads(data) if isinstance(data, bytes) else data
    found: list[Member] = []
    try:
        for item in read_members(read, url="x.tar"):
            found.append(item)
    except Exception as error:
        return found, error
    return found, None


class SlowArchive(Archive):
    """An archive every header of which goes the long way."""

    def remember_plain(self, *_: object) -> None:
        """Remember nothing."""
