"""The index of a shard: a text file with the place of each member of each sample.

The text is that of NVIDIA DALI's program ``wds2idx``, version ``v1.2``: the number of samples, then
a line for each of them, with field, offset, size and name of its members. If a name has a blank,
which DALI cannot read, the version is ``tarkit-v1``, in which blanks are escaped.
``docs/formats/tar-index.md`` is the specification. An index belongs to a shard, not to an archive:
the key rule decides which members are a sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tarkit.errors import DataError, MissingInputError, UsageError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK
from tarkit.formats.tar.large import SkipLarge
from tarkit.formats.tar.unread import Headers
from tarkit.formats.tar.walk import Archive, Member
from tarkit.names.outputnames import index_url, is_packed_name, seek_url
from tarkit.names.url import display_name
from tarkit.samples.sample import KeyRule, first_dot, group_by_keys, in_sample, key_rule, skip_reason
from tarkit.store.compression import SNIFF_BYTES, DecompressingReader, sniff
from tarkit.store.entries import remove
from tarkit.store.publish import open_publish
from tarkit.store.read import first_bytes, open_read
from tarkit.store.window import Window

_DALI, _ESCAPED = b"v1.2", b"tarkit-v1"
_FIRST_LINE = re.compile(rb"(v1\.2|tarkit-v1) ([0-9]{1,18})")
_MOST_FIRST = len(_ESCAPED) + 1 + 18 + 1
_NO_FIRST = "its first line is not v1.2, or tarkit-v1, and the number of samples"
_WORD, _NUMBER = rb"[^ \t-\r]+", rb"[0-9]{1,18}"
_MEMBER = b" ".join((_WORD, _NUMBER, _NUMBER, _WORD))
_LAST_MEMBER = b" ".join(b"(%b)" % each for each in (_WORD, _NUMBER, _NUMBER, _WORD))
_LINE = re.compile(rb"(?:%b )*%b" % (_MEMBER, _LAST_MEMBER))
_PLAIN_KEY = re.compile(rb"(?:.*/)?[^./]+", re.DOTALL)
_BLANK = re.compile(r"[ \t-\r]")
"""Characters that separate words for a program in C, or end lines."""
_FEW = 8
"""Number of lines up to which one is looked for from another one."""
_RAW_BLANK = re.compile(rb"[ \t-\r]")
_TO_ESCAPE = re.compile(rb"[ \t-\r%]")
_NO_ESCAPE = re.compile(rb"%(?!0[9A-D]|20|25)")

ANEW = "tarkit index --force makes a new one"


class IndexedMember(NamedTuple):
    """The place of one member of a sample.

    Attributes:
        field: name of the field.
        offset: offset of its content in the shard, in bytes.
        size: size of its content, in bytes.
        name: name of the member, from key and field.
    """

    field: str
    offset: int
    size: int
    name: str


class _Lines:
    """The lines of an index, whose text is not split.

    A process that begins reads one sample of each of tens of shards: with a line for each sample,
    it would wait mainly for new memory.

    Args:
        text: the text of the index.
        first: offset of the first of the lines, which is the second line of the text.
        count: number of lines.
    """

    def __init__(self, text: bytes, first: int, count: int) -> None:
        self._text, self._first, self._count = text, first, count
        self._found = count, len(text)
        """Number of a line, and the offset where it begins."""

    def __len__(self) -> int:
        return self._count

    def split(self) -> list[bytes]:
        """Return all lines."""
        return self._text.split(b"\n")[1:-1]

    def __getitem__(self, wanted: int) -> bytes:
        if not 0 <= wanted < self._count:
            raise IndexError(wanted)
        text, (number, begin) = self._text, self._found
        if abs(wanted - number) > _FEW:
            # Where it is if all are equally long.
            guess = self._first + (len(text) - self._first) * wanted // self._count
            begin = text.rfind(b"\n", 0, guess) + 1
            number = text.count(b"\n", self._first, begin)
        while number < wanted:
            number, begin = number + 1, text.index(b"\n", begin) + 1
        while number > wanted:
            number, begin = number - 1, text.rfind(b"\n", 0, begin - 1) + 1
        self._found = number, begin
        return text[begin : text.index(b"\n", begin)]


class ShardIndex:
    """The members of each sample of a shard.

    ``len()`` is the number of samples, ``[i]`` the members of sample i.

    Lines that were read are not verified before :meth:`check`. A trainer compares each sample that
    it reads with the sample's line; to verify the lines as well would take as much time in each of
    its processes as reading some of the samples. Reading finds a sample that the shard does not
    have; it does not find a repeated key, see :meth:`check_keys`. With a rule other than
    ``first_dot``, all lines must be checked, because a key may not be the text before the field in
    a name.

    Args:
        lines: lines of the index, one for each sample; None: an empty index, to which samples are
            added.
        url: URL of the index, for errors.
        rule: key rule by which the shard is read.
        escaped: True if names are escaped, as in version ``tarkit-v1``.
    """

    def __init__(
        self,
        lines: list[bytes] | _Lines | None = None,
        url: str = "",
        rule: KeyRule = first_dot,
        *,
        escaped: bool = False,
    ) -> None:
        # Text takes a tenth of the memory of tuples.
        self._lines = [] if lines is None else lines
        self._url, self._rule, self._escaped = url, rule, escaped
        self._is_good = self._has_good_keys = lines is None

    def __len__(self) -> int:
        return len(self._lines)

    def _all(self) -> list[bytes]:
        """Return all lines."""
        if isinstance(self._lines, _Lines):
            self._lines = self._lines.split()
        return self._lines

    def line(self, number: int) -> str:
        """Return the line of a sample as it is in the text."""
        return as_text(self._lines[number])

    def words(self, number: int) -> list[bytes]:
        """Return the line of a sample: field, offset, size and name of each member.

        Args:
            number: number of the sample, from 0.
        """
        words = self._lines[number].split(b" ")
        return [unquote_to_bytes(word) for word in words] if self._escaped else words

    def __getitem__(self, number: int) -> list[IndexedMember]:
        words = self.words(number)
        try:
            return [
                IndexedMember(as_text(words[at]), int(words[at + 1]), int(words[at + 2]), as_text(words[at + 3]))
                for at in range(0, len(words), 4)
            ]
        except (ValueError, IndexError):  # the line is wrong, and so the index
            self.check()
            raise

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the begin and end in the shard of the samples from ``start`` up to ``end``.

        The sample ``end`` is not included. The bytes have all headers of these samples, and may
        have members before them that belong to no sample.

        Args:
            start: number of the first sample, from 0.
            end: number after the last sample.
        """
        return self._end(start), self._end(end)

    def _end(self, number: int) -> int:
        """Return the offset where the samples before sample ``number`` end."""
        if not number:
            return 0
        try:
            _, offset, size, _ = self._lines[number - 1].rsplit(b" ", 3)
            end = int(offset) + int(size)
        except ValueError:  # the line is wrong, and so the index
            self.check()
            raise
        return end + -end % BLOCK

    def only(self, numbers: Iterable[int]) -> ShardIndex:
        """Return an index, verified before, with only what is needed to read these samples."""
        self.check()
        kept = {near for number in numbers for near in (number - 1, number)}
        lines = [line if number in kept else b"" for number, line in enumerate(self._all())]
        index = ShardIndex(lines, self._url, self._rule, escaped=self._escaped)
        index._is_good = index._has_good_keys = True
        return index

    def check_keys(self, near: int | None = None) -> None:
        """Check that no key is repeated.

        Args:
            near: number of a sample: check only that sample and its neighbours. None: check all.

        Raises:
            DataError: a key is repeated.
        """
        if self._has_good_keys:
            return
        numbers = () if near is None else range(max(0, near - 1), min(len(self), near + 2))
        lines = self._all() if near is None else [self._lines[number] for number in numbers]
        last = (line.rsplit(b" ", 4)[-4:] for line in lines)
        try:
            keys = {name[: -1 - len(field)] for field, _, _, name in last}
        except ValueError:
            keys = set()
        if len(keys) != len(lines):
            self.check()
        self._has_good_keys = near is None

    def check(self) -> None:
        """Verify all lines, unless that was done before.

        Raises:
            DataError: a line is not valid, see :func:`decode_index`.
        """
        if self._is_good:
            return
        keys, end = set[bytes](), 0
        for number, line in enumerate(self._all()):
            try:
                key, end = _key_and_end(line, end, self._rule, self._escaped)
                if key in keys:
                    raise ValueError("the key comes back after other samples")
            except ValueError as error:
                raise DataError(f"line {number + 2}: {error}", url=self._url, hint=ANEW) from None
            keys.add(key)
        self._is_good = self._has_good_keys = True

    def add(self, members: Sequence[IndexedMember]) -> None:
        """Add the next sample of the shard.

        Args:
            members: its members, in the order of the shard.
        """
        if not self._escaped and any(_BLANK.search(each.name) for each in members):
            self._escape()
        words = (
            b"%b %d %d %b" % (self._word(each.field), each.offset, each.size, self._word(each.name)) for each in members
        )
        self._all().append(b" ".join(words))

    def add_words(self, words: bytes, base: int) -> None:
        """Add the next sample of the shard.

        Args:
            words: field, offset, size and name of each member, a NUL after each.
            base: number that is added to the offsets.
        """
        each = words.split(b"\0")
        each.pop()
        each[1::4] = [b"%d" % (int(offset) + base) for offset in each[1::4]]
        if not self._escaped and _RAW_BLANK.search(words):
            self._escape()
        self._all().append(b" ".join([_escaped(word) for word in each] if self._escaped else each))

    def _escape(self) -> None:
        self._escaped = True
        self._lines = [line.replace(b"%", b"%25") for line in self._all()]

    def _word(self, text: str) -> bytes:
        word = text.encode("utf-8", "surrogateescape")
        return _escaped(word) if self._escaped else word

    def encode(self) -> bytes:
        """Return the text of the index."""
        version = _ESCAPED if self._escaped else _DALI
        return b"".join(line + b"\n" for line in (b"%b %d" % (version, len(self)), *self._all()))


