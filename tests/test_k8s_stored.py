"""What is printed is what a server stores: else ``kubectl apply --server-side`` after ``apply`` reports a conflict."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from kubetplrun import MAIN, SPEC, alone, at, kubetpl, one

from tarkit.k8s.generate import store

FIELD = {"fieldRef": {"fieldPath": "metadata.uid"}}
STORED = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
AMOUNT = {"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}


def stored(spec: dict[str, Any]) -> Any:
    document = {"kind": "Pod", "spec": copy.deepcopy(spec)}
    store(document)
    return document["spec"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def test_quantities_of_set_are_canonical() -> None:
    found = one(
        "job", "-n", "x", "-c", "true",
        *("--set", "spec.template.spec.containers[main].resources.requests={cpu: 0.5, memory: 1024Mi}"),
        *("--set", "spec.template.spec.containers[main].resources.limits={memory: 1024Mi, example.com/a: 1}"),
        *("--set", "spec.template.spec.volumes[scratch].emptyDir.sizeLimit=1073741824Ki"),
    )  # fmt: skip
    assert at(found, f"{MAIN} resources") == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"memory": "1Gi", "example.com/a": "1"},
    }
    assert at(found, f"{SPEC} volumes 0 emptyDir sizeLimit") == "1Ti"


def test_quantities_of_a_template_are_canonical(folder: Path) -> None:
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    (folder / "mine.yaml").write_text(f"{head}  - {{name: a, image: b, resources: {{requests: {{cpu: 1.0}}}}}}\n")
    found = one("pod", "--template", "mine.yaml")
    assert at(found, "spec containers 0 resources") == {"requests": {"cpu": "1"}}


def test_what_is_compared_as_a_whole_has_its_defaults() -> None:
    found = one("indexed", "-n", "x", "-I", "a:1", "-c", "true", "--shards", "gs://b/{0..3}.tar", "-O", "gs://b/out")
    references = [each["valueFrom"] for each in at(found, f"{MAIN} env") if "valueFrom" in each]
    assert [list(inner) for each in references for inner in each.values()] == [
        ["apiVersion", "fieldPath"], ["resource", "divisor"], ["apiVersion", "fieldPath"],
    ]  # fmt: skip
    assert all("status" in each for each in at(found, "spec podFailurePolicy rules 0 onPodConditions"))
    added = 'spec.template.spec.containers[main].env[]={name: A, valueFrom: {fieldRef: {fieldPath: "metadata.uid"}}}'
    assert at(one("job", "-n", "x", "-c", "true", "--set", added), f"{MAIN} env")[-1]["valueFrom"] == STORED


def test_the_same_in_volumes() -> None:
    volumes = [
        {"downwardAPI": {"items": [{"path": "a", **FIELD}, {"path": "b", **AMOUNT}]}},
        {"projected": {"sources": [{"downwardAPI": {"items": [{"path": "c", **FIELD}]}}, {"secret": {"name": "s"}}]}},
    ]
    found = stored({"volumes": volumes})["volumes"]
    divided = {**AMOUNT["resourceFieldRef"], "divisor": "0"}
    assert found[0]["downwardAPI"]["items"] == [{"path": "a", **STORED}, {"path": "b", "resourceFieldRef": divided}]
    assert found[1]["projected"]["sources"][0]["downwardAPI"]["items"] == [{"path": "c", **STORED}]


def test_a_condition_of_the_failure_policy_has_its_status() -> None:
    job: dict[str, Any] = {
        "spec": {"podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "DisruptionTarget"}]}]}}
    }
    store(job)
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


@pytest.mark.parametrize("value", [{}, [], [1], "x", 5, None, {"requests": 3}])
def test_anything_else_is_left_alone(value: Any) -> None:
    spec = {"containers": [{"resources": value, "env": value}, value], "volumes": [{"emptyDir": value}, value]}
    assert stored(spec) == spec
    assert stored({"containers": value, "volumes": value, "resources": value})["volumes"] == value


def test_what_is_no_quantity_is_refused() -> None:
    assignment = "spec.template.spec.containers[main].resources.limits.memory=4GB"
    outcome = kubetpl("job", "-n", "x", "-c", "true", "--set", assignment)
    assert (outcome.code, outcome.out) == (2, "") and "4GB is not a quantity" in outcome.err
