"""tarkit sort: the order of GNU sort, equal values, failed samples, and changes of the request."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.tarkit import main
from webdataset import TarWriter as WebdatasetWriter

from tarkit import TarWriter, read_samples
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.sort import Sort

Made = list[dict[str, Any]]


def make(folder: Path, shards: Sequence[Made]) -> list[str]:
    names = []
    for number, samples in enumerate(shards):
        names.append(f"{folder}/in-{number}.tar")
        with TarWriter(names[-1]) as writer:
            for sample in samples:
                writer.write(sample)
    return names


def in_order(folder: Path) -> list[list[dict[str, Any]]]:
    """The samples of each output."""
    return [[*read_samples(str(each))] for each in sorted(folder.glob("shard-??????.tar"))]


def sort(tmp_path: Path, names: Sequence[str], *options: str, out: str = "out", parallel: int = 1) -> tuple[int, Path]:
    target = tmp_path / out
    return main(["sort", *names, "-O", str(target), "-q", "-p", str(parallel), *options]), target


@pytest.fixture
def random_shards(tmp_path: Path) -> list[str]:
    draw = random.Random(7)
    texts = [bytes(draw.choices(b"ab\xc3\xa9 A0\x01~", k=draw.randrange(6))) for _ in range(40)]
    numbers = [0, 9, 10, -3, 2.5, 1e-3, 2**53, 2**53 + 1, 2**53 + 2, -(2**60) - 1, 2**63, 12345678901234567890]
    samples: Made = [
        {
            "__key__": f"{draw.choice(['é', 'e', 'E', 'd/é', 'd'])}{draw.getrandbits(24)}",
            "bin": draw.choice(texts),
            "json": json.dumps({"n": draw.choice(numbers), "id": number}).encode(),
        }
        for number in range(180)
    ]
    return make(tmp_path, [samples[start : start + 60] for start in (0, 60, 120)])


def gnu_sorted(lines: Sequence[bytes], *options: str) -> list[bytes]:
    """Sort lines ``value NUL number`` of a text, with GNU sort."""
    made = subprocess.run(
        ["sort", "-s", "-t", "\t", *options],
        input=b"".join(line + b"\n" for line in lines), env={**os.environ, "LC_ALL": "C"},
        capture_output=True, check=True,
    )  # fmt: skip
    return made.stdout.splitlines()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("by", "shown", "gnu"),
    [
        ("key", lambda sample: sample["__key__"].encode(), ["-k1,1"]),
        ("bin", lambda sample: sample["bin"], ["-k1,1"]),
        ("json.n", lambda sample: repr(json.loads(sample["json"])["n"]).encode(), ["-k1,1g"]),
        ("size", lambda sample: b"%d" % (len(sample["bin"]) + len(sample["json"])), ["-k1,1n"]),
    ],
)
def test_order_is_that_of_gnu_sort(
    tmp_path: Path, random_shards: list[str], by: str, shown: Any, gnu: list[str], reverse: bool
) -> None:
    code, out = sort(tmp_path, random_shards, "--by", by, "--shards", "4", *(["--reverse"] if reverse else []))
    assert code == 0
    lines = [shown(sample) + b"\t" + sample["__key__"].encode() for sample in read_samples(random_shards)]
    expected = gnu_sorted(lines, *[f"{each}r" if reverse else each for each in gnu])
    found = [shown(sample) + b"\t" + sample["__key__"].encode() for shard in in_order(out) for sample in shard]
    assert found == expected
    assert [len(shard) for shard in in_order(out)] == [45] * 4


@pytest.mark.parametrize("options", [[], ["--reverse"]])
def test_one_value_in_all_samples(tmp_path: Path, options: list[str]) -> None:
    names = make(tmp_path, [[{"__key__": f"{shard}{n}", "cls": b"1"} for n in range(7)] for shard in (2, 0, 1)])
    code, out = sort(tmp_path, names, "--by", "cls:number", "--shards", "4", *options)
    assert code == 0
    shards = in_order(out)
    assert sorted(map(len, shards)) == [5, 5, 5, 6]
    assert [each["__key__"] for shard in shards for each in shard] == [f"{s}{n}" for s in (2, 0, 1) for n in range(7)]


def test_output_does_not_depend_on_processes_or_memory(tmp_path: Path, random_shards: list[str]) -> None:
    made = []
    for parallel, mem in ((1, "1G"), (3, "1G"), (1, "20k")):
        options = ("--by", "json.n", "--maxcount", "50", "--mem", mem)
        code, out = sort(tmp_path, random_shards, *options, out=f"out-{parallel}-{mem}", parallel=parallel)
        assert code == 0
        made.append({each.name: each.read_bytes() for each in out.iterdir() if each.suffix == ".tar"})
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 4


def test_shards_of_webdataset(tmp_path: Path) -> None:
    draw = random.Random(3)
    with WebdatasetWriter(f"{tmp_path}/w.tar") as writer:
        for number in range(40):
            writer.write({"__key__": f"s{number}", "cls": draw.randrange(100), "json": {"w": draw.random()}})
    _, out = sort(tmp_path, [f"{tmp_path}/w.tar"], "--by", "cls:number", "--shards", "1")
    (shard,) = in_order(out)
    assert [int(each["cls"]) for each in shard] == sorted(int(each["cls"]) for each in shard)


def test_failed_samples_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples: Made = [{"__key__": f"k{n}", "json": json.dumps({"n": -n}).encode()} for n in range(8)]
    samples[2]["json"], samples[5]["json"] = b'{"n": NaN}', b"{"
    code, out = sort(tmp_path, make(tmp_path, [samples[:4], samples[4:]]), "--by", "json.n", "--shards", "2")
    assert code == 3
    assert [[each["__key__"] for each in shard] for shard in in_order(out)] == [["k7", "k6", "k4"], ["k3", "k1", "k0"]]
    failed = [*read_samples(str(out / "shard-000001.tar.failed.tar"))]
    assert [(each["__key__"], each["__error__.txt"]) for each in failed] == [
        ("k2", b"json.n is NaN, which has no place in an order\n"),
        ("k5", failed[1]["__error__.txt"]),
    ]
    assert failed[1]["__error__.txt"].startswith(b"the field json is not JSON: ")
    assert failed[1]["json"] == b"{"


@pytest.mark.parametrize(
    ("bad", "options", "message"),
    [
        (6, [], "6 of 6 samples failed, the first: key 'k0': it has no field cls; --max-errors is 100; "),
        (6, ["--max-errors", "100%"], "6 of 6 samples failed"),
        (
            2,
            ["--max-errors", "1"],
            "2 of 6 samples failed, the first: key 'k0': it has no field cls; --max-errors is 1;",
        ),
        (2, ["--max-errors", "30%"], "--max-errors is 30%; nothing was gathered"),
    ],
)
def test_too_many_failed_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: int, options: list[str], message: str
) -> None:
    samples: Made = [{"__key__": f"k{n}", "txt" if n < bad else "cls": b"1"} for n in range(6)]
    code, out = sort(tmp_path, make(tmp_path, [samples]), "--by", "cls", "--shards", "1", *options)
    assert code == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not [*out.glob("shard-*")]


def test_few_failed_samples_are_within_the_limit(tmp_path: Path) -> None:
    samples: Made = [{"__key__": f"k{n}", "txt" if n < 2 else "cls": b"1"} for n in range(6)]
    code, out = sort(tmp_path, make(tmp_path, [samples]), "--by", "cls", "--shards", "1", "--max-errors", "2")
    assert (code, len(in_order(out)[0])) == (3, 4)


def test_other_value_does_not_take_the_outputs_for_its_own(
    tmp_path: Path, random_shards: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--shards", "2")
    assert sort(tmp_path, random_shards, "--by", "key", *options)[0] == 0
    assert sort(tmp_path, random_shards, "--by", "key", *options)[0] == 0
    for other in (["--by", "size"], ["--reverse"]):
        assert sort(tmp_path, random_shards, *other, *options)[0] == 2
        assert "has 2 shards of another run" in capsys.readouterr().err
    code, out = sort(tmp_path, random_shards, "--by", "key", "--reverse", "--force", *options)
    keys = [each["__key__"] for shard in in_order(out) for each in shard]
    assert (code, keys) == (0, sorted(keys, key=str.encode, reverse=True))


def test_function_of_a_file(tmp_path: Path, random_shards: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "last_letters.py").write_text("def last(sample):\n    return sample['__key__'][::-1]\n")
    code, out = sort(tmp_path, random_shards, "--by", f"{tmp_path}/last_letters.py:last", "--shards", "1", parallel=2)
    keys = [each["__key__"] for each in in_order(out)[0]]
    assert (code, keys) == (0, sorted(keys, key=lambda key: key[::-1].encode()))
    assert sort(tmp_path, random_shards, "--by", "nosuchfile.py:f", "--shards", "1", out="other")[0] == 2
    assert "the file 'nosuchfile.py' does not exist" in capfd.readouterr().err


def test_function_of_this_process(tmp_path: Path, random_shards: list[str]) -> None:
    def ends(sample: dict[str, Any]) -> str:
        text: str = sample["__key__"][-2:]
        return text

    made = []
    for parallel in (1, 2):
        step, out = Sort(ends, reverse=True, work_id="ends-1"), tmp_path / f"out-{parallel}"
        result = Exchange(step, random_shards, str(out), ExchangeSettings(shards=3), parallel=parallel).run()
        assert (result.counts.out, result.counts.failed) == (180, 0)
        made.append([each["__key__"] for shard in in_order(out) for each in shard])
    keys = [each["__key__"] for each in read_samples(random_shards)]
    assert made[0] == made[1] == sorted(keys, key=lambda key: -int(key[-2:]))
