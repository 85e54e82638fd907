"""Check one shard: its structure, its samples, and the index beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b, md5
from typing import Any

from tarkit.errors import DataError, MissingInputError, StreamError, TemporaryStreamError, counted, printable
from tarkit.formats.tar.headers import BLOCK
from tarkit.formats.tar.large import SkipLarge
from tarkit.formats.tar.resync import resynchronise
from tarkit.formats.tar.walk import LOST_STRETCH, Archive
from tarkit.names.outputnames import has_index_name, index_url
from tarkit.names.url import display_name
from tarkit.samples.index import ANEW, ShardIndex, digesting, unchecked_index
from tarkit.samples.sample import KeyRule, first_dot, in_sample, skip_reason
from tarkit.samples.transforms import field_list
from tarkit.steps.decoding import content_problems, may_be_empty, needs_process
from tarkit.steps.findings import UNCHECKED, CheckReport, Finding, kind_of
from tarkit.store.compression import SNIFF_BYTES, DecompressingReader, sniff
from tarkit.store.read import open_read, read_whole
from tarkit.store.window import Window

_LARGEST = 1 << 28
"""Size of a member in bytes up to which it is held in memory, and decoded."""
_MOST_REMEMBERED = 10_000
_MOST_REASONS = 20

Place = tuple[str, int]
"""(name, offset of its header) of a member."""


@dataclass(frozen=True)
class CheckPlan:
    """The checks that a run makes of each shard.

    Attributes:
        required: a sample must have one field of each group.
        contents: compare the largest field of each sample.
        progress: called for each piece that is read.
        good: names of the fields of samples that lack none; filled by the checks.
    """

    rule: KeyRule
    required: list[list[str]]
    decode: bool
    contents: bool
    report: CheckReport
    progress: Callable[[bytes], object]
    good: set[tuple[str, ...]] = field(default_factory=set)


class DecodeBatch(list[Any]):
    """A batch of one sample for a decoder, with the places of its members."""

    def __init__(self, shard: str, key: str, fields: dict[str, bytes], places: dict[str, Place]) -> None:
        super().__init__([{"__key__": key, "__url__": shard, **fields}])
        self.shard, self.key, self.places = shard, key, places


def as_findings(
    shard: str, key: str, name: str, place: tuple[Any, ...], problems: Iterable[Any], report: CheckReport
) -> Iterator[Finding]:
    """Yield the problems of a field as findings; count contents that were not checked."""
    for kind, message, is_warning in problems:
        if kind == UNCHECKED:
            is_one_more = message not in report.unchecked and len(report.unchecked) >= _MOST_REASONS
            report.unchecked["of other names" if is_one_more else message] += 1
        else:
            yield Finding(shard, kind, message, key, name, place[0], place[1], is_warning)


class ShardCheck:
    """The check of one shard.

    Args:
        with_md5: compute the MD5 of the file.

    Attributes:
        shard: the URL without secrets.
        seen: key -> offset of its first member.
        contents: digest of the largest field of a sample -> (offset, key).
        samples: number of samples.
        is_regular: the shard has no damage, and no key or field is repeated.
        md5: MD5 of the file in hex, or "".
    """

    def __init__(self, wanted: CheckPlan, url: str, with_md5: bool) -> None:
        self.url, self.shard = url, display_name(url)
        self.seen: dict[str, int] = {}
        self.contents: dict[bytes, tuple[int, str]] = {}
        self.samples, self.is_regular, self.md5 = 0, True, ""
        self._with_md5, self._wanted, self._report = with_md5, wanted, wanted.report
        self._index: ShardIndex | None = None
        self._compared, self._stale = 0, ""
        self._damage: Finding | None = None

    def items(self) -> Iterator[Any]:
        """Yield the findings of this shard, and batches to decode."""
        tally, self._index = self._report.tally, self._read_index()
        with open_read(self.url, compression=None if self._with_md5 else "auto") as stream:
            tally.part_read = stream.part_read
            digest = md5(usedforsecurity=False)
            read = digesting(stream.read, self._wanted.progress)
            if self._with_md5:
                window = Window(digesting(read, digest.update))
                codec = sniff(window.peek(SNIFF_BYTES))
                read = window.read if codec is None else DecompressingReader(window.read, codec, self.shard).read
            yield from self._samples(
                Archive(read, self.shard, tally, in_sample(self._wanted.rule), SkipLarge(_LARGEST))
            )
            self.md5 = digest.hexdigest() if self._with_md5 else ""
            tally.part_read = None
        yield from self._compared_index(self._index)

    def _read_index(self) -> ShardIndex | None:
        if not has_index_name(self.url):
            return None
        name = index_url(self.url)
        try:
            return unchecked_index(read_whole(name, compression=None), name, self._wanted.rule)
        except TemporaryStreamError:
            raise
        except (MissingInputError, StreamError):
            # Some stores answer "forbidden" for a missing object, so the index may not exist.
            return None
        except DataError as error:
            self._stale = error.reason
            return None

    def _members(self, archive: Archive) -> Iterator[tuple[str, Any, int]]:
        """Yield the members, and for damage an error in place of the content; resume behind it."""
        while True:
            try:
                yield from archive.members()
                return
            except DataError as error:
                if not archive.begun:
                    raise
                _, mark, offset = resynchronise(archive, error)
                yield "" if mark == LOST_STRETCH else error.member or "", error, offset
                if archive.ended:
                    return

    def _samples(self, archive: Archive) -> Iterator[Any]:
        """Group the members into samples as the readers do, and yield what is wrong with them."""
        rule, seen, tally, good = self._wanted.rule, self.seen, self._report.tally, self._wanted.good
        is_simple = rule is first_dot
        key: str | None = None
        torn: str | None = None
        begin, line, is_indexed = 0, list[str](), self._index is not None
        looks = self._wanted.decode or self._wanted.contents
        sample: dict[str, Any] = {}
        places: dict[str, Place] = {}
        for name, content, offset in self._members(archive):
            if is_simple and "/" not in name:
                # first_dot() and skip_reason() without the calls, as in group_by_keys().
                name_key, _, field_name = name.partition(".")
            else:
                name_key, field_name = rule(name) or ("", "")
            if not name_key or not field_name or not is_simple or name[0] == "_" or field_name[0] == "_":
                if not name:
                    if key is not None:
                        yield from self._ended(key, begin, sample, places, is_whole=not content)
                    key, torn = None, key
                    if content:
                        yield from self._settled(None)
                        self._damage = self._damage_at(content, offset, torn)
                    continue
                if (reason := skip_reason(name, rule)) is not None:
                    tally.skip(reason)
                    continue
            if name_key != key:
                if key is not None and (looks or self._damage is not None or tuple(sample) not in good):
                    yield from self._ended(key, begin, sample, places)
                if is_indexed:
                    self._compare_line(line)
                key, begin, sample = name_key, offset, {}
                if looks:
                    places = {}
                self.samples += 1
                if key not in seen:
                    seen[key] = offset
                elif self._damage is None or key != torn:
                    reason = f"the key comes back after other samples; it was first at offset {seen[key]}"
                    yield self._irregular("repeated-key", reason, key, field_name, name, offset)
            if not content or content.__class__ is not bytes:
                yield from self._unusual(content, key, field_name, name, offset)
            if field_name in sample:
                reason = f"the field is twice in one sample, which begins at offset {begin}"
                yield self._irregular("repeated-field", reason, key, field_name, name, offset)
                continue
            sample[field_name] = content
            if looks:
                places[field_name] = name, offset
            if is_indexed and self.is_regular:
                size = len(content)
                line.append(f"{field_name} {archive.base + archive.position - size - -size % BLOCK} {size} {name}")
        if key is not None:
            yield from self._ended(key, begin, sample, places)
        self._compare_line(line)
        yield from self._settled(None)

    def _irregular(self, kind: str, reason: str, key: str, name: str, member: str, offset: int) -> Finding:
        """Return a finding of a shard that can have no index."""
        self.is_regular = False
        return Finding(self.shard, kind, reason, key, name, member, offset)

    def _unusual(self, content: Any, key: str, name: str, member: str, offset: int) -> Iterator[Finding]:
        if isinstance(content, DataError):
            yield self._irregular(kind_of(content), content.reason, key, name, member, offset)
        elif not content:
            is_warning = may_be_empty(name)
            yield Finding(self.shard, "empty-member", "it has 0 bytes", key, name, member, offset, is_warning)

    def _damage_at(self, error: DataError, offset: int, torn: str | None) -> Finding:
        self.is_regular = False
        end = self._report.tally.damage[-1][2]
        reason = f"{error.reason}; lost up to offset {end}" if end > offset else error.reason
        return Finding(self.shard, kind_of(error), reason, torn, member=error.member, offset=offset)

    def _settled(self, following: str | None) -> Iterator[Finding]:
        """Yield the last damage, when the sample behind it is known."""
        damage, self._damage = self._damage, None
        if damage is None:
            return
        keys = dict.fromkeys(key for key in (damage.key, following) if key is not None)
        names = " and ".join(map(printable, keys))
        message = f"{damage.message}; perhaps not whole: {names}" if len(keys) > 1 else damage.message
        first = next(iter(keys), None)
        yield damage._replace(message=message, key=first, beside=tuple(keys)[1:])

    def _ended(
        self, key: str, begin: int, sample: dict[str, Any], places: dict[str, Place], is_whole: bool = True
    ) -> Iterator[Any]:
        """Check a sample whose members are all known."""
        wanted = self._wanted
        if self._damage is not None:
            yield from self._settled(key)
        elif is_whole and not any(isinstance(content, DataError) for content in sample.values()):
            lacking = [group for group in wanted.required if not any(map(sample.__contains__, group))]
            for group in lacking:
                reason = f"no field {' or '.join(group)} (--require); it has {field_list(sample)}"
                yield Finding(self.shard, "missing-field", reason, key, offset=begin)
            if not lacking and len(wanted.good) < _MOST_REMEMBERED:
                wanted.good.add(tuple(sample))
        if wanted.contents:
            yield from self._digested(key, sample, places)
        if wanted.decode:
            yield from self._to_decode(key, sample, places)

    def _compare_line(self, line: list[str]) -> None:
        """Compare the last sample with the index, and clear its line; most lines are equal."""
        index, number, text = self._index, self._compared, " ".join(line)
        self._compared += bool(line)
        line.clear()
        if index is None or not text or number >= len(index) or self._stale or text == index.line(number):
            return
        if text != " ".join(f"{field} {offset} {size} {name}" for field, offset, size, name in index[number]):
            self._stale = f"its line {number + 2} is not that of the shard"

    def _digested(self, key: str, sample: dict[str, Any], places: dict[str, Place]) -> Iterator[Finding]:
        held = {name: content for name, content in sample.items() if content and not isinstance(content, DataError)}
        name = max(held, key=lambda each: len(held[each]), default=None)
        if name is None:
            return
        content, (member, offset) = held[name], places[name]
        if isinstance(content, range):
            self._report.unchecked["large contents for repeats"] += 1
            return
        before, other = self.contents.setdefault(blake2b(content, digest_size=16).digest(), (offset, key))
        if before != offset:
            reason = f"key {printable(other)} has the same content, at offset {before}"
            yield Finding(self.shard, "repeated-content", reason, key, name, member, offset)

    def _to_decode(self, key: str, sample: dict[str, Any], places: dict[str, Place]) -> Iterator[Any]:
        for_process = {}
        for name, content in sample.items():
            found: Iterable[Any] = ()
            if isinstance(content, range):
                found = [("not-decoded", f"not decoded: {len(content)} bytes are more than {_LARGEST}", True)]
            elif isinstance(content, bytes) and content and needs_process(name):
                for_process[name] = content
            elif isinstance(content, bytes) and content:
                found = content_problems(name, content)
            yield from as_findings(self.shard, key, name, places[name], found, self._report)
        if for_process:
            yield DecodeBatch(self.shard, key, for_process, places)

    def _compared_index(self, index: ShardIndex | None) -> Iterator[Finding]:
        if index is not None and not self.is_regular:
            self._report.unchecked["index of a shard with damage, repeated keys or fields"] += 1
            return
        if index is not None and not self._stale and len(index) != self.samples:
            self._stale = f"it has {counted(len(index), 'sample')}, and the shard {self.samples}"
        if self._stale:
            name = display_name(index_url(self.url))
            yield Finding(self.shard, "stale-index", f"the index {name}: {self._stale}; {ANEW}")
