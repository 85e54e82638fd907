"""Manifests with values of wrong types: one line and exit code 2, before anything runs."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetplrun import alone, kubetpl

from tarkit.errors import TarkitError, UsageError
from tarkit.k8s.lint import schema
from tarkit.k8s.lint.schema import refuse_types
from tarkit.k8s.local.env import LocalNode, Sources
from tarkit.k8s.local.kubelet import PodFolders, process_of
from tarkit.k8s.local.localjob import digest_of, jobs_of, local_pod, notes_on
from tarkit.k8s.local.policy import JobLedger, PodEnd

MAIN = "spec template spec containers 0"
VARIABLES = [
    {"name": "A", "value": "$(B)"},
    {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['z']"}}},
    {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
    {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": True}}},
    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "se", "key": "k"}}},
]
VOLUMES = [
    {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}},
    {"name": "h", "hostPath": {"path": "/usr"}},
    {"name": "c", "configMap": {"name": "cm", "defaultMode": 0o755, "items": [{"key": "k", "path": "p/q"}]}},
    {"name": "s", "secret": {"secretName": "se", "optional": True}},
]
CONTAINER = {
    "name": "main",
    "command": ["/bin/sh", "-c"],
    "args": ["true /e"],
    "workingDir": "/e",
    "resources": {"limits": {"memory": "1Gi", "cpu": 1}, "requests": {"cpu": "500m"}},
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm", "optional": True}}, {"secretRef": {"name": "se"}}],
    "env": VARIABLES,
    "volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "sub"}, {"name": "c", "mountPath": "/c"}],
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
    {"kind": "Secret", "metadata": {"name": "se"}, "data": {"k": "aGk="}, "stringData": {"t": "u"}},
    {"kind": "Namespace", "metadata": {"name": "n"}, "spec": {"finalizers": ["x"]}},
]
VALUES: list[Any] = [None, -1, 3.5, True, "", "x", "é" * 130, "a\0", [], [None], ["x"], [[]], {}, {"a": None}, {"a": 1}]


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
    folder.mkdir()
    sources = Sources(documents)
    digest_of(documents, {})
    for work in jobs_of(documents):
        list(notes_on(work))
        JobLedger(work)
        work.judge(PodEnd("p", {"main": 2}, ["DisruptionTarget"]))
        node = LocalNode(env={"PATH": os.environ["PATH"]})
        folders = PodFolders(*(str(folder / name) for name in ("own", "files", "claims")))
        process = process_of(local_pod(work, 0, 1), folders, sources, node)
        # As subprocess does it.
        assert all(b"\0" not in os.fsencode(each) for each in (*process.words, *process.env.values(), process.cwd))


def test_the_manifest_as_it_is_can_be_run(tmp_path: Path) -> None:
    prepare(DOCUMENTS, tmp_path / "x")


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", [each for each in paths(DOCUMENTS) if len(each) > 1 and each[-1] != "kind"], ids=str)
def test_any_value_in_any_place_is_refused_or_followed(path: tuple[Any, ...], tmp_path: Path) -> None:
    for number, value in enumerate(VALUES):
        try:
            refuse_types(changed(DOCUMENTS, path, value))
            prepare(changed(DOCUMENTS, path, value), tmp_path / str(number))
        except TarkitError as error:
            assert error.exit_code in (2, 127) and "\n" not in str(error), value
        except OSError as error:
            # A path in a volume or below one that no file can have: the system says it, with the path.
            assert error.filename and value == "é" * 130 and path[-1] in ("path", "subPath"), path


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("metadata", [], "metadata: a list is not a mapping"),
        ("spec", "x", 'spec: "x" is not a mapping'),
        ("spec template", 5, "spec.template: 5 is not a mapping"),
        ("spec completions", "ten", 'spec.completions: "ten" is not a whole number'),
        ("spec template spec containers", {"name": "main"}, "spec.template.spec.containers: a mapping is not a list"),
        (f"{MAIN} command", "true", 'command: "true" is not a list'),
        (f"{MAIN} args", [5], "args[0]: 5 is not a text"),
        (f"{MAIN} args", ["a\0b"], "args[0]: has a zero byte in it"),
        (f"{MAIN} env 0 value", 5, "env[0].value: 5 is not a text"),
        (f"{MAIN} envFrom 0 configMapRef", "cm", 'configMapRef: "cm" is not a mapping'),
        (f"{MAIN} resources limits memory", "lots", "lots is not a quantity"),
        ("spec template spec volumes 3 projected", {"sources": 5}, "projected.sources: 5 is not a list"),
        ("spec podFailurePolicy rules 0 action", "Shrug", '"Shrug" is not one of Count, FailIndex'),
        ("spec podFailurePolicy rules 1 onExitCodes operator", "Within", '"Within" is not one of In, NotIn'),
    ],
)
@pytest.mark.parametrize("command", [["local", "-f"], ["status", "j", "-f"], ["retry", "j", "-f"]], ids="".join)
def test_what_is_said(
    command: list[str], path: str, value: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = alone(tmp_path, monkeypatch)
    steps = [int(step) if step.isdigit() else step for step in path.split()]
    (folder / "m.json").write_text(json.dumps(changed([JOB], (0, *steps), value)[0]))
    outcome = kubetpl(*command, "m.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err and outcome.err.count("\n") == 1 and "bug" not in outcome.err
    assert os.listdir(folder) == ["m.json"]


@pytest.mark.parametrize("lint", [[], ["--no-lint"]], ids=["lint", "no-lint"])
def test_what_a_generator_made_is_looked_at_too(
    lint: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = alone(tmp_path, monkeypatch)
    assignment = "spec.podFailurePolicy.rules=5"
    outcome = kubetpl("local", "job", "-n", "x", "-c", "true", "--set", assignment, *lint)
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert "job/x: spec.podFailurePolicy.rules: 5 is not a list" in outcome.err
    assert os.listdir(folder) == []


def test_fields_that_are_not_known_are_for_lint() -> None:
    refuse_types([{"kind": "Job", "spec": {"newer": [1], "template": {"spec": {"containers": [{"sort": {}}]}}}}])


def test_one_line_says_that_types_are_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = alone(tmp_path, monkeypatch)
    container = {"name": "main", "image": "x", "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    (folder / "m.json").write_text(
        json.dumps({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}})
    )
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    schema._release.cache_clear()
    outcome = kubetpl("local", "-f", "m.json")
    schema._release.cache_clear()
    assert outcome.code == 0
    assert [line for line in outcome.err.splitlines() if "not checked" in line] == [
        "kubetpl: warning: fields, their types and words are not checked: checking manifests against the API's schema "
        "needs a library that is not installed: pip install kubernetes-validate (or tarkit with its extra 'lint')"
    ]


def test_a_zero_byte_is_refused_without_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    with pytest.raises(UsageError, match=r"args\[0\]: has a zero byte in it"):
        refuse_types(changed([JOB], (0, "spec", "template", "spec", "containers", 0, "args"), ["a\0b"]))
