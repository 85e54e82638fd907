"""The Jobs of kubetpl train under the one name of their run: status, wait, logs, scale, cancel and
retry.
"""

from __future__ import annotations

from collections.abc import Callable

import yaml
from kubecluster import Cluster, Said


def begun(cluster: Cluster, kubetpl: Callable[..., Said]) -> str:
    """What kubetpl train prints, its service and its two workers running: the service's pod."""
    said = kubetpl("train", "--job_name", "iris", "--image_name", "host:1", "--job_command", "x")
    assert said.code == 0, said.err
    cluster.apply(*(each for each in yaml.safe_load_all(said.out) if each["kind"] in ("Job", "Service")))
    for index in range(2):
        cluster.add_pod("iris-worker", index, log=f"worker {index}\n")
    for name, active in (("iris-shards", 1), ("iris-worker", 2)):
        cluster.set_job(name, active=active, ready=active)
    return cluster.add_pod("iris-shards", log="d: epoch 2 of 4\n")


def end_service(cluster: Cluster, pod: str, code: int) -> None:
    """Its pod and its Job have ended."""
    cluster.end_pod(pod)
    cluster.add_pod("iris-shards", code=code, message="its data is gone")
    why = f"Container main for pod p failed with exit code {code} matching FailJob rule"
    cluster.set_job("iris-shards", "failed", "PodFailurePolicy", failed=1)
    conditions = cluster.get("jobs", "iris-shards")["status"]["conditions"]
    cluster.set_status("jobs", "iris-shards", conditions=[{**each, "message": why} for each in conditions])


def test_a_training_job_is_scaled_and_ends_with_dead_shards(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    pod = begun(cluster, kubetpl)
    told = kubetpl("status", "iris")
    assert told.code == 0 and "iris-worker: running, 0 of 2 done, 2 running" in told.out
    refused = kubetpl("logs", "iris")
    assert refused.code == 2 and "name one: iris-shards, iris-worker" in refused.err
    assert kubetpl("logs", "iris-worker").out == "[0] worker 0\n[1] worker 1\n"

    assert kubetpl("scale", "iris-worker", "-j", "4").out == "iris-worker: parallelism 2 → 4\n"
    assert kubetpl("scale", "iris", "-j", "1").code == 2
    assert kubetpl("scale", "iris-worker", "-j", "1").out == "iris-worker: parallelism 4 → 1\n"
    spec = cluster.get("jobs", "iris-worker")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    running = kubetpl("retry", "iris-worker")
    assert (
        running.code == 2 and "kubectl delete job,service,networkpolicy -l tarkit.dev/run=iris --cascade" in running.err
    )

    end_service(cluster, pod, 3)
    cluster.set_job("iris-worker", "complete", "CompletionsReached", succeeded=1, completedIndexes="0")
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 3, waited
    assert "iris-shards: failed, 0 of 1 done" in waited.out
    ended = kubetpl("scale", "iris-worker", "-j", "2")
    assert ended.code == 2 and ended.err.endswith("nothing of it runs any more\n")
    assert kubetpl("status", "iris").code == 3
    again = kubetpl("retry", "iris")
    assert again.code == 2 and "it goes on from its state" in again.err


def test_a_training_job_is_suspended_and_goes_on(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    begun(cluster, kubetpl)
    assert "iris: 2 Jobs are suspended" in kubetpl("cancel", "iris").out
    assert "2 suspended" in kubetpl("status", "iris").out
    assert kubetpl("cancel", "iris", "--undo").out == "iris: 2 Jobs go on\n"


def test_trainers_that_end_early_fail_the_job_with_its_service(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """As after a number of steps: the service ends with 1 once no trainer has called for some
    time."""
    pod = begun(cluster, kubetpl)
    cluster.end_indexes("iris-worker", {0: 0, 1: 0})
    end_service(cluster, pod, 1)
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 1 and waited.out.endswith("2 Jobs: 1 complete, 1 failed\n"), waited


def test_a_service_that_fails_is_a_failed_job(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """At once: its workers would wait for it for long, and nothing in the cluster ends them."""
    end_service(cluster, begun(cluster, kubetpl), 2)
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 1 and waited.out.endswith("2 Jobs: 1 failed, 1 running\n"), waited
    assert "-l tarkit.dev/run=iris --cascade=foreground ends them, and keeps the state" in waited.err
    told = kubetpl("status", "iris").out
    assert 'exit 2 ×1 "its data is gone": see kubetpl logs iris-shards --failed; kubectl delete job,' in told