def _escaped(word: bytes) -> bytes:
    return _TO_ESCAPE.sub(lambda found: b"%%%02X" % ord(found[0]), word)


def decode_index(text: bytes, url: str, rule: KeyRule = first_dot) -> ShardIndex:
    """Parse and verify the text of an index.

    Of each sample only the last member is verified: reading needs only the end of a sample from an
    index, and the sample itself is compared with its line when it is read.

    Args:
        text: contents of the index file.
        url: URL of the index, for errors.
        rule: key rule by which the shard is read.

    Raises:
        DataError: the text is not an index, is cut, has a key twice, or does not fit the key rule.
    """
    index = unchecked_index(text, url, rule)
    index.check()
    return index


def unchecked_index(text: bytes, url: str, rule: KeyRule = first_dot) -> ShardIndex:
    """Parse the text of an index without verifying its lines.

    Args:
        text: contents of the index file.
        url: URL of the index, for errors.
        rule: key rule by which the shard is read.

    Raises:
        DataError: the text is not an index, or is cut.
    """
    end = text.find(b"\n")
    match = _FIRST_LINE.fullmatch(text, 0, max(0, end))
    if match is None:
        raise DataError(_NO_FIRST, url=url, hint=ANEW)
    if not text.endswith(b"\n"):
        raise DataError("its last line has no end, so it was cut", url=url, hint=ANEW)
    count = text.count(b"\n", end + 1)
    if count != int(match[2]):
        raise DataError(f"its first line counts {int(match[2])} samples, and {count} follow", url=url, hint=ANEW)
    return ShardIndex(_Lines(text, end + 1, count), url, rule, escaped=match[1] == _ESCAPED)


