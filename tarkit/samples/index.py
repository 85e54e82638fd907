"""The index of a shard: where the content of each member of each sample is. It is a text file beside the shard.

The text is what NVIDIA DALI's program ``wds2idx`` writes, version ``v1.2``: the number of samples, then a line for each
of them, with field, offset, size and name of its members. ``docs/formats/tar-index.md`` is the specification. An index
is of a shard, not of an archive: it knows which members are a sample, by the key rule."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import DataError, MissingInputError, UsageError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK
from tarkit.formats.tar.large import SkipLarge
from tarkit.formats.tar.walk import Archive, Member
from tarkit.samples.sample import KeyRule, first_dot, group_by_keys, in_sample, key_rule, skip_reason
from tarkit.specs.outputnames import index_url
from tarkit.store.compression import SNIFF_BYTES, sniff
from tarkit.store.entries import remove
from tarkit.store.publish import open_publish
from tarkit.store.read import first_bytes, open_read
from tarkit.store.url import display_name
from tarkit.store.window import Window

_FIRST_LINE = re.compile(rb"v1\.2 ([0-9]{1,18})")
_MOST_FIRST = len(b"v1.2 ") + 18 + 1
_NO_FIRST = "its first line is not v1.2 and the number of samples"
_WORD, _NUMBER = rb"[^ \t-\r]+", rb"[0-9]{1,18}"
_MEMBER = b" ".join((_WORD, _NUMBER, _NUMBER, _WORD))
_LAST_MEMBER = b" ".join(b"(%b)" % each for each in (_WORD, _NUMBER, _NUMBER, _WORD))
_LINE = re.compile(rb"(?:%b )*%b" % (_MEMBER, _LAST_MEMBER))
_PLAIN_KEY = re.compile(rb"(?:.*/)?[^./]+", re.DOTALL)
_BLANK = re.compile(r"[ \t-\r]")
"""What separates words for a program in C, and ends lines."""

ANEW = "tarkit index --force makes it anew"


class IndexedMember(NamedTuple):
    """A member of a sample. offset: of its content in the shard. size: of that, in bytes. name: key and field."""

    field: str
    offset: int
    size: int
    name: str


class ShardIndex:
    """The members of each sample of a shard. ``len()`` is the number of samples, ``[i]`` the members of sample i."""

    def __init__(self) -> None:
        # Text and numbers take a tenth of the memory of tuples.
        self._lines: list[bytes] = []
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._lines)

    def words(self, number: int) -> list[bytes]:
        """The line of a sample: field, offset, size and name of each member."""
        return self._lines[number].split(b" ")

    def __getitem__(self, number: int) -> list[IndexedMember]:
        words = self.words(number)
        return [
            IndexedMember(as_text(words[at]), int(words[at + 1]), int(words[at + 2]), as_text(words[at + 3]))
            for at in range(0, len(words), 4)
        ]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where the bytes of the samples from ``start`` up to, not including, ``end`` begin and end in the shard. They
        have all headers of these samples, and may have members before them that belong to no sample."""
        return self._end(start), self._end(end)

    def _end(self, number: int) -> int:
        return self._ends[number]

    def bounds(self, start: int, end: int, size: int) -> Sequence[int]:
        """Where the samples from ``start`` on begin, and the last of them ends: those before ``end`` that span ``size``
        bytes at most; or the first of them alone."""
        stop = max(start + 1, bisect_right(self._ends, self._ends[start] + size, start, end + 1) - 1)
        return self._ends[start : stop + 1]

    def check_keys(self, near: int | None = None) -> None:
        """Raises: DataError: a key comes back; with ``near``, at the sample before or behind that one."""

    def checked(self) -> ShardIndex:
        """This index, of which all lines were verified. Raises: DataError: see :func:`decode_index`."""
        return self

    def add(self, members: Sequence[IndexedMember]) -> None:
        """The next sample of the shard. Its names have no blanks (:func:`has_blank`)."""
        last = members[-1]
        words = (f"{field} {offset} {size} {name}" for field, offset, size, name in members)
        self.append(" ".join(words).encode("utf-8", "surrogateescape"), last.offset + last.size + -last.size % BLOCK)

    def append(self, line: bytes, end: int) -> None:
        """The next sample by its line. end: where its last content and the padding of that end."""
        self._lines.append(line)
        self._ends.append(end)

    def encode(self) -> bytes:
        """The text."""
        return b"".join(line + b"\n" for line in (b"v1.2 %d" % len(self), *self._lines))


