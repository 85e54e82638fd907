"""Cut a list of shards in a bucket into slices, so that a pod reads only its own slice.

``LIST`` is text: one path or URL a line, no patterns, no comments; so every program that reads an
@list reads it. ``LIST.offsets`` beside it has the places of the slices, all of it little-endian:
the header (``_HEADER``: magic, number of shards, number of slices, length of LIST, 1 if it was
checked that no two shards become the same output, SHA-256 of LIST), then the W+1 borders of the
slices as 64-bit offsets into LIST, then a CRC-32 for the bytes of each slice. The slices need not
have the same number of shards.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from tarkit.errors import DataError, MissingInputError, StreamError, TemporaryStreamError, UsageError, quoted
from tarkit.names.outputnames import plan_outputs
from tarkit.names.url import local_path, scheme_of
from tarkit.specs.manifest import is_manifest
from tarkit.specs.shardspec import fixed_names, take_slice
from tarkit.store.compression import compression_for_name
from tarkit.store.publish import open_publish
from tarkit.store.read import read_range, read_whole

SUFFIX = ".offsets"
"""Suffix added to a list's name for the file of its slices."""

_HEADER = struct.Struct("<8sQQQQ32s")
_MAGIC = b"tkslice1"
_BOM = "\ufeff"
_SURELY_PLAIN = re.compile(r"(?:(?:s3|gs|hdfs|https?)://|/)[A-Za-z0-9_./:+=@%,~-]+(?<!\.json)")


@dataclass(frozen=True)
class SlicedList:
    """The contents of LIST.offsets.

    Attributes:
        url: URL of LIST.
        n: number of shards.
        w: number of slices.
        size: size of LIST in bytes.
        checked: True if it was checked that no two shards become the same output.
        sha256: SHA-256 of LIST, in hex.
        borders: w + 1 offsets into LIST.
        sums: w CRC-32 sums, one for each slice.
        offsets_sha256: SHA-256 of LIST.offsets, in hex; it covers all that determines slice i.
    """

    url: str
    n: int
    w: int
    size: int
    checked: bool
    sha256: str
    borders: Sequence[int]
    sums: Sequence[int]
    offsets_sha256: str

    def shards(self, index: int) -> list[str]:
        """Read the shards of a slice.

        Args:
            index: number of the slice, from 0.

        Raises:
            UsageError: the slice does not exist.
            DataError: LIST was changed after its slices were planned.
        """
        if not 0 <= index < self.w:
            raise UsageError(f"{quoted(self.url)} has slices 0 to {self.w - 1}; slice {index} does not exist")
        start, stop = self.borders[index], self.borders[index + 1]
        try:
            content = read_range(self.url, start, stop, size=self.size)
        except DataError as error:
            raise DataError(error.reason, url=self.url, hint=_CHANGED) from None
        if zlib.crc32(content) != self.sums[index]:
            raise DataError(f"slice {index} has changed", url=self.url, offset=start, hint=_CHANGED)
        return [line.decode("utf-8", "surrogateescape") for line in content.split(b"\n")[:-1]]


_CHANGED = "the list was changed after its slices were planned; make the manifest again, with a new name for the list"


def check_name(name: str, list_url: str) -> str:
    """Return the name of a shard if a list can contain it and it is read back unchanged.

    Raises:
        UsageError: a list cannot contain the name.
    """
    if _SURELY_PLAIN.fullmatch(name):
        return name
    kept = name.strip() == name and "\n" not in name and "\r" not in name and not name.startswith(("#", _BOM))
    if not kept or set(name) & set("{}") or not (fixed_names(name) or _is_plain_http(name)):
        raise UsageError(
            f"{quoted(name)} cannot be in a list of shards: it would be read as a pattern, a command, a "
            "manifest (.json) or a comment; give it another name"
        )
    if scheme_of(list_url) and not scheme_of(name) and not name.startswith("/"):
        raise UsageError(
            f"{quoted(name)} would be relative to the folder of the list {quoted(list_url)}; name the shard in full"
        )
    return name


def _is_plain_http(name: str) -> bool:
    """Return True for an http URL without glob characters before its query.

    Nothing can be listed on an http server, where a ? begins the query.
    """
    is_http = name.lower().startswith(("http://", "https://"))
    return is_http and not is_manifest(name) and not set(name.partition("?")[0]) & set("*[")


