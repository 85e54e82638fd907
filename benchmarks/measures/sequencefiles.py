"""Reading SequenceFiles: tarkit and PySpark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data import sequencefile
from environments import Environment, Settings, spark_environment, system_program, tarkit_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop


def _reader(environment: Environment, way: str, path: Path) -> Callable[[int], Trial]:
    def run(number: int) -> Trial:
        result = run_loop(environment, "read_sequencefile", [way, path, *(["check"] if number == 0 else [])])
        return Trial(result["seconds"], dict(result["evidence"]))

    return run


def against_spark(settings: Settings) -> Result:
    """Blocks compressed with snappy, on one core."""
    system_program("java", "openjdk-17-jre-headless")
    count = 50_000 if settings.quick else 1_000_000
    path = sequencefile(settings, count)
    ours, theirs = tarkit_environment(settings.work), spark_environment(settings.work)
    sides = [
        Side("read_pairs", _reader(ours, "tarkit", path)),
        Side("PySpark 4.3.0 local[1], count()", _reader(theirs, "spark-count", path)),
        Side("PySpark 4.3.0 local[1], toLocalIterator()", _reader(theirs, "spark-iterator", path)),
    ]
    trials = take_turns(sides, settings.repeats)
    lines = [
        compare(
            f"read {count:,} pairs of 12 + 100 bytes, blocks of snappy",
            trials,
            sides[0].name,
            side.name,
            Bar(3, at_least=True),
            agree=("pairs", "sums"),
            per_second=(count, "pairs"),
        )
        for side in sides[1:]
    ]
    return Result(lines, raw_trials(trials))
