"""A manifest whose types are not checked, run on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from kubetplrun import alone, kubetpl


def test_one_line_says_that_types_are_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = alone(tmp_path, monkeypatch)
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["true"]}]}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    (folder / "m.json").write_text(json.dumps(job))
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    for words in (["local", "-f", "m.json"], ["job", "--set", "spec.suspend=true"]):
        outcome = kubetpl(*words)
        assert outcome.code == 0
        assert [line for line in outcome.err.splitlines() if "not checked" in line] == [
            "kubetpl: note: fields and their types are not checked: checking manifests against the API's schema "
            "needs a library that is not installed: pip install kubernetes-validate (or tarkit with its extra 'schema')"
        ]
    assert kubetpl("job", "-n", "x").err == ""
