"""How many samples of a run went where, and how many of them may fail."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tarkit.errors import UsageError
from tarkit.formats.tally import Tally

_RATE_AFTER = 100
"""Samples after which a limit in percent is looked at; before, one failure is too many percent."""


class Limit(NamedTuple):
    """How many samples may fail: a count, or a percentage of the samples so far."""

    number: int | None = 100
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """From ``N`` or ``P%``.

        Raises:
            UsageError: it is neither.
        """
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", text.strip())
        if match is None or (match[2] and float(match[2]) > 100):
            raise UsageError(f"{text!r} is no limit for errors; say a number, such as 100, or a percentage, such as 1%")
        return cls(int(match[1])) if match[1] else cls(None, float(match[2]))

    def exceeded(self, failed: int, seen: int, *, at_end: bool = False) -> bool:
        """Whether so many failures are too many."""
        if self.number is not None:
            return failed > self.number
        if self.percent is None or (seen < _RATE_AFTER and not at_end):
            return False
        return failed * 100 > self.percent * seen

    def __str__(self) -> str:
        return str(self.number) if self.number is not None else f"{self.percent:g}%"


@dataclass
class Books:
    """How many samples went where. ``read + added == out + filtered + failed``, or there is a bug.

    read: samples that were processed. out: samples written, or without output, done. added:
    how many more than one were made of single samples. filtered: samples of which nothing
    was left. failed: samples set aside or dropped. ignored: samples in out whose command failed, by
    the policy ignore. stray_files: files left in samples' folders that belong to no sample.
    """

    read: int = 0
    out: int = 0
    added: int = 0
    filtered: int = 0
    failed: int = 0
    ignored: int = 0
    stray_files: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, other: Books) -> None:
        """Take another run's books into these."""
        for each in dataclasses.fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, int):
                setattr(self, each.name, mine + theirs)
        for kind, count in other.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + count

    def as_dict(self) -> dict[str, int]:
        """The counts of samples, as reports and records have them."""
        return {
            "in": self.read,
            "added": self.added,
            "out": self.out,
            "filtered": self.filtered,
            "failed": self.failed,
            "ignored": self.ignored,
        }

    def balanced(self) -> bool:
        """Whether every sample is accounted for."""
        return self.read + self.added == self.out + self.filtered + self.failed


def lost_anything(books: Books, tally: Tally) -> bool:
    """Whether the exit code must say that samples were set aside."""
    return bool(books.failed or tally.lost_anything)