def write_list(url: str, names: Iterable[str], counts: Sequence[int], *, outdir: str | None) -> SlicedList:
    """Publish a list of shards, and then the file of its slices.

    Args:
        url: path or URL of the list.
        names: names of the shards, those of slice 0 first.
        counts: number of shards in each slice, see :func:`even_counts`.
        outdir: output folder of the run. No two shards may become the same output; this is checked
            here, because a pod that reads only one slice cannot. None: each pod reads the whole
            list to check it.

    Raises:
        UsageError: a list cannot hold a name, the names do not fill the slices, or an output's name
            is not valid (``plan_outputs``).
        StreamError: the list cannot be written.
        TemporaryStreamError: the list cannot be written now.
    """
    if compression_for_name(url) is not None:
        raise UsageError(f"{quoted(url)}: a list of which parts are read cannot be compressed; name it .list or .txt")
    if _offsets_url(url) is None:
        raise UsageError(f"{quoted(url)}: name the list without a query, because its slices are in a file beside it")
    borders, sums = [0], list[int]()
    digest = hashlib.sha256()
    lines = _lines(names, url, outdir)
    with open_publish(url, compression=None) as stream:
        for index, number in enumerate(counts):
            found = list(islice(lines, number))
            if len(found) != number:
                raise UsageError(f"slice {index} of {quoted(url)} should have {number} shards; {len(found)} are left")
            content = b"".join(found)
            stream.write(content)
            digest.update(content)
            borders.append(borders[-1] + len(content))
            sums.append(zlib.crc32(content))
        if next(lines, None) is not None:
            raise UsageError(f"there are more shards than the {sum(counts)} in the slices of {quoted(url)}")
    n, w, checked = sum(counts), len(counts), outdir is not None
    header = _HEADER.pack(_MAGIC, n, w, borders[-1], checked, digest.digest())
    offsets = header + _numbers(w).pack(*borders, *sums)
    with open_publish(f"{url}{SUFFIX}", compression=None) as stream:
        stream.write(offsets)
    offsets_sha256 = hashlib.sha256(offsets).hexdigest()
    return SlicedList(url, n, w, borders[-1], checked, digest.hexdigest(), borders, sums, offsets_sha256)


def _lines(names: Iterable[str], url: str, outdir: str | None) -> Iterator[bytes]:
    for name in names if outdir is None else (name for name, _ in plan_outputs(names, outdir)):
        yield check_name(name, url).encode("utf-8", "surrogateescape") + b"\n"


def _numbers(w: int) -> struct.Struct:
    """Return the layout of the borders of ``w`` slices, and of their CRCs."""
    return struct.Struct(f"<{w + 1}q{w}I")


def even_counts(n: int, w: int) -> list[int]:
    """Return the number of shards in each of ``w`` slices of ``n`` shards, by ``take_slice``."""
    return [len(take_slice(n, index, w)) for index in range(w)]


def slices_by_bytes(sizes: Sequence[int], w: int) -> list[list[int]]:
    """Divide shards into ``w`` slices of about equal size in bytes, the largest slice first.

    The largest shard comes first, and each goes into the slice with the least bytes so far (longest
    processing time first). In a slice the shards keep their order. The same sizes give the same
    slices.

    Args:
        sizes: size of each shard in bytes.
        w: number of slices.

    Returns:
        For each slice, the numbers of its shards.

    Raises:
        UsageError: w is not positive, or a size is negative.
    """
    if w < 1 or min(sizes, default=0) < 0:
        raise UsageError(f"{w} slices of shards of {min(sizes, default=0)} bytes and more; both must be positive")
    members: list[list[int]] = [[] for _ in range(w)]
    heap = [(0, index) for index in range(w)]
    for number in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        filled, index = heapq.heappop(heap)
        members[index].append(number)
        heapq.heappush(heap, (filled + sizes[number], index))
    totals = dict((index, filled) for filled, index in heap)
    order = sorted(range(w), key=lambda index: (-totals[index], index))
    return [sorted(members[index]) for index in order]


def open_list(url: str) -> SlicedList | None:
    """Return the slices that were planned for a list, or None.

    Raises:
        DataError: the file of the slices is damaged.
        StreamError: the file of the slices is local and cannot be read.
        TemporaryStreamError: the file of the slices cannot be read now.
    """
    beside = _offsets_url(url)
    if beside is None:
        return None
    try:
        content = read_whole(beside if scheme_of(beside) else Path(beside), compression=None)
    except MissingInputError:
        return None
    except StreamError as error:
        # Some stores answer "forbidden" for a missing object.
        path = local_path(beside)
        is_there = path is not None and os.path.lexists(path) and not os.path.isdir(path)
        if is_there or isinstance(error, TemporaryStreamError):
            raise
        return None
    return _parsed(url, beside, content)


def _parsed(url: str, beside: str, content: bytes) -> SlicedList | None:
    if not content.startswith(_MAGIC):
        return None
    if len(content) < _HEADER.size:
        raise DataError(f"is cut: {len(content)} bytes are less than its header", url=beside)
    _, n, w, size, checked, digest = _HEADER.unpack_from(content)
    expected = _HEADER.size + 8 * (w + 1) + 4 * w
    if len(content) != expected:
        raise DataError(f"is damaged: it has {len(content)} bytes, but should have {expected}", url=beside)
    numbers = _numbers(w).unpack_from(content, _HEADER.size)
    borders, sums = numbers[: w + 1], numbers[w + 1 :]
    if borders[0] != 0 or borders[-1] != size or any(a > b for a, b in pairwise(borders)):
        raise DataError("is damaged: the borders of the slices are not in order", url=beside)
    sha256 = hashlib.sha256(content).hexdigest()
    return SlicedList(url, n, w, size, bool(checked), digest.hex(), borders, sums, sha256)


def sha256_of(names: Iterable[str]) -> str:
    """Return the SHA-256 in hex of a list with these lines."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def changed(url: str) -> DataError:
    """Return the error for a list that was changed after its slices were planned."""
    return DataError("is not the list that was planned", url=url, hint=_CHANGED)


def _offsets_url(url: str) -> str | None:
    if not url or url == "-" or (scheme_of(url) and ("?" in url or "#" in url)):
        return None
    if not scheme_of(url) and not os.path.isfile(url):
        # A named pipe, such as <(…), has no files beside it; a list to be written need not exist.
        return f"{url}{SUFFIX}" if not os.path.exists(url) else None
    return f"{url}{SUFFIX}"
