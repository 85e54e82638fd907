"""Positions of samples by a digest of their content, and run files of such positions alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

from tarkit.errors import UsageError
from tarkit.exchange.picturehash import hash_library, picture_hash
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import PlaceOf, ordinal, value_of
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.slicereader import SliceReader
from tarkit.exchange.step import Step
from tarkit.formats.tally import check_policy
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import key_rule
from tarkit.samples.transforms import field_list
from tarkit.store.fieldfile import FieldFile

MISSING_POLICIES = ("error", "keep")
ALL_FIELDS = "content"
"""Name that stands for the content of all fields."""
DIGEST_SIZE = 16
"""Bytes of a digest of content: two of 10 billion samples have the same with odds of 1.5e-19."""
KEPT = b"\2"
"""Beginning of the value of a sample that is not compared, and kept; its reason follows."""
COMPARED = b"\1"
"""Beginning of the value of a sample that is compared; its digest follows."""


@dataclass(frozen=True)
class Digests(Step):
    """The digest of each sample: of the content of fields, without headers and names of members.

    Attributes:
        by: names of the fields, all of which a sample must have; none: all that it has.
        perceptual: name of a field with a picture, whose perceptual hash is compared instead.
        missing: error: a sample that lacks a field is a failed sample; keep: it is kept.

    Raises:
        UsageError: the fields are not valid.
        MissingExtraError: ``imagehash`` is not installed.
    """

    name: ClassVar[str] = "dedup"
    by: tuple[str, ...] = ()
    perceptual: str | None = None
    missing: str = "error"

    def __post_init__(self) -> None:
        check_policy("missing", self.missing, MISSING_POLICIES)
        if self.by and self.perceptual is not None:
            raise UsageError("samples are compared by the content of fields, or by a perceptual hash, not by both")
        names = self.by if self.perceptual is None else (self.perceptual,)
        if not all(names) or len({*names}) < len(names):
            raise UsageError(f"{','.join(names)!r} must be names of fields, each once, with commas between them")
        if self.perceptual is not None:
            hash_library()

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that are compared; none: all."""
        if self.perceptual is not None:
            return (self.perceptual,)
        return () if self.by == (ALL_FIELDS,) else tuple(sorted(self.by))

    def options(self) -> dict[str, Any]:
        kind = {} if self.perceptual is None else {"perceptual": hash_library().__version__}
        return {"by": ",".join(self.fields) or ALL_FIELDS, "missing": self.missing, **kind}

    def needs_keys(self, settings: ExchangeSettings) -> bool:
        # Each output has samples of one input, which is checked when it is read.
        return False

    def place_of(self, shard: int) -> PlaceOf:
        return lambda sample, number: self._value(sample) + ordinal(shard, number)

    def _value(self, sample: RawSample) -> bytes:
        fields = sample.fields()
        if lacking := [name for name in self.fields if name not in fields]:
            reason = f"without {field_list(lacking)}"
            if self.missing == "error":
                raise ValueError(f"{reason}; it has {field_list(fields)}")
            return KEPT + reason.encode("utf-8", "surrogateescape")
        if self.perceptual is not None:
            content = fields[self.perceptual]
            found = picture_hash(content if isinstance(content, bytes) else content.read())
            return KEPT + b"not a picture that can be decoded" if found is None else COMPARED + found
        if len(self.fields) == 1:
            return COMPARED + content_digest(fields[self.fields[0]])
        return COMPARED + fields_digest({name: fields[name] for name in self.fields or fields})


def content_digest(content: bytes | FieldFile) -> bytes:
    """Return the digest of the content of a field: BLAKE2b of 16 bytes, as ``b2sum -l 128``."""
    digest = blake2b(digest_size=DIGEST_SIZE)
    for piece in [content] if isinstance(content, bytes) else content.pieces():
        digest.update(piece)
    return digest.digest()


def fields_digest(fields: Mapping[str, bytes | FieldFile]) -> bytes:
    """Return the digest of several fields.

    It is that of name, NUL and digest of each, sorted by name.
    """
    digest = blake2b(digest_size=DIGEST_SIZE)
    for name, content in sorted(fields.items()):
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + content_digest(content))
    return digest.digest()


class DigestReader(SliceReader):
    """The samples of one slice, of which only positions and keys are kept."""

    def __init__(self, plan: Plan, step: Step, settings: ExchangeSettings, urls: Sequence[str], number: int) -> None:
        super().__init__(plan, step, settings, urls, number)
        self._rule = key_rule(settings.key_rule)
        self._uncompared = 0
        self._first_uncompared = ""

    def rows(self) -> Generator[Row, None, None]:
        """Yield the samples with their keys instead of their members."""
        with closing(super().rows()) as rows:
            for row in rows:
                key = row.key(self._rule)
                if row.position.startswith(KEPT):
                    self._uncompared += 1
                    reason = value_of(row.position)[1:].decode("utf-8", "surrogateescape")
                    self._first_uncompared = self._first_uncompared or f"key {key!r}: {reason}"
                yield Row(row.position, (), 0, key.encode("utf-8", "surrogateescape"))

    def facts(self) -> dict[str, Any]:
        """Return what the record of the run file has in addition, after all rows."""
        return {**super().facts(), "uncompared": self._uncompared, "first_uncompared": self._first_uncompared}
