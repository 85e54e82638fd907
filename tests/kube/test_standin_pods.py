"""What a container sees, how it ends, and why a pod does not run: asked of any cluster, with real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kubecluster import Cluster
from kubejobs import condition, has_ended, indexed, job

pytestmark = pytest.mark.cluster


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.json("pods")["items"]
    return found


def finished(cluster: Cluster, name: str) -> dict[str, Any]:
    cluster.wait_for(lambda: has_ended(cluster, name), f"the end of {name}")
    found: dict[str, Any] = cluster.json("job", name)
    return found


def event_messages(cluster: Cluster, reason: str) -> list[str]:
    return [one["message"] for one in cluster.peek("events") if one["reason"] == reason]


def test_config_maps_secrets_and_scratch_folders_are_mounted(cluster: Cluster) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"a.txt": "A", "b": "B"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "hush"}},
    )
    volumes = [
        {"name": "files", "configMap": {"name": "files", "items": [{"key": "a.txt", "path": "deep/a.txt"}]}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
    ]
    mounts = [
        {"name": "files", "mountPath": "/files"},
        {"name": "key", "mountPath": "/etc/key", "readOnly": True},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    # Of a name that no file of this machine has: it may well have a /scratch of its own.
    name = f"f-{os.urandom(8).hex()}"
    command = f"cat /files/deep/a.txt /etc/key/token; ls /files; echo x > /scratch/{name}; cat /scratch/{name}; "
    command += f"echo y > /files/{name} || echo refused"
    cluster.apply(job("mounted", command, pod={"volumes": volumes}, container={"volumeMounts": mounts}))
    assert condition(finished(cluster, "mounted"), "Complete")
    said = cluster.kubectl("logs", "job/mounted", check=True).stdout
    assert said.startswith("Ahushdeep\nx\n")
    assert "refused" in said
    if cluster.is_standin:
        assert not Path("/scratch", name).exists() and not Path("/files", name).exists()


def test_the_environment_is_worked_out_as_by_a_kubelet(cluster: Cluster) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "conf"},
        "data": {"COLOR": "red", "0x": "odd"},
    }
    cluster.apply(config)
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = [
        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}},
        {"name": "MILLIS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "COLOR"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "absent", "optional": True}}},
        {"name": "MADE", "value": "$(ONE)-$$(ONE)-$(NOBODY)-$$-$x-$("},
    ]
    container = {
        "env": env,
        "envFrom": [{"configMapRef": {"name": "conf"}}],
        "resources": {"requests": {"cpu": "1500m"}},
        "command": ["sh", "-c", 'echo "$1|$INDEX|$ME|$SPACE|$CPUS|$MILLIS|$COLOR|${NONE-unset}|$MADE|$HOSTNAME"', "sh"],
        "args": ["$(INDEX):$(NOBODY)"],
    }
    cluster.apply(indexed("env", "", 1, container=container))
    assert condition(finished(cluster, "env"), "Complete")
    name = pods(cluster)[0]["metadata"]["name"]
    said = cluster.kubectl("logs", name, check=True).stdout.strip().split("|")
    assert said[:3] == ["0:$(NOBODY)", "0", name]
    assert said[3:8] == [cluster.namespace, "2", "1500", "red", "unset"]
    assert said[8:] == ["red-$(ONE)-$(NOBODY)-$-$x-$(", "env-0"]


def test_out_of_memory_is_137_and_oomkilled(cluster: Cluster) -> None:
    # dd keeps its block in memory, for as long as nobody reads it; a shell would only build it up slowly.
    command = "dd if=/dev/zero bs=300M count=1 | { sleep 600; cat >/dev/null; }; echo went on"
    resources = {"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    cluster.apply(job("oom", command, backoffLimit=0, container={"resources": resources}))
    assert condition(finished(cluster, "oom"), "Failed")
    ended = pods(cluster)[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_the_last_lines_of_a_failed_container_are_in_its_status(cluster: Cluster) -> None:
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    cluster.apply(job("fell", "echo corrupt jpeg; exit 65", backoffLimit=0, container=container))
    finished(cluster, "fell")
    assert pods(cluster)[0]["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "corrupt jpeg\n"
    cluster.apply(job("wrote", "echo why > /dev/termination-log; exit 1", backoffLimit=0))
    finished(cluster, "wrote")
    pod = cluster.json("pods", "-l", "job-name=wrote")["items"][0]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "why\n"


def test_a_program_that_is_not_there_is_a_start_error(cluster: Cluster) -> None:
    container = {"command": ["no-such-program"]}
    cluster.apply(job("absent", "", backoffLimit=0, container=container))
    finished(cluster, "absent")
    ended = pods(cluster)[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]


def test_a_read_only_root_can_be_written_only_where_something_is_mounted(cluster: Cluster) -> None:
    container = {
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    command = "touch /scratch/a && echo scratch; touch /a 2>/dev/null || echo refused"
    pod = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    cluster.apply(job("fixed", command, container=container, pod=pod))
    finished(cluster, "fixed")
    assert cluster.kubectl("logs", "job/fixed", check=True).stdout == "scratch\nrefused\n"


def test_what_a_pod_writes_elsewhere_is_gone_with_it(cluster: Cluster, tmp_path: Path) -> None:
    if not cluster.is_standin:
        pytest.skip("A REAL CLUSTER DOES NOT SHARE THE FOLDERS OF THE TEST")
    shared = tmp_path / "kept"
    cluster.apply(job("writer", f"echo x > /lost; echo y > {shared}; cat /lost"))
    assert condition(finished(cluster, "writer"), "Complete")
    assert shared.read_text() == "y\n"
    assert not Path("/lost").exists()


def test_an_enforcing_namespace_refuses_pods_not_jobs(cluster: Cluster) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", cluster.namespace, label, check=True)
    cluster.apply(job("loose", "true"))
    said = cluster.wait_for(lambda: event_messages(cluster, "FailedCreate"), "a FailedCreate event")[0]
    assert said.startswith('Error creating: pods "loose-')
    wanted = (
        'is forbidden: violates PodSecurity "restricted:latest": '
        'allowPrivilegeEscalation != false (container "main" must set securityContext.allowPrivilegeEscalation=false), '
        'unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")'
    )
    assert said.endswith(wanted)
    assert pods(cluster) == []
    tight = {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    }
    cluster.apply(job("tight", "true", container=tight))
    assert condition(finished(cluster, "tight"), "Complete")


def test_a_quota_refuses_pods_in_its_words(cluster: Cluster) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    cluster.apply(quota)
    cluster.wait_for(
        lambda: cluster.peek("resourcequotas")[0].get("status", {}).get("hard"), "the quota to be in force"
    )
    cluster.apply(indexed("crowd", "sleep 600", 2, parallelism=2, pod={"terminationGracePeriodSeconds": 0}))
    said = cluster.wait_for(lambda: event_messages(cluster, "FailedCreate"), "a FailedCreate event")[0]
    assert said.endswith("is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1")


def test_an_image_that_can_not_be_pulled(cluster: Cluster) -> None:
    # The real one wants a registry that answers; a name that never resolves gives other words, but the same reasons.
    container = {"image": "registry.invalid/no-such-image:1"}
    cluster.apply(job("unpulled", "true", container=container))

    def waiting() -> Any:
        for pod in cluster.peek("pods"):
            for one in pod["status"].get("containerStatuses", []):
                if one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff":
                    return one["state"]["waiting"]["message"]
        return None

    assert 'Back-off pulling image "registry.invalid/no-such-image:1"' in cluster.wait_for(waiting, "ImagePullBackOff")
    assert any("Error: ErrImagePull" in one for one in event_messages(cluster, "Failed"))
    assert any(
        'Failed to pull image "registry.invalid/no-such-image:1"' in one for one in event_messages(cluster, "Failed")
    )
    assert any("Back-off pulling image" in one for one in event_messages(cluster, "BackOff"))
    logs = cluster.kubectl("logs", "job/unpulled")
    assert 'container "main" in pod "unpulled-' in logs.stderr
    assert "is waiting to start: trying and failing to pull image" in logs.stderr


@pytest.mark.parametrize(
    ("pod", "container", "words"),
    [
        ({"nodeSelector": {"no": "such-node"}}, {}, "didn't match Pod's node affinity/selector"),
        ({}, {"resources": {"requests": {"cpu": "9000"}}}, "Insufficient cpu"),
        ({}, {"resources": {"requests": {"memory": "9000Ti"}}}, "Insufficient memory"),
        ({}, {"resources": {"limits": {"nvidia.com/gpu": "64"}}}, "Insufficient nvidia.com/gpu"),
    ],
)
def test_a_pod_that_fits_nowhere(cluster: Cluster, pod: Any, container: Any, words: str) -> None:
    cluster.apply(job("stuck", "true", pod=pod, container=container))

    def refused() -> Any:
        for one in cluster.peek("pods"):
            for about in one["status"].get("conditions", []):
                if (about["type"], about["status"]) == ("PodScheduled", "False"):
                    return one["status"]["phase"], about["reason"], about["message"]
        return None

    phase, reason, message = cluster.wait_for(refused, "PodScheduled=False")
    assert (phase, reason) == ("Pending", "Unschedulable")
    assert words in message and "nodes are available:" in message
    assert any(words in one for one in event_messages(cluster, "FailedScheduling"))


def test_a_config_map_that_is_not_there_is_waited_for(cluster: Cluster) -> None:
    volumes = [{"name": "plan", "configMap": {"name": "later"}}]
    mounts = [{"name": "plan", "mountPath": "/plan"}]
    cluster.apply(job("patient", "cat /plan/list", pod={"volumes": volumes}, container={"volumeMounts": mounts}))
    said = cluster.wait_for(lambda: event_messages(cluster, "FailedMount"), "FailedMount")[0]
    assert said.endswith('MountVolume.SetUp failed for volume "plan" : configmap "later" not found')
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"list": "a.tar\n"}})
    cluster.wait_for(lambda: has_ended(cluster, "patient"), "the end")
    assert cluster.kubectl("logs", "job/patient", check=True).stdout == "a.tar\n"


def test_a_missing_key_keeps_the_container_from_being_made(cluster: Cluster) -> None:
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "x"}}}]
    cluster.apply(job("keyless", "true", container={"env": env}))

    def waiting() -> Any:
        states = [one["state"] for pod in cluster.peek("pods") for one in pod["status"].get("containerStatuses", [])]
        return [one["waiting"] for one in states if one.get("waiting", {}).get("message")]

    found = cluster.wait_for(waiting, "CreateContainerConfigError")[0]
    assert found == {"reason": "CreateContainerConfigError", "message": 'configmap "nowhere" not found'}


def test_a_pod_of_its_own_is_terminated_with_grace(cluster: Cluster) -> None:
    command = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox:1", "command": ["sh", "-c", command]}],
        },
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(pod), check=True)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/alone", "--timeout=120s", check=True)
    cluster.wait_for(lambda: cluster.kubectl("logs", "alone").stdout == "up\n", "its first line")
    follower = cluster.start("logs", "-f", "alone", stdout=-1)
    with follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "up\n"
        cluster.kubectl("delete", "pod", "alone", check=True)
        assert follower.stdout.read() == "bye\n"
