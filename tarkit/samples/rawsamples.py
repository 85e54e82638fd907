"""Read the samples of a shard as the raw bytes of their members, with the place of each field."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK
from tarkit.formats.tar.raw import FarReachingError, RawArchive, RawMember
from tarkit.formats.tar.walk import Member
from tarkit.samples.sample import KeyRule, Sample, first_dot, group_by_keys, in_sample
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
        words = self.words.split(b"\0")
        wanted = None if only is None else only.encode("utf-8", "surrogateescape")
        return {
            field.decode("utf-8", "surrogateescape"): piece_of(self.parts, int(offset), int(size))
            for field, offset, size, _ in zip(*(iter(words[:-1]),) * 4, strict=True)
            if wanted in (None, field)
        }


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
        rule: key rule.
        tally: filled with counts.
        globals_seen: the first global extended header that would change members of other shards is
            added; such a header is an error at the next shard.

    Raises:
        DataError: the shard is damaged, a key comes back, a field is twice in a sample, or a global
            extended header would apply to samples of other shards.
        MissingInputError, StreamError, TemporaryStreamError: the shard cannot be read.
    """
    keep_freed_memory()
    with open_read(url) as stream:
        tally = Tally() if tally is None else tally
        archive = RawArchive(stream.read, stream.name, in_sample(rule), tally, globals_seen, None)
        recording = archive.recording
        samples = group_by_keys(
            _places(archive), url=stream.name, rule=rule, tally=tally,
            sample_limit=archive.large.sample_limit, spill=_Spill(archive),
        )  # fmt: skip
        for sample in samples:
            places = iter(sample.items())
            key = next(places)[1]
            next(places)
            field, (name, begin, body, size, raw) = next(places)
            words = f"{field}\0{body - begin}\0{size}\0{name}\0"
            at = body + size + -size % BLOCK
            for field, (name, start, body, size, more) in places:
                if start != at or more is not None:
                    raw = more or raw or True
                words += f"{field}\0{body - begin}\0{size}\0{name}\0"
                at = body + size + -size % BLOCK
            if raw is None:
                data = recording.between(begin, at)
                if len(data) < at - begin:  # the last padding was not read yet
                    data += bytes(at - begin - len(data))
                yield RawSample(key, (data,), at - begin, words.encode("utf-8", "surrogateescape"))
            else:
                yield _of_members(key, sample, recording)
            recording.drop(at)
        tally.shards += 1


_Place = tuple[str, int, int, int, RawMember | None]
"""(name, offset of the first header, offset and size of the content, the member if it is not held)
of a member; offsets are those of the shard.
"""


def _places(archive: RawArchive) -> Iterator[Member]:
    """Yield the members of an archive with a place as their content; marks as they are."""
    for name, content, offset in archive.members():
        if not name:
            yield name, content, offset
        elif type(content) is bytes:
            size = len(content)
            yield name, (name, offset, archive.base + archive.position - size - -size % BLOCK, size, None), offset
        else:
            yield name, (name, offset, offset + len(content.head), len(content.content), content), offset


def _member(place: _Place, recording: Any) -> RawMember:
    """Return a member that is held, or the one that is kept in a file."""
    _, start, body, size, raw = place
    head, content = recording.between(start, body), recording.between(body, body + size)
    return RawMember(head, content, bytes(-size % BLOCK)) if raw is None else raw


def _of_members(key: str, sample: Sample, recording: Any) -> RawSample:
    """Return a sample whose members are not adjacent, or not all in memory."""
    words, parts, at = "", list[bytes | FieldFile](), 0
    for field, place in [*sample.items()][2:]:
        member = _member(place, recording)
        words += f"{field}\0{at + len(member.head)}\0{place[3]}\0{place[0]}\0"
        parts += (part for part in member if len(part))
        at += sum(map(len, member))
    return RawSample(key, tuple(parts), at, words.encode("utf-8", "surrogateescape"))


class _Spill:
    """Keep the members of a sample that is too large for memory in files."""

    def __init__(self, archive: RawArchive) -> None:
        self._archive = archive

    def __call__(self, sample: Sample, name: str, place: _Place) -> _Place:
        """Return the place of a member with the member kept in a file, as are those before it."""
        recording, large = self._archive.recording, self._archive.large
        kept: Sample = {}
        for field, value in [*sample.items(), ("", place)]:
            if isinstance(value, tuple):
                kept[field] = large.spill(kept, name, _member(value, recording))
                sample[field] = (*value[:4], kept[field])
        recording.drop(self._archive.base + self._archive.position)
        del sample[""]
        return (*place[:4], kept[""])
