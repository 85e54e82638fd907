"""How Jobs end: what was measured on a real controller, asked of any cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubecluster import Cluster
from kubejobs import POLICY, condition, has_ended, indexed, job

pytestmark = pytest.mark.cluster


def over(cluster: Cluster, name: str) -> dict[str, Any]:
    """The Job once it is complete or has failed."""
    cluster.wait_for(lambda: has_ended(cluster, name), f"the end of {name}")
    found: dict[str, Any] = cluster.json("job", name)
    return found


def test_exit_65_fails_its_index_at_once_and_the_others_go_on(cluster: Cluster) -> None:
    command = 'case $JOB_COMPLETION_INDEX in 3) exit 65;; 5) exit 1;; esac; echo "$JOB_COMPLETION_INDEX"'
    spec = indexed("slices", command, 8, backoffLimitPerIndex=1, maxFailedIndexes=4, podFailurePolicy=POLICY)
    cluster.apply(spec)
    status = over(cluster, "slices")["status"]
    assert status["completedIndexes"] == "0-2,4,6,7"
    assert status["failedIndexes"] == "3,5"
    assert (status["succeeded"], status["failed"]) == (6, 3)
    failed = next(one for one in status["conditions"] if one["type"] == "Failed")
    assert (failed["reason"], failed["message"]) == ("FailedIndexes", "Job has failed indexes")
    pods = cluster.json("pods", "-l", "job-name=slices")["items"]
    tries: dict[str, list[str]] = {}
    for pod in pods:
        meta = pod["metadata"]
        index = meta["labels"]["batch.kubernetes.io/job-completion-index"]
        assert meta["annotations"]["batch.kubernetes.io/job-completion-index"] == index
        assert meta["name"].startswith(f"slices-{index}-")
        assert pod["spec"]["hostname"] == f"slices-{index}"
        tries.setdefault(index, []).append(meta["annotations"]["batch.kubernetes.io/job-index-failure-count"])
    assert {index: sorted(counts) for index, counts in tries.items()} == {
        **{str(index): ["0"] for index in (0, 1, 2, 3, 4, 6, 7)},
        "5": ["0", "1"],
    }


def test_too_many_failed_indexes_end_the_job(cluster: Cluster) -> None:
    cluster.apply(
        indexed(
            "toomany", "exit 65", 20, parallelism=2, backoffLimitPerIndex=0, maxFailedIndexes=2, podFailurePolicy=POLICY
        )
    )
    thing = over(cluster, "toomany")
    failed = condition(thing, "Failed")
    assert failed is not None
    assert failed["reason"] == "MaxFailedIndexesExceeded"
    assert failed["message"] == "Job has exceeded the specified maximal number of failed indexes"
    assert "active" not in thing["status"]
    assert len(cluster.json("pods")["items"]) < 10


def test_exit_64_fails_the_whole_job_and_names_the_rule(cluster: Cluster) -> None:
    command = 'if [ "$JOB_COMPLETION_INDEX" = 1 ]; then exit 64; fi; sleep 600'
    pod = {"terminationGracePeriodSeconds": 1}
    cluster.apply(indexed("usage", command, 4, backoffLimitPerIndex=3, podFailurePolicy=POLICY, pod=pod))
    failed = condition(over(cluster, "usage"), "Failed")
    assert failed is not None and failed["reason"] == "PodFailurePolicy"
    assert failed["message"].startswith(f"Container main for pod {cluster.namespace}/usage-1-")
    assert failed["message"].endswith("failed with exit code 64 matching FailJob rule at index 1")
    cluster.wait_for(lambda: all(pod["status"]["phase"] == "Failed" for pod in cluster.peek("pods")), "all pods ended")


def test_a_plain_job_retries_up_to_its_limit(cluster: Cluster) -> None:
    cluster.apply(job("retried", "exit 1", backoffLimit=2))
    status = over(cluster, "retried")["status"]
    assert status["failed"] == 3
    assert status["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    events = cluster.kubectl("describe", "job", "retried", check=True).stdout
    assert "Job has reached the specified backoff limit" in events


def test_an_eviction_is_ignored_and_the_index_runs_again(cluster: Cluster) -> None:
    pod = {"terminationGracePeriodSeconds": 5}
    # Only the first pod waits to be evicted.
    command = 'trap "exit 143" TERM; echo up; [ "$BEFORE" ] || { sleep 600 & wait $!; }'
    before = "metadata.annotations['batch.kubernetes.io/job-index-ignored-failure-count']"
    container = {"env": [{"name": "BEFORE", "valueFrom": {"fieldRef": {"fieldPath": before}}}]}
    cluster.apply(
        indexed("evicted", command, 1, backoffLimitPerIndex=0, podFailurePolicy=POLICY, pod=pod, container=container)
    )

    def running() -> Any:
        pods = [one for one in cluster.peek("pods") if one["status"]["phase"] == "Running"]
        return pods[0]["metadata"]["name"] if pods else None

    first = cluster.wait_for(running, "a running pod")
    cluster.wait_for(lambda: cluster.kubectl("logs", first).stdout == "up\n", "its first line")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first, "namespace": cluster.namespace},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{first}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction), check=True)
    status = over(cluster, "evicted")["status"]
    assert status["succeeded"] == 1
    assert status.get("failed", 0) == 0
    # The kubelet removes the evicted one when it likes, maybe after the Job's end.
    cluster.wait_for(lambda: first not in [one["metadata"]["name"] for one in cluster.peek("pods")], "one pod to go")
    assert len(cluster.json("pods")["items"]) == 1


def test_a_deadline_ends_a_job(cluster: Cluster) -> None:
    pod = {"terminationGracePeriodSeconds": 0}
    cluster.apply(job("late", "sleep 600", activeDeadlineSeconds=1, pod=pod))
    failed = condition(over(cluster, "late"), "Failed")
    assert failed is not None
    assert (failed["reason"], failed["message"]) == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


def test_a_finished_job_goes_after_its_ttl_with_its_pods(cluster: Cluster) -> None:
    cluster.apply(job("brief", "true", ttlSecondsAfterFinished=0))
    cluster.wait_for(lambda: not cluster.peek("jobs"), "the Job to go")
    assert cluster.kubectl("get", "job", "brief").returncode == 1
    cluster.wait_for(lambda: not cluster.peek("pods"), "the pods to go")


def test_parallelism_can_be_lowered_while_a_job_runs(cluster: Cluster) -> None:
    pod = {"terminationGracePeriodSeconds": 0}
    cluster.apply(indexed("throttled", "sleep 600", 6, parallelism=4, pod=pod))

    def active() -> int:
        count: int = cluster.peek("jobs")[0]["status"].get("active", 0)
        return count

    # Of pods that are not ready the ones with the lowest indexes go, too.
    cluster.wait_for(lambda: cluster.peek("jobs")[0]["status"].get("ready", 0) == 4, "four ready pods")
    assert active() == 4
    cluster.kubectl("patch", "job", "throttled", "--type=merge", "-p", '{"spec":{"parallelism":1}}', check=True)
    cluster.wait_for(lambda: active() == 1, "one pod")
    assert cluster.json("job", "throttled")["status"].get("failed", 0) == 0
    left = [one for one in cluster.json("pods")["items"] if "deletionTimestamp" not in one["metadata"]]
    assert [one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for one in left] == ["0"]


def test_memory_of_a_suspended_job_can_be_raised_and_of_a_running_one_not(cluster: Cluster) -> None:
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    more = {"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    container = {"resources": resources}
    cluster.apply(indexed("grown", "true", 1, suspend=True, container=container))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "resources": more}]}}}}
    cluster.kubectl("patch", "job", "grown", "-p", json.dumps(patch), check=True)
    cluster.kubectl("patch", "job", "grown", "-p", '{"spec":{"suspend":false}}', check=True)
    assert condition(over(cluster, "grown"), "Complete")
    assert cluster.json("pods")["items"][0]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "128Mi"}
    patch["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    refused = cluster.kubectl("patch", "job", "grown", "-p", json.dumps(patch))
    assert "field is immutable" in refused.stderr


def test_how_a_job_will_end_is_known_before_its_counts(cluster: Cluster, tmp_path: Path) -> None:
    """Of a Job without indexes: who takes the first condition for the end sees 0 of 1 done."""
    shown = "jsonpath={.status.conditions[*].type} {.status.succeeded} {.status.completionTime}{'\\n'}"
    cluster.apply(job("one", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"))
    with cluster.start("get", "jobs", "--watch", "-o", shown, stdout=subprocess.PIPE) as watching:
        try:
            assert watching.stdout is not None
            # From its first line on it is told of each change.
            states = [watching.stdout.readline().split()]
            (tmp_path / "go").touch()
            for line in watching.stdout:
                states.append(line.split())
                if "Complete" in line:
                    break
        finally:
            watching.terminate()
    assert ["SuccessCriteriaMet"] in states, states
    end = next(each for each in states if "Complete" in each)
    assert end[:3] == ["SuccessCriteriaMet", "Complete", "1"] and len(end) == 4


def test_an_elastic_job_that_is_made_smaller_forgets_its_last_indexes(cluster: Cluster, tmp_path: Path) -> None:
    """Completions and parallelism together: what is beyond is neither done nor running, and does not complete it."""
    go, pod = tmp_path / "go", {"terminationGracePeriodSeconds": 0}
    command = f'[ "$JOB_COMPLETION_INDEX" -ge 2 ] || until [ -e {go} ]; do sleep 0.05; done'
    cluster.apply(indexed("elastic", command, 4, pod=pod))

    def has(active: int, succeeded: int) -> bool:
        status = cluster.peek("jobs")[0]["status"]
        return (status.get("active", 0), status.get("succeeded", 0)) == (active, succeeded)

    def resize(number: int) -> None:
        patch = json.dumps({"spec": {"completions": number, "parallelism": number}})
        cluster.kubectl("patch", "job", "elastic", "--type=merge", "-p", patch, check=True)

    cluster.wait_for(lambda: has(2, 2), "two of four done")
    cluster.wait_for(lambda: cluster.peek("jobs")[0]["status"].get("ready", 0) == 2, "the other two run")
    assert cluster.json("job", "elastic")["status"]["completedIndexes"] == "2,3"
    resize(1)
    cluster.wait_for(lambda: has(1, 0), "one that runs, none done")
    status = cluster.json("job", "elastic")["status"]
    assert not status.get("completedIndexes") and not status.get("conditions")
    left = [one for one in cluster.json("pods")["items"] if one["status"]["phase"] == "Running"]
    assert [one["spec"]["hostname"] for one in left if "deletionTimestamp" not in one["metadata"]] == ["elastic-0"]
    resize(3)
    # Index 2 runs again: it ends at once.
    cluster.wait_for(lambda: has(2, 1), "three indexes, one of them done")
    go.touch()
    status = over(cluster, "elastic")["status"]
    assert (status["completedIndexes"], status["succeeded"], status.get("failed", 0)) == ("0-2", 3, 0)
