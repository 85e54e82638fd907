"""tarkit sample: a number or a fraction, to one shard, a series or standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from tarbuild import END

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in.tar"
    with TarWriter(str(path)) as writer:
        for number in range(200):
            writer.write({"__key__": f"{number:03d}", "txt": f"{number:03d}"})
    return path


def test_a_number_is_the_same_from_a_file_and_a_pipe(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "sample", shard, "--number", "9", "-o", tmp_path / "a.tar")
    assert (result.code, result.stdout) == (0, b"")
    assert result.stderr == "tarkit sample: 9 samples, 27 bytes of content; of 200 samples\n"
    piped = run("tarkit", "sample", "--number", "9", "-o", "-", stdin=shard.read_bytes())
    assert piped.stdout == (tmp_path / "a.tar").read_bytes()
    assert len(list(read_samples(str(tmp_path / "a.tar")))) == 9


def test_a_fraction_and_a_series_with_json(run: Run, shard: Path, tmp_path: Path) -> None:
    argv = ("sample", shard, "--fraction", "0.2", "--seed", "3", "--maxcount", "20", "--json")
    result = run("tarkit", *argv, "-o", tmp_path / "s-%d.tar")
    found = json.loads(result.stdout)
    assert result.code == 0 and found["samples"] == len(list(read_samples(found["shards"]))) and found["read"] == 200
    assert 20 < found["samples"] < 60 and len(found["shards"]) > 1
    whole = run("tarkit", "sample", "--fraction", "0.2", "--seed", "3", "-o", "-", stdin=shard.read_bytes())
    (tmp_path / "w.tar").write_bytes(whole.stdout)
    assert [s["__key__"] for s in read_samples(str(tmp_path / "w.tar"))] == [
        s["__key__"] for s in read_samples(found["shards"])
    ]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "--number K or --fraction F"),
        (("--number", "1", "--fraction", "0.1"), "--number K or --fraction F"),
        (("--number", "201"), "--number is 201, of only 200 samples"),
        (("--fraction", "2"), "above 0 and at most 1"),
        (("--number", "0"), "--number"),
        (("--number", "1", "--maxcount", "3"), "goes with a series"),
        (("--number", "1", "-o", "-", "--json"), "would both go to standard output"),
    ],
)
def test_what_can_not_be(run: Run, shard: Path, tmp_path: Path, argv: tuple[str, ...], words: str) -> None:
    result = run("tarkit", "sample", shard, "-o", tmp_path / "o.tar", *argv)
    assert (result.code, result.stdout) == (2, b"") and words in result.stderr
    assert not (tmp_path / "o.tar").exists()


def test_the_output_is_not_an_input(run: Run, shard: Path) -> None:
    before = shard.read_bytes()
    assert run("tarkit", "sample", shard, "--fraction", "1", "-o", shard).code == 2
    assert shard.read_bytes() == before


def test_damage_and_missing_input_publish_nothing(run: Run, shard: Path, tmp_path: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:50_000])
    for argv in (("--number", "5"), ("--fraction", "0.5")):
        assert run("tarkit", "sample", shard, *argv, "-o", tmp_path / "o.tar").code == 65
        assert run("tarkit", "sample", tmp_path / "none.tar", *argv, "-o", tmp_path / "o.tar").code == 66
    assert not (tmp_path / "o.tar").exists()
    assert run("tarkit", "sample", shard, "--number", "5", "--on-damage", "skip", "-o", tmp_path / "o.tar").code == 3


def test_an_endless_input_with_a_reader_that_has_enough(tmp_path: Path) -> None:
    feed = (
        "import sys,itertools\nfrom tarbuild import member\n"
        "for n in itertools.count():\n sys.stdout.buffer.write(member(b'%d.x' % n, b'1'))"
    )
    path = Path(__file__).parents[2] / "support"
    (tmp_path / "feed.py").write_text(f"import sys\nsys.path.insert(0, {str(path)!r})\n{feed}\n")
    sample = f"{program_path('tarkit')} sample - --fraction 0.5 -o -"
    command = f"{sys.executable} {tmp_path}/feed.py 2>/dev/null | {sample} | head -c 100000 | wc -c"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"100000", b"")


def test_nothing_in_nothing_out(run: Run) -> None:
    result = run("tarkit", "sample", "--fraction", "0.5", "-o", "-", stdin=END)
    assert result.code == 0 and result.stdout == bytes(10240)


def test_a_number_is_drawn_from_what_is_selected(run: Run, shard: Path, tmp_path: Path) -> None:
    argv = ("sample", shard, "--match", "[02468]$", "--rekey", "k%03d", "-o", tmp_path / "o.tar")
    result = run("tarkit", *argv, "--number", "100")
    assert result.code == 0 and "samples dropped by --match 100" in result.stderr
    found = [int(sample["txt"]) for sample in read_samples(str(tmp_path / "o.tar"))]
    assert found == list(range(0, 200, 2))
    assert run("tarkit", *argv, "--number", "101").code == 2
    assert run("tarkit", *argv, "--fraction", "1").code == 0
    assert [int(sample["txt"]) for sample in read_samples(str(tmp_path / "o.tar"))] == found
    result = run("tarkit", "sample", shard, "--fields", "jpg", "--fraction", "1", "-o", tmp_path / "p.tar")
    assert result.code == 65 and "no sample has the field 'jpg'" in result.stderr
