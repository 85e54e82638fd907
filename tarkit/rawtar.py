"""Joins tar shards without taking them apart: headers, extended headers and content byte for byte.

Everything is read through :class:`tarkit.tarwalk.Archive` all the same, so that what is damaged,
cut or no tar is found, and samples that would run into each other are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tarkit import tarheader
from tarkit.errors import (
    DataError,
    DuplicateFieldError,
    RepeatedKeyError,
    UnsupportedMemberError,
    UsageError,
    printable,
)
from tarkit.redaction import redact
from tarkit.salvage import resynchronise
from tarkit.sample import (
    DAMAGE_POLICIES,
    REPEATED_KEY_POLICIES,
    KeyRule,
    Member,
    Tally,
    first_dot,
    group_by_keys,
    key_rule,
    skip_reason,
)
from tarkit.shards import expand
from tarkit.streams import open_read
from tarkit.tarheader import END_OF_ARCHIVE, RECORD, Header
from tarkit.tarwalk import Archive
from tarkit.transport.publish import PublishStream

_GLOBAL = ord("g")
_HARMLESS_GLOBALS = frozenset(("comment",))


@dataclass
class Joined:
    """What :func:`concatenate` has written. size: bytes before compression."""

    shards: int = 0
    samples: int = 0
    size: int = 0


def concatenate(
    urls: str | Iterable[str],
    output: PublishStream,
    *,
    rule: str | KeyRule = first_dot,
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    allow_pipe_in_lists: bool = False,
) -> Joined:
    """Write all members of several shards as one shard; the caller commits ``output``.

    Members keep their bytes and their order, also folders, links and files that are no part of a
    sample; only with ``on_damage="skip"`` these are left out. End-of-archive marks are dropped, but
    for one at the end, padded to 10,240 bytes. One sample is held in memory, besides the keys.

    Args:
        urls: shard specs, as for :func:`tarkit.shards.expand`.
        rule: key rule by which members are samples.
        on_repeated_key: error, or allow a key that comes back, in one shard or in another; but not
            right after itself, since without the mark in between the two samples would become one.
        on_damage: error, or skip what is damaged and the samples beside it; ``tally`` has the account.
        tally: is filled; its ``skipped`` counts the members that are no part of a sample.
        allow_pipe_in_lists: whether an ``@LIST`` may name ``pipe:`` commands.

    Raises:
        DataError: damage; a repeated key or field; a global extended header that would apply to the
            members of the archives after its own.
    """
    split_name = key_rule(rule)
    if on_damage not in DAMAGE_POLICIES or on_repeated_key not in REPEATED_KEY_POLICIES:
        raise UsageError(
            f"on_damage {on_damage!r} is error or skip, on_repeated_key {on_repeated_key!r} error or allow"
        )
    tally = Tally() if tally is None else tally
    joined = Joined()
    last_key: str | None = None
    seen: dict[str, str] = {}
    globals_seen: list[_FarReachingError] = []
    for url in expand(urls, allow_pipe_in_lists=allow_pipe_in_lists):
        joined.shards += 1
        with open_read(url) as stream:
            source = _RawShard(stream.read, redact(stream.name), split_name, tally, globals_seen)
            samples = group_by_keys(
                source.members() if on_damage == "error" else source.members_beside_damage(),
                url=stream.name,
                rule=split_name,
                on_repeated_key=on_repeated_key,
                tally=tally,
            )
            try:
                for sample in samples:
                    key = sample.pop("__key__")
                    sample.pop("__url__")
                    if on_repeated_key == "error":
                        check_key(key, stream.name, seen)
                    elif key == last_key:
                        raise would_merge(key, stream.name)
                    last_key = key
                    joined.samples += 1
                    for raw in sample.values():
                        output.write(raw)
            except DuplicateFieldError as error:
                error.hint = "tarproc --on-duplicate-field first or last keeps one of them"
                raise
            output.write(source.carried())
    output.write(END_OF_ARCHIVE)
    output.write(bytes(-output.bytes_written % RECORD))
    joined.size = output.bytes_written
    return joined


def check_key(key: str, url: str, seen: dict[str, str]) -> None:
    """Refuse a key that another shard has; seen: the keys so far, each with its shard."""
    if key in seen:
        raise RepeatedKeyError(
            f"the key is in {printable(redact(seen[key]))} too, and the result would be one shard",
            url=url,
            key=key,
            hint="--on-repeated-key allow accepts that, if these are different samples",
        )
    seen[key] = url


def would_merge(key: str, url: str) -> RepeatedKeyError:
    """The error for two samples of one key, next to each other."""
    return RepeatedKeyError(
        "the sample before it has the same key, and in one shard the two would be read as one",
        url=url,
        key=key,
        hint="pass the shards in another order, or keep them apart",
    )


class _FarReachingError(UnsupportedMemberError):
    """A global extended header would change the meaning of another archive's members."""


