"""Lint finds no error in what a server accepts: all fields of Jobs, pods, services, ConfigMaps and lists."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from test_k8s_lint import DATA, GOOD

from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.lint.nodes import ERROR
from tarkit.k8s.lint.rules import verdict
from tarkit.k8s.yamlreading import Doubt, load_yaml
from tarkit.k8s.yamltext import load_documents

pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
(TABLE,) = load_yaml((DATA / "k8s_good.yaml").read_text(encoding="utf-8"), "good")
CASES = [(base, changes) for base, cases in TABLE.items() for changes in cases]
PODS = {"pod": "spec", "cronjob": "spec.jobTemplate.spec.template.spec"}


def manifest(base: str, changes: list[str]) -> dict[str, Any]:
    document = copy.deepcopy(GOOD[base])
    pod = PODS.get(base, "spec.template.spec")
    for change in changes:
        set_field(document, change.replace("POD.", f"{pod}.").replace("MAIN.", f"{pod}.containers[0]."))
    return document


def errors(documents: list[dict[str, Any]], kube_version: str | None) -> list[str]:
    found = verdict(documents, kube_version, lambda error: pytest.fail(str(error)))
    return [str(each) for each in found if each.severity == ERROR]


def test_there_are_more_than_a_hundred() -> None:
    assert len({json.dumps(manifest(*case), default=str) for case in CASES}) > 150


@pytest.mark.parametrize(("base", "changes"), CASES, ids=[f"{base}: {'; '.join(changes)}" for base, changes in CASES])
def test_no_error_in_a_good_manifest(base: str, changes: list[str]) -> None:
    for kube_version in (None, "1.36", "1.37"):
        assert errors([manifest(base, changes)], kube_version) == []


@pytest.mark.parametrize(
    "text",
    [
        # Keys that come twice, or are truth values and numbers to kubectl.
        "apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\nmetadata: {name: x}\ndata: {on: a, y: b, 1e3: c, 08: d}\n",
        # Two documents of one name; nothing between the marks; an alias and what is merged.
        "---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: &l {a: b}}\ndata: {a: 12:30, <<: *l}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
        # Lists, one in another, and one of one kind, whose items need none.
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: x}}]}\n"
        "- {apiVersion: v1, kind: Service, metadata: {name: z}, spec: {clusterIP: None}}\n",
        # JSON, with a character in two halves and a number with a point.
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "generation": 1.0}, '
        '"data": {"a": "\\ud83d\\ude00"}}',
        # Kinds that lint has no rules for.
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\n"
        "spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: 'system:any'}\nrules: []\n",
        "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: x}\n"
        "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n",
        "apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: x, namespace: default}\neventTime: null\n",
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\nspec: {}\n",
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: x}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: x}\n"
        "roleRef: {kind: Role, name: r}\nsubjects: [{kind: ServiceAccount, name: s, namespace: default}]\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n"
        "roleRef: {apiGroup: '', kind: ClusterRole, name: r}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: x}\n"
        "roleRef: {apiGroup: null, kind: Role, name: r}\n",
        "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: x}\ndata: {a: b}\n",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: x}\naddressType: IPv4\n",
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: x}\nspec: {}\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: x}\nspec: {minAvailable: 1, tasks: []}\n",
        "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: x}\nspec: {source: {}}\n",
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}\nspec: {template: {}}\n",
    ],
)
def test_no_error_in_a_good_file(text: str) -> None:
    doubts: list[Doubt] = []
    for kube_version in (None, "1.33", "1.36", "1.37"):
        assert errors(load_documents(text, "x", doubts), kube_version) == []


# What the stand-in has no part of: quantities beyond its own, null in a list, services without an address.
SIMPLER = ("16Ei", "1.50", "Ki", "[null", "clusterIPs", "ExternalName")
SERVED = [
    (b, c) for b, c in CASES if b not in ("cronjob", "deployment", "jobset") and not any(w in str(c) for w in SIMPLER)
]


@pytest.mark.parametrize(("base", "changes"), SERVED, ids=[f"{base}: {'; '.join(changes)}" for base, changes in SERVED])
def test_the_stand_in_accepts_them_too(base: str, changes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of tests/kube, which was measured on a real one and shares no code with lint."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "kube"))
    import apidefaults
    import apiresources
    import apischema
    import apivalidation

    known = {one.kind: one for one in apiresources.RESOURCES}
    document = manifest(base, changes)
    resource = known[document["kind"]]
    thing, unknown = apischema.decode(resource, document)
    assert unknown == []
    thing["metadata"].setdefault("name", "generated")
    apidefaults.fill(resource, thing)
    assert [str(cause) for cause in apivalidation.validate_new(resource, thing)] == []
