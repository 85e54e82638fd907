"""Read the samples of a shard as the raw bytes of their members, with the place of each field."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import DataError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK
from tarkit.formats.tar.raw import FarReachingError, RawArchive, RawMember
from tarkit.samples.sample import KeyRule, duplicate_field, first_dot, in_sample, repeated_key, skip_reason
from tarkit.store.allocator import keep_freed_memory
from tarkit.store.fieldfile import FieldFile
from tarkit.store.read import open_read


class RawSample(NamedTuple):
    """A sample as it is in its shard: the members of its fields, with their headers.

    Attributes:
        key: its key.
        parts: the bytes of its members, without others between them; large content is in files.
        size: number of these bytes.
        words: field, offset of the content from the first byte of the sample, size of the content,
            and name of each member, each a word that a NUL ends, as in the index of a shard.
    """

    key: str
    parts: tuple[bytes | FieldFile, ...]
    size: int
    words: bytes

    def content(self, field: str) -> bytes | FieldFile | None:
        """Return the content of a field, or None if the sample does not have it."""
        return self.fields(field).get(field)

    def fields(self, only: str | None = None) -> dict[str, bytes | FieldFile]:
        """Return the content of all fields, or of one."""
        wanted = None if only is None else only.encode("utf-8", "surrogateescape")
        return {
            field.decode("utf-8", "surrogateescape"): piece_of(self.parts, offset, size)
            for field, offset, size, _ in self.places()
            if wanted in (None, field)
        }

    def places(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield (field, offset of the content, its size, name) of each member."""
        return places_of(self.words)


def places_of(words: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
    """Yield (field, offset of the content, its size, name) of each member of a sample's words."""
    for field, offset, size, name in zip(*(iter(words.split(b"\0")[:-1]),) * 4, strict=True):
        yield field, int(offset), int(size), name


def piece_of(parts: Sequence[bytes | FieldFile], start: int, size: int) -> bytes | FieldFile:
    """Return ``size`` bytes from ``start`` on of parts, none of which ends inside of them."""
    for part in parts:
        if start < len(part):
            return part[start : start + size] if isinstance(part, bytes) else part.part(start, size)
        start -= len(part)
    return b""


def raw_samples(
    url: str, *, rule: KeyRule = first_dot, tally: Tally | None = None, globals_seen: list[FarReachingError]
) -> Generator[RawSample, None, None]:
    """Yield the samples of one shard, in order; closing the generator closes the shard.

    Members that belong to no sample are left out, and counted.

    Args:
        url: path or URL of the shard.
        tally: filled with counts.
        globals_seen: the first global extended header that would change members of other shards is
            added; such a header is an error at the next shard.

    Raises:
        DataError: the shard is damaged, a key comes back, a field is twice in a sample, or a global
            extended header would apply to samples of other shards.
        MissingInputError, StreamError, TemporaryStreamError: the shard cannot be read.
    """
    keep_freed_memory()
    is_simple = rule is first_dot
    tally = Tally() if tally is None else tally
    seen: dict[str, int] = {}
    key: str | None = None
    with open_read(url) as stream:
        archive = _HoldingArchive(stream.read, stream.name, in_sample(rule), tally, globals_seen, None)
        for name, content, offset in archive.members():
            if is_simple and "/" not in name:
                # first_dot() and skip_reason() without the calls, as in group_by_keys().
                name_key, _, field = name.partition(".")
            else:
                name_key, field = rule(name) or ("", "")
            if not name_key or not field or not is_simple or name[0] == "_" or field[0] == "_":
                if not name:
                    if key is not None:  # the next archive in the shard begins another sample
                        yield archive.sample(key)
                    key = None
                    continue
                if (reason := skip_reason(name, rule)) is not None:
                    tally.skip(reason)
                    continue
            tally.members += 1
            if name_key != key:
                if key is not None:
                    yield archive.sample(key)
                if name_key in seen:
                    raise repeated_key(stream.name, name, name_key, offset, seen[name_key])
                key = name_key
                seen[key] = offset
            elif field in archive.words:
                raise duplicate_field(stream.name, name, key, field, offset, seen[key])
            archive.add(name, field, content, offset)
        if key is not None:
            yield archive.sample(key)
        tally.samples += len(seen)
        tally.shards += 1


class _HoldingArchive(RawArchive):
    """An archive that holds the bytes of the current sample until it is taken.

    Attributes:
        words: field -> the words of its member, of all members so far.
    """

    _start = _end = 0  # offsets of the members behind the parts, which the recording holds

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begin()

    def _begin(self) -> None:
        """Begin a sample."""
        self.words: dict[str, str] = {}
        self._parts: list[bytes | FieldFile] = []
        self._size = 0  # bytes of the parts

    def add(self, name: str, field: str, content: bytes | RawMember, offset: int) -> None:
        """Add a member; the archive's position is behind it."""
        if offset != self._end:  # members between them are not of a sample
            self._settle()
            self._start = self._end = offset
        if isinstance(content, bytes):
            size = len(content)
            self._end = end = self.base + self.position
            place = self._size + end - size - -size % BLOCK - self._start
            if self._size + end - self._start > self.large.sample_limit:
                self._settle(keep=True)
        else:
            self._settle()
            size, place = len(content.content), self._size + len(content.head)
            self._parts += (part for part in content if len(part))
            self._size += sum(map(len, content))
            self._start = self._end = self.base + self.position
        self.words[field] = f"{field}\0{place}\0{size}\0{name}\0"

    def _settle(self, *, keep: bool = False) -> None:
        """Take the members that the recording holds as a part, in a file if they are to be kept."""
        if self._end == self._start:
            return
        size = self._end - self._start
        part = self.recording.between(self._start, self._end)
        if len(part) < size:
            if size - len(part) >= BLOCK:
                raise DataError("bytes of a sample were dropped; this is a bug", url=self.url, offset=self._start)
            part = part.ljust(size, b"\0")  # the last padding was not read yet
        self._parts.append(FieldFile.keep([part], url=self.url) if keep else part)
        self._size += size
        self._start = self._end

    def sample(self, key: str) -> RawSample:
        """Return the sample that ends here."""
        words = "".join(self.words.values()).encode("utf-8", "surrogateescape")
        self._settle()
        found = RawSample(key, tuple(self._parts), self._size, words)
        self._begin()
        return found

    def fill(self, want: int) -> bool:
        self.recording.drop(self._start)
        return super().fill(want)

    def let_go(self, end: int) -> None:
        """Drop bytes, after those of the current sample were taken."""
        if self._start < end:
            self._settle()
        super().let_go(end)
