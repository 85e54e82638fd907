"""Reading TFRecord files: tarkit, TensorFlow's reader in C++, and PyPI's tfrecord, which checks no
checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from data import tfrecord_file
from environments import (
    Environment,
    Settings,
    pypi_tfrecord_environment,
    tarkit_environment,
    tensorflow_environment,
)
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

_CONTENT = ("records", "bytes", "checksum")
_NAMES = {
    "tarkit": "read_records",
    "tarkit-examples": "read_records and decode_example",
    "pypi": "tfrecord 1.14.6, tfrecord_iterator",
    "pypi-examples": "tfrecord 1.14.6, tfrecord_loader",
}


def _reader(environment: Environment, way: str, path: Path, count: int) -> Callable[[int], Trial]:
    def run(number: int) -> Trial:
        # What is in the records is compared once, in the warm-up.
        arguments = [way, path, str(count), *(["check"] if number == 0 else [])]
        result = run_loop(environment, "read_tfrecord", arguments)
        return Trial(result["seconds"], dict(result["evidence"]))

    return run


def _sides(environment: Environment, ways: dict[str, str], path: Path, count: int) -> list[Side]:
    return [Side(name, _reader(environment, way, path, count)) for name, way in ways.items()]


def against_tensorflow(settings: Settings) -> Result:
    """Records of 10 KiB."""
    count = 3_000 if settings.quick else 30_000
    path = tfrecord_file(settings, count, 10_240)
    ours = _sides(tarkit_environment(settings.work), {"read_records": "tarkit"}, path, count)
    ways = {
        "TFRecordDataset, one by one": "tensorflow",
        "TFRecordDataset, batches of 256": "tensorflow-batches",
        # All records are read and verified, and Python gets only the last one.
        "TFRecordDataset, all but the last skipped": "tensorflow-skip",
    }
    agreements = ((*_CONTENT, "pieces"), _CONTENT, ("last",))
    theirs = _sides(tensorflow_environment(settings.work), ways, path, count)
    trials = take_turns([*ours, *theirs], settings.repeats)
    lines = [
        compare(
            f"read {count:,} TFRecords of 10 KiB",
            trials,
            ours[0].name,
            side.name,
            Bar(0.8, at_least=True),
            agree=agree,
            per_second=(count, "records"),
        )
        for side, agree in zip(theirs, agreements, strict=True)
    ]
    return Result(lines, raw_trials(trials))


def write_small(settings: Settings) -> Result:
    """Records of 100 bytes, one by one: what a writer costs per record."""
    count = 50_000 if settings.quick else 1_000_000

    def writer(environment: Environment, way: str) -> Callable[[int], Trial]:
        def run(_number: int) -> Trial:
            path = settings.fresh(f"write-{way}") / "out.tfrecord"
            result = run_loop(environment, "write_tfrecord", [way, path, str(count), "100"])
            evidence = {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
            trial = Trial(result["seconds"], evidence)
            settings.fresh(f"write-{way}")
            return trial

        return run

    sides = [
        Side("RecordWriter", writer(tarkit_environment(settings.work), "tarkit")),
        Side("TFRecordWriter", writer(tensorflow_environment(settings.work), "tensorflow")),
    ]
    trials = take_turns(sides, settings.repeats)
    what = f"write {count:,} TFRecords of 100 bytes"
    note = "tarkit's file is on the disk at the end, TensorFlow's in the page cache"
    line = compare(
        what,
        trials,
        *(side.name for side in sides),
        Bar(0.83, at_least=True),
        agree=("bytes", "sha256"),
        per_second=(count, "records"),
        note=note,
    )
    return Result([line], raw_trials(trials))


def against_pypi(settings: Settings) -> Result:
    """Records of 100 bytes and 10 KiB; Examples of 1 and 10 kB, which tfrecord_loader decodes."""
    lines: list[Line] = []
    raw: dict[str, object] = {}
    decodes = "the peer decodes the Examples, tarkit gives their bytes: tfrecord_loader is the reader that it documents"
    for count, size, ours, theirs, note in (
        (500_000, 100, "tarkit", "pypi", "the peer verifies no checksum, and gives views of one buffer"),
        (30_000, 10_240, "tarkit", "pypi", "the peer verifies no checksum, and gives views of one buffer"),
        (100_000, 1_024, "tarkit", "pypi-examples", decodes),
        (100_000, 1_024, "tarkit-examples", "pypi-examples", "both decode"),
        (20_000, 10_000, "tarkit-examples", "pypi-examples", "both decode"),
    ):
        examples = theirs.endswith("examples")
        count = count // 10 if settings.quick else count
        path = tfrecord_file(settings, count, size, examples=examples)
        sides = [
            Side(_NAMES[ours], _reader(tarkit_environment(settings.work), ours, path, count)),
            Side(_NAMES[theirs], _reader(pypi_tfrecord_environment(settings.work), theirs, path, count)),
        ]
        trials = take_turns(sides, settings.repeats)
        what = f"read {count:,} {'Examples' if examples else 'TFRecords'} of {size:,} bytes"
        # Records and decoded Examples are not the same bytes; of both, all are counted in every
        # round.
        agree = ("pieces",) if ours == "tarkit" and examples else (*_CONTENT, "pieces")
        amount = (count, "records")
        names = (sides[0].name, sides[1].name)
        lines.append(compare(what, trials, *names, Bar(10, at_least=True), agree=agree, per_second=amount, note=note))
        raw[f"{what}, {ours}"] = raw_trials(trials)
    return Result(lines, raw)
