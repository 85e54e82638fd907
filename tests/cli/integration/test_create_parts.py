"""tarkit create: parts, order, numbers of shards, functions on the way."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import read_samples

Run = Callable[..., Any]


def keys(*shards: Path) -> list[str]:
    return [sample["__key__"] for shard in shards for sample in read_samples(str(shard))]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number // 4:03d}-{number % 4}.txt").write_text(f"{number}")
    return folder


def part_of(text: str) -> str:
    """The rule as it is documented: 8 bytes of BLAKE2b(NUL, key) as a fraction."""
    place = int.from_bytes(hashlib.blake2b(b"\0" + text.encode(), digest_size=8).digest(), "big") / 2**64
    return "train" if place < 0.8 else "val"


def test_parts_are_decided_by_the_key_alone(run: Run, tmp_path: Path, files: Path) -> None:
    command = ["tarkit", "create", "-C", files, ".", "--split", "train=0.8,val=0.2", "-o", f"{tmp_path}/%s-%d.tar"]
    result = run(*command, "--manifest", f"{tmp_path}/%s.json")
    assert result.code == 0
    train, val = keys(tmp_path / "train-0.tar"), keys(tmp_path / "val-0.tar")
    assert sorted(train + val) == sorted(path.stem for path in files.iterdir())
    assert {key: "train" for key in train} | {key: "val" for key in val} == {key: part_of(key) for key in train + val}
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"tarkit create: train: {len(train)} samples in 1 shard")
    assert lines[1].startswith(f"tarkit create: val: {len(val)} samples in 1 shard")
    assert result.lines == [f"{tmp_path}/train-0.tar", f"{tmp_path}/val-0.tar"]
    manifest = json.loads((tmp_path / "val.json").read_text())
    assert [shard["nsamples"] for shard in manifest["shardlist"]] == [len(val)]
    # More data moves no sample, and neither does another order.
    (files / "new.txt").write_text("new")
    assert run(*command, "--force", "--shuffle", "1", "--json").code == 0
    assert set(keys(tmp_path / "train-0.tar")) - {"new"} == set(train)
    assert set(keys(tmp_path / "val-0.tar")) - {"new"} == set(val)


def test_samples_that_belong_together_stay_in_one_part(run: Run, tmp_path: Path, files: Path) -> None:
    shares = ["--split", "train=0.8,val=0.2", "-o", f"{tmp_path}/%s.tar"]
    assert run("tarkit", "create", "-C", files, ".", *shares, "--split-by", "^([0-9]+)-").code == 0
    train, val = keys(tmp_path / "train.tar"), keys(tmp_path / "val.tar")
    assert {key[:3] for key in train}.isdisjoint(key[:3] for key in val) and len(train) + len(val) == 100
    assert all(part_of(key[:3]) == "train" for key in train)
    rows = [f"{number},p{number % 25},x" for number in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["id,person,txt", *rows]))
    table = ["--table", tmp_path / "t.csv", "--key", "id"]
    for more in ([], ["--columns", "txt"], ["--shuffle", "7"]):
        assert run("tarkit", "create", *table, *shares, "--split-by", "person", *more).code == 0
        found = {key: part for part in ("train", "val") for key in keys(tmp_path / f"{part}.tar")}
        assert found == {str(number): part_of(f"p{number % 25}") for number in range(100)}
    assert run("tarkit", "create", *table, *shares, "--split-by", ".$").code == 0
    assert {key[-1] for key in keys(tmp_path / "val.tar")} == {d for d in "0123456789" if part_of(d) == "val"}
    (tmp_path / "t.csv").write_text("id,person,txt\n1,,x\n")
    result = run("tarkit", "create", *table, *shares, "--split-by", "person")
    assert result.code == 65 and "row 2 has no person, by which the samples are split" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--split", "a=0.5,b=0.4"], 2, "the shares add up to 0.9, not to 1"),
        (["--split", "a=0.5,a=0.5"], 2, "is not NAME=SHARE,... with distinct names"),
        (["--split", "a"], 2, "is not NAME=SHARE"),
        (["--split", "=1"], 2, "is not NAME=SHARE"),
        (["--split", "a=x"], 2, "is not NAME=SHARE"),
        (["--split", "../a=1"], 2, "a part is NAME=SHARE"),
        (["--split", "a=1.5,b=-0.5"], 2, "a part is NAME=SHARE"),
        (["--split", "a=nan,b=1"], 2, "a part is NAME=SHARE"),
        (
            ["--split", "a=0.5,b=0.5", "--split-by", "("],
            2,
            "split by '(': this is not a column or a regular expression",
        ),
        (
            ["--split", "a=0.5,b=0.5", "--split-by", "q"],
            65,
            "key '000-0': does not match 'q', by which samples are split",
        ),
        (["--split-by", "q"], 2, "--split-by goes with --split"),
        (["--split", "a=0.999999,b=0.000001"], 65, "part 'b' of --split would have none of 100 samples"),
        (["--shards", "3", "--maxcount", "3"], 2, "--maxcount and --shards exclude each other"),
        (["--errors", "skip"], 2, "--errors goes with --map"),
        (["--shards", "101"], 2, "100 samples cannot fill 101 shards"),
        (["--shards", "3", "--map", "os:path"], 2, "--shards needs the number of samples first, and --map may"),
    ],
)
def test_parts_and_shards_that_cannot_be(
    arguments: list[str], code: int, said: str, run: Run, tmp_path: Path, files: Path
) -> None:
    output = f"{tmp_path}/%s-%d.tar" if "--split" in arguments else f"{tmp_path}/o-%d.tar"
    result = run("tarkit", "create", "-C", files, ".", "-o", output, *arguments)
    assert (result.code, result.stdout) == (code, b"")
    assert said in result.stderr and result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["files"]


def test_the_name_of_a_part_is_in_the_output(run: Run, tmp_path: Path, files: Path) -> None:
    split = ["--split", "a=0.5,b=0.5"]
    for arguments in (["-o", "x-%d.tar", *split], ["-o", "%s-%s.tar", *split], ["-o", "-", *split]):
        result = run("tarkit", "create", "-C", files, ".", *arguments)
        assert result.code == 2 and "needs one %s for the name of the part" in result.stderr
    result = run("tarkit", "create", "-C", files, ".", "-o", "%s.tar")
    assert result.code == 2 and "%s is the name of a part, with --split" in result.stderr
    result = run("tarkit", "create", "-C", files, ".", "-o", f"{tmp_path}/%s-%d.tar", *split, "--manifest", "m.json")
    assert result.code == 2 and "'m.json' needs one %s" in result.stderr


@pytest.mark.parametrize("shards", [1, 3, 7, 60, 100])
def test_a_number_of_even_shards(shards: int, run: Run, tmp_path: Path, files: Path) -> None:
    result = run("tarkit", "create", "-C", files, ".", "-o", f"{tmp_path}/o-%d.tar", "--shards", str(shards))
    assert result.code == 0
    made = [tmp_path / f"o-{number}.tar" for number in range(shards)]
    assert result.lines == [str(path) for path in made]
    sizes = [len(keys(path)) for path in made]
    assert sum(sizes) == 100 and max(sizes) - min(sizes) <= 1
    assert keys(*made) == sorted(path.stem for path in files.iterdir())


def test_shards_are_shared_out_among_parts(run: Run, tmp_path: Path, files: Path) -> None:
    arguments = ["--split", "train=0.8,val=0.2", "--shards", "10", "-o", f"{tmp_path}/%s-%d.tar"]
    assert run("tarkit", "create", "-C", files, ".", *arguments).code == 0
    assert len([*tmp_path.glob("train-*.tar")]) == 8 and len([*tmp_path.glob("val-*.tar")]) == 2
    table = b"id,txt\n1,a\n2,b\n"
    result = run("tarkit", "create", "--table", "-", "-o", f"{tmp_path}/t-%d.tar", "--shards", "2", stdin=table)
    assert result.code == 2 and "the input can be read only once; use --maxcount" in result.stderr
    arguments = ["--split", "train=0.999999,val=0.000001", "-o", f"{tmp_path}/e-%s.tar"]
    result = run("tarkit", "create", "--table", "-", *arguments, stdin=table)
    assert result.code == 65 and "part 'val' of --split would have none of 2 samples" in result.stderr
    assert not [*tmp_path.glob("e-*")]


def test_a_shuffle_depends_on_its_seed_and_the_keys_only(run: Run, tmp_path: Path, files: Path) -> None:
    for path in list(files.iterdir())[:50]:
        path.with_suffix(".cls").write_text("1")
    orders = {}
    for seed in ("1", "2", "1"):
        assert run("tarkit", "create", "-C", files, ".", "-o", tmp_path / "o.tar", "--shuffle", seed).code == 0
        found = keys(tmp_path / "o.tar")
        assert orders.setdefault(seed, found) == found
    assert sorted(orders["1"]) == sorted(orders["2"]) == sorted({path.stem for path in files.iterdir()})
    assert len({*map(tuple, orders.values()), tuple(sorted(orders["1"]))}) == 3
    rows = "".join(f"{key},x\n" for key in sorted(orders["1"]))
    (tmp_path / "t.csv").write_text(f"id,txt\n{rows}")
    table = ["--table", tmp_path / "t.csv", "--key", "id"]
    assert run("tarkit", "create", *table, "-o", tmp_path / "o.tar", "--shuffle", "1").code == 0
    assert keys(tmp_path / "o.tar") == orders["1"]


def test_samples_pass_through_a_function(run: Run, tmp_path: Path, files: Path) -> None:
    (tmp_path / "change.py").write_text(
        "def change(sample):\n"
        "    number = int(sample['txt'])\n"
        "    if number == 7:\n        print('seven')\n"
        "    if number % 10 == 3:\n        return None\n"
        "    if number == 50:\n        raise ValueError('a bad picture')\n"
        "    return {'__key__': 'x' + sample['__key__'], 'txt': b'%d' % (2 * number)}\n"
    )
    command = ["tarkit", "create", "-C", files, ".", "-o", tmp_path / "o.tar", "--map", f"{tmp_path}/change.py:change"]
    result = run(*command)
    assert result.code == 65 and not (tmp_path / "o.tar").exists()
    assert "key '012-2': --map failed: " in result.stderr and "a bad picture" in result.stderr
    assert "--errors skip leaves such samples out" in result.stderr
    result = run(*command, "--errors", "skip", "-p", "2")
    assert result.code == 3
    assert "89 samples, " in result.stderr and "left out by --map 10; failed in --map 1" in result.stderr
    assert re.search("012-2: .*a bad picture", result.stderr)
    assert "\nseven\n" in f"\n{result.stderr}" and result.stdout == b""
    found = {sample["__key__"]: sample["txt"] for sample in read_samples(str(tmp_path / "o.tar"))}
    assert len(found) == 89 and found["x000-1"] == b"2" and list(found) == sorted(found)
    (tmp_path / "change.py").write_text("def change(sample):\n    return None\n")
    result = run(*command)
    assert result.code == 65 and "no sample is left, so there is nothing to write" in result.stderr


def test_a_part_is_decided_before_a_function_changes_the_key(run: Run, tmp_path: Path, files: Path) -> None:
    (tmp_path / "change.py").write_text(
        "def change(sample):\n    return {**sample, '__key__': 'k' + sample['__key__']}\n"
    )
    arguments = ["--split", "train=0.8,val=0.2", "-o", f"{tmp_path}/%s.tar", "--map", f"{tmp_path}/change.py:change"]
    assert run("tarkit", "create", "-C", files, ".", *arguments).code == 0
    assert {part_of(key[1:]) for key in keys(tmp_path / "val.tar")} == {"val"}


def test_dry_run_writes_nothing(run: Run, tmp_path: Path, files: Path) -> None:
    arguments = ["--split", "a=0.5,b=0.5", "-o", f"{tmp_path}/%s-%d.tar", "--shards", "4", "--dry-run", "--json"]
    result = run("tarkit", "create", "-C", files, ".", *arguments)
    found = [json.loads(line) for line in result.lines]
    assert [each["part"] for each in found] == ["a", "b"]
    assert sum(each["samples"] for each in found) == 100 and [len(each["shards"]) for each in found] == [2, 2]
    assert os.listdir(tmp_path) == ["files"]
