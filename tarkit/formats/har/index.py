"""The index of a Hadoop archive: the format and the order of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from tarkit.errors import CorruptHeaderError, TruncatedError, printable

VERSION = 3
_VERSIONS = ("1", "2", "3")
MASTER_INDEX = "_masterindex"
INDEX = "_index"
HINT = "the archive is damaged; fetch or make it again"
_LINES_OF_RANGE = 1000
_PART_NAME = re.compile(r"part-[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{1,19}")
"""A number of bytes, milliseconds and so on: Java's have at most 64 bits."""


class HarEntry(NamedTuple):
    """A file of an archive.

    Attributes:
        name: path in the archive, without a slash at the beginning.
        part: name of the file that has its content.
        offset: offset of the content in the part, in bytes.
        size: size in bytes.
        mtime: time of change in seconds since 1970; None, as the fields below, before version 3.
        mode: permission bits.
        owner: name of the owner.
        group: name of the group.
    """

    name: str
    part: str
    offset: int
    size: int
    mtime: float | None = None
    mode: int | None = None
    owner: str | None = None
    group: str | None = None


def check_master(data: bytes, index_size: int, url: str) -> int:
    """Check a master index, and return its version.

    The ranges of the index must follow each other and cover all of it, so that a cut index is
    detected.
    """
    lines = data.decode("latin-1").split("\n")
    if lines.pop():
        raise TruncatedError("the last line has no end", url=url, offset=len(data), hint=HINT)
    words = lines[0].split() if lines else []
    if len(words) != 1 or words[0] not in _VERSIONS:
        raise CorruptHeaderError(f"the first line is not a version from 1 to {VERSION}", url=url, offset=0, hint=HINT)
    end = 0
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if len(words) != 4 or not all(map(_NUMBER.fullmatch, words)) or int(words[2]) != end:
            raise CorruptHeaderError(f"line {number} is not the next range of the index", url=url, hint=HINT)
        end = int(words[3])
    if end != index_size:
        raise TruncatedError(f"the index has {index_size} bytes, and {end} by this file", url=url, hint=HINT)
    return int(lines[0].split()[0])


def parse_index(data: bytes, version: int, url: str) -> dict[str, HarEntry]:
    """Parse an index into files by name, in the order of their contents.

    Each name in the line of a folder must have a line.
    """
    files: dict[str, HarEntry] = {}
    children: dict[str, list[str]] = {}
    offset = 0
    if data and not data.endswith(b"\n"):
        raise TruncatedError("the last line has no end", url=url, offset=len(data), hint=HINT)
    for line in data[:-1].split(b"\n") if data else []:
        try:
            words = line.decode().rstrip(" ").split(" ")
            path = _decoded(words[0], version)
            if path in files or path in children or not is_path(path):
                raise ValueError("its path is repeated or not valid")
            if words[1] == "dir":
                children[path] = [_decoded(word, version) for word in words[5:]]
            else:
                files[path] = _parse_file(path, words, version)
        except (ValueError, IndexError) as error:
            reason = f"this line does not describe a file or folder: {printable(str(error))}"
            raise CorruptHeaderError(reason, url=url, offset=offset, hint=HINT) from None
        offset += len(line) + 1
    _check_tree(files, children, url)
    found = sorted(files.values(), key=lambda entry: (int(entry.part[5:]), entry.offset, entry.size, entry.name))
    return {entry.name: entry for entry in found}


def is_path(path: str) -> bool:
    """Return True if a path is valid in an archive.

    It must begin with a slash, and no part of it may be empty, ``.`` or ``..``.
    """
    first, *parts = path.split("/")
    return not first and (parts == [""] or not any(part in ("", ".", "..") for part in parts))


def _decoded(text: str, version: int) -> str:
    return unquote_plus(text, errors="strict") if version > 1 else text


def _parse_file(path: str, words: list[str], version: int) -> HarEntry:
    kind, part, offset, size = words[1:5]
    if kind != "file" or not all(map(_NUMBER.fullmatch, (offset, size))) or not _PART_NAME.fullmatch(part):
        raise ValueError(f"{kind} {part} {offset} {size}")
    entry = HarEntry(path[1:], part, int(offset), int(size))
    if version < VERSION:
        return entry
    mtime, mode, owner, group = _decoded(words[5], version).split(" ")[:4]
    if not all(map(_NUMBER.fullmatch, (mtime.removeprefix("-"), mode))):
        raise ValueError(f"{mtime} {mode}")
    return entry._replace(
        mtime=int(mtime) / 1000, mode=int(mode), owner=_decoded(owner, version), group=_decoded(group, version)
    )


def _check_tree(files: Mapping[str, HarEntry], children: Mapping[str, list[str]], url: str) -> None:
    """Raise an error if a line of the index is missing."""
    for folder, names in children.items():
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            if path not in files and path not in children:
                reason = f"{printable(path)!r} is listed in its folder, and has no line"
                raise CorruptHeaderError(reason, url=url, hint=HINT)


def encode_index(lines: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return (``_index``, ``_masterindex``) for paths and their lines."""
    in_order = sorted((java_hash(path), line.encode("ascii")) for path, line in lines.items())
    ranges = [f"{VERSION} \n"]
    last_hash = end = 0
    for start in range(0, len(in_order), _LINES_OF_RANGE):
        some = in_order[start : start + _LINES_OF_RANGE]
        begin, end = end, end + sum(len(line) for _, line in some)
        ranges.append(f"{last_hash} {some[-1][0]} {begin} {end} \n")
        last_hash = some[-1][0]
    return b"".join(line for _, line in in_order), "".join(ranges).encode("ascii")


def file_line(path: str, part: str, offset: int, size: int, props: str) -> str:
    """Return the line of a file.

    Args:
        path: path in the archive, with a slash at the beginning.
        part: name of the file that has its content.
        offset: offset of the content in the part, in bytes.
        size: size in bytes.
        props: result of :func:`properties`.
    """
    return f"{quote(path)} file {part} {offset} {size} {props} \n"


def folder_line(path: str, props: str, names: Iterable[str]) -> str:
    """Return the line of a folder.

    Args:
        path: path in the archive, with a slash at the beginning.
        props: result of :func:`properties`.
        names: names of the files and folders in it.
    """
    children = "".join(f"{quote(name)} " for name in names)
    return f"{quote(path)} dir {props} 0 0 {children}\n"


def properties(mtime: float, mode: int, owner: str, group: str) -> str:
    """Encode time in milliseconds, permission bits in decimal, owner and group.

    Owner and group are encoded twice.
    """
    return quote(f"{int(mtime * 1000)} {mode} {quote(owner)} {quote(group)}")


def quote(text: str) -> str:
    """Encode text like Java's URLEncoder.

    A blank becomes ``+``; letters, digits and ``.-*_`` stay; every other character becomes %XX of
    its UTF-8.

    >>> quote("/a b~c")
    '%2Fa+b%7Ec'
    """
    return quote_plus(text, safe="*").replace("~", "%7E")


def java_hash(path: str) -> int:
    """Return Java's ``String.hashCode`` without its sign.

    It is the sum of the UTF-16 units, each times 31 to the power of the number of units after it.

    >>> java_hash("/"), java_hash("/a")
    (47, 1554)
    """
    number = 0
    data = path.encode("utf-16-be")
    for at in range(0, len(data), 2):
        number = (number * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return number & 0x7FFFFFFF