def _key_and_end(line: bytes, before: int, rule: KeyRule, escaped: bool) -> tuple[bytes, int]:
    """Return the key of a sample, and the offset where the sample ends.

    Args:
        before: offset where the sample before it ends.
        escaped: True if names are escaped.

    Raises:
        ValueError: the line is not valid for a shard.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("it is not field, offset, size and name of each member, with one blank between words")
    field, offset, size, name = match.groups()
    if escaped:
        if _NO_ESCAPE.search(line):
            raise ValueError("a % is not followed by the number of a blank, a line break or %")
        field, name = unquote_to_bytes(field), unquote_to_bytes(name)
    begin = int(offset)
    end = begin + int(size)
    if begin % BLOCK or begin < before + BLOCK:
        raise ValueError(f"no member begins at offset {begin}: it is not behind a header of its own")
    key = name[: -1 - len(field)]
    plain = rule is first_dot and b"__" not in name and name == key + b"." + field
    if not plain or not ((name.find(b".") == len(key) > 0 and key[-1:] != b"/") or _PLAIN_KEY.fullmatch(key)):
        # A rare case. The test above is the rule of the first dot.
        text = as_text(name)
        split = rule(text) if skip_reason(text, rule) is None else None
        if split is None or split[1] != as_text(field):
            raise ValueError("its names are not those of one sample by this key rule")
        key = split[0].encode("utf-8", "surrogateescape")
    return key, end + -end % BLOCK


def as_text(name: bytes) -> str:
    """Decode a word of an index, which may have bytes that are not UTF-8."""
    return name.decode("utf-8", "surrogateescape")


class _Place:
    """Stand-in for the content of a member, with its offset and size in the shard."""

    def __init__(self, name: str, offset: int, size: int) -> None:
        self.name, self.offset, self.size = name, offset, size

    def __len__(self) -> int:
        return self.size


def count_of_index(url: str) -> int:
    """Return the number of samples of a shard from the first line of its index.

    Nothing else of the index is read.

    Args:
        url: path or URL of the shard.

    Raises:
        UsageError: the shard's name does not end in ``.tar``.
        DataError: the file beside it is not an index.
        MissingInputError: the shard has no index.
        StreamError: the index cannot be read.
        TemporaryStreamError: the index cannot be read now.
    """
    name = index_url(url)
    line, newline, _ = first_bytes(name, _MOST_FIRST, compression=None).partition(b"\n")
    match = _FIRST_LINE.fullmatch(line)
    if match is None or not newline:
        raise DataError(_NO_FIRST, url=display_name(name), hint=ANEW)
    return int(match[2])


def build_index(
    url: str,
    *,
    rule: str | KeyRule = first_dot,
    tally: Tally | None = None,
    update: Callable[[bytes], object] | None = None,
) -> ShardIndex:
    """Make the index of a shard by reading it once, with all checks of the reader.

    The offsets in the index of a compressed shard are those of its content.

    Args:
        url: path or URL of the shard.
        rule: key rule: ``first-dot``, ``last-dot`` or a regular expression of two groups.
        tally: filled with counts of samples and skipped members.
        update: called with all bytes of the shard, like the method of a digest.

    Raises:
        UsageError: a shard of this name has no index, or it ends in ``.tar`` and the shard is
            compressed.
        DataError: the shard is damaged, or has repeated keys or fields.
        MissingInputError: the shard does not exist.
        StreamError: the shard cannot be read.
        TemporaryStreamError: the shard cannot be read now.
    """
    index_url(url)
    rule, tally = key_rule(rule), Tally() if tally is None else tally
    index = ShardIndex()
    with open_read(url, compression=None) as stream:
        window = Window(stream.read if update is None else digesting(stream.read, update))
        codec, read = sniff(window.peek(SNIFF_BYTES)), window.read
        if codec is not None:
            if not is_packed_name(url):
                raise UsageError(f"{stream.name} is compressed ({codec}), and its name does not say so: rename it")
            read = DecompressingReader(window.read, codec, stream.name).read
        _add_all(index, Archive(read, stream.name, tally, in_sample(rule), SkipLarge()), rule)
    return index


def index_of_headers(shard: Headers, rule: KeyRule, tally: Tally) -> ShardIndex:
    """Make the index of a shard that is opened for its headers, with all checks of the reader.

    Raises:
        DataError: the shard is damaged, or has repeated keys or fields.
    """
    index = ShardIndex()
    _add_all(index, Archive(shard.read, shard.name, tally, in_sample(rule), shard.large), rule)
    return index


def _add_all(index: ShardIndex, archive: Archive, rule: KeyRule) -> None:
    for sample in group_by_keys(_places(archive), url=archive.url, rule=rule, tally=archive.tally):
        places = {field: place for field, place in sample.items() if isinstance(place, _Place)}
        index.add([IndexedMember(field, each.offset, each.size, each.name) for field, each in places.items()])


def digesting(read: Callable[[int], bytes], update: Callable[[bytes], object]) -> Callable[[int], bytes]:
    """Return a function like ``read`` that passes what it returns to ``update``, too."""

    def reading(count: int) -> bytes:
        data = read(count)
        update(data)
        return data

    return reading


def _places(archive: Archive) -> Iterator[Member]:
    for name, content, header_offset in archive.members():
        size = len(content)
        # The archive's position is behind the content and its padding.
        offset = archive.base + archive.position - size - -size % BLOCK
        yield name, _Place(name, offset, size) if name else content, header_offset


def publish_index(index: ShardIndex, url: str, seek: bytes | None = None) -> None:
    """Write the index of a shard beside it, whole or not at all.

    Args:
        index: the index.
        url: path or URL of the shard.
        seek: the file of seek points that a compressed shard needs beside it, written first.

    Raises:
        UsageError: the shard's name does not end in ``.tar``.
        StreamError: the index cannot be written.
        TemporaryStreamError: the index cannot be written now.
    """
    if seek is not None:
        with open_publish(seek_url(url), compression=None) as stream:
            stream.write(seek)
    with open_publish(index_url(url), compression=None) as stream:
        stream.write(index.encode())


def remove_index(url: str) -> None:
    """Remove the index of a shard, if it exists, and the seek points of a compressed one."""
    for name in [index_url(url), *([seek_url(url)] if is_packed_name(url) else [])]:
        with suppress(MissingInputError):
            remove(name)
