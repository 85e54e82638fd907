"""What a measurement is, and how it is taken: warm-up, turn by turn, agreement, medians."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Evidence = dict[str, int | str]
"""What one run produced: counts, byte totals, checksums. Sides that are compared must agree on it.
"""


class MeasureError(Exception):
    """A measurement could not be taken: a program is missing or failed, or its output is wrong."""


def say(text: str) -> None:
    """One line of progress for the person who waits."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Trial:
    """One timed run of one side: seconds, and what it produced."""

    seconds: float
    evidence: Evidence


@dataclass(frozen=True)
class Side:
    """One of the programs that take turns.

    ``run`` gets the number of the round; round 0 is the warm-up, whose time is thrown away and in
    which slow checks of the answer are made.
    """

    name: str
    run: Callable[[int], Trial]


@dataclass(frozen=True)
class Bar:
    """What a ratio, or a quantity, must be: at least, or at most, ``limit``."""

    limit: float
    at_least: bool

    def met(self, value: float) -> bool:
        """True if ``value`` is on the right side of the limit."""
        return value >= self.limit if self.at_least else value <= self.limit

    def text(self, unit: str = "") -> str:
        """As it stands in the table, for example ``>= 15x``."""
        return f"{'>=' if self.at_least else '<='} {self.limit:,g}{unit}"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    ``value`` is None when nothing can be said; ``note`` then says why.

    ``wrong``: something beside the value was not as it must be, so the bar is missed whatever the
    value.
    """

    measures: str
    ours: str
    theirs: str
    value: float | None
    unit: str
    spread: str
    bar: Bar | None
    note: str = ""
    wrong: bool = False

    @property
    def verdict(self) -> str:
        """met, missed, not measured, or that there is no bar."""
        if self.value is None:
            return "not measured"
        if self.bar is None:
            return "no bar"
        return "met" if self.bar.met(self.value) and not self.wrong else "**missed**"


@dataclass
class Result:
    """What a measurement hands back: lines for the table and everything raw for the JSON file."""

    lines: list[Line]
    raw: dict[str, object] = field(default_factory=dict)


def take_turns(sides: Sequence[Side], repeats: int) -> dict[str, list[Trial]]:
    """Every side once as warm-up, then ``repeats`` rounds in which each side has one turn.

    Returns the trials of each side by its name; the first is the warm-up.
    """
    trials: dict[str, list[Trial]] = {side.name: [] for side in sides}
    for number in range(repeats + 1):
        for side in sides:
            trial = side.run(number)
            trials[side.name].append(trial)
            say(f"    {'warm-up' if number == 0 else f'round {number}'}: {side.name}: {trial.seconds:.3f} s")
    return trials


def timed(trials: Sequence[Trial]) -> list[float]:
    """Seconds of the trials that count: all but the warm-up."""
    return [trial.seconds for trial in trials[1:]]


def shown(seconds: Sequence[float], amount: int, unit: str) -> str:
    """Median and spread, and how much was done in a second: ``1.20 s (1.18-1.31), 83,000
    samples/s``.
    """
    median = statistics.median(seconds)
    text = f"{median:.3g} s ({min(seconds):.3g}-{max(seconds):.3g})"
    return f"{text}, {amount / median:,.0f} {unit}/s" if amount else text


def disagreement(ours: Sequence[Trial], theirs: Sequence[Trial], keys: Sequence[str]) -> str:
    """What the two sides did not produce alike, in words; empty if they agree.

    Each key must be known to some trial of both sides, and have one value in all of them.
    """
    for key in keys:
        mine = {trial.evidence[key] for trial in ours if key in trial.evidence}
        other = {trial.evidence[key] for trial in theirs if key in trial.evidence}
        if not mine or not other:
            return f"{key}: nothing to compare"
        if len(mine | other) != 1:
            return f"{key} differ: {sorted(map(str, mine))} against {sorted(map(str, other))}"
    return ""


def compare(
    measures: str,
    trials: Mapping[str, list[Trial]],
    ours: str,
    theirs: str,
    bar: Bar | None,
    *,
    agree: Sequence[str],
    per_second: tuple[int, str] = (0, ""),
    note: str = "",
) -> Line:
    """The line that sets ``ours`` against ``theirs``.

    A bar of "at least", or none, is about speed (their time over ours), one of "at most" about time
    (ours over theirs). The value is the ratio of the medians; the spread is that of the ratios of
    the single rounds. Without agreement on every key of ``agree`` there is no ratio.
    """
    mine, other = timed(trials[ours]), timed(trials[theirs])
    amount, unit = per_second
    own_text, other_text = f"{ours}: {shown(mine, amount, unit)}", f"{theirs}: {shown(other, amount, unit)}"
    is_speed = bar is None or bar.at_least
    kind = "x speed" if is_speed else "x time"
    wrong = disagreement(trials[ours], trials[theirs], agree)
    if wrong:
        return Line(measures, own_text, other_text, None, kind, "", bar, f"the answers are not the same: {wrong}")
    ratios = [b / a if is_speed else a / b for a, b in zip(mine, other, strict=True)]
    ratio = statistics.median(mine) / statistics.median(other)
    value = 1 / ratio if is_speed else ratio
    return Line(measures, own_text, other_text, value, kind, f"{min(ratios):.2f}-{max(ratios):.2f}", bar, note)


def raw_trials(trials: Mapping[str, list[Trial]]) -> dict[str, object]:
    """All trials, as they go into the JSON file."""
    return {
        name: {
            "warm_up_seconds": some[0].seconds,
            "seconds": timed(some),
            "evidence": [trial.evidence for trial in some],
        }
        for name, some in trials.items()
    }
