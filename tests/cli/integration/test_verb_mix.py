"""tarkit mix: data sets by weights, to a shard or a series."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    for name, begin, count in (("a-0", 0, 30), ("a-1", 30, 30), ("b", 0, 200)):
        with TarWriter(str(tmp_path / f"{name}.tar")) as writer:
            for number in range(begin, begin + count):
                writer.write({"__key__": f"{name[0]}{number}", "txt": name})
    return tmp_path


def test_until_the_first_is_over(run: Run, sets: Path) -> None:
    argv = ("mix", f"{sets}/a-*.tar", f"{sets}/b.tar", "--weights", "1,2")
    result = run("tarkit", *argv, "-o", sets / "o.tar")
    keys = [sample["__key__"] for sample in read_samples(str(sets / "o.tar"))]
    of_b = sum(key[0] == "b" for key in keys)
    assert result.code == 0 and len(keys) - of_b == 60 and 118 <= of_b <= 122
    assert f"{sets}/a-*.tar: 60, {sets}/b.tar: {of_b}, not to its end" in result.stderr
    again = run("tarkit", *argv, "-o", "-", "-q")
    assert again.stdout == (sets / "o.tar").read_bytes() and again.stderr == ""
    assert run("tarkit", *argv, "--seed", "1", "-o", "-").stdout != again.stdout


def test_until_the_last_is_over(run: Run, sets: Path) -> None:
    argv = ("mix", f"{sets}/a-{{0..1}}.tar", "-", "--weights", "1,2", "--until", "last", "--json", "--maxcount", "100")
    result = run("tarkit", *argv, "-o", sets / "o-%d.tar", stdin=(sets / "b.tar").read_bytes())
    found = json.loads(result.stdout)
    assert found["samples"] == 260 and len(found["shards"]) == 3
    assert [(each["samples"], each["all"]) for each in found["sets"]] == [(60, True), (200, True)]


def test_keys_that_two_sets_have(run: Run, sets: Path) -> None:
    argv = ("mix", sets / "b.tar", sets / "b.tar", "--weights", "1,1", "-o", sets / "o.tar")
    result = run("tarkit", *argv)
    assert result.code == 65 and "key 'b" in result.stderr and "--prefixes" in result.stderr
    assert not (sets / "o.tar").exists()
    assert run("tarkit", *argv, "--prefixes", "x-,y-", "--until", "last").code == 0
    assert len({sample["__key__"] for sample in read_samples(str(sets / "o.tar"))}) == 400


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--weights", "1"), "--weights has 1 number for 2 data sets; put patterns into quotes"),
        (("--weights", "1,x"), "--weights: 'x' is not a number"),
        (("--weights", "1,0"), "must be a number above 0"),
        (("--weights", "1,1", "--prefixes", "a"), "--prefixes has 1 text for 2 data sets"),
        ((), "--weights"),
    ],
)
def test_what_can_not_be(run: Run, sets: Path, argv: tuple[str, ...], words: str) -> None:
    result = run("tarkit", "mix", sets / "a-0.tar", sets / "b.tar", "-o", sets / "o.tar", *argv)
    assert result.code == 2 and words in result.stderr and not (sets / "o.tar").exists()


def test_one_input_can_not_be_two_sets(run: Run, sets: Path) -> None:
    result = run("tarkit", "mix", "-", "-", "--weights", "1,1", "-o", sets / "o.tar", stdin=b"")
    assert result.code == 2 and "standard input" in result.stderr
    assert run("tarkit", "mix", sets / "b.tar", "--weights", "1", "-o", sets / "o.tar").code == 2
    before = (sets / "b.tar").read_bytes()
    assert run("tarkit", "mix", sets / "a-0.tar", sets / "b.tar", "--weights", "1,1", "-o", sets / "b.tar").code == 2
    assert (sets / "b.tar").read_bytes() == before


def test_damage_publishes_nothing(run: Run, sets: Path) -> None:
    (sets / "b.tar").write_bytes((sets / "b.tar").read_bytes()[:5000])
    argv = ("mix", sets / "a-0.tar", sets / "b.tar", "--weights", "1,9", "-o", sets / "o.tar")
    assert run("tarkit", *argv).code == 65
    assert not (sets / "o.tar").exists()
    assert run("tarkit", *argv, "--on-damage", "skip").code == 3
    argv = ("a-0.tar", "--weights", "9,1", "-o", "o.tar")
    paths = [sets / each if each.endswith(".tar") else each for each in argv]
    assert run("tarkit", "mix", sets / "none.tar", *paths).code == 66
    result = run("tarkit", "mix", "-", *paths, stdin=b"<html>not found</html>" * 100)
    assert result.code == 65 and "HTML" in result.stderr


def test_the_weights_are_those_of_the_selected_samples(run: Run, sets: Path) -> None:
    argv = ("mix", f"{sets}/a-*.tar", f"{sets}/b.tar", "--weights", "1,1", "--match", "[05]$", "-o", sets / "o.tar")
    result = run("tarkit", *argv)
    keys = [sample["__key__"] for sample in read_samples(str(sets / "o.tar"))]
    assert result.code == 0 and all(key[-1] in "05" for key in keys) and 23 <= len(keys) <= 25
    result = run("tarkit", *argv, "--drop-fields", "jpg")
    assert result.code == 65 and "no sample has the field 'jpg'" in result.stderr
