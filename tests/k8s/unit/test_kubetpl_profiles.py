"""Queues, the security standard, and everything else that a cluster wants of a pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import MAIN, SPEC, alone, at, kubetpl, one, refused, rendered

SHARDED = ("indexed", "-n", "x", "-c", "true", "-I", "i:1", "--shards", "s3://b/a-{00..19}.tar", "-O", "s3://b/out")
WORKLOADS = [("job",), ("pod",), ("jobs", "--over", "a"), SHARDED, (*SHARDED, "--raw")]
IDS = ["job", "pod", "jobs", "indexed", "raw"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def pod_spec(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]
    return spec


TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {{name: t}}
spec:
  restartPolicy: Never
{more}  containers:
  - name: main
    image: i:1
    resources: {{requests: {{memory: 1Gi}}, limits: {{memory: 1Gi}}}}
"""


def test_a_queue_is_a_label() -> None:
    assert one("pod", "--queue", "etl")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "etl"
    document = one(*SHARDED, "--queue", "etl")
    assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "etl"
    # Kueue's webhook suspends it.
    assert "suspend" not in document["spec"]


# The Pod Security Standard "restricted", checked as the standard says it.

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def breaches(spec: dict[str, Any], level: str = "restricted") -> list[str]:
    """What a pod does that the standard, version v1.33, does not allow."""
    pod = spec.get("securityContext") or {}
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC", "hostUsers") if spec.get(name)]
    containers = [*spec.get("containers", []), *spec.get("initContainers", []), *spec.get("ephemeralContainers", [])]
    found += ["hostPath" for each in spec.get("volumes", []) if "hostPath" in each]
    for each in containers:
        own = each.get("securityContext") or {}
        found += ["privileged"] if own.get("privileged") else []
        found += ["hostPort" for port in each.get("ports", []) if port.get("hostPort")]
        added = (own.get("capabilities") or {}).get("add") or []
        found += ["capabilities"] if set(added) - {"NET_BIND_SERVICE"} and level == "restricted" else []
        found += ["procMount"] if own.get("procMount", "Default") != "Default" else []
        profile = own.get("seccompProfile") or pod.get("seccompProfile") or {}
        found += ["unconfined"] if profile.get("type") == "Unconfined" else []
        if level == "restricted":
            found += ["seccomp"] if profile.get("type") not in ("RuntimeDefault", "Localhost") else []
            found += ["escalation"] if own.get("allowPrivilegeEscalation") is not False else []
            found += ["root"] if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True else []
            found += ["uid 0"] if own.get("runAsUser", pod.get("runAsUser")) == 0 else []
            found += ["drop"] if "ALL" not in ((own.get("capabilities") or {}).get("drop") or []) else []
    found += ["sysctls"] if pod.get("sysctls") else []
    if level == "restricted":
        found += ["volumes" for each in spec.get("volumes", []) if not VOLUMES & set(each)]
    return found


EVERYTHING = (
    "--secret", "s", "--config-map", "c", "--gac", "default", "--toleration", "a", "--scratch",
    "1Gi", "--run-as", "1234", "--service-account", "etl", "-P", "80", "-G", "1", "--image-pull-secret", "r",
)  # fmt: skip


@pytest.mark.parametrize("workload", WORKLOADS, ids=IDS)
@pytest.mark.parametrize("more", [(), EVERYTHING], ids=["plain", "all"])
def test_pods_meet_the_restricted_standard(workload: tuple[str, ...], more: tuple[str, ...]) -> None:
    spec = pod_spec(one(*workload, *more))
    assert breaches(spec) == []
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    # There is somewhere to write to.
    assert {"name": "scratch", "mountPath": "/scratch"} in spec["containers"][0]["volumeMounts"]


