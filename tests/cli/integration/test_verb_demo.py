"""tarkit demo: the shards that it makes, and the commands that it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarkit import read_samples
from tarkit.steps.demodata import SHAPES, SIDE, demo_samples

Run = Callable[..., Any]


def test_demo(run: Run, shell: Callable[[str], Any], tmp_path: Path) -> None:
    place = tmp_path / "100%" / "d"
    result = run("tarkit", "demo", place)
    assert (result.code, result.stderr) == (0, "")
    assert sorted(path.name for path in place.iterdir()) == [f"shard-00000{number}.tar" for number in range(3)]
    assert sum(1 for _ in read_samples([str(path) for path in place.iterdir()])) == 60
    shown = [line.strip() for line in result.lines if line.startswith("  ")]
    assert len(shown) == 2
    for command in shown:
        assert shell(f"cd '{place}' && {command}").code == 0
    assert sum(1 for sample in read_samples(place / "sums.tar") if "sum" in sample) == 60


def test_folders(run: Run, tmp_path: Path) -> None:
    assert run("tarkit", "demo", tmp_path).code == 0
    (tmp_path / "mine").write_text("mine")
    refused = run("tarkit", "demo", tmp_path)
    assert (refused.code, refused.stdout) == (2, b"")
    assert "is not empty" in refused.stderr
    assert run("tarkit", "demo", tmp_path, "--force").code == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert run("tarkit", "demo", tmp_path / "mine").code == 2
    assert run("tarkit", "demo", tmp_path / "mine" / "below").code == 1


def test_samples_are_what_they_say() -> None:
    samples = list(demo_samples(30))
    assert samples == list(demo_samples(30))
    assert [sample["__key__"] for sample in samples][:2] == ["000000", "000001"]
    for sample in samples:
        head, pixels = sample["ppm"][: -3 * SIDE * SIDE], sample["ppm"][-3 * SIDE * SIDE :]
        assert head == b"P6\n%d %d\n255\n" % (SIDE, SIDE)
        about = json.loads(sample["json"])
        assert SHAPES[int(sample["cls"])] == about["shape"]
        ink = bytes(about["colour"])
        painted = sum(pixels[at : at + 3] == ink for at in range(0, len(pixels), 3))
        assert 50 < painted < SIDE * SIDE - 50
