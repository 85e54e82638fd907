"""The API's own schema: what it finds, what it would let pass, and what is said if it is not installed."""

from __future__ import annotations

import copy
import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from kubetplrun import alone, kubetpl

from tarkit.errors import MissingExtraError, UsageError
from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.lint import schema
from tarkit.k8s.lint.enumerations import _NOT_NEEDED, RANGES, WORDS
from tarkit.k8s.lint.rules import verdict
from tarkit.k8s.lint.schema import check_schema
from tarkit.k8s.yamltext import load_documents

DATA = Path(__file__).resolve().parent / "data"
(JOB,) = load_documents((DATA / "k8s_verdicts.indexed.yaml").read_text(encoding="utf-8"), "indexed")
OTHERS = load_documents((DATA / "k8s_verdicts.others.yaml").read_text(encoding="utf-8"), "others")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate"
)


def changed(*changes: str) -> dict[str, Any]:
    document = copy.deepcopy(JOB)
    for change in changes:
        set_field(document, change)
    return document


def said(document: dict[str, Any], kube_version: str = "1.33") -> list[str]:
    return [f"{finding.severity}: {finding}" for finding in check_schema(document, kube_version)]


@pytest.mark.parametrize("kube_version", ["1.33", "1.36", "1.37"])
def test_the_job_of_the_facts_passes(kube_version: str) -> None:
    assert said(JOB, kube_version) == []
    document = changed('spec.podFailurePolicy.rules[0].onPodConditions[0].status="True"')
    assert said(document, kube_version) == []
    # By the library's own program too; before 1.34 its schema wants the status, which servers do not.
    assert kubernetes_validate.validate(document, kube_version, strict=True) == kube_version


@pytest.mark.parametrize("document", OTHERS, ids=[each["kind"] for each in OTHERS])
def test_other_kinds_pass(document: dict[str, Any]) -> None:
    expected = ["warning: jobset/train: no schema of jobset.x-k8s.io/v1alpha2, so its fields are unchecked"]
    assert said(document) == (expected if document["kind"] == "JobSet" else [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["spec.complettions=4"], "spec.complettions: no such field; did you mean completions?"),
        (["spec.xyzzy=4"], "spec.xyzzy: no such field; leave it out"),
        (["spec.completions=ten"], 'spec.completions: "ten" is not a whole number; change --slices'),
        (["spec.suspend=1"], "spec.suspend: 1 is not true or false"),
        (["metadata.labels=[]"], "metadata.labels: a list is not a mapping; change --label"),
        (
            ["spec.template.spec.containers[0].name=null"],
            "spec.template.spec.containers[0].name: is missing, and must be there",
        ),
        (
            ["spec.template.spec.containers[0].resources.limits.memory=[]"],
            "spec.template.spec.containers[0].resources.limits.memory: a list is not a text or a number; "
            "change --memory",
        ),
        (
            ["spec.template.spec.containers[0].env[0].value=1"],
            "spec.template.spec.containers[0].env[0].value: 1 is not a text; put it in quotes; change --env",
        ),
        (["kind=job"], 'kind: "job" is not one of Job'),
        (["kind=Jobs"], "kind: Kubernetes 1.33 has no Jobs in batch/v1; see kubectl api-resources"),
        (["apiVersion=batch/v9"], "kind: Kubernetes 1.33 has no Job in batch/v9; see kubectl api-resources"),
        (["kind=../x"], "kind: Kubernetes 1.33 has no ../x in batch/v1; see kubectl api-resources"),
        (["kind=null"], "kind: is missing; without it nothing can be checked"),
        (["apiVersion=null"], "apiVersion: is missing; without it nothing can be checked"),
    ],
)
def test_what_it_finds(changes: list[str], expected: str) -> None:
    document = changed(*changes)
    (line,) = said(document)
    assert line.partition(": ")[2].partition(": ")[2] == expected


def test_all_that_is_wrong_is_found_at_once() -> None:
    assert len(said(changed("spec.a=1", "spec.b=1", "spec.completions=ten", "metadata.c=1"))) == 4


def test_documents_without_a_name_keep_their_numbers() -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": [1]}
    found = verdict([JOB, nameless], "1.33", lambda error: pytest.fail(str(error)))
    assert [each.where for each in found] == ["document-2 metadata.name", "document-2 data"]


def test_releases_without_a_schema() -> None:
    assert said(JOB, "1.99") == [
        "warning: job/imgnet-ppm: checked against the schema of 1.37, since none of 1.99 is installed"
    ]
    with pytest.raises(UsageError, match=r"no schema of Kubernetes 1\.2; write for example 1\.33"):
        check_schema(JOB, "1.2")
    with pytest.raises(UsageError, match="no schema of Kubernetes newest"):
        check_schema(JOB, "newest")


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    schema._validator.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install kubernetes-validate"):
        check_schema(JOB)


def definitions(kube_version: str, groups: str = "core|batch|apps|networking|scheduling") -> dict[str, Any]:
    """The published ones of a release by their short names, as they are."""
    folder = f"kubernetes-json-schema/v{kube_version}.0-local-strict"
    whole = json.loads((resources.files("kubernetes_validate") / folder / "_definitions.json").read_text())
    found = whole.get("$defs") or whole["definitions"]
    return {
        name.rpartition(".")[2]: body
        for name, body in found.items()
        if re.match(rf"io\.k8s\.(api\.({groups})\.v1|apimachinery\.pkg\.apis\.meta\.v1)\.", name)
    }


