"""A list of shards in a bucket, cut into slices beforehand, so that a pod reads only its own part
of it.

``LIST`` is text: one path or URL a line, no patterns, no comments; so everything that reads an
@list reads it. ``LIST.offsets`` beside it says where the slices are, all of it little-endian: the
header (``_HEADER``: magic, number of shards, number of slices, length of LIST, 1 if it was checked
that no two shards become the same output, SHA-256 of LIST), then the W+1 borders of the slices as
64-bit offsets into LIST, then a CRC-32 for the bytes of each slice. The slices need not have the
same number of shards.
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
"""What is added to a list's name for the file of its slices."""

_HEADER = struct.Struct("<8sQQQQ32s")
_MAGIC = b"tkslice1"
_BOM = "\ufeff"
_SURELY_PLAIN = re.compile(r"(?:(?:s3|gs|hdfs|https?)://|/)[A-Za-z0-9_./:+=@%,~-]+(?<!\.json)")


@dataclass(frozen=True)
class SlicedList:
    """What LIST.offsets says.

    Attributes:
        url: of LIST.
        n: shards.
        w: slices.
        size: bytes of LIST.
        checked: whether it was checked that no two shards become the same output.
        sha256: of LIST, in hex.
        borders: w + 1 offsets.
        sums: w CRCs.
        offsets_sha256: of LIST.offsets itself, so of all that decides what slice i is.
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
        """The shards of a slice.

        Raises:
            UsageError: the slice does not exist.
            DataError: LIST is not the one whose slices these are.
        """
        if not 0 <= index < self.w:
            raise UsageError(f"{quoted(self.url)} has slices 0 to {self.w - 1}; slice {index} does not exist")
        start, stop = self.borders[index], self.borders[index + 1]
        try:
            content = read_range(self.url, start, stop, size=self.size)
        except DataError as error:
            raise DataError(error.reason, url=self.url, hint=_CHANGED) from None
        if zlib.crc32(content) != self.sums[index]:
            raise DataError(f"slice {index} is not what it was", url=self.url, offset=start, hint=_CHANGED)
        return [line.decode("utf-8", "surrogateescape") for line in content.split(b"\n")[:-1]]


_CHANGED = "the list was changed after its slices were planned; make the manifest anew, with a list of another name"


def check_name(name: str, list_url: str) -> str:
    """The name of a shard, if a line of a list can hold it so that it is read as just this name.

    Raises:
        UsageError: it cannot.
    """
    if _SURELY_PLAIN.fullmatch(name):
        return name
    kept = name.strip() == name and "\n" not in name and "\r" not in name and not name.startswith(("#", _BOM))
    if not kept or set(name) & set("{}") or not (fixed_names(name) or _is_plain_http(name)):
        raise UsageError(
            f"{quoted(name)} cannot stand in a list of shards, where it would be taken for a pattern, a command, a "
            "manifest (.json) or a comment; give it another name"
        )
    if scheme_of(list_url) and not scheme_of(name) and not name.startswith("/"):
        raise UsageError(
            f"{quoted(name)} would be relative to the folder of the list {quoted(list_url)}; name the shard in full"
        )
    return name


def _is_plain_http(name: str) -> bool:
    """On an http server a ? begins the query; nothing can be listed there."""
    is_http = name.lower().startswith(("http://", "https://"))
    return is_http and not is_manifest(name) and not set(name.partition("?")[0]) & set("*[")


def write_list(url: str, names: Iterable[str], counts: Sequence[int], *, outdir: str | None) -> SlicedList:
    """Publish a list of shards, and then the file of its slices.

    Args:
        url: of the list.
        names: of the shards, those of slice 0 first.
        counts: how many shards each slice has, see :func:`even_counts`.
        outdir: where the run's outputs go. No two shards may become the same output; this is
            checked here, since a pod that sees only one slice cannot. None: each pod has to look at
            the whole list.

    Raises:
        UsageError: a name that a list cannot hold; the names do not fill the slices; as
            ``plan_outputs``.
        StreamError, TemporaryStreamError: it cannot be written.
    """
    if compression_for_name(url) is not None:
        raise UsageError(f"{quoted(url)}: a list of which parts are read cannot be compressed; name it .list or .txt")
    if _offsets_url(url) is None:
        raise UsageError(f"{quoted(url)}: name the list without a query, since its slices are in a file beside it")
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
            raise UsageError(f"there are more shards than the {sum(counts)} that the slices of {quoted(url)} take")
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
    """The borders of ``w`` slices, and a CRC of each."""
    return struct.Struct(f"<{w + 1}q{w}I")


def even_counts(n: int, w: int) -> list[int]:
    """How many of ``n`` shards each of ``w`` slices has, by ``take_slice``."""
    return [len(take_slice(n, index, w)) for index in range(w)]


def slices_by_bytes(sizes: Sequence[int], w: int) -> list[list[int]]:
    """Numbers of the shards in each of ``w`` slices of about the same number of bytes, the largest
    slice first.

    Largest shard first, each into the slice that has least so far (longest processing time first).
    In a slice the shards keep their order. The same sizes give the same slices.

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
    """The slices that were planned for a list; None if none were.

    Raises:
        DataError: the file of the slices is damaged.
        StreamError: it is on this machine, and cannot be read.
        TemporaryStreamError: it cannot be asked for now.
    """
    beside = _offsets_url(url)
    if beside is None:
        return None
    try:
        content = read_whole(beside if scheme_of(beside) else Path(beside), compression=None)
    except MissingInputError:
        return None
    except StreamError as error:
        # Some stores say "forbidden" of what is not there.
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
        raise DataError(f"is damaged: it has {len(content)} bytes, but says that it has {expected}", url=beside)
    numbers = _numbers(w).unpack_from(content, _HEADER.size)
    borders, sums = numbers[: w + 1], numbers[w + 1 :]
    if borders[0] != 0 or borders[-1] != size or any(a > b for a, b in pairwise(borders)):
        raise DataError("is damaged: the borders of the slices are not in order", url=beside)
    sha256 = hashlib.sha256(content).hexdigest()
    return SlicedList(url, n, w, size, bool(checked), digest.hex(), borders, sums, sha256)


def sha256_of(names: Iterable[str]) -> str:
    """Of a list with these lines, in hex."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def changed(url: str) -> DataError:
    """What is raised of a list that is not the one that slices were planned for."""
    return DataError("is not the list that was planned", url=url, hint=_CHANGED)


def _offsets_url(url: str) -> str | None:
    if not url or url == "-" or (scheme_of(url) and ("?" in url or "#" in url)):
        return None
    if not scheme_of(url) and not os.path.isfile(url):
        # A named pipe, such as of <(…), has no neighbours; and to write, nothing need be there.
        return f"{url}{SUFFIX}" if not os.path.exists(url) else None
    return f"{url}{SUFFIX}"
