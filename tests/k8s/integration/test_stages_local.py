"""The stages of a verb as pods on this machine: the same bytes as those of the verb itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from installed import program_path
from kubetplrun import Outcome, alone, kubetpl, printed
from tarkit.cli.tarkit import main as tarkit

from tarkit import TarWriter

SHARDS = "in-{0..4}.tar"
HOW = ("--shards", "5", "--seed", "7")
PODS = ("-n", "x", "--slices", "3", "--gather-slices", "2", "--retries", "0")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = alone(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{Path(program_path('tarkit')).parent}:{os.environ['PATH']}")
    for shard in range(5):
        with TarWriter(str(work / f"in-{shard}.tar")) as writer:
            for number in range(20 + shard):
                writer.write({"__key__": f"{shard}/{number:03d}", "txt": b"%d" % number * number})
    return work


@pytest.fixture
def expected(folder: Path) -> dict[str, bytes]:
    """The outputs of the verb in one process."""
    assert tarkit(["shuffle", SHARDS, "-O", "expected", *HOW, "-q", "-p", "1"]) == 0
    found = outputs(folder / "expected")
    assert len(found) == 10
    return found


def outputs(folder: Path) -> dict[str, bytes]:
    """Shards and indexes by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*")) if path.suffix != ".json"}


def local(*words: str) -> Outcome:
    return kubetpl("local", "--retry-delay", "0.05", *words)


def test_the_same_bytes_as_the_verb_itself(folder: Path, expected: dict[str, bytes]) -> None:
    done = local("shuffle", SHARDS, "-O", "out", *PODS, *HOW)
    assert done.code == 0, done.err
    assert "x-scatter: Complete (CompletionsReached): done 3 of 3" in done.err
    assert "x-gather: Complete (CompletionsReached): done 2 of 2; completedIndexes 0,1\n" in done.err
    assert outputs(folder / "out") == expected
    assert not (folder / "out" / "_exchange").exists()
    # The logs are those of three and two pods.
    logs = sorted(str(path.relative_to(folder / "x-scatter.kubetpl-local")) for path in folder.rglob("*.log"))
    assert logs == [f"logs/x-gather/{n}-1.log" for n in range(2)] + [f"logs/x-scatter/{n}-1.log" for n in range(3)]


@pytest.mark.parametrize(
    ("verb", "rest", "code"),
    [
        # An empty text is not a number: those samples are set aside.
        ("sort", [SHARDS, "--by", "txt:number", "--maxcount", "30"], 3),
        ("join", ["in-{0..2}.tar", "--how", "outer", "--shards", "3", "--", "in-{3..4}.tar"], 0),
        ("dedup", [SHARDS, "--by", "txt"], 0),
    ],
)
def test_the_same_bytes_for_the_other_verbs(folder: Path, verb: str, rest: list[str], code: int) -> None:
    assert tarkit([verb, "-O", "expected", "-q", "-p", "1", *rest]) == code
    expected = {path.name: path.read_bytes() for path in (folder / "expected").glob("*.tar")}
    assert len(expected) > 2
    done = local(verb, "-O", "out", "-n", "x", "--slices", "3", "--gather-slices", "2", "--retries", "0", *rest)
    assert done.code == code, done.err
    assert any(name.endswith(".failed.tar") for name in expected) == bool(code)
    assert {path.name: path.read_bytes() for path in (folder / "out").glob("*.tar")} == expected


def test_a_jobset_of_a_file_with_its_own_work_folder(folder: Path, expected: dict[str, bytes]) -> None:
    words = [f"{folder}/{SHARDS}", "-O", f"{folder}/out", "--work", f"{folder}/work"]
    made = kubetpl("shuffle", *words, *PODS, *HOW, "-I", "i:1", "--jobset")
    assert made.code == 0
    (folder / "x.yaml").write_text(made.out)
    done = local("-f", "x.yaml")
    assert done.code == 0, done.err
    assert "x-gather-0: Complete" in done.err
    assert outputs(folder / "out") == expected
    assert not (folder / "work").exists()


def test_gather_does_not_begin_if_scatter_fails(folder: Path, expected: dict[str, bytes]) -> None:
    whole = (folder / "in-4.tar").read_bytes()
    (folder / "in-4.tar").write_bytes(whole[:5000])
    words = ("shuffle", SHARDS, "-O", "out", "--work", "work", *PODS, *HOW)
    done = local(*words)
    assert done.code == 1
    assert "x-scatter-2-1: exit code 65 (FailIndex): " in done.err and "in-4.tar" in done.err
    assert "x-gather: Failed (StageBefore): done 0 of 2; x-scatter has failed" in done.err
    assert not (folder / "x-scatter.kubetpl-local" / "logs" / "x-gather").exists()
    assert outputs(folder / "out") == {}
    # Run files of the damaged input are not used with the good one.
    (folder / "in-4.tar").write_bytes(whole)
    shutil.rmtree(folder / "work")
    assert local(*words).code == 0
    assert outputs(folder / "out") == expected


def test_more_gather_pods_than_outputs(folder: Path) -> None:
    """Pods that have no output of their own do not read run files that the others remove."""
    done = local("-j", "6", "shuffle", SHARDS, "-O", "out", "-n", "x", "--gather-slices", "6", "--shards", "2")
    assert done.code == 0 and "x-gather: Complete (CompletionsReached): done 6 of 6" in done.err, done.err
    assert "failed" not in done.err
    assert len(outputs(folder / "out")) == 4


def test_a_suspended_gather_runs_here(folder: Path) -> None:
    done = local("shuffle", SHARDS, "-O", "out", *PODS, *HOW, "--suspend-gather")
    assert done.code == 0, done.err
    # But not from a file, where it would wait.
    (folder / "x.yaml").write_text(
        printed("shuffle", f"{folder}/{SHARDS}", "-O", "s3://b/out", "-I", "i:1", *PODS, "--suspend-gather")
    )
    assert "suspend is not done here" in local("-f", "x.yaml").err
