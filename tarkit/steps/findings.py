"""Findings of a check of shards: their kinds, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import (
    EXIT_DATA,
    DataError,
    NotATarError,
    TruncatedError,
    UnsupportedMemberError,
    counted,
    escaped,
    printable,
)
from tarkit.formats.tally import Tally

KINDS = {
    "unreadable": "the shard or manifest does not exist, or cannot be read",
    "not-a-tar": "the file is not a tar",
    "damage": "a header, an extended header, or the compression is damaged",
    "cut": "the shard is empty, ends inside a member, or without an end mark",
    "unsupported-member": "a field is a hard link, a sparse file, or of an unknown type",
    "repeated-key": "the key of another sample, of this or an earlier shard",
    "repeated-field": "two members of a sample have the same field",
    "repeated-content": "the largest field has the bytes of that of another sample",
    "repeated-shard": "the shard is named twice (it is checked once)",
    "missing-field": "a sample lacks a field of --require",
    "empty-member": "a member has 0 bytes; a warning where that may be intended, as in a text",
    "stale-index": "the index is not that of the shard",
    "stale-manifest": "the manifest has other shards, samples, sizes or checksums",
    "picture": "a picture is cut, damaged, or not a picture",
    "json": "a field is not valid JSON, has NaN, or a name twice in an object",
    "number": "a field such as cls is not a whole number",
    "text": "a text is not UTF-8",
    "array": "an array of NumPy is cut, damaged, or a pickle",
    "value": "a field of MessagePack or CBOR is damaged",
    "audio": "a sound file is cut, damaged, or of another format",
    "video": "an MP4 file is cut, or lacks a box",
    "crash": "the process that decoded the sample ended",
    "trailing-bytes": "warning: bytes follow the end of the content",
    "wrong-name": "warning: a picture of another format than its name says",
    "byte-order-mark": "warning: a JSON file begins with a byte order mark",
    "not-decoded": "warning: the content is too large for the decoder or the memory, or a TIFF that Pillow lacks",
}
"""Kind of a finding -> its meaning."""
UNCHECKED = "unchecked"
_MOST_MESSAGE = 160
_OF_ERRORS = {NotATarError: "not-a-tar", TruncatedError: "cut", UnsupportedMemberError: "unsupported-member"}


class Finding(NamedTuple):
    """One defect of a shard, index or manifest.

    Attributes:
        shard: URL of the shard, without secrets.
        kind: one of KINDS.
        offset: offset of the member's header in the uncompressed shard.
        beside: keys of further samples that the defect affects.
    """

    shard: str
    kind: str
    message: str
    key: str | None = None
    field: str | None = None
    member: str | None = None
    offset: int | None = None
    is_warning: bool = False
    beside: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the samples that the defect affects."""
        return (() if self.key is None else (self.key,)) + self.beside

    def __str__(self) -> str:
        parts = [] if self.key is None else [f"key {printable(self.key)}"]
        parts += [] if self.field is None else [printable(self.field)]
        parts += [] if self.offset is None else [f"offset {self.offset}"]
        place = f"{', '.join(parts)}: " if parts else ""
        return f"{escaped(self.shard)}: {place}{'warning: ' if self.is_warning else ''}{self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON, without fields that are None or empty."""
        return {name: value for name, value in self._asdict().items() if value not in (None, ())}


@dataclass
class CheckReport:
    """Counts of a check, filled while its findings are taken.

    Attributes:
        findings: kind -> number of findings that are not warnings.
        warnings: kind -> number of warnings.
        unchecked: reason -> number of contents that were not checked.
        bad_keys: number of keys in the list of bad keys.
        unlisted_keys: number of keys that it lacks, because they have a newline or NUL.
        codes: exit codes of the findings.
    """

    tally: Tally = field(default_factory=Tally)
    findings: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    bad_keys: int = 0
    unlisted_keys: int = 0
    codes: set[int] = field(default_factory=set)

    def count(self, finding: Finding) -> None:
        """Count a finding; the code of a shard that cannot be read is known already."""
        (self.warnings if finding.is_warning else self.findings)[finding.kind] += 1
        if not finding.is_warning and finding.kind != "unreadable":
            self.codes.add(EXIT_DATA)


def kind_of(error: DataError) -> str:
    """Return the kind of finding for damage of a shard."""
    return _OF_ERRORS.get(type(error), "damage")


class ContentProblem(NamedTuple):
    """A problem of the content of a field.

    Attributes:
        kind: a kind of finding; UNCHECKED: the content was not checked, for this reason.
        message: what is wrong, a phrase.
        is_warning: the content can be used.
    """

    kind: str
    message: str
    is_warning: bool = False


def bytes_behind(data: bytes, end: int) -> Iterator[ContentProblem]:
    """Yield a warning if there are bytes behind the end of a content."""
    if len(data) > end:
        what = f"{counted(len(data) - end, 'byte')} behind the end of the content"
        yield ContentProblem("trailing-bytes", what, True)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error of any library, shortened."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= _MOST_MESSAGE else f"{text[:_MOST_MESSAGE]}…"
