"""RecordIO on the local disk: tarkit, pyrecordio."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from data import photo_shard
from environments import PYRECORDIO, Environment, Settings, pyrecordio_environment, tarkit_environment
from rounds import Bar, Line, MeasureError, Result, Side, Trial, compare, raw_trials, shown, take_turns, timed

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
        # What was in the records is compared once, in the warm-up; counts are compared in every
        # round.
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
        note = "half of each record is random" + (", safe writing to the disk included" if what == "write" else "")
        lines.append(
            _rate(f"{what} {count:,} RecordIO records of 4 KiB, snappy", trials[name], count, 4096 * count, 600, note)
        )
        raw.update(raw_trials(trials))
    return Result(lines, raw)


def of_photos(settings: Settings) -> Result:
    """A shard of photos as RecordIO: what a conversion costs per byte."""
    shard = photo_shard(settings, 200 if settings.quick else 1000)
    environment = tarkit_environment(settings.work)

    def run(_number: int) -> Trial:
        out = settings.fresh("tar_to_recordio") / "out.recordio"
        result = run_loop(environment, "tar_to_recordio", [shard.path, out])
        if result["evidence"] != {"records": shard.samples, "same": True}:
            raise MeasureError("the records are not the shard")
        return Trial(result["seconds"], result["evidence"])

    trials = take_turns([Side("convert", run)], settings.repeats)
    size = shard.path.stat().st_size
    what = f"convert {shard.samples:,} photo samples from tar to RecordIO, snappy"
    line = _rate(what, trials["convert"], shard.samples, size, 300, "safe writing to the disk included")
    return Result([line], raw_trials(trials))


def _rate(what: str, trials: list[Trial], count: int, size: int, bar: float, note: str) -> Line:
    """The median of bytes a second, against a fixed bar in MB/s."""
    seconds = timed(trials)
    rates = [size / each / 1e6 for each in seconds]
    return Line(
        what,
        f"tarkit: {shown(seconds, count, 'records')}",
        "a fixed bar",
        statistics.median(rates),
        " MB/s",
        f"{min(rates):,.0f}-{max(rates):,.0f}",
        Bar(bar, at_least=True),
        note,
    )
