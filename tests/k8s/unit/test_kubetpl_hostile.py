"""kubetpl against command lines, manifests and journals that lose shards, leak secrets, or mean
harm.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubetplrun import alone, kubetpl, refused

from tarkit.errors import UsageError
from tarkit.k8s.indexset import parse_indexes
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
    with pytest.raises(UsageError, match=r"nesting depth|recursion"):
        load_documents("kind: " + "[" * 100_000, "x")
    deep = load_documents("kind: A\nb: " + "[" * 150 + "]" * 150, "x")
    assert json.dumps(deep).count("[") == 151


def test_what_an_alias_repeats_is_set_in_one_place() -> None:
    (found,) = load_documents("kind: A\nb: &x {c: {d: 1}}\ne: *x\nf: {<<: *x}\n", "x")
    found["b"]["c"]["d"] = 2
    assert found["e"] == found["f"] == {"c": {"d": 1}}


def test_ranges_that_would_fill_the_memory() -> None:
    with pytest.raises(UsageError, match="no Job has that many"):
        list(parse_indexes("0-9999999999"))
    assert next(parse_indexes("0-9999999")) == 0
