"""The API's own schema: what it finds, what it would let pass, and what is said if it is not installed."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import MissingExtraError, UsageError
from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.lint import schema
from tarkit.k8s.lint.fields import _FIELDS, fields_of
from tarkit.k8s.lint.rules import lint
from tarkit.k8s.lint.schema import check_schema
from tarkit.k8s.lint.verdict import verdict
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
    expected = [
        "warning: jobset/train: there is no schema of jobset.x-k8s.io/v1alpha2, which is not of Kubernetes; "
        "its fields are unchecked"
    ]
    assert said(document) == (expected if document["kind"] == "JobSet" else [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["spec.complettions=4"], "spec.complettions: there is no such field; did you mean completions?"),
        (["spec.xyzzy=4"], "spec.xyzzy: there is no such field; leave it out"),
        (["spec.completions=ten"], 'spec.completions: "ten" is not a whole number; change --slices'),
        (["spec.suspend=1"], "spec.suspend: 1 is not true or false"),
        (["metadata.labels=[]"], "metadata.labels: a list is not a mapping; change --label"),
        (
            ["spec.template.spec.containers[0].name=null"],
            "spec.template.spec.containers[0].name: is missing, and must be there",
        ),
        (
            ["spec.template.spec.containers[0].resources.limits.memory=[]"],
            "spec.template.spec.containers[0].resources.limits.memory: a list is neither a text nor a number; "
            "change --memory",
        ),
        (
            ["spec.template.spec.containers[0].env[0].value=1"],
            "spec.template.spec.containers[0].env[0].value: 1 is not a text; change --env",
        ),
        (["kind=job"], "kind: 'job' is not one of ['Job']"),
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


def test_empty_documents_are_no_manifests() -> None:
    nothing: list[Any] = [{}, None]
    for document in nothing:
        assert said(document) == ["error: document-1: is empty, or no mapping; write a manifest or leave it out"]


def test_documents_without_a_name_keep_their_numbers() -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": [1]}
    found = verdict([JOB, nameless], "1.33", lambda error: pytest.fail(str(error)))
    # Of the data the rules speak, and the schema is silent.
    assert [each.where for each in found] == ["document-2 metadata.name", "document-2 data"]


def test_releases_without_a_schema() -> None:
    assert said(JOB, "1.99") == [
        "warning: job/imgnet-ppm: checked against the schema of 1.37, since none of 1.99 is installed"
    ]
    with pytest.raises(UsageError, match=r"there is no schema of Kubernetes 1\.2; write for example 1\.33"):
        check_schema(JOB, "1.2")
    with pytest.raises(UsageError, match="there is no schema of Kubernetes newest"):
        check_schema(JOB, "newest")


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate.utils", None)
    schema._validator.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'tarkit\[lint\]'"):
        check_schema(JOB)


@pytest.mark.parametrize("kube_version", ["1.33", "1.34", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("table", ["JobSpec", "PodSpec", "Container", "ServiceSpec", "Volume", "ObjectMeta"])
def test_the_table_of_fields_is_the_schemas(table: str, kube_version: str) -> None:
    """The rules and the schema agree on which fields a release has."""
    whole = schema._definitions(f"kubernetes-json-schema/v{kube_version}.0-local-strict").contents
    definitions = whole.get("$defs") or whole["definitions"]
    (theirs,) = [
        body["properties"]
        for name, body in definitions.items()
        if name in (f"io.k8s.api.batch.v1.{table}", f"io.k8s.api.core.v1.{table}")
        or name == f"io.k8s.apimachinery.pkg.apis.meta.v1.{table}"
    ]
    ours = fields_of(table) or {}
    now = int(kube_version.partition(".")[2])
    known = {name for name, field in ours.items() if field.since is None or int(field.since.partition(".")[2]) <= now}
    # Was there for one release, and is gone.
    assert known == set(theirs) - {"workloadRef"}


def test_types_of_the_table_are_known() -> None:
    simple = {"text", "int", "long", "flag", "quantity", "map", "any"}
    for table in _FIELDS:
        for name, field in (fields_of(table) or {}).items():
            inner = field.kind.strip("[]{}")
            assert inner in simple or fields_of(inner) is not None, (table, name)


@pytest.mark.parametrize(
    "change", ["spec.complettions=4", "metadata.lables={}", "spec.template.spec.containers[0].imgae=a"]
)
def test_lint_and_schema_say_the_same_of_unknown_fields(change: str) -> None:
    document = changed(change)
    assert lint([document]) == check_schema(document)