class UncheckedIndex(ShardIndex):
    """The index that a text is, of which no line is verified until it is :meth:`checked`.

    A trainer compares each sample that it reads with the sample's line, so to verify the lines, too, would only take
    time: in each of its processes as much as reading some of the samples. That the shard has no such sample is found by
    reading it; that a key comes back is not, see :meth:`check_keys`. With another rule than ``first_dot``, take it
    :meth:`checked`: a key may not be what is before the field in a name.

    Args:
        text, url, rule: see :func:`decode_index`.

    Raises:
        DataError: the text is not an index, or is cut.
    """

    def __init__(self, text: bytes, url: str, rule: KeyRule = first_dot) -> None:
        super().__init__()
        self._url, self._rule = url, rule
        self._has_good_keys = False
        first, newline, rest = text.partition(b"\n")
        match = _FIRST_LINE.fullmatch(first)
        if match is None:
            raise DataError(_NO_FIRST, url=url, hint=ANEW)
        *self._lines, cut = rest.split(b"\n")
        if cut or not newline:
            raise DataError("its last line has no end, so it was cut", url=url, hint=ANEW)
        if len(self) != int(match[1]):
            reason = f"its first line counts {int(match[1])} samples, and {len(self)} follow"
            raise DataError(reason, url=url, hint=ANEW)

    def __getitem__(self, number: int) -> list[IndexedMember]:
        try:
            return super().__getitem__(number)
        except (ValueError, IndexError):  # the line is wrong, and so the index
            return self.checked()[number]

    def bounds(self, start: int, end: int, size: int) -> Sequence[int]:
        found = [self._end(start), self._end(start + 1)]
        for number in range(start + 2, end + 1):
            if (stop := self._end(number)) > found[0] + size:
                break
            found.append(stop)
        return found

    def _end(self, number: int) -> int:
        """Where the samples before this one end, by the line of the last of them."""
        if not number:
            return 0
        try:
            _, offset, size, _ = self._lines[number - 1].rsplit(b" ", 3)
            end = int(offset) + int(size)
        except ValueError:
            return self.checked()._end(number)
        return end + -end % BLOCK

    def check_keys(self, near: int | None = None) -> None:
        if self._has_good_keys:
            return
        lines = self._lines if near is None else self._lines[max(0, near - 1) : near + 2]
        last = (line.rsplit(b" ", 4)[-4:] for line in lines)
        try:
            keys = {name[: -1 - len(field)] for field, _, _, name in last}
        except ValueError:
            keys = set()
        if len(keys) != len(lines):
            self.checked()
        self._has_good_keys = near is None

    def checked(self) -> ShardIndex:
        index, keys, end = ShardIndex(), set[bytes](), 0
        for number, line in enumerate(self._lines):
            try:
                key, end = _key_and_end(line, end, self._rule)
                if key in keys:
                    raise ValueError("the key comes back after other samples")
            except ValueError as error:
                raise self._wrong(number, error) from None
            keys.add(key)
            index.append(line, end)
        return index

    def _wrong(self, number: int, error: ValueError) -> DataError:
        return DataError(f"line {number + 2}: {error}", url=self._url, hint=ANEW)


def has_blank(name: str) -> bool:
    """Whether a key, field or name has a blank or a line break, so that it cannot be a word of an index."""
    return _BLANK.search(name) is not None


def decode_index(text: bytes, url: str, rule: KeyRule = first_dot) -> ShardIndex:
    """The index that a text is. Of each sample only the last member is looked at: where it ends is all that reading
    takes from an index, and the sample itself is compared with its line when it is read.

    url: of the text, for errors. rule: by which the shard is read.

    Raises:
        DataError: the text is not an index, is cut, has a key twice, or is of a shard that is read by another key rule.
    """
    return UncheckedIndex(text, url, rule).checked()


