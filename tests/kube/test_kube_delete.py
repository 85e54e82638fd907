"""kubetpl cancel --delete: nothing is at work afterwards, and the lists of shards go, too."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubecluster import Cluster, Said
from kubejobs import indexed, job
from test_kube_runs import started
from test_kube_verbs import applied, manifest, shards

from tarkit.k8s.cluster.connection import Cluster as Connection

pytestmark = pytest.mark.cluster


def once_it_waits(cluster: Cluster, act: Callable[[], object]) -> threading.Thread:
    """A thread that does something once a verb, which is called after this, watches what it waits for."""
    standin = cluster.standin
    before = 0 if standin is None else len(standin.router.seen)

    def run() -> None:
        if standin is None:
            time.sleep(10)
        else:
            seen, space = standin.router.seen, f"/{cluster.namespace}/"
            cluster.wait_for(lambda: any(space in one and "watch" in one for one in list(seen)[before:]), "a watch")
        act()

    return threading.Thread(target=run)


def test_a_job_is_deleted_once_its_pods_have_ended(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    """Who applies it again has no second pod at the same slice."""
    out = tmp_path / "at-work"
    out.mkdir()
    # A pod that takes its time to end: it is at work until its file is gone.
    end = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; rm $f; exit 143"
    command = f"f={out}/$JOB_COMPLETION_INDEX; trap '{end}' TERM; touch $f; while :; do sleep 0.1; done"
    cluster.apply(indexed("slow", command, 2, pod={"terminationGracePeriodSeconds": 100}))
    cluster.wait_for(lambda: len(list(out.iterdir())) == 2, "two pods at work")
    going = once_it_waits(cluster, (tmp_path / "go").touch)
    going.start()
    said = kubetpl("cancel", "slow", "--delete")
    going.join()
    assert not list(out.iterdir()), "a pod was still at work"
    assert (said.code, said.out) == (0, "slow is deleted, with its pods and their logs. The done records stay\n"), said
    assert said.err == "kubetpl cancel: slow: waiting until 2 pods have ended\n"
    assert not cluster.peek("pods") and not cluster.peek("jobs")


def test_pods_of_a_job_that_goes_while_they_are_listed_are_counted_once(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods are asked for while they end, and the Jobs when it is gone."""
    command = (
        f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 143' TERM; mktemp {tmp_path}/up.XXXXXX; "
        "while :; do sleep 0.1; done"
    )
    ask = Connection.list

    def late(connection: Connection, kind: str, **how: str) -> list[dict[str, Any]]:
        if kind == "jobs" and any("deletionTimestamp" in each["metadata"] for each in cluster.peek("jobs")):
            (tmp_path / "go").touch()
            cluster.wait_for(lambda: not cluster.peek("jobs"), "that the Job is gone")
        return ask(connection, kind, **how)

    cluster.apply(indexed("slow", command, 2, pod={"terminationGracePeriodSeconds": 100}))
    cluster.wait_for(lambda: len(list(tmp_path.glob("up.*"))) == 2, "two pods at work")
    monkeypatch.setattr(Connection, "list", late)
    said = kubetpl("cancel", "slow", "--delete")
    assert (said.code, said.err) == (0, "kubetpl cancel: slow: waiting until 2 pods have ended\n"), said
    assert (tmp_path / "go").exists() and not cluster.peek("pods")


