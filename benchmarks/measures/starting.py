"""How long a user waits before anything happens at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from environments import Settings, call, tarkit_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns


def _starter(command: Sequence[str | Path], times: int) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        shortest = float("inf")
        for _ in range(times):
            begin = time.perf_counter()
            call(command)
            shortest = min(shortest, time.perf_counter() - begin)
        return Trial(shortest, {"starts": times})

    return run


def start_up(settings: Settings) -> Result:
    """``tarproc --help`` against an interpreter of the same environment that does nothing."""
    environment = tarkit_environment(settings.work)
    times = 3 if settings.quick else 20
    sides = [
        Side("tarproc --help", _starter([environment.program("tarproc"), "--help"], times)),
        Side("python -c pass", _starter([environment.python, "-c", "pass"], times)),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"start-up, shortest of {times} starts a round",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(5, at_least=False),
        agree=("starts",),
    )
    return Result([line], raw_trials(trials))
