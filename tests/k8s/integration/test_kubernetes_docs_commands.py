"""The commands on the pages about Kubernetes run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tarkit import ShardWriter
from tarkit.k8s.fieldtypes import check_types
from tarkit.k8s.yamltext import load_documents
from tarkit.steps.demodata import demo_samples

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = ("kubernetes", "why-nothing-runs", "ten-million-shards", "exit-codes", "guarantees")
TEXTS = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent
_BLOCK = re.compile(r"<!-- command: (\w+)(?:, exit (\d+))? -->\n```sh\n(.*?)```", re.DOTALL)


def blocks(text: str) -> dict[str, tuple[str, int]]:
    """Marked commands of a page, and how they are to end."""
    return {name: (command, int(code or 0)) for name, code, command in _BLOCK.findall(text)}


GUIDE, MILLIONS = blocks(TEXTS["kubernetes"]), blocks(TEXTS["ten-million-shards"])


def run(folder: Path, command: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """A block as a reader runs it, by bash, in a folder.

    Nothing of this shell's own settings is seen.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KUBE", "XDG_"))}
    path = f"{PROGRAMS}:/usr/bin:{os.environ['PATH']}"
    env = {**kept, "PATH": path, "HOME": str(folder), "IMAGE": "example.com/etl:1", **variables}
    done = subprocess.run(["bash", "-euc", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def manifest(text: str) -> list[dict[str, Any]]:
    """Documents whose fields are those of the API."""
    found = load_documents(text, "a page's command")
    assert found
    check_types(found, strict=True)
    return found


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with the shards that ``tarkit demo`` makes."""
    folder = tmp_path / "demo"
    folder.mkdir()
    with ShardWriter(f"{folder}/shard-%06d.tar", maxcount=20) as sink:
        for sample in demo_samples(60):
            sink.write(sample)
    return folder


@pytest.mark.parametrize("name", [name for name in GUIDE if name not in ("local", "trainer", "elastic", "trainhere")])
def test_commands_of_the_guide_print_manifests(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, GUIDE[name][0])
    found = manifest(done.stdout)
    assert done.stderr == ""
    jobs = [each for each in found if each["kind"] == "Job"]
    assert len(jobs) == {"jobs": 148, "train": 5, "stages": 2}.get(name, 1)
    assert name == "train" or jobs == found


def test_the_job_that_runs_here(shards: Path) -> None:
    done = run(shards, GUIDE["local"][0])
    assert "sums: Complete" in done.stderr
    assert sorted(path.name for path in (shards / "sums").glob("*.tar")) == [f"shard-{n:06d}.tar" for n in range(3)]


def test_the_shard_service_and_its_trainers(shards: Path) -> None:
    """Each sample of both epochs is trained on by one of three.

    And the manifest is one that a server takes.
    """
    pytest.importorskip("grpc", reason="NO grpcio, NO SHARD SERVICE")
    run(shards, GUIDE["trainer"][0])
    kinds = [each["kind"] for each in manifest((shards / "elastic.yaml").read_text())]
    assert kinds == ["ConfigMap", "Service", "Job", "Job"]
    done = run(shards, GUIDE["elastic"][0])
    assert "shards: Complete" in done.stderr
    assert "trainers: Complete" in done.stderr
    logs = (shards / "shards.kubetpl-local" / "logs" / "trainers").glob("*.log")
    trained = Counter(line for log in logs for line in log.read_text().splitlines())
    assert trained == {sample["__key__"]: 2 for sample in demo_samples(60)}


def test_the_readme_commands(shards: Path) -> None:
    commands = blocks(README)
    assert set(commands) == {"local", "indexed"}
    done = run(shards, commands["local"][0])
    assert "Complete" in done.stderr
    assert [each["kind"] for each in manifest(run(shards, commands["indexed"][0]).stdout)] == ["Job"]


def test_the_elastic_training_job_runs_here(shards: Path) -> None:
    done = run(shards, GUIDE["trainhere"][0])
    assert done.stderr.count(": Complete (") == 2
    log = shards / "iris-shards.kubetpl-local" / "logs" / "iris-shards" / "0-1.log"
    assert "shards: done 30, dead 0; records done 450; epochs begun 3" in log.read_text()


@pytest.mark.slow
def test_from_the_laptop_to_a_retry(shards: Path) -> None:
    """The page's own commands, one after the other: run, lose an output, see it, make it again."""

    def at(name: str) -> str:
        done = run(shards, *MILLIONS[name], BUCKET=str(shards))
        return done.stdout + done.stderr

    assert "sums: Complete" in at("laptop")
    assert "shards: 3 of 3 done" in at("keep")
    before = (shards / "sums" / "shard-000001.tar").read_bytes()
    at("lost")
    assert "shards: 2 of 3 done" in at("left")
    again = at("again")
    assert "1 shard to retry" in again
    assert "sums-r2: Complete" in again
    assert "shards: 3 of 3 done" in again
    assert (shards / "sums" / "shard-000001.tar").read_bytes() == before
    job = manifest((shards / "again.yaml").read_text())[-1]
    assert (job["metadata"]["name"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("sums-r2", 1, 1)


@pytest.mark.parametrize(("name", "shards_", "slices"), [
    ("n148", 148, 148), ("n1282", 1282, 512), ("pattern", 100_000, 7000), ("configmap", 20_000, 4000),
    ("bucket", 100_000, 7000), ("n10m", 10_000_000, 10_000),
])  # fmt: skip
def test_commands_of_all_sizes(name: str, shards_: int, slices: int, tmp_path: Path) -> None:
    bucket = str(tmp_path) if name == "bucket" else "s3://bucket"
    (tmp_path / "lists").mkdir()
    run(tmp_path, *MILLIONS[name], BUCKET=bucket)
    (path,) = tmp_path.glob("sums*.yaml")
    text = path.read_text()
    found = manifest(text)
    job = found[-1]
    assert job["metadata"]["annotations"]["tarkit.dev/shards"] == str(shards_)
    assert job["spec"]["completions"] == slices
    assert [each["kind"] for each in found] == (["ConfigMap", "Job"] if name == "configmap" else ["Job"])
    if name == "n10m":
        assert len(text) < 4096
    if name == "bucket":
        (offsets,) = (tmp_path / "lists").glob("*.list.offsets")
        assert offsets.stat().st_size == 80 + 12 * slices
        listed = f"@{str(offsets).removesuffix('.offsets')}"
        assert job["metadata"]["annotations"]["tarkit.dev/inputs"] == json.dumps([listed])