def test_pods_that_do_not_end_in_time(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    command = (
        f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 143' TERM; touch {tmp_path}/up; sleep 600 & wait"
    )
    cluster.apply(job("slow", command, pod={"terminationGracePeriodSeconds": 100}))
    cluster.wait_for((tmp_path / "up").exists, "a pod at work")
    late = kubetpl("cancel", "slow", "--delete", "--timeout", "1")
    assert (late.code, late.out) == (
        75,
        "",
    ) and "slow is deleted, but it is not gone, and pods may be at work" in late.err
    at_once = kubetpl("cancel", "slow", "--delete", "--timeout", "0")
    assert at_once.code == 75 and "waiting until" not in at_once.err
    orphan = kubetpl("retry", "slow")
    assert orphan.code == 2 and "Job slow still runs" in orphan.err
    (tmp_path / "go").touch()
    last = kubetpl("cancel", "slow", "--delete")
    assert last.code in (0, 66), last
    assert not cluster.peek("pods")


def test_pods_of_a_job_that_is_gone_are_not_joined_by_a_retry(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    text = manifest(kubetpl, "grey", f"touch {tmp_path}/up; sleep 600", shards(tmp_path / "in", 2), tmp_path / "out")
    (tmp_path / "grey.yaml").write_text(text)
    applied(cluster, text)
    cluster.wait_for((tmp_path / "up").exists, "a pod at work")
    cluster.kubectl("delete", "job", "grey", "--cascade=orphan", check=True)
    for words in ((), ("--apply",)):
        said = kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml", *words)
        assert (said.code, said.out) == (2, "") and "of a Job grey that was deleted still run" in said.err, said
    cluster.kubectl(
        "delete", "pods", "-l", "batch.kubernetes.io/job-name=grey", "--grace-period=0", "--force", check=True
    )
    assert kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml").code == 0


def test_lists_of_shards_go_with_the_last_job_that_uses_them(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    shards(tmp_path / "in", 2)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/in/in-0.tar\n{tmp_path}/in/in-1.tar\n")
    applied(cluster, manifest(kubetpl, "grey", "exit 1", f"@{tmp_path}/list.txt", tmp_path / "out", "--slices", "1"))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"a": "b"}}
    other["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "kubetpl", "tarkit.dev/run": "grey"}  # type: ignore[index]
    cluster.kubectl("create", "-f", "-", input=json.dumps(other), check=True)

    def lists() -> list[str]:
        return sorted(
            one["metadata"]["name"] for one in cluster.peek("configmaps") if "shards" in one["metadata"]["name"]
        )

    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    assert kubetpl("retry", "grey", "--apply").code == 0
    second, first = lists()
    owned = cluster.json("configmap", second)["metadata"]["ownerReferences"]
    assert [(each["kind"], each["name"]) for each in owned] == [("Job", "grey-r2")]
    assert kubetpl("wait", "grey-r2", "--timeout", "180").code == 1
    said = kubetpl("cancel", "grey", "--delete")
    assert said.code == 0 and said.out.endswith(f"ConfigMap {first}, a list of shards, is deleted\n"), said
    assert lists() == [second], "that of the retry stays"
    cluster.kubectl("delete", "job", "grey-r2", check=True)
    cluster.wait_for(lambda: not lists(), "what a Job owns goes with it")
    assert [one["metadata"]["name"] for one in cluster.peek("configmaps") if one["metadata"]["name"] == "mine"]


def test_the_list_of_a_job_that_is_gone_can_be_deleted(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    shards(tmp_path / "in", 1)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/in/in-0.tar\n")
    applied(cluster, manifest(kubetpl, "grey", "true", f"@{tmp_path}/list.txt", tmp_path / "out"))
    assert kubetpl("wait", "grey", "--timeout", "180").code == 0
    cluster.kubectl("delete", "job", "grey", "--cascade=foreground", check=True)
    said = kubetpl("cancel", "grey", "--delete")
    assert said.code == 0 and said.out.startswith("ConfigMap grey-shards-"), said
    assert kubetpl("cancel", "grey", "--delete").code == 66


def test_a_retry_says_that_it_waits(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    """For pods that are ending, of a Job of which it is certain that it has failed."""
    command = (
        f"case $JOB_COMPLETION_INDEX in 0) until [ -e {tmp_path}/up ]; do sleep 0.1; done; exit 64;; esac; "
        f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 143' TERM; touch {tmp_path}/up; "
        "while :; do sleep 0.1; done"
    )
    rules = [{"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [64]}}]
    policy = {"podFailurePolicy": {"rules": rules}, "backoffLimitPerIndex": 0}
    cluster.apply(indexed("slow", command, 2, pod={"terminationGracePeriodSeconds": 100}, **policy))
    cluster.wait_for(lambda: kubetpl("status", "slow").out.startswith("slow: ending"), what="that it will have failed")
    going = once_it_waits(cluster, (tmp_path / "go").touch)
    going.start()
    said = kubetpl("retry", "slow")
    going.join()
    assert said.code == 0 and "name: slow-r2\n" in said.out
    assert said.err.startswith(
        "kubetpl retry: Job slow: its last pods are ending; waiting for them, for 60 s at most\n"
    )
    assert kubetpl("status", "slow").code == 1


def test_pods_of_a_job_that_was_deleted_before_are_waited_for(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    """Nothing of the name is at work when cancel --delete ends with 0, however the Job was deleted."""
    command = (
        f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 143' TERM; mktemp {tmp_path}/up.XXXXXX; "
        "while :; do sleep 0.1; done"
    )

    def at_work(count: int) -> bool:
        return len(list(tmp_path.glob("up.*"))) == count

    cluster.apply(indexed("slow", command, 2, pod={"terminationGracePeriodSeconds": 100}))
    cluster.wait_for(lambda: at_work(2), "two pods at work")
    cluster.kubectl("delete", "job", "slow", "--wait=false", check=True)
    cluster.wait_for(lambda: not cluster.peek("jobs"), "that the Job is gone")
    late = kubetpl("cancel", "slow", "--delete", "--timeout", "1")
    assert (late.code, late.out) == (75, "") and "2 pods of an earlier Job slow still run" in late.err, late
    cluster.apply(job("slow", command, pod={"terminationGracePeriodSeconds": 100}))
    cluster.wait_for(lambda: at_work(3), "one more pod at work")
    going = once_it_waits(cluster, (tmp_path / "go").touch)
    going.start()
    said = kubetpl("cancel", "slow", "--delete")
    going.join()
    assert (said.code, said.err) == (0, "kubetpl cancel: slow: waiting until 3 pods have ended\n"), said
    assert not cluster.peek("pods") and not cluster.peek("jobs")
    assert kubetpl("cancel", "slow", "--delete").code == 66


def test_a_retry_of_a_run_does_not_join_pods_of_a_job_that_is_gone(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    started(cluster, kubetpl, f"[ {{i}} = 0 ] || exit 1; touch {tmp_path}/up; sleep 600")
    cluster.wait_for((tmp_path / "up").exists, "a pod at work")
    cluster.kubectl("delete", "job", "part0", "--cascade=orphan", check=True)
    assert kubetpl("wait", "part", "--timeout", "180").code == 1
    said = kubetpl("retry", "part")
    assert (said.code, said.out) == (2, "") and "of a Job part0 that was deleted still run" in said.err, said
    cluster.kubectl(
        "delete", "pods", "-l", "batch.kubernetes.io/job-name=part0", "--grace-period=0", "--force", check=True
    )
    assert kubetpl("retry", "part").code == 0
