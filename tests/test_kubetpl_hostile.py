"""kubetpl against command lines, manifests and journals that lose shards, leak secrets, or mean harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubetplrun import alone, kubetpl, refused

from tarkit.errors import DataError, UsageError
from tarkit.k8s.indexset import parse_indexes
from tarkit.k8s.local.localjob import jobs_of
from tarkit.k8s.local.state import StateFolder
from tarkit.k8s.yamltext import load_documents

BASE = ("indexed", "-n", "x", "-c", "true", "-I", "i:1", "--shards", "s3://b/a-{0..3}.tar", "-O", "s3://b/out")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def test_options_of_tarproc_that_would_lose_shards() -> None:
    for words, flag in (
        (["--slice=0/4"], "--slices"), (["-mO", "s3://else"], "--outdir"), (["-c", "other"], "--command"),
        (["-o", "x.tar"], "--output"), (["--count", "3"], "--count"), (["--retry-failed", "x"], "--retry-failed"),
        (["--help"], "--help"), (["-q", "extra.tar"], "extra.tar is not an option"), (["--"], "-- is not an option"),
    ):  # fmt: skip
        assert flag in refused(*BASE, "--", *words)


def test_a_pattern_that_a_shell_took_apart() -> None:
    assert "in quotes" in refused(*BASE[:8], "s3://b/a-1.tar", "s3://b/a-2.tar", "-O", "s3://b/out")


def test_variables_that_tell_a_pod_its_slice() -> None:
    for name in ("JOB_COMPLETION_INDEX", "TARKIT_INDEX", "TARKIT_SLICES", "TARKIT_RUN", "TARKIT_OUT"):
        assert name in refused(*BASE, "-e", f"{name}=0")


def test_secrets_are_warned_of_and_not_told() -> None:
    found = kubetpl("job", "-n", "x", "-c", "true", "-e", "AWS_SECRET_ACCESS_KEY=hunter2", "-e", "AWS_ACCESS_KEY_ID=a")
    assert found.code == 0
    assert found.err.count("warning") == 1
    assert "AWS_SECRET_ACCESS_KEY" in found.err
    assert "hunter2" not in found.err
    words = [word.replace("s3://b/out", "s3://user:hunter2@b/out") for word in BASE]
    found = kubetpl(*words)
    assert "warning: --outdir s3://b/out" in found.err
    assert "hunter2" not in found.err


def test_yaml_bombs() -> None:
    lines = ["kind: Job", "a: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"b{n}: &a{n + 1} [{','.join([f'*a{n}'] * 10)}]" for n in range(8)]
    with pytest.raises(UsageError, match="aliases"):
        load_documents("\n".join(lines), "x")
    with pytest.raises(UsageError, match="nesting depth|recursion"):
        load_documents("kind: " + "[" * 100_000, "x")
    deep = load_documents("kind: A\nb: " + "[" * 150 + "]" * 150, "x")
    assert json.dumps(deep).count("[") == 151


def test_what_an_alias_repeats_is_set_in_one_place() -> None:
    (found,) = load_documents("kind: A\nb: &x {c: {d: 1}}\ne: *x\nf: {<<: *x}\n", "x")
    found["b"]["c"]["d"] = 2
    assert found["e"] == found["f"] == {"c": {"d": 1}}


def job(**container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "command": ["true"], **container}]}
    return {"kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize("name", ["../../esc", "a/b", "..", ".", "", "a" * 221])
def test_names_that_would_lead_out_of_the_state_folder(name: str) -> None:
    with pytest.raises(UsageError, match="not a container's or volume's name"):
        jobs_of([job(name=name)])
    bad = job()
    bad["spec"]["template"]["spec"]["volumes"] = [{"name": name, "emptyDir": {}}]
    with pytest.raises(UsageError, match="not a container's or volume's name"):
        jobs_of([bad])


@pytest.mark.parametrize("entry", [{"name": "A=B", "value": ""}, {"name": "", "value": "x"}])
def test_variables_that_no_process_can_have(entry: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="not a variable"):
        jobs_of([job(env=[entry])])


def test_ranges_that_would_fill_the_memory() -> None:
    with pytest.raises(UsageError, match="no Job has that many"):
        list(parse_indexes("0-9999999999"))
    assert next(parse_indexes("0-9999999")) == 0


@pytest.mark.parametrize(
    "line",
    [{"format": "kubetpl-local-9", "work": "w"}, {"event": "start", "job": "x", "index": 0, "attempt": "abc"}],
)
def test_journals_of_another_version(line: dict[str, Any], tmp_path: Path) -> None:
    with StateFolder(str(tmp_path / "st"), "w"):
        pass
    journal = tmp_path / "st" / "journal"
    journal.write_text(journal.read_text() + json.dumps(line) + "\n")
    with pytest.raises(DataError, match="another version.*--fresh"):
        StateFolder(str(tmp_path / "st"), "w")
