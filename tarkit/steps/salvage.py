"""Save the whole samples of damaged shards, and report what was lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tarkit.errors import CompressionError, CorruptHeaderError, NotATarError, TruncatedError, escaped, printable
from tarkit.formats.tally import BESIDE_DAMAGE, INCOMPLETE, Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.names.keywords import Unpack
from tarkit.samples.read import ReadOptions, placed_samples
from tarkit.samples.sample import Sample, first_dot, key_rule
from tarkit.store.read import open_read

_OF_WHOLE_SHARDS = NotATarError, CorruptHeaderError, TruncatedError, CompressionError
"""Errors of shards in which no header was found."""


class Lost(NamedTuple):
    """A stretch of a shard without a sample that could be saved.

    Attributes:
        shard: URL of the shard, without secrets.
        start: offset of the first lost byte in the uncompressed shard; None: a whole member is not
            delivered, such as a hard link.
        end: offset after the last lost byte; None: the end of the shard.
        samples: number of samples that were dropped, since they may not be whole.
        after: key of the last sample before it that was saved, or None.
        before: key of the first sample behind it that was saved, or None.
    """

    shard: str
    start: int | None
    end: int | None
    reason: str
    samples: int
    after: str | None
    before: str | None

    def __str__(self) -> str:
        after = "the beginning" if self.after is None else f"key {printable(self.after)}"
        before = "the end" if self.before is None else f"key {printable(self.before)}"
        end = "the end" if self.end is None else self.end
        place = "" if self.start is None else f"offset {self.start} to {end}, "
        return f"{escaped(self.shard)}: {place}between {after} and {before}: {self.reason}"


def salvaged_samples(
    urls: Iterable[str], report: Callable[[Lost], object], **options: Unpack[ReadOptions]
) -> Iterator[Sample]:
    """Yield the whole samples of shards, and pass on what was lost between them.

    The samples on both sides of a lost stretch are dropped, since they may not be whole; before a
    member that is cut, only its own sample.

    Args:
        urls: paths or URLs of the shards.
        report: called with each loss.
        options: those of :func:`tarkit.samples.read.read_samples`.
    """
    tally = options.get("tally") or Tally()
    for url in urls:
        with open_read(url) as stream:
            tally.part_read = stream.part_read
            samples = placed_samples(
                stream.read, url=stream.name, rule=key_rule(options.get("rule", first_dot)), on_damage="skip",
                tally=tally, large=KeepInFiles(), on_repeated_key=options.get("on_repeated_key", "error"),
                on_duplicate_field=options.get("on_duplicate_field", "error"),
            )  # fmt: skip
            yield from _between(samples, stream.name, report, tally)
        tally.part_read = None
        tally.shards += 1


def _between(
    samples: Iterator[tuple[int, Sample]], shard: str, report: Callable[[Lost], object], tally: Tally
) -> Iterator[Sample]:
    """Yield the samples of one shard, and report what was lost between them."""
    key: str | None = None
    known, dropped = len(tally.damage), _dropped(tally)
    while True:
        stretches: list[tuple[int | None, int | None, str]] = []
        try:
            offset, sample = next(samples, (sys.maxsize, None))
        except _OF_WHOLE_SHARDS as error:
            offset, sample = sys.maxsize, None
            stretches.append((error.offset or 0, None, error.reason))
        before = None if sample is None else sample["__key__"]
        # A sample is yielded when the next member is known, which may be cut.
        while known < len(tally.damage) and tally.damage[known][1] < offset:
            stretches.append(tally.damage[known][1:])
            known += 1
        more = _dropped(tally) - dropped
        if more and not stretches:
            stretches.append((None, None, "a member whose content is not in the shard, such as a hard link"))
        for start, end, why in stretches:
            report(Lost(shard, start, end, why, more, key, before))
            dropped, more = dropped + more, 0
        if sample is None:
            return
        key = before
        yield sample


def _dropped(tally: Tally) -> int:
    return tally.skipped.get(BESIDE_DAMAGE, 0) + tally.skipped.get(INCOMPLETE, 0)
