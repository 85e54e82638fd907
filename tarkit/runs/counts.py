"""Counts of a run's samples and shards, and the limit of failed samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, TarkitError, UsageError, exit_code_of_all
from tarkit.formats.tally import Tally
from tarkit.names.redaction import redact

if TYPE_CHECKING:
    from tarkit.runs.donerecord import DoneRecord

MISSING_NAMES = 3
"""Largest number of missing inputs whose names are kept."""

_RATE_AFTER = 100
"""Number of samples after which a limit in percent is checked; before, one failure would exceed it.
"""


class TooManyErrorsError(TarkitError):
    """More samples failed than the limit allows, or no sample succeeded."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Limit(NamedTuple):
    """The limit of failed samples: a number, or a percentage of the samples so far."""

    number: int | None = 100
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse a limit: ``N`` or ``P%``."""
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", text.strip())
        if match is None or (match[2] and float(match[2]) > 100):
            raise UsageError(
                f"{text!r} is not a limit for errors; write a number, such as 100, or a percentage, such as 1%"
            )
        return cls(int(match[1])) if match[1] else cls(None, float(match[2]))

    def exceeded(self, failed: int, seen: int, *, at_end: bool = False) -> bool:
        """Return True if this many failures are above the limit."""
        if self.number is not None:
            return failed > self.number
        if self.percent is None or (seen < _RATE_AFTER and not at_end):
            return False
        return failed * 100 > self.percent * seen

    def __str__(self) -> str:
        return str(self.number) if self.number is not None else f"{self.percent:g}%"


@dataclass(repr=False)
class Counts:
    """Numbers of samples and shards by their outcome, which are printed as the line of a run's end.

    ``read + added == out + filtered + failed``, or there is a bug.

    In a run with an output for each input, the samples are those of the shards that it published,
    which ``shards_done`` counts.

    Attributes:
        read: samples that were processed.
        out: samples written, or without output, processed successfully.
        added: additional samples, where one sample became several.
        filtered: samples that became none.
        failed: samples that failed, by kind of failure in ``failures``.
        failed_output: the shard with the failed samples, or a pattern of such shards.
        ignored: samples in ``out`` whose command failed, by the policy ignore.
        emptied: fields of 0 bytes in the output that are new, or had content in the input.
        stray_files: files in samples' folders that belong to no sample.
        met: counts of the readers of these samples.
        empty: the run ends with 3, since no sample came out of it.
        shards_before: shards that an earlier run did.
        shards_set_aside: shards done now or before that lack samples.
        shards_with_failed: shards beside which failed samples are kept.
        recorded_in, recorded_out: samples in and out of all shards done now or before.
        codes: exit codes of shards that failed or whose input is missing, each once.
        missing_names: the first missing inputs.
    """

    read: int = 0
    out: int = 0
    added: int = 0
    filtered: int = 0
    failed: int = 0
    ignored: int = 0
    emptied: int = 0
    stray_files: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    failed_output: str | None = None
    met: Tally = field(default_factory=Tally)
    shards_done: int = 0
    shards_before: int = 0
    shards_failed: int = 0
    shards_missing: int = 0
    shards_set_aside: int = 0
    shards_with_failed: int = 0
    recorded_in: int = 0
    recorded_out: int = 0
    empty: bool = False
    missing_names: list[str] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, record: DoneRecord) -> Counts:
        """Return the counts of a shard's samples, from its record."""
        made = cls(emptied=record.emptied_fields)
        for word, name in _WORDS.items():
            setattr(made, name, record.samples.get(word, 0))
        return made

    def as_dict(self) -> dict[str, int]:
        """Return the counts of samples, as reports and records have them."""
        return {word: getattr(self, name) for word, name in _WORDS.items()}

    def sum_of_samples(self) -> str:
        """Return the counts of samples in one line: in + added = out + filtered + failed."""
        added = f" + added {self.added}" if self.added else ""
        return f"in {self.read}{added} = out {self.out} + filtered {self.filtered} + failed {self.failed}"

    def line(self, *, of_shards: bool) -> str:
        """Return all counts in one line: samples, shards, and those of the readers.

        Args:
            of_shards: the run has an output for each input.
        """
        parts = [self.sum_of_samples()]
        if self.ignored:
            parts.append(f"exit codes ignored: {self.ignored}")
        if self.failed_output is not None:
            parts.append(f"failed samples are in {redact(self.failed_output)}")
        parts += self.met.phrases()
        parts += self.emptied_phrase()
        if self.stray_files:
            parts.append(f"files that belong to no sample: {self.stray_files}")
        if of_shards:
            words = [f"done {self.shards_done}", f"done before {self.shards_before}", f"failed {self.shards_failed}"]
            words += [f"missing {self.shards_missing}"] if self.shards_missing else []
            parts[0] = f"shards: {', '.join(words)}; samples: {parts[0]}"
        return "; ".join(parts)

    def emptied_phrase(self) -> list[str]:
        """Return a phrase on fields that became empty, or an empty list."""
        return [f"fields of 0 bytes that had content, or are new: {self.emptied}"] if self.emptied else []

    def __str__(self) -> str:
        shards = self.shards_done + self.shards_before + self.shards_failed + self.shards_missing
        return self.line(of_shards=bool(shards))

    # Notebooks print the result of a cell by its repr.
    __repr__ = __str__

    def add(self, other: Counts) -> None:
        """Add the counts of other shards of the run."""
        _add(self, other)

    def add_up(self) -> bool:
        """Return True if every sample is accounted for."""
        return self.read + self.added == self.out + self.filtered + self.failed

    def count_shard(self, record: DoneRecord, *, before: bool = False) -> None:
        """Count one shard: done in this run or ``before``, or failed."""
        if record.state != "done":
            self.shards_failed += 1
            self.codes.add(record.exit_code)
            return
        self.shards_before += before
        self.shards_done += not before
        # A run that was interrupted and resumed ends like one that was not.
        self.shards_set_aside += record.exit_code == EXIT_SET_ASIDE
        self.shards_with_failed += record.failed_output is not None
        self.recorded_in += record.samples.get("in", 0)
        self.recorded_out += record.samples.get("out", 0)

    @property
    def nothing_came_out(self) -> bool:
        """Return True if samples came in and none came out, over this run and earlier ones."""
        return bool(self.read or self.recorded_in) and not (self.out or self.recorded_out)

    @property
    def lost_anything(self) -> bool:
        """Return True if samples were lost, as the policies allow."""
        return bool(self.failed or self.shards_set_aside or self.met.lost_anything)

    @property
    def exit_code(self) -> int:
        """Exit code of the run: that of failed shards, else 3 or 0.

        It is 3 if samples failed or none came out. For failed shards, see
        :func:`tarkit.errors.exit_code_of_all`.
        """
        return exit_code_of_all(self.codes) or (EXIT_SET_ASIDE if self.lost_anything or self.empty else EXIT_OK)


_WORDS = {"in": "read", **{name: name for name in ("added", "out", "filtered", "failed", "ignored")}}
"""The words of reports and done records for the counts of samples."""


def _add(total: Any, more: Any) -> None:
    for attribute, theirs in vars(more).items():
        if not theirs or isinstance(theirs, bool):
            # Booleans are decided once, of the sum.
            continue
        mine = getattr(total, attribute)
        if isinstance(mine, int):
            setattr(total, attribute, mine + theirs)
        elif isinstance(mine, dict):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        elif isinstance(mine, list):
            mine += theirs
        elif isinstance(mine, set):
            mine |= theirs
        elif isinstance(mine, Tally):
            _add(mine, theirs)