def _key_and_end(line: bytes, before: int, rule: KeyRule) -> tuple[bytes, int]:
    """The key of a sample, and where it ends. before: where the one before it does.
    Raises: ValueError: no shard has such a sample."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("it is not field, offset, size and name of each member, with one blank between words")
    field, offset, size, name = match.groups()
    begin = int(offset)
    end = begin + int(size)
    if begin % BLOCK or begin < before + BLOCK:
        raise ValueError(f"no member begins at offset {begin}: it is not behind a header of its own")
    key = name[: -1 - len(field)]
    plain = rule is first_dot and b"__" not in name and name == key + b"." + field
    if not plain or not (name.find(b".") == len(key) > 0 and key[-1:] != b"/" or _PLAIN_KEY.fullmatch(key)):
        # Seldom. The test above is that of the first dot.
        text = as_text(name)
        split = rule(text) if skip_reason(text, rule) is None else None
        if split is None or split[1] != as_text(field):
            raise ValueError("its names are not those of one sample by this key rule")
        key = split[0].encode("utf-8", "surrogateescape")
    return key, end + -end % BLOCK


def as_text(name: bytes) -> str:
    """A word of an index, which may have bytes that are not UTF-8."""
    return name.decode("utf-8", "surrogateescape")


class _Place:
    """Where the content of a member is: it takes the content's place among the members of a sample."""

    def __init__(self, name: str, offset: int, size: int) -> None:
        self.name, self.offset, self.size = name, offset, size

    def __len__(self) -> int:
        return self.size


def count_of_index(url: str) -> int:
    """The number of samples of a shard by the first line of its index, of which nothing else is read.

    Raises:
        UsageError: the shard's name does not end in ``.tar``.
        DataError: what is beside it is not an index.
        MissingInputError: it has no index. StreamError, TemporaryStreamError: that cannot be read.
    """
    name = index_url(url)
    line, newline, _ = first_bytes(name, _MOST_FIRST, compression=None).partition(b"\n")
    match = _FIRST_LINE.fullmatch(line)
    if match is None or not newline:
        raise DataError(_NO_FIRST, url=display_name(name), hint=ANEW)
    return int(match[1])


def build_index(
    url: str,
    *,
    rule: str | KeyRule = first_dot,
    tally: Tally | None = None,
    update: Callable[[bytes], object] | None = None,
) -> ShardIndex:
    """The index of a shard, which is read once, front to back, with all checks of the reader.

    update: takes all bytes of the shard, as a digest does.

    Raises:
        UsageError: its name does not end in ``.tar``, or it is compressed: such a shard has no index.
        DataError: it is damaged, has repeated keys or fields, or a name of a sample has a blank.
        MissingInputError, StreamError, TemporaryStreamError: it cannot be read.
    """
    index_url(url)
    rule, tally = key_rule(rule), Tally() if tally is None else tally
    index = ShardIndex()
    with open_read(url, compression=None) as stream:
        window = Window(stream.read if update is None else _passing(stream.read, update))
        if (codec := sniff(window.peek(SNIFF_BYTES))) is not None:
            raise UsageError(f"{stream.name} is compressed ({codec}); only a plain tar has an index")
        members = _places(Archive(window.read, stream.name, tally, in_sample(rule), SkipLarge()))
        for sample in group_by_keys(members, url=stream.name, rule=rule, tally=tally):
            places = {field: place for field, place in sample.items() if isinstance(place, _Place)}
            for place in places.values():
                if has_blank(place.name):
                    reason = "the name has a blank, which separates the words of an index"
                    hint = "such a shard has no index; it can be read without"
                    offset = place.offset - BLOCK
                    raise DataError(reason, url=stream.name, offset=offset, member=place.name, hint=hint)
            index.add([IndexedMember(field, each.offset, each.size, each.name) for field, each in places.items()])
    return index


def _passing(read: Callable[[int], bytes], update: Callable[[bytes], object]) -> Callable[[int], bytes]:
    def passing(count: int) -> bytes:
        data = read(count)
        update(data)
        return data

    return passing


def _places(archive: Archive) -> Iterator[Member]:
    for name, content, header_offset in archive.members():
        size = len(content)
        # The walk is behind the content and its padding.
        offset = archive.base + archive.position - size - -size % BLOCK
        yield name, _Place(name, offset, size) if name else content, header_offset


def publish_index(index: ShardIndex, url: str) -> None:
    """Write the index of a shard beside it, whole or not at all."""
    with open_publish(index_url(url), compression=None) as stream:
        stream.write(index.encode())


def remove_index(url: str) -> None:
    """Remove the index of a shard, if there is one."""
    with suppress(MissingInputError):
        remove(index_url(url))
