"""The refusals of an API server, rule by rule; each was seen on a real 1.36 server, the sentences are its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubecluster import Cluster
from kubejobs import indexed, job

pytestmark = pytest.mark.cluster
RULE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}


def refused(**more: Any) -> dict[str, Any]:
    return {"rules": [{**RULE, **more}]}


CASES = [
    (job("Upper", "true"), 'metadata.name: Invalid value: "Upper": a lowercase RFC 1123 subdomain must consist of'),
    (job("under_score", "true"), 'metadata.name: Invalid value: "under_score"'),
    (indexed("a" * 62, "true", 10), f"will not able to create pod with invalid DNS label: {'a' * 62}-9"),
    (
        job("none", "true", completionMode="Indexed", parallelism=1),
        "spec.completions: Required value: when completion mode is Indexed",
    ),
    (
        indexed("wide", "true", 1, parallelism=100001),
        "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
    ),
    (
        job("plain", "true", backoffLimitPerIndex=1),
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
    ),
    (
        indexed("alone", "true", 2, maxFailedIndexes=1),
        "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
    ),
    (
        indexed("more", "true", 2, backoffLimitPerIndex=1, maxFailedIndexes=3),
        "spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions",
    ),
    (
        indexed("many", "true", 100001, backoffLimitPerIndex=1),
        "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
    ),
    (
        indexed("manyp", "true", 100001, backoffLimitPerIndex=1, maxFailedIndexes=1, parallelism=10001),
        "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000",
    ),
    (
        job("always", "true", pod={"restartPolicy": "Always"}),
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (
        job("unset", "true", pod={"restartPolicy": None}),
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (
        job("onfail", "true", podFailurePolicy=refused(), pod={"restartPolicy": "OnFailure"}),
        'restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified',
    ),
    (
        indexed("oni", "true", 1, backoffLimitPerIndex=1, pod={"restartPolicy": "OnFailure"}),
        'restartPolicy: Invalid value: "OnFailure":',
    ),
    (
        job("zero", "true", podFailurePolicy=refused(onExitCodes={"operator": "In", "values": [0]})),
        "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
    ),
    (
        job("order", "true", podFailurePolicy=refused(onExitCodes={"operator": "In", "values": [3, 2]})),
        "onExitCodes.values: Invalid value: [3,2]: must be ordered",
    ),
    (
        job("codes", "true", podFailurePolicy=refused(onExitCodes={"operator": "In", "values": list(range(1, 257))})),
        "onExitCodes.values: Too many: 256: must have at most 255 items",
    ),
    (
        job(
            "who",
            "true",
            podFailurePolicy=refused(onExitCodes={"containerName": "other", "operator": "In", "values": [1]}),
        ),
        'Invalid value: "other": must be one of the container or initContainer names in the pod template',
    ),
    (
        job("perindex", "true", podFailurePolicy=refused(action="FailIndex")),
        'rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
    ),
    (job("rules", "true", podFailurePolicy={"rules": [RULE] * 21}), "rules: Too many: 21: must have at most 20 items"),
    (
        job("replace", "true", podFailurePolicy=refused(), podReplacementPolicy="TerminatingOrFailed"),
        'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
    ),
    (
        job("over", "true", container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
        'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        job("mount", "true", container={"volumeMounts": [{"name": "gone", "mountPath": "/x"}]}),
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "gone"',
    ),
    (
        {**job("label", "true"), "metadata": {"name": "label", "labels": {"a": "not ok"}}},
        'metadata.labels: Invalid value: "not ok": a valid label must be an empty string or consist of',
    ),
    (job("minus", "true", parallelism=-1), "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
]


@pytest.mark.parametrize(("document", "words"), CASES, ids=[case[0]["metadata"]["name"][:12] for case in CASES])
def test_an_invalid_job_is_refused_by_rule(cluster: Cluster, document: dict[str, Any], words: str) -> None:
    said = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(document))
    assert said.returncode == 1
    name = document["metadata"]["name"]
    assert said.stderr.startswith(f'The Job "{name}" is invalid: ')
    assert words in said.stderr


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            job("typed", "true", completions="ten"),
            "cannot unmarshal string into Go struct field JobSpec.spec.completions of type int32",
        ),
        (
            job("env", "true", container={"env": [{"name": "A", "value": 1}]}),
            "unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value of type string",
        ),
        (
            job("amount", "true", container={"resources": {"limits": {"memory": "4 GB"}}}),
            "quantities must match the regular expression",
        ),
        (
            job("typo", "true", container={"imagePullpolicy": "Never"}),
            'unknown field "spec.template.spec.containers[0].imagePullpolicy"',
        ),
        # New in 1.37: a 1.36 server does not know it.
        (job("newer", "true", scheduling={}), 'unknown field "spec.scheduling"'),
    ],
)
def test_what_can_not_be_read_is_a_bad_request(cluster: Cluster, document: dict[str, Any], words: str) -> None:
    if not cluster.is_standin and document["metadata"]["name"] == "newer":
        pytest.skip("WHETHER A REAL CLUSTER KNOWS spec.scheduling DEPENDS ON ITS VERSION")
    said = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(document))
    assert said.returncode == 1
    assert "Error from server (BadRequest): error when creating" in said.stderr
    assert 'Job in version "v1" cannot be handled as a Job: ' in said.stderr
    assert words in said.stderr


def test_what_is_doubtful_is_warned_about(cluster: Cluster) -> None:
    doubtful = {
        "resources": {"limits": {"memory": "400m"}},
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
    }
    said = cluster.kubectl(
        "create", "--dry-run=server", "-f", "-", input=json.dumps(job("odd", "true", container=doubtful))
    )
    assert said.returncode == 0
    assert (
        'Warning: spec.template.spec.containers[0].resources.limits[memory]: fractional byte value "400m" is invalid'
        in said.stderr
    )
    assert 'Warning: spec.template.spec.containers[0].env[1]: hides previous definition of "A"' in said.stderr


def test_ten_million_completions_pass_under_the_stricter_limits(cluster: Cluster) -> None:
    big = indexed("big", "true", 10_000_000, backoffLimitPerIndex=1, maxFailedIndexes=10_000, parallelism=10_000)
    cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(big), check=True)


def test_quantities_are_kept_in_canonical_form(cluster: Cluster) -> None:
    amounts = {"cpu": "1.0", "memory": "1024Mi", "ephemeral-storage": "1500M"}
    cluster.apply(job("canon", "true", suspend=True, container={"resources": {"requests": amounts}}))
    kept = cluster.json("job", "canon")["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert kept == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1500M"}


def test_a_big_config_map_is_too_big_for_apply_but_not_for_create(cluster: Cluster) -> None:
    def config(size: int) -> str:
        thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"list": "x" * size}}
        return json.dumps(thing)

    cluster.kubectl("apply", "-f", "-", input=config(250 * 1024), check=True)
    applied = cluster.kubectl("apply", "-f", "-", input=config(300 * 1024))
    assert "metadata.annotations: Too long: may not be more than 262144 bytes" in applied.stderr
    cluster.kubectl("delete", "configmap", "big", check=True)
    cluster.kubectl("create", "-f", "-", input=config(1024 * 1024), check=True)
    cluster.kubectl("delete", "configmap", "big", check=True)
    created = cluster.kubectl("create", "-f", "-", input=config(1024 * 1024 + 1))
    assert "Too long: may not be more than 1048576 bytes" in created.stderr


def test_an_immutable_config_map_stays(cluster: Cluster) -> None:
    thing = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "plan"},
        "immutable": True,
        "data": {"a": "1"},
    }
    cluster.apply(thing)
    thing["data"] = {"a": "2"}
    said = cluster.kubectl("apply", "-f", "-", input=json.dumps(thing))
    assert "data: Forbidden: field is immutable when `immutable` is set" in said.stderr


def test_a_job_that_needs_a_megabyte_of_argument_is_too_big_for_the_database(cluster: Cluster) -> None:
    thing = job("fat", "true", suspend=True, container={"args": ["x" * 1_600_000]})
    said = cluster.kubectl("create", "-f", "-", input=json.dumps(thing))
    assert said.returncode == 1 and "request is too large" in said.stderr
