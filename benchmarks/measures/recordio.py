"""RecordIO on the local disk: tarkit, pyrecordio."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from environments import PYRECORDIO, Environment, Settings, pyrecordio_environment, tarkit_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, shown, take_turns, timed

from measures.loop import run_loop

AGREE = ("records", "record_bytes", "checksum")


def _writer(settings: Settings, environment: Environment, loop: str, count: int, size: int) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        path = settings.fresh(loop) / "out.recordio"
        result = run_loop(environment, loop, ["write", path, str(count), str(size)])
        settings.fresh(loop)
        return Trial(result["seconds"], result["evidence"])

    return run


def _reader(settings: Settings, environment: Environment, loop: str, count: int, size: int) -> Callable[[int], Trial]:
    path = settings.fresh(f"{loop}-{size}") / "in.recordio"
    run_loop(environment, loop, ["write", path, str(count), str(size)])

    def run(number: int) -> Trial:
        # What was in the records is compared once, in the warm-up; counts are compared in every round.
        result = run_loop(environment, loop, ["read", path, *(["check"] if number == 0 else [])])
        return Trial(result["seconds"], result["evidence"])

    return run


def _small(settings: Settings, what: str, side: Callable[..., Callable[[int], Trial]], bar: float) -> Result:
    count = 50_000 if settings.quick else 1_000_000
    ours, theirs = tarkit_environment(settings.work), pyrecordio_environment(settings.work)
    sides = [
        Side("tarkit.formats.recordio", side(settings, ours, "recordio_tarkit", count, 100)),
        Side(PYRECORDIO.replace("==", " "), side(settings, theirs, "recordio_pyrecordio", count, 100)),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"{what} {count:,} RecordIO records of 100 bytes",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(bar, at_least=True),
        agree=AGREE,
        per_second=(count, "records"),
        note="each with its own dialect and its own size of chunks",
    )
    return Result([line], raw_trials(trials))


def read_small(settings: Settings) -> Result:
    """Many small records: what a reader costs per record."""
    return _small(settings, "read", _reader, 4)


def write_small(settings: Settings) -> Result:
    """Many small records: what a writer costs per record, from opening the file to its close."""
    return _small(settings, "write", _writer, 3)


def large(settings: Settings) -> Result:
    """Records of 4 KiB, half of them random: what reading and writing cost per byte."""
    count = 5_000 if settings.quick else 100_000
    environment = tarkit_environment(settings.work)
    lines, raw = [], {}
    for what, side in (("read", _reader), ("write", _writer)):
        name = f"{what} 4 KiB"
        trials = take_turns([Side(name, side(settings, environment, "recordio_tarkit", count, 4096))], settings.repeats)
        seconds = timed(trials[name])
        rates = [count * 4096 / each / 1e6 for each in seconds]
        lines.append(
            Line(
                f"{what} {count:,} RecordIO records of 4 KiB, snappy",
                f"tarkit.formats.recordio: {shown(seconds, count, 'records')}",
                "a fixed bar",
                statistics.median(rates),
                " MB/s",
                f"{min(rates):,.0f}-{max(rates):,.0f}",
                Bar(600, at_least=True),
                "half of each record is random" + (", safe writing to the disk included" if what == "write" else ""),
            )
        )
        raw.update(raw_trials(trials))
    return Result(lines, raw)
