"""Read the samples of a shard as the raw bytes of their members, with the place of each field."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tarkit.errors import DataError
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
        archive = _PlacedArchive(stream.read, stream.name, in_sample(rule), tally, globals_seen, None)
        recording = archive.recording
        samples = group_by_keys(
            archive.placed(), url=stream.name, rule=rule, tally=tally,
            sample_limit=archive.large.sample_limit, spill=archive.spill,
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
                    data += bytes(-size % BLOCK)
                if len(data) != at - begin:
                    raise DataError("bytes of a sample were dropped; this is a bug", url=stream.name, key=key)
                yield RawSample(key, (data,), at - begin, words.encode("utf-8", "surrogateescape"))
            else:
                yield archive.of_members(key, sample)
            archive.let_go_sample(at)
        tally.shards += 1


class _Place(list[Any]):
    """The place of a member in its shard, as the content of a field.

    It has the name, offset of the first header, offset and size of the content, and the member, if
    its bytes are not held any more; offsets are those of the shard.
    """


class _PlacedArchive(RawArchive):
    """An archive whose members are places, until the bytes are dropped or the sample is whole."""

    _held: list[_Place]

    def placed(self) -> Iterator[Member]:
        """Yield the members with a place as their content; marks as they are."""
        self._held = held = []
        for name, content, offset in self.members():
            if not name:
                yield name, content, offset
                continue
            if type(content) is bytes:
                size = len(content)
                place = _Place((name, offset, self.base + self.position - size - -size % BLOCK, size, None))
                held.append(place)
            else:
                place = _Place((name, offset, offset + len(content.head), len(content.content), content))
            yield name, place, offset

    def let_go(self, end: int) -> None:
        """Drop bytes; members that have some of them get theirs first."""
        for place in self._held:
            place[4] = self._member(place)
        self._held.clear()
        super().let_go(end)

    def let_go_sample(self, end: int) -> None:
        """Drop the bytes of a sample that was taken; the member behind it is held."""
        held = self._held
        while held and held[0][1] < end:
            del held[0]
        self.recording.drop(end)

    def _member(self, place: _Place) -> RawMember:
        _, start, body, size, raw = place
        if raw is not None:
            return cast(RawMember, raw)
        between = self.recording.between
        return RawMember(between(start, body), between(body, body + size), bytes(-size % BLOCK))

    def of_members(self, key: str, sample: Sample) -> RawSample:
        """Return a sample whose members are not adjacent, or whose bytes are not held any more."""
        words, parts, at = "", list[bytes | FieldFile](), 0
        for field, place in [*sample.items()][2:]:
            member = self._member(place)
            words += f"{field}\0{at + len(member.head)}\0{place[3]}\0{place[0]}\0"
            parts += (part for part in member if len(part))
            at += sum(map(len, member))
        return RawSample(key, tuple(parts), at, words.encode("utf-8", "surrogateescape"))

    def spill(self, sample: Sample, name: str, place: _Place) -> _Place:
        """Keep a member in a file, and those before it in a sample that is too large for memory."""
        kept: Sample = {}
        for field, value in [*sample.items(), ("", place)]:
            if isinstance(value, _Place):
                value[4] = kept[field] = self.large.spill(kept, name, self._member(value))
        self._held.clear()
        self.recording.drop(self.base + self.position)
        return place