@pytest.mark.parametrize(
    "command", [["lint", "job.yaml"], ["job", "-n", "x", "-c", "true", "--set", "spec.suspend=true"]]
)
def test_one_line_says_that_it_is_missing(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = alone(tmp_path, monkeypatch)
    (folder / "job.yaml").write_text((DATA / "k8s_verdicts.indexed.yaml").read_text(encoding="utf-8"))
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    schema._release.cache_clear()
    outcome = kubetpl(*command)
    schema._release.cache_clear()
    assert outcome.code == 0
    lines = [line for line in outcome.err.splitlines() if "warning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("kubetpl: warning: fields, their types and words are not checked: ")
    assert "pip install kubernetes-validate" in lines[0]


@pytest.mark.parametrize("kube_version", ["1.33", "1.34", "1.35", "1.36", "1.37"])
def test_words_are_those_of_the_descriptions(kube_version: str) -> None:
    """The published schemas have the words in the descriptions of the fields; or in those of a page that is named."""
    known = definitions(kube_version)
    elsewhere = {
        # Pages about them, and what the description shortens.
        "HostPathVolumeSource.type", "VolumeMount.mountPropagation", "PersistentVolumeClaimSpec.accessModes",
        "PersistentVolumeClaimSpec.volumeMode", "ContainerResizePolicy.resourceName",
        "ContainerResizePolicy.restartPolicy",
        "SecurityContext.procMount", "HTTPGetAction.scheme", "ContainerPort.protocol", "ImageVolumeSource.pullPolicy",
        "ServiceSpec.ipFamilies", "Toleration.operator", "PodFailurePolicyOnPodConditionsPattern.status",
    }  # fmt: skip
    for name, values in WORDS.items():
        kind, _, field = name.partition(".")
        body = known[kind]["properties"][field]
        text = body["description"]
        assert name in elsewhere or [each for each in values if each not in text] == [], name


@pytest.mark.parametrize("kube_version", ["1.33", "1.37"])
def test_ranges_and_needless_fields_are_of_fields_that_exist(kube_version: str) -> None:
    known = definitions(kube_version)
    for name in RANGES:
        kind, _, field = name.partition(".")
        assert known[kind]["properties"][field]["type"][0][:3] in ("int", "i"), name
    for kind, fields in _NOT_NEEDED.items():
        assert fields <= set(known[kind]["properties"]), kind


@pytest.mark.parametrize("kube_version", [None, "1.33", "1.34", "1.35", "1.36", "1.37"])
def test_no_release_asks_for_a_field_that_the_newest_schema_does_not_require(kube_version: str | None) -> None:
    binding: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "x"},
        "roleRef": {"kind": "Role", "name": "r"},
    }  # fmt: skip
    assert "apiGroup" in definitions("1.33", "rbac")["RoleRef"]["required"]
    assert "apiGroup" not in definitions("1.37", "rbac")["RoleRef"]["required"]
    assert verdict([binding], kube_version, lambda error: pytest.fail(str(error))) == []
    del binding["roleRef"]["name"]
    (found,) = verdict([binding], kube_version, lambda error: pytest.fail(str(error)))
    assert str(found) == "rolebinding/x: roleRef.name: is missing, and must be there"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            "MAIN.imagePullPolicy=always",
            '"always" is not one of Always, IfNotPresent, Never',
        ),
        ("MAIN.imagePullPolicy=", None),
        (
            "POD.dnsPolicy=none",
            '"none" is not one of ClusterFirst, ClusterFirstWithHostNet, Default, None',
        ),
        (
            "POD.securityContext.seccompProfile.type=runtime/default",
            '"runtime/default" is not one of Localhost, RuntimeDefault, Unconfined; change --security',
        ),
        (
            "MAIN.livenessProbe={httpGet: {port: 80, scheme: ftp}}",
            '"ftp" is not one of HTTP, HTTPS',
        ),
        ("MAIN.readinessProbe={grpc: {port: 0}}", "0 is out of range; write at least 1"),
        (
            "POD.volumes[1].configMap.defaultMode=644",
            "644 is out of range; write at most 511; change --config-map",
        ),
        ("POD.volumes[1].configMap.defaultMode=0o644", None),
        ("spec.completions=3000000000", "3000000000 is out of range; write at most 2147483647; change --slices"),
        ("MAIN.name=", "is empty; write one"),
        ("POD.overhead={memory: 4GB}", "4GB is not a quantity: write 4G (10^9 bytes) or 4Gi (2^30 bytes)"),
        ("POD.overhead={memory: 8Ei}", None),
        ("spec.podFailurePolicy={}", None),
        ("MAIN.args=[null]", None),
        ("MAIN.resources.limits={memory: null}", None),
    ],
)
def test_words_and_ranges_are_part_of_the_schema(change: str, expected: str | None) -> None:
    change = change.replace("POD", "spec.template.spec").replace("MAIN", "spec.template.spec.containers[0]")
    lines = [line.partition(": ")[2].partition(": ")[2].partition(": ")[2] for line in said(changed(change))]
    assert lines == ([] if expected is None else [expected])
