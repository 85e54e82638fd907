"""tarkit plan: who reads what, from the indexes or a manifest alone."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from document import commands

from tarkit import TarWriter
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers.source import BatchSource

Run = Callable[..., Any]
(EPILOG,) = (context.command.epilog or "" for name, context in commands() if name == "tarkit plan")
EXAMPLES = [line.strip() for line in EPILOG.splitlines() if line.strip().startswith("tarkit ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """148 shards of 500 samples; all but their indexes are holes."""
    made = tmp_path_factory.mktemp("shards")
    with TarWriter(str(made / "train-0000.tar"), index=True) as writer:
        for number in range(500):
            writer.write({"__key__": f"{number:04}", "cls": number})
    size = (made / "train-0000.tar").stat().st_size
    for number in range(1, 148):
        shutil.copy(made / "train-0000.idx", made / f"train-{number:04}.idx")
        with open(made / f"train-{number:04}.tar", "wb") as file:
            file.truncate(size)
    shards = [ManifestShard(f"{made}/train-{number:04}.tar", 500, size) for number in range(148)]
    write_manifest(f"{made}/dataset.json", shards)
    return made


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_runs(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    monkeypatch.chdir(folder)
    result = run(*shlex.split(example))
    assert (result.code, result.stderr) == (0, "")
    assert result.lines[-1].startswith("a shard is read by ") and len(result.lines) > 4


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


def test_it_prints_what_a_data_set_reads(run: Run, folder: Path) -> None:
    spec = f"{folder}/train-000{{0..2}}.tar"
    words = ["tarkit", "plan", spec, "--batch", "6", "--world", "2", "--workers", "2", "--epoch", "1", "--seed", "4"]
    result = run(*words, "--json", "--begin", "100")
    assert (result.code, result.stderr) == (0, "")
    *consumers, last = map(json.loads, result.lines)
    assert [(each["rank"], each["worker"]) for each in consumers] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    source = BatchSource(spec, batch=6, seed=4, rank=1, world=2)
    order = source.order(1)
    places = [place for number in range(101, order.batches, 2) for place in order.rank_batch(number, 1, 2)]
    read = {f"{place.shard} {place.sample // 100}" for place in places}
    assert {f"{Path(name).stem[-1]} {first // 100}" for name, first, _, _ in consumers[3]["ranges"]} == read
    assert consumers[3]["samples"] == len(places) and consumers[3]["bytes"] // len(places) == 1044
    assert last["summary"]["samples"] == 150 * 6 == sum(each["samples"] for each in consumers)


def test_for_people(run: Run, folder: Path) -> None:
    words = ["tarkit", "plan", folder / "train-0000.tar", "--batch", "100", "--no-shuffle", "--lanes", "2"]
    result = run(*words, "--world", "2", "--ranges", "--rank", "1", "--equalize", "pad", "--run", "200")
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == [
        "rank 1 worker 0: batches 5, samples 250, shards 1, ranges 2, bytes 261120",
        f"  150 of 200 to 399 of {folder}/train-0000.tar",
        f"  100 of 400 to 499 of {folder}/train-0000.tar",
        "epoch 0: 5 batches of 100, 500 of 500 samples",
        "of a consumer: samples 250 to 250, bytes 261120 to 261120, shards 1 to 1, ranges 2 to 2",
        "a shard is read by 2 to 2 of 2 consumers, a range by 1.333 on average; 1.0 is best",
    ]


def test_a_manifest_gives_the_same_and_nothing_else_is_read(run: Run, folder: Path, tmp_path: Path) -> None:
    words = ["--batch", "64", "--world", "4", "--json"]
    listed = run("tarkit", "plan", folder / "dataset.json", *words)
    indexed = run("tarkit", "plan", f"{folder}/train-{{0000..0147}}.tar", *words)
    assert (listed.code, indexed.code) == (0, 0) and listed.stdout == indexed.stdout
    alone = shutil.copy(folder / "dataset.json", tmp_path / "dataset.json")
    assert run("tarkit", "plan", alone, *words).code == 0


def test_thousands_of_consumers_in_two_seconds(run: Run, folder: Path) -> None:
    start = time.process_time()
    words = ["--batch", "4096", "--world", "512", "--workers", "8"]
    result = run("tarkit", "plan", folder / "dataset.json", *words)
    assert (result.code, len(result.lines)) == (0, 4096 + 3)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--batch", "501"], 2, "500 samples do not fill a batch of 501"),
        (["--batch", "6", "--lanes", "4"], 2, "lanes is 4; it must divide the batch, 6"),
        (["--batch", "6", "--world", "2", "--rank", "2"], 2, "--rank is 2, and --world is 2: ranks are 0 to 1"),
        (["--batch", "6", "--begin", "83"], 2, "the epoch has 83 batches; none has number 83"),
        ([], 2, "Missing option '--batch'"),
    ],
)
def test_usage_errors(run: Run, folder: Path, words: list[str], code: int, message: str) -> None:
    result = run("tarkit", "plan", folder / "train-0000.tar", *words)
    assert (result.code, result.stdout) == (code, b"")
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_input_errors(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_text("v1.2 one\n")
    (tmp_path / "a.tar").write_bytes(b"")
    (tmp_path / "bad.json").write_text("{}")
    for name, code, message in (
        ("a.tar", 65, "a.idx"),
        ("bad.json", 65, "bad.json"),
        ("nosuch.json", 66, "nosuch.json"),
        ("nosuch.tar", 66, "no such file"),
    ):
        result = run("tarkit", "plan", tmp_path / name, "--batch", "1")
        assert (result.code, result.stdout) == (code, b"") and message in result.stderr, result
    result = run("tarkit", "plan", "-", "--batch", "1")
    assert (result.code, result.stdout) == (2, b""), result.stderr
