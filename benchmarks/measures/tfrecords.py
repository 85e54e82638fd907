"""Reading TFRecord files: tarkit, TensorFlow's reader in C++, and PyPI's tfrecord, which checks no checksum."""

from __future__ import annotations

from collections.abc import Callable
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


def against_pypi(settings: Settings) -> Result:
    """Records of 100 bytes and 10 KiB, and Examples of 10 kB that are decoded."""
    lines: list[Line] = []
    raw: dict[str, object] = {}
    few = settings.quick
    for count, size, decoded in (
        (20_000 if few else 500_000, 100, False),
        (3_000 if few else 30_000, 10_240, False),
        (2_000 if few else 20_000, 10_000, True),
    ):
        path = tfrecord_file(settings, count, size, examples=decoded)
        suffix = "-examples" if decoded else ""
        ours = f"read_records{' and decode_example' if decoded else ''}"
        theirs = f"tfrecord 1.14.6, {'tfrecord_loader' if decoded else 'tfrecord_iterator, no checksums'}"
        sides = [
            *_sides(tarkit_environment(settings.work), {ours: f"tarkit{suffix}"}, path, count),
            *_sides(pypi_tfrecord_environment(settings.work), {theirs: f"pypi{suffix}"}, path, count),
        ]
        trials = take_turns(sides, settings.repeats)
        what = f"read {count:,} {'Examples' if decoded else 'TFRecords'} of {size:,} bytes"
        agree = (*_CONTENT, "pieces")
        lines.append(
            compare(what, trials, ours, theirs, Bar(10, at_least=True), agree=agree, per_second=(count, "records"))
        )
        raw[what] = raw_trials(trials)
    return Result(lines, raw)
