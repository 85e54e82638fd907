"""The examples in the help of the verbs for record files run, and so does a command of
docs/training-recordio.md.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image
from programs import commands

from tarkit import TarWriter, read_samples
from tarkit.formats.recordio import read_records
from tarkit.formats.sequencefile import PairWriter
from tarkit.steps.convert import convert

Run = Callable[..., Any]

EPILOGS = {name: context.command.epilog or "" for name, context in commands()}
EXAMPLES = [
    line.strip()
    for verb in ("convert", "show", "recordio-gen")
    for line in EPILOGS[f"tarkit {verb}"].splitlines()
    if line.strip().startswith("tarkit ")
]
TRAINING = (Path(__file__).resolve().parents[3] / "docs" / "training-recordio.md").read_text("utf-8")


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(numpy.full((28, 28), number, "uint8")).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, with all files that the examples name."""
    monkeypatch.chdir(tmp_path)
    for number in range(10):
        with TarWriter(f"train-{number:04d}.tar") as writer:
            writer.write({"__key__": str(number), "cls": number, "jpg": picture(number)})
        Path(f"train-{number:06d}.tar").write_bytes(Path(f"train-{number:04d}.tar").read_bytes())
        for folder in ("mnist-jpg", "images", "pictures"):
            (tmp_path / folder / str(number)).mkdir(parents=True)
            (tmp_path / folder / str(number) / "a.jpg").write_bytes(picture(number))
    Path("train.tar").write_bytes(Path("train-0003.tar").read_bytes())
    convert("train.tar", "train.recordio", "recordio")
    convert("train.tar", "records/a.recordio", "recordio")
    with PairWriter("part-00000", "Text", "Text") as pairs:
        pairs.write("cat", "dog")
    with tarfile.open("images.tar.gz", "w:gz") as tar:
        tar.add("images")
    Path("mnist.py").write_text("def prepare_data_for_a_single_file(file, name):\n    return {'image': file.read()}\n")
    Path("iris.data").write_text("5.1,3.5,1.4,0.2,Iris-setosa\n6.3,3.3,6.0,2.5,Iris-virginica\n")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_runs(run: Run, inputs: Path, example: str) -> None:
    before = {path.name for path in inputs.iterdir()}
    # Output at other places, and what reads it, are those of other tests.
    words = shlex.split(
        example.partition(" | ")[0].replace("s3://bucket/records", "out").replace("-o records", "-o out")
    )
    result = run(*words)
    assert (result.code, bool(result.stdout or result.stderr)) == (0, True), result.stderr
    made = {path.name for path in inputs.iterdir()} - before
    if "-o" not in words:
        assert made == {word for word in words if word.endswith(".html")}
    elif "recordio-gen" in words:
        assert made == {"out"} and next(read_records("out/data-00000"))
    elif words[words.index("-o") + 1] == "train.tar":
        assert [sample["cls"] for sample in read_samples("train.tar")] == [b"3"]
    else:
        assert made <= {words[words.index("-o") + 1]}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12


def test_the_command_without_spark_makes_the_records_that_are_trained_on(run: Run, inputs: Path) -> None:
    (command,) = re.findall(r"`(tarkit recordio-gen .*?)`", TRAINING)
    (inputs / "records" / "a.recordio").unlink()
    assert run(*shlex.split(command)).code == 0
    assert [len(list(read_records(path))) for path in (inputs / "records").iterdir()] == [10]
