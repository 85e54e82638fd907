"""tarkit shuffle --block: options, summary and status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dedupruns import of_webdataset, repeating_inputs

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return repeating_inputs(tmp_path_factory.mktemp("inputs"))


def test_shuffle_in_one_pass_says_that_it_is_not_uniform(run: Run, inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = run("tarkit", "shuffle", *inputs, "-O", out, "--block", "--buffer", "50", "--shards", "4", "--seed", "3")
    assert found.code == 0
    assert found.stderr.startswith(
        "tarkit shuffle: not a uniform shuffle: --block moves samples within a buffer of 50; 4 shards, "
    )
    keys = [key for path in sorted(out.glob("*.tar")) for key, _ in of_webdataset(path)]
    given = [key for url in inputs for key, _ in of_webdataset(url)]
    assert sorted(keys) == sorted(given) and keys != given
    assert b"done 4, missing 0" in run("tarkit", "status", out).stdout


@pytest.mark.parametrize("cut", [("--shards", "4"), ("--maxcount", "30"), ("--maxsize", "40k")])
def test_dry_run_of_shuffle_block(run: Run, inputs: list[str], tmp_path: Path, cut: tuple[str, ...]) -> None:
    words = ("tarkit", "shuffle", *inputs, "--block", *cut, "-O", tmp_path / "out")
    found = run(*words, "--dry-run", "--json")
    assert found.code == 0 and not (tmp_path / "out").exists()
    assert "in one pass; " in found.stderr and "nothing was written (--dry-run)" in found.stderr
    numbers = json.loads(found.stdout)
    assert run(*words).code == 0
    outputs = len([*(tmp_path / "out").glob("*.tar")])
    assert numbers["outputs"] == outputs or "--maxsize" in cut, "by size it is an estimate"
    keys = [key for path in (tmp_path / "out").glob("*.tar") for key, _ in of_webdataset(path)]
    assert (numbers["samples"], numbers["slices"], numbers["space"]) == (len(keys), 0, 0)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--buffer", "5"), "--buffer goes with --block"),
        (("--block", "--work", "w"), "--work does not go with --block, which has one pass and no run files"),
        (("--block", "--to", "map.csv"), "--to does not go with --block"),
        (("--block", "--stage", "gather", "--slice", "0/1"), "--stage does not go with --block"),
        (("--block", "-p", "2"), "-p does not go with --block"),
    ],
)
def test_usage_errors_of_shuffle_block(
    run: Run, inputs: list[str], tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    found = run("tarkit", "shuffle", *inputs, "-O", tmp_path / "out", *words)
    assert (found.code, found.stderr.count("\n")) == (2, 1) and reason in found.stderr
    assert not (tmp_path / "out").exists()
