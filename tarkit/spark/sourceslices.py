"""The files of a folder or a tar, cut into contiguous slices, each of which one task reads."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from tarkit.errors import DataError, TemporaryStreamError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import SkipLarge
from tarkit.readers.ranged import blocks_from, is_compressed
from tarkit.samples.read import read_members
from tarkit.steps.prepare import classes_of
from tarkit.steps.sourcefiles import SourceFile, files_of_folder, is_hidden
from tarkit.store.entries import Identity, identify
from tarkit.store.rangedfile import offsets_from
from tarkit.store.read import open_read, read_whole, reading


class FolderSlice(NamedTuple):
    """Some files of a folder.

    Attributes:
        number: number of the slice.
        url: URL of the folder.
        packed: name in the folder and URL of each file, as compressed JSON: Spark accepts no task
            above 128 MiB, which the plain names of a million files could exceed.
    """

    number: int
    url: str
    packed: bytes

    def files(self) -> Iterator[SourceFile]:
        """Yield each file; it is read when it is taken."""
        for name, url in json.loads(zlib.decompress(self.packed)):
            yield SourceFile(name, url, partial(read_whole, url, compression=None))


class TarSlice(NamedTuple):
    """Some members of a tar.

    Attributes:
        offset: where reading begins; then ``skip`` files are skipped, and ``size`` are taken.
        identity: identity of the tar when it was listed.
    """

    number: int
    url: str
    identity: Identity
    offset: int
    skip: int
    size: int

    def files(self) -> Iterator[SourceFile]:
        """Yield each file, in the order of the tar; one at a time is in memory.

        Raises:
            TemporaryStreamError: the tar has changed since it was listed.
            DataError: the tar is damaged.
        """
        changed = TemporaryStreamError("the tar changed after it was listed", url=self.url, hint="run the job again")
        if identify(self.url) != self.identity:
            raise changed
        found = 0
        with offsets_from(self.offset, self.url):
            members = read_members(reading(blocks_from(self.url, self.offset)), url=self.url)
            visible = ((name, content) for name, content, _ in members if name and not is_hidden(name))
            for name, content in islice(visible, self.skip, self.skip + self.size):
                found += 1
                yield SourceFile(name, None, partial(bytes, content))
        if identify(self.url) != self.identity:
            raise changed
        if found != self.size:
            raise DataError(f"has {found} of the {self.size} files that were listed in this part", url=self.url)


Slice = FolderSlice | TarSlice


def plan_slices(
    source: str, number: int, tally: Tally, *, is_tar: bool, with_classes: bool
) -> tuple[list[Slice], list[str] | None]:
    """List the files of a source, and cut them into ``number`` slices of about equal length.

    A folder's files come at any depth, by name; a tar's in its order. Hidden ones are skipped and
    counted in the tally.

    Returns:
        The slices that have files; and if requested, the names of the folders of images
        (:func:`classes_of`).

    Raises:
        DataError: the tar is damaged.
        MissingInputError, StreamError, TemporaryStreamError: the source cannot be read.
    """
    named: list[tuple[str, str]] = []
    offsets = array("q")
    identity = identify(source) if is_tar else None
    names = _tar_names(source, offsets, tally) if is_tar else _folder_names(source, named, tally)
    classes = classes_of(names) if with_classes else None
    deque(names, maxlen=0)
    total = len(offsets) or len(named)
    begins = [total * each // number for each in range(number + 1)]
    ranges = [(each, begins[each], begins[each + 1]) for each in range(number) if begins[each] < begins[each + 1]]
    if identity is None:
        return [FolderSlice(each, source, _packed(named[begin:end])) for each, begin, end in ranges], classes
    compressed = is_compressed(source)
    return [
        TarSlice(each, source, identity, 0 if compressed else offsets[begin], begin if compressed else 0, end - begin)
        for each, begin, end in ranges
    ], classes


def _packed(named: list[tuple[str, str]]) -> bytes:
    return zlib.compress(json.dumps(named).encode())


def _folder_names(folder: str, named: list[tuple[str, str]], tally: Tally) -> Iterator[str]:
    for file in files_of_folder(folder, tally):
        named.append((file.name, str(file.url)))
        yield file.name


def _tar_names(url: str, offsets: array[int], tally: Tally) -> Iterator[str]:
    with open_read(url) as stream:
        for name, _, offset in read_members(stream.read, url=stream.name, tally=tally, large=SkipLarge()):
            if is_hidden(name):
                tally.skip("hidden")
            elif name:
                offsets.append(offset)
                yield name
