"""The programs of docs/training-recordio.md are those that run: tox run -e torch,tensorflow."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tarkit.formats.recordio import read_records

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "training-recordio.md").read_text("utf-8")
PROGRAMS = {name: ROOT / "notebooks" / f"train_{name}.py" for name in ("torch", "tensorflow")}
CLASSES, OF_A_CLASS, EPOCHS = 10, 42, 4
TOTAL = CLASSES * OF_A_CLASS


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_has_the_program(name: str) -> None:
    text = PROGRAMS[name].read_text("utf-8")
    assert f"```python\n{text}```\n" in PAGE
    assert text.count("\n") < 40


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """For programs of this Python, which reach no network."""
    folder = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """RecordIO files that the page's command makes with Spark, of pictures in a folder for each
    class.
    """
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("NO pyspark OR NO java, SO NO RECORDS TO TRAIN ON (tox run -e torch,tensorflow)")
    import numpy as np
    from PIL import Image

    tmp_path = tmp_path_factory.mktemp("training")
    random = np.random.default_rng(0)
    for label in range(CLASSES):
        (tmp_path / "pictures" / str(label)).mkdir(parents=True)
        for number in range(OF_A_CLASS):
            pixels = random.integers(0, 60, (28, 28), dtype="uint8")
            pixels[:, 2 * label : 2 * label + 8] += 190
            Image.fromarray(pixels).save(tmp_path / "pictures" / str(label) / f"{number}.png")
    (command,) = re.findall(r"<!-- command: spark -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    subprocess.run(["bash", "-eu", "-c", command], cwd=tmp_path, env=environment, check=True)
    return tmp_path / "records"


each_program = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in PROGRAMS]
)


@each_program
def test_the_loss_falls_and_each_epoch_reads_each_record_once(
    name: str, request: pytest.FixtureRequest, environment: dict[str, str]
) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"NO {name}, ITS TRAINING LOOP DOES NOT RUN (tox run -e {name})")
    folder = request.getfixturevalue("records")
    assert len(list(folder.iterdir())) == 6
    written = Counter(hashlib.sha256(record).hexdigest() for path in folder.iterdir() for record in read_records(path))
    assert len(written) == written.total() == TOTAL

    program = ROOT / "tests" / "support" / "trainrun.py"
    run = [sys.executable, str(program), str(PROGRAMS[name]), str(folder), str(EPOCHS)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Counter(epoch["records"]) for epoch in epochs] == [written] * EPOCHS
    losses = []
    for number, epoch in enumerate(epochs):
        found = re.fullmatch(rf"epoch {number}: {TOTAL} records, loss ([\d.]+)", epoch["line"])
        assert found, epoch["line"]
        losses.append(float(found[1]))
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2, losses
    # The order is another one in each epoch.
    assert epochs[0]["records"] != epochs[1]["records"]


@each_program
def test_damage_ends_the_training(
    name: str, request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path
) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"NO {name}, ITS TRAINING LOOP DOES NOT RUN (tox run -e {name})")
    shutil.copytree(request.getfixturevalue("records"), tmp_path / "records")
    damaged = tmp_path / "records" / "data-1-0001"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    run = [sys.executable, str(PROGRAMS[name]), str(tmp_path / "records"), "1"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert "data-1-0001, offset 0: checksum mismatch" in done.stderr
