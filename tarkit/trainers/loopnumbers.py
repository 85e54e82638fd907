"""Numbers of a training loop while it runs: its speed, its waiting, and what limits it."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

from tarkit.trainers.delivery import KINDS
from tarkit.trainers.stageclock import IDLE, STAGES, StageClock, WorkerNumbers, WorkerTimes

_log = logging.getLogger("tarkit.trainers")
_SECOND = 1e9
_MEGABYTE = 1e6
_HARDLY = 0.03
"""Share of its time below which waiting does not limit a loop."""
LIMITS = {
    "ordering": "ordering",
    "fetching": "network",
    "reading": "reading",
    "decoding": "decoding",
    "collating": "collating",
    "idle": "pipe",
}
"""Stage in which workers spend most of their time -> what limits a loop that waits for them."""
SHOWN = {limit: limit for limit in LIMITS.values()} | {
    "loop": "the loop itself",
    "network": "the network",
    "pipe": "the pipe from the workers",
}
"""Limit -> its name in a line for people."""
_SHOW = "logging.basicConfig(level=logging.INFO) shows them"


def limit_of(waits: float, shares: Mapping[str, float]) -> str | None:
    """Return what limits a loop: ``loop``, or a value of ``LIMITS``.

    A loop that waits for less than 3 % of its time is limited by its own work. Otherwise the stage
    in which the workers spend most of their time is the limit; if they are mostly idle although the
    loop waits, it is the pipe, which takes the batches from them to the loop.

    Args:
        waits: share of the loop's time in which it waits for a batch, from 0 to 1.
        shares: stage -> share of the workers' time, a key for each stage that can be the limit.

    Returns:
        The limit; None if the loop waits and the workers have not made a batch in that time.
    """
    if waits < _HARDLY:
        return "loop"
    stage = max(shares, key=shares.__getitem__, default=None)
    return LIMITS[stage] if stage is not None and shares[stage] > 0 else None


class _Marks(NamedTuple):
    """Sums at one moment, or between two; times in nanoseconds.

    Attributes:
        now: time.
        batches, samples, bytes: numbers of what the loop was given.
        waited: time in which the loop waited, without that for the first batch.
        made, processor: samples that the workers made, and their processor time.
        stages: time of the workers in each stage.
    """

    now: int = 0
    batches: int = 0
    samples: int = 0
    bytes: int = 0
    waited: int = 0
    made: int = 0
    processor: int = 0
    stages: tuple[int, ...] = (0,) * len(STAGES)

    def combined(self, other: _Marks, sign: int) -> _Marks:
        """Return the sum of both, or with a ``sign`` of -1 the difference."""
        *mine, stages = self
        *others, other_stages = other
        all_stages = tuple(one + sign * two for one, two in zip(stages, other_stages, strict=True))
        return _Marks._make((*(one + sign * two for one, two in zip(mine, others, strict=True)), all_stages))


class _Rates(NamedTuple):
    """Rates between two moments; None where no time passed.

    Attributes:
        samples: samples a second.
        megabytes: millions of bytes of samples a second.
        waits: share of the time in which the loop waited.
        shares: stage -> share of the workers' time; without ``idle`` in the loop's own process,
            which then does the loop's work.
    """

    samples: float | None
    megabytes: float | None
    waits: float | None
    shares: dict[str, float]

    @property
    def limit(self) -> str | None:
        return None if self.waits is None else limit_of(self.waits, self.shares)

    def shown(self) -> dict[str, Any]:
        return {
            "samples_per_second": self.samples,
            "megabytes_per_second": self.megabytes,
            "waits": self.waits,
            "limit": self.limit,
        }


class LoopNumbers:
    """Counts and times of a loop and of its workers.

    Args:
        workers: number of worker processes; 0 if the process of the loop makes the batches.
        log_every: seconds between two lines of the log; 0 for none.
    """

    def __init__(self, workers: int = 0, log_every: float = 0) -> None:
        self.shared = WorkerNumbers(max(1, workers))
        """Numbers that the workers write."""
        self._workers = workers
        self._every = log_every * _SECOND
        self._sums, self._later, self._errors = Counter[str](), _Marks(), Counter[str]()
        """Of earlier iterations: what they gave, what came after their first batch, and errors."""
        self._reset(None)

    def _reset(self, epoch: int | None) -> None:
        self._epoch, self._gaps = epoch, Counter[str]()
        self._marks = self._first = self._logged = self._given = _Marks()
        self._wait = self._first_wait = 0
        self._due = math.inf

    def begin(self, epoch: int | None, clock: StageClock) -> None:
        """Begin an iteration.

        Args:
            epoch: its number; None if a service deals the batches.
            clock: clock of this process, for the batches that it makes itself.
        """
        self._sums, self._later, self._errors = self._totals()
        self._reset(epoch)
        self._asked = perf_counter_ns()
        self.shared.begin()
        clock.attach(self.shared, 0)
        if self._every and not _log.isEnabledFor(logging.INFO):
            _log.warning("log_every= writes lines of level INFO, which are not shown: %s", _SHOW)

    def timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the iteration, and time how long each takes to come."""
        clock = perf_counter_ns
        for batch in batches:
            self._now = clock()
            self._wait += self._now - self._asked
            yield batch
            self._asked = clock()

    def given(self, batch: int, gaps: Counter[str]) -> None:
        """Count the batch that has come.

        Args:
            batch: its number among those of the loader.
            gaps: counts of the missing samples of this iteration.
        """
        samples, size = self.shared.size_of(batch)
        before, self._gaps = self._marks, gaps
        wait, self._wait = self._wait, 0
        self._marks = _Marks(
            self._now, before.batches + 1, before.samples + samples, before.bytes + size, before.waited + wait
        )
        if not before.batches:  # its time is that of the start
            self._first_wait = wait
            self._marks = self._marks._replace(waited=0)
            self._first = self._logged = self._given = self._current()
            self._due = self._now + self._every if self._every else math.inf
        elif self._now >= self._due:
            self._due = self._now + self._every
            self._logged = self._log(self._logged)

    def _current(self, workers: Sequence[WorkerTimes] | None = None) -> _Marks:
        """Return the sums with those of the workers: of now (they go on), or the given ones."""
        workers = workers or self.shared.times()
        made, processor = (sum(each) for each in zip(*((one.samples, one.processor) for one in workers), strict=True))
        stages = tuple(map(sum, zip(*(times.stages for times in workers), strict=True)))
        return self._marks._replace(made=made, processor=processor, stages=stages)

    def _rates(self, passed: _Marks) -> _Rates:
        stages = dict(zip(STAGES, passed.stages, strict=True))
        if not self._workers:
            del stages["idle"]
        whole = max(1, sum(stages.values()))
        shares = {stage: time / whole for stage, time in stages.items()}
        if passed.now <= 0:
            return _Rates(None, None, None, shares)
        seconds = passed.now / _SECOND
        size = passed.bytes / _MEGABYTE
        return _Rates(passed.samples / seconds, size / seconds, passed.waited / passed.now, shares)

    def _log(self, since: _Marks) -> _Marks:
        marks = self._current()
        rates = self._rates(marks.combined(since, -1))
        name = "" if self._epoch is None else f"epoch {self._epoch}: "
        speed = f"{_shown(rates.samples or 0)} samples/s, {_shown(rates.megabytes or 0)} MB/s"
        limit = "" if rates.limit is None else f" (limit: {SHOWN[rates.limit]})"
        waits = f"the loop waits {100 * (rates.waits or 0):.0f} %"
        _log.info("%s%s samples, %s, %s%s", name, f"{marks.samples:,}", speed, waits, limit)
        return marks

    def _totals(self) -> tuple[Counter[str], _Marks, Counter[str]]:
        """Return the sums over all iterations, with this one."""
        marks = self._current()
        sums = self._sums.copy()
        sums.update(batches=marks.batches, samples=marks.samples, bytes=marks.bytes, first=self._first_wait)
        later = marks.combined(self._first, -1) if marks.batches else _Marks()
        return sums, self._later.combined(later, 1), self._errors + self._gaps

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of this iteration, or of the last one; see the loader."""
        workers = self.shared.times()
        marks = self._current(workers)
        passed = marks.combined(self._first, -1)
        return {
            "epoch": self._epoch,
            "batches": marks.batches,
            "samples": marks.samples,
            "bytes": marks.bytes,
            "seconds": passed.now / _SECOND,
            "first_batch_seconds": self._first_wait / _SECOND,
            **self._rates(passed).shown(),
            **{kind: self._gaps[kind] for kind in KINDS},
            "read_ahead": marks.made - marks.samples,
            "workers": [_worker(times) for times in workers],
            "total": self._total(),
        }

    def _total(self) -> dict[str, Any]:
        sums, later, errors = self._totals()
        return {
            **{name: sums[name] for name in ("batches", "samples", "bytes")},
            "seconds": later.now / _SECOND,
            "first_batch_seconds": sums["first"] / _SECOND,
            **self._rates(later).shown(),
            **{kind: errors[kind] for kind in KINDS},
            "workers": {
                "samples": later.made,
                **{stage: time / _SECOND for stage, time in zip(STAGES, later.stages, strict=True)},
                "processor": later.processor / _SECOND,
            },
        }

    def scalars(self) -> dict[str, float]:
        """Return the rates since the last call, and sums of all iterations; see the loader."""
        marks = self._current()
        rates, self._given = self._rates(marks.combined(self._given, -1)), marks
        sums, _, errors = self._totals()
        known = {
            "samples_per_second": rates.samples,
            "megabytes_per_second": rates.megabytes,
            "loop_waits": rates.waits,
            **{f"workers_{stage}": share for stage, share in rates.shares.items()},
            "samples": sums["samples"],
            **{kind: errors[kind] for kind in KINDS},
        }
        return {f"tarkit/{name}": float(value) for name, value in known.items() if value is not None}


def _worker(times: WorkerTimes) -> dict[str, Any]:
    spent = max(1, sum(times.stages))
    return {
        "batches": times.batches,
        "samples": times.samples,
        "bytes": times.bytes,
        **{stage: time / _SECOND for stage, time in zip(STAGES, times.stages, strict=True)},
        "idle_share": times.stages[IDLE] / spent,
        "processor_share": times.processor / spent,
    }


def _shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