def test_pods_of_a_training_job_meet_it_if_asked_and_its_service_can_write_to_a_new_claim() -> None:
    words = ("--job_name", "iris", "--image_name", "i:1", "--job_command", "x", "--num_ps", "1", "--need_tf_config")
    done = kubetpl("train", *words, "--security", "restricted")
    assert done.code == 0, done.err
    pods = [each["spec"]["template"]["spec"] for each in yaml.safe_load_all(done.out) if each["kind"] == "Job"]
    assert [breaches(each) for each in pods] == [[]] * 4
    assert {each["securityContext"]["fsGroup"] for each in pods} == {65532}
    # Trainers write where they like.
    assert not [each for each in pods if "readOnlyRootFilesystem" in each["containers"][0]["securityContext"]]
    # A new claim is root's, and the user of the service's image is not root.
    pods = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(kubetpl("train", *words).out)
        if each["kind"] == "Job"
    ]
    assert [each.get("securityContext") for each in pods] == [
        {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"}, None, None, None,
    ]  # fmt: skip
    done = kubetpl("train", *words, "--security", "restricted", "--volume", "host_path=/d,mount_path=/d")
    assert (done.code, "use claim_name" in done.err) == (2, True)


def test_pods_of_the_other_standards() -> None:
    spec = pod_spec(one("job", "--security", "baseline"))
    assert breaches(spec, "baseline") == []
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    spec = pod_spec(one("job", "--security", "none"))
    assert "securityContext" not in spec and "securityContext" not in spec["containers"][0]
    assert set(breaches(spec)) == {"seccomp", "escalation", "root", "drop"}


def test_a_template_of_the_users_is_made_restricted(folder: Path) -> None:
    text = TEMPLATE.format(more="  initContainers:\n  - name: first\n    image: i:1\n    resources: {requests: "
                           "{memory: 1Gi}, limits: {memory: 1Gi}}\n")  # fmt: skip
    privileged = "image: i:1\n    securityContext: {privileged: true}\n"
    (folder / "t.yaml").write_text(text.replace("image: i:1\n", privileged))
    assert breaches(pod_spec(one("pod", "--template", "t.yaml"))) != []
    assert breaches(pod_spec(one("pod", "--template", "t.yaml", "--security", "restricted"))) == []
    assert breaches(pod_spec(one("pod", "--template", "t.yaml", "--security", "baseline")), "baseline") == []


def test_users() -> None:
    context = at(one("job", "--run-as", "1000"), f"{SPEC} securityContext")
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"], context["runAsNonRoot"]) == (
        1000, 1000, 1000, True,
    )  # fmt: skip
    assert at(one("job", "--security", "none", "--run-as", "0"), f"{SPEC} securityContext") == {
        "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0, "runAsNonRoot": False,
    }  # fmt: skip
    assert "root is not allowed in restricted pods" in refused("job", "--run-as", "0")
    for text in ("-1", "me", "99999999999"):
        assert "whole number, and not negative" in refused("job", "--run-as", text)


def test_what_is_given_twice_is_there_once() -> None:
    flags = ("--image-pull-secret", "r", "--secret", "a", "--toleration", "gpu")
    assert one("job", *flags, *flags) == one("job", *flags)


def test_tolerations() -> None:
    for text, expected in (
        ("gpu:NoSchedule", {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}),
        ("a.b/c=d", {"key": "a.b/c", "operator": "Equal", "value": "d"}),
        ("a=:NoExecute", {"key": "a", "operator": "Equal", "effect": "NoExecute"}),
    ):
        assert at(one("job", "--toleration", text), f"{SPEC} tolerations") == [expected]
    # Those of the template stay.
    assert len(at(one(*SHARDED, "--toleration", "gpu"), f"{SPEC} tolerations")) == 3
    for text in ("", "=b", ":NoSchedule", "a:Never", "a=b:", "a=b:noschedule", "a:b:c", "a=b=c:x"):
        found = refused("job", "--toleration", text)
        assert found.startswith("--toleration") and "NoSchedule, PreferNoSchedule, NoExecute" in found


def test_scratch_space(folder: Path) -> None:
    assert at(one("job", "--scratch", "500M"), f"{MAIN} resources limits ephemeral-storage") == "2647483648"
    (folder / "t.yaml").write_text(TEMPLATE.format(more=""))
    spec = pod_spec(one("pod", "--template", "t.yaml", "--scratch", "1Gi"))
    assert spec["volumes"] == [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "scratch", "mountPath": "/scratch"}]
    for text in ("x", "", "memory:1Gi", "-1Gi", "0", "10GB"):
        assert refused("job", "--scratch", text).startswith("--scratch")


def test_times() -> None:
    for text, seconds in (("90", 90), ("1.5m", 90), ("12h", 43200), ("2d", 172800), ("1w", 604800), ("0.1s", 1)):
        spec = one("job", "--deadline", text, "--ttl", text)["spec"]
        assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (seconds, seconds)
    assert one("job", "--ttl", "0")["spec"]["ttlSecondsAfterFinished"] == 0
    for text in ("x", "", "-1", "1y", "1h30m", "1,5h", "nan", "inf", "٣s"):
        for flag in ("--deadline", "--ttl"):
            assert "write a time such as" in refused("job", flag, text)


def test_retries() -> None:
    assert one("job")["spec"]["backoffLimit"] == 0
    spec = one(*SHARDED, "--retries", "0")["spec"]
    assert spec["backoffLimitPerIndex"] == 0 and "backoffLimit" not in spec


@pytest.mark.parametrize("workload", [*WORKLOADS, ("service", "-a", "x", "-P", "1")], ids=[*IDS, "service"])
def test_namespaces_and_labels_are_everywhere(workload: tuple[str, ...]) -> None:
    (document,) = rendered(*workload, "-N", "team", "-L", "a.b/c=d")
    assert document["metadata"]["namespace"] == "team"
    assert document["metadata"]["labels"].items() >= {"a.b/c": "d", "app.kubernetes.io/managed-by": "kubetpl"}.items()
    if document["kind"] == "Job":
        metadata = document["spec"]["template"]["metadata"]
        assert metadata["labels"]["a.b/c"] == "d" and "namespace" not in metadata