class _Recording:
    """Keeps what was read from a stream until it is dropped, so that it can be had again by offset."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = bytearray()
        self._start = 0  # offset in the stream of the first byte held

    def read(self, count: int) -> bytes:
        data = self._read(count)
        self._held += data
        return data

    def between(self, start: int, end: int) -> bytes:
        """The bytes from one offset to another; both must not have been dropped."""
        with memoryview(self._held) as view:
            return bytes(view[start - self._start : end - self._start])

    def drop(self, end: int) -> None:
        """Forget what is before this offset."""
        cut = min(max(0, end - self._start), len(self._held))
        del self._held[:cut]
        self._start += cut


class _RawArchive(Archive):
    """An archive that remembers where its end mark was, and refuses global headers that reach too far.

    globals_seen: at most one error, to be raised when another archive begins after the header it tells of.
    """

    def __init__(
        self, recording: _Recording, url: str, rule: KeyRule, tally: Tally, globals_seen: list[_FarReachingError]
    ) -> None:
        super().__init__(recording.read, url, tally, rule)
        self.mark_offset = 0
        self.refusing = False  # members whose content is not here as plain bytes; as they are, they can be copied
        self._recording = recording
        self._globals_seen = globals_seen
        self._foreign_globals = globals_seen[:]

    def pass_over(self, name: bytes, reason: str) -> None:
        if self.refusing:
            super().pass_over(name, reason)
        else:
            self.tally.skip(reason)

    def skip_zeros(self) -> bool:
        self.mark_offset = self.base + self.position
        self._foreign_globals = self._globals_seen[:]
        return super().skip_zeros()

    def verified(self, header_bytes: bytes) -> Header:
        header = super().verified(header_bytes)
        if self._foreign_globals:
            raise self._foreign_globals[0]
        return header

    def extend(self, header: Header, records: dict[str, bytes]) -> None:
        start = self.base + self.position
        super().extend(header, records)
        if header.kind != _GLOBAL or self._globals_seen:
            return
        found = tarheader.parse_pax(self._recording.between(start, start + header.size))
        far_reaching = sorted(set(found) - _HARMLESS_GLOBALS)
        if far_reaching:
            self._globals_seen.append(
                _FarReachingError(
                    f"a global extended header sets {printable(', '.join(far_reaching))} for all members after it; "
                    "in one shard that would include the members of other archives",
                    url=self.url,
                    offset=self.header_offset,
                    hint="make this shard without it, or pass it last",
                )
            )


class _RawShard:
    """The members of one shard as raw bytes."""

    def __init__(
        self,
        read: Callable[[int], bytes],
        url: str,
        rule: KeyRule,
        tally: Tally,
        globals_seen: list[_FarReachingError],
    ) -> None:
        self._recording = _Recording(read)
        self._archive = _RawArchive(self._recording, url, rule, tally, globals_seen)
        self._rule = rule
        self._tally = tally
        self._carried: list[bytes] = []

    def carried(self) -> bytes:
        """Members that are no part of a sample, and did not yet come with the file after them."""
        carried, self._carried = self._carried, []
        return b"".join(carried)

    def members(self) -> Iterator[Member]:
        """(name, raw bytes, offset) for each file of a sample, with marks as :func:`group_by_keys` takes them.

        What stands before a file and is no part of a sample comes with the raw bytes of that file.
        """
        archive, begin = self._archive, 0
        for last in _one_late(archive.members(), archive):
            name, offset, end = last
            if name:
                yield from self._whole(name, offset, begin, end)
            else:
                self._carried.append(self._recording.between(begin, offset))
                yield "", b"", 0
            begin = end
            self._recording.drop(begin)
        self._carried.append(self._recording.between(begin, archive.mark_offset))

    def _whole(self, name: str, offset: int, begin: int, end: int) -> Iterator[Member]:
        """The file with what stands before it since ``begin``, or nothing if it is carried along."""
        raw = self._recording.between(begin, end)
        reason = skip_reason(name, self._rule)
        if reason is not None:
            self._tally.skip(reason)
            self._carried.append(raw)
            return
        if self._carried:
            raw = self.carried() + raw
        yield name, raw, offset

    def members_beside_damage(self) -> Iterator[Member]:
        """As :meth:`members`, but goes on after damage, and gives the files of samples alone."""
        archive, recording = self._archive, self._recording
        archive.refusing = True
        while True:
            files = _one_late(archive.members(), archive)
            try:
                for name, offset, end in files:
                    if name:
                        raw = recording.between(offset, end)
                        # The last padding may be cut, and the sample is dropped if it is.
                        yield name, raw, offset
                    else:
                        yield "", b"", 0
                    recording.drop(end)
                return
            except _FarReachingError:
                raise
            except DataError as error:
                if not archive.begun:
                    raise
                yield resynchronise(archive, error)
                if archive.ended:
                    return
                recording.drop(archive.base + archive.position)


def _one_late(members: Iterator[Member], archive: _RawArchive) -> Iterator[tuple[str, int, int]]:
    """(name, offset of the first header, offset after the padding) of files; for marks, ("", offset, offset
    of what follows). Each comes when the next one was read, so that all of its padding was read."""
    last: tuple[str, int, int] | None = None
    failure: DataError | None = None
    try:
        for name, _, offset in members:
            if last is not None:
                yield last
            last = name, offset if name else archive.mark_offset, archive.base + archive.position
    except DataError as error:
        failure = error
    if last is not None:
        yield last
    if failure is not None:
        raise failure
