"""tarkit feed-test: the lines and the JSON of its report, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.verbs import feed_test as verb
from trainshards import write_shards

from tarkit.trainers.feedtest import FeedReport, StageSpeed
from tarkit.trainers.loopnumbers import LIMITS, SHOWN
from tarkit.trainers.stageclock import STAGES

pytest.importorskip("numpy", reason="arrays need NumPy")

Run = Callable[..., Any]

REPORT = FeedReport(
    workers=2,
    epochs=1,
    batches=1500,
    samples=96_000,
    bytes=10_000_000_000,
    seconds=10.0,
    first_batch_seconds=0.25,
    samples_per_second=9593.6,
    megabytes_per_second=999.33,
    waits=0.974,
    limit="decoding",
    stages={"reading": StageSpeed(0.25, 38_400.0), "decoding": StageSpeed(0.75, 12_800.0), "idle": StageSpeed(0, None)},
    processors=1.04,
    processors_wanted=1.97,
    machine_processors=2,
)


def test_the_lines_of_a_report() -> None:
    assert list(verb._lines(REPORT)) == [
        "2 workers: 1500 batches, 96000 samples; the first batch after 0.25 s",
        "then 9,594 samples/s, 999.3 MB/s for 10.0 s; the loop waits 97 % of this time",
        "",
        "stage       time of the workers  samples/s of it alone",
        "reading                  25.0 %                 38,400",
        "decoding                 75.0 %                 12,800",
        "idle                      0.0 %",
        "",
        "processors: 1.0 of 2 used; the workers had work for 2.0",
        "limit: decoding; more workers help while processors are free; smaller pictures take less time",
    ]
    short = replace(REPORT, workers=0, batches=1, samples=64, samples_per_second=None, waits=None, limit=None)
    assert list(verb._lines(short)) == [
        "this process: 1 batch, 64 samples; the first batch after 0.25 s",
        "too short to measure the speed: no second batch came in an epoch; take more --batches or --seconds",
    ]
    repeated = list(verb._lines(replace(short, epochs=3, batches=3)))
    assert repeated[0].endswith("; the first batches of 3 epochs took 0.25 s") and repeated[1].endswith(
        "a smaller --batch"
    )
    unknown = "processors: 2; epochs are too short to see how many were used"
    assert unknown in verb._lines(replace(REPORT, processors=None, processors_wanted=None))
    assert list(verb._lines(replace(REPORT, limit=None)))[-1].startswith("limit: not known, as the workers made no")
    for limit in SHOWN:
        assert list(verb._lines(replace(REPORT, limit=limit)))[-1].startswith(f"limit: {SHOWN[limit]}; ")
    assert {*SHOWN} == {"loop", *LIMITS.values()}


def test_a_data_set_is_measured(run: Run, tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [20, 20])
    words = ("tarkit", "feed-test", shards, "--batch", "8", "--fields", "cls", "--decode", "rgb8")
    result = run(*words, "--batches", "12")
    assert (result.code, result.stderr) == (0, "")
    assert result.lines[0].startswith("this process: 12 batches, 96 samples; the first batches of 3 epochs took ")
    assert re.fullmatch(r"limit: (reading|decoding|collating|ordering); .*", result.lines[-1])
    result = run(*words, "--seconds", "0.02", "--step", "1", "--json")
    found = json.loads(result.stdout)
    assert (result.code, len(result.lines)) == (0, 1) and [*found] == [*REPORT.__dataclass_fields__]
    assert [*found["stages"]] == [stage for stage in STAGES if stage != "idle"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("s-0.tar --batches 2 --seconds 3", 2, "--seconds is not for --batches, which says how long the test is"),
        ("s-0.tar --decode jpg", 2, "decode is 'jpg'; it must be one of "),
        ("s-0.tar --batch 21", 2, "20 samples do not fill a batch of 21: take a smaller one"),
        ("s-0.tar --batch 4 --fields png", 65, "fields: the sample has no field 'png'; it has cls"),
        ("none.tar", 66, "none.tar: no such file"),
        ("s-0.tar --batch 4 --workers 1", 2, "pip install torch (or tarkit with its extra 'torch')"),
    ],
)
def test_what_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)  # as without it
    write_shards(tmp_path, [20])
    result = run("tarkit", "feed-test", *words.split())
    assert (result.code, result.stdout) == (code, b"")
    assert message in result.stderr and result.stderr.count("\n") == 1
