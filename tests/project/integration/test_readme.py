"""The lines of the README, and of its page of more pipelines, are run as they stand there."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tarkit.cli.tarkit import VERBS

import tarkit
from tarkit.formats.example import decode_example
from tarkit.formats.recordio import read_records

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
MORE = (ROOT / "docs" / "pipelines.md").read_text()
BLOCKS = re.findall(r"<!-- (setup|pipeline): (\w+) -->\n```sh\n(.*?)```", README + MORE, re.DOTALL)
PIPELINES = {name: text for kind, name, text in BLOCKS if kind == "pipeline"}
# The first thing on the page: a command, and what it prints.
(SHOWN,) = re.findall(r"<!-- pipeline: convert -->\n```console\n\$ (.*)\n(.*\n)```", README)
PIPELINES["convert"] = SHOWN[0]
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A folder with the demo's shards, as a reader of the README has it."""
    folder = tmp_path_factory.mktemp("readme") / "demo"
    environment = os.environ | {"PATH": f"{PROGRAMS}:/usr/bin:{os.environ['PATH']}"}
    done = subprocess.run(["tarkit", "demo", str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, environment


def run(shards, name):
    folder, environment = shards
    done = subprocess.run(
        ["bash", "-eu", "-c", PIPELINES[name]], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_it_has_two_setup_lines_and_six_pipelines():
    assert [name for kind, name, _ in BLOCKS if kind == "setup"] == ["demo", "test"]
    assert all(text.count("\n") == 1 for kind, _, text in BLOCKS if kind == "setup")
    assert list(PIPELINES) == ["filter", "map", "look", "python", "records", "convert"]
    assert README.index("```console") < README.index("```sh")


def test_it_names_every_verb_under_the_heading_of_the_help():
    listed = re.findall(r"^\| `tarkit`: (.*?) \| (.*) \|$", README, re.MULTILINE)
    assert {heading: re.findall(r"`([\w-]+)`", verbs) for heading, verbs in listed} == {
        heading: [*verbs] for heading, verbs in VERBS.items()
    }


def test_it_fits_on_three_screens():
    assert len(README.splitlines()) <= 150


def test_convert(shards):
    if shutil.which("convert", path="/usr/bin:/usr/local/bin") is None:
        pytest.skip("ImageMagick's convert is not on this machine")
    folder, done = run(shards, "convert")
    before = [sample["__key__"] for sample in tarkit.read_samples(folder / "shard-000000.tar")]
    after = list(tarkit.read_samples(folder / "jpeg.tar"))
    assert [sample["__key__"] for sample in after] == before
    assert all(sample["jpg"].startswith(b"\xff\xd8") and "ppm" not in sample for sample in after)
    assert done.stderr == SHOWN[1]


def test_look(shards):
    _, done = run(shards, "look")
    lines = done.stdout.splitlines()
    assert lines.count("__key__") == lines.count("sample.ppm") == 3


def test_filter(shards):
    folder, _ = run(shards, "filter")
    expected = [
        sample["__key__"]
        for number in range(3)
        for sample in tarkit.read_samples(folder / f"shard-{number:06d}.tar")
        if sample["cls"].strip() == b"1"
    ]
    found = [sample["__key__"] for sample in tarkit.read_samples(f"{folder}/class1-*.tar")]
    assert found == expected and expected


def test_map(shards):
    folder, _ = run(shards, "map")
    with tarfile.open(folder / "described.tar") as archive:
        texts = [archive.extractfile(each).read() for each in archive if each.name.endswith(".txt")]
    assert texts and all(text.endswith(b" bytes of picture") for text in texts)


def test_python(shards):
    folder, done = run(shards, "python")
    assert done.stdout == "100 samples\n"
    assert sorted(path.name for path in folder.glob("numbers-*.tar")) == ["numbers-0000.tar", "numbers-0001.tar"]


def test_records(shards):
    folder, done = run(shards, "records")
    assert "tarkit convert: 60 records; read back and compared\n" in done.stderr
    names = [f"records/data-{number:05d}" for number in range(3)]
    assert done.stdout.splitlines() == names
    samples = list(tarkit.read_samples(f"{folder}/shard-{{000000..000002}}.tar"))
    examples = [decode_example(record) for name in names for record in read_records(folder / name)]
    assert [(e["__key__"][0].decode(), e["ppm"][0], e["cls"][0]) for e in examples] == [
        (sample["__key__"], sample["ppm"], int(sample["cls"])) for sample in samples
    ]
