"""Manifests with values of wrong types: one line and exit code 2, before anything runs."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetplrun import alone, kubetpl, read_once

from tarkit.errors import TarkitError, UsageError
from tarkit.k8s.fieldtypes import check_types
from tarkit.k8s.local.pods import LocalSettings, Sources, jobs_of, process_of
from tarkit.k8s.local.policy import JobLedger

MAIN = "spec template spec containers 0"
VARIABLES = [
    {"name": "A", "value": "$(B)"},
    {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}},
]
VOLUMES = [
    {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}},
    {"name": "h", "hostPath": {"path": "/usr"}},
    {"name": "c", "configMap": {"name": "cm"}},
    {"name": "p", "persistentVolumeClaim": {"claimName": "claim"}},
]
CONTAINER = {
    "name": "main",
    "command": ["/bin/sh", "-c"],
    "args": ["true /e"],
    "workingDir": "/e",
    "resources": {"limits": {"memory": "1Gi", "cpu": 1}, "requests": {"cpu": "500m"}},
    "env": VARIABLES,
    "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in "echp"],
}
POD = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
    "volumes": VOLUMES,
    "containers": [CONTAINER],
}
RULES = [
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [2]}},
]
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "n", "labels": {"a": "b"}},
    "spec": {
        "completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimitPerIndex": 0,
        "podFailurePolicy": {"rules": RULES},
        "template": {"metadata": {"labels": {"x": "y"}, "annotations": {"z": "w"}}, "spec": POD},
    },
}  # fmt: skip
DOCUMENTS = [
    JOB,
    {"kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "v"}, "binaryData": {"b": "aGk="}},
    {"kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}},
    {"kind": "Namespace", "metadata": {"name": "n"}, "spec": {"finalizers": ["x"]}},
]
VALUES: list[Any] = [None, -1, True, "", "é" * 130, ["x"], {"a": 1}]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where all values are."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


def changed(documents: list[Any], path: tuple[Any, ...], value: Any) -> list[Any]:
    documents = copy.deepcopy(documents)
    holder: Any = documents
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return documents


def prepare(documents: list[Any], folder: Path) -> None:
    """All that is done with a manifest, but for starting the processes."""
    folder.mkdir(exist_ok=True)
    sources, settings = Sources(documents), LocalSettings(env={"PATH": os.environ["PATH"]})
    for work in jobs_of(documents):
        JobLedger(work, 1)
        work.judge("p", 2)
        process_of(work, 0, "p", str(folder), sources, settings)


def test_the_manifest_as_it_is_can_be_run(tmp_path: Path) -> None:
    prepare(DOCUMENTS, tmp_path / "x")


def test_any_value_in_any_place_is_refused_or_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes_validate.utils.schema_contents", read_once)
    refused = 0
    for path in [each for each in paths(DOCUMENTS) if len(each) > 1 and each[-1] != "kind"]:
        # null in a list is refused when the file is read.
        for value in VALUES[isinstance(path[-1], int) :]:
            try:
                check_types(changed(DOCUMENTS, path, value))
                prepare(changed(DOCUMENTS, path, value), tmp_path / "x")
            except TarkitError as error:
                assert error.exit_code in (2, 127) and "\n" not in str(error), (path, value)
                refused += 1
            except OSError as error:
                # A path in a volume or below one that no file can have: the system says it, with
                # the path.
                assert error.filename and value == "é" * 130 and path[-1] in ("path", "subPath"), path
    assert refused > 500


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("metadata", [], "Job 1: metadata: [] is not of type 'object'"),
        ("spec completions", "ten", "Job j: spec.completions: 'ten' is not of type 'integer'"),
        (
            "spec template spec containers",
            {"name": "main"},
            "spec.template.spec.containers: {'name': 'main'} is not of",
        ),
        (f"{MAIN} args", [5], "spec.template.spec.containers[0].args[0]: 5 is not of type 'string'"),
        (f"{MAIN} resources limits memory", ["lots"], "resources.limits.memory: ['lots'] is not"),
        ("spec template spec volumes 3 projected", {"sources": 5}, "projected.sources: 5 is not of type 'array'"),
    ],
)
@pytest.mark.parametrize("command", [["local", "-f"], ["status", "j", "-f"]], ids="".join)
def test_what_is_said(
    command: list[str], path: str, value: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = alone(tmp_path, monkeypatch)
    steps = [int(step) if step.isdigit() else step for step in path.split()]
    (folder / "m.json").write_text(json.dumps(changed([JOB], (0, *steps), value)[0]))
    outcome = kubetpl(*command, "m.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err and outcome.err.count("\n") == 1
    assert os.listdir(folder) == ["m.json"]


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("spec completionMode", "indexed"), ("spec template spec restartPolicy", "never"),
        ("spec podFailurePolicy rules 0 action", "Shrug"),
        ("spec podFailurePolicy rules 1 onExitCodes operator", "Within"),
    ],
)  # fmt: skip
def test_a_word_that_would_be_followed_in_another_sense_is_refused(path: str, word: str) -> None:
    steps = [int(step) if step.isdigit() else step for step in path.split()]
    with pytest.raises(UsageError, match=f"{steps[-1]}: '{word}' is not one of "):
        jobs_of(changed([JOB], (0, *steps), word))


def test_what_set_and_templates_bring_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = alone(tmp_path, monkeypatch)
    (folder / "mine.yaml").write_text(json.dumps(changed([JOB], (0, "spec", "backofLimit"), 3)[0]))
    for words, says in (
        (["job", "--set", "spec.podFailurePolicy.rules=5"], "spec.podFailurePolicy.rules: 5 is not of type 'array'"),
        (["local", "job", "-n", "x", "-c", "true", "--set", "spec.completions=x"], "spec.completions: 'x' is not of"),
        (["job", "--template", "mine.yaml"], "spec: Additional properties are not allowed ('backofLimit' was"),
    ):
        outcome = kubetpl(*words)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert says in outcome.err
    # By none of the schemas: a kind of one's own, and what tarkit itself printed.
    (folder / "mine.yaml").write_text('{"apiVersion": "example.com/v1", "kind": "Own", "spec": 5}')
    assert kubetpl("pod", "--template", "mine.yaml").code == 0
    check_types([{"kind": "../../Job", "spec": 5}, {"kind": "Job", "apiVersion": "../v1\0", "spec": 5}])
