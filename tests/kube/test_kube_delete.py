"""kubetpl cancel --delete: nothing is at work afterwards, and the lists of shards go, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubecluster import Cluster, Said
from kubejobs import indexed, manifest, run_pods, shards

pytestmark = pytest.mark.cluster

ENDING = [{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}]


def at_work(cluster: Cluster, name: str, count: int = 2) -> list[str]:
    """Pods of a Job that take their time to end."""
    assert cluster.standin
    pods = [cluster.add_pod(name, index, node="n") for index in range(count)]
    cluster.set_job(name, active=count, ready=count)
    return pods


@contextmanager
def ended_while_watched(cluster: Cluster, pods: list[str]) -> Iterator[None]:
    """Pods end once the verb that is called meanwhile has looked for them, and looks again."""
    before = len(cluster.asked("?"))

    def run() -> None:
        cluster.wait_for(lambda: len(cluster.asked("?")) > before + 4, "a look at what is left")
        for name in pods:
            cluster.end_pod(name)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


def test_a_job_is_deleted_once_its_pods_have_ended(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """Who applies it again has no second pod at the same slice."""
    cluster.apply(indexed("slow", 2))
    with ended_while_watched(cluster, at_work(cluster, "slow")):
        said = kubetpl("cancel", "slow", "--delete")
        assert not cluster.items("pods"), "a pod was still at work"
    assert (said.code, said.out) == (
        0,
        "slow: 1 Job is deleted, with all pods and their logs. The done records stay\n",
    ), said
    assert said.err == "kubetpl cancel: slow: waiting until 2 pods have ended\n"
    assert not cluster.items("jobs")


def test_pods_that_do_not_end_in_time(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("slow", 1))
    (pod,) = at_work(cluster, "slow", 1)
    late = kubetpl("cancel", "slow", "--delete", "--timeout", "0.5")
    assert (late.code, late.out) == (75, "")
    assert "slow is deleted, but it is not gone, and pods may be at work" in late.err
    at_once = kubetpl("cancel", "slow", "--delete", "--timeout", "0")
    assert at_once.code == 75 and "waiting until" not in at_once.err
    running = kubetpl("retry", "slow")
    assert running.code == 2 and "Job slow still runs" in running.err
    cluster.end_pod(pod)
    assert kubetpl("cancel", "slow", "--delete").code == 66


def test_pods_of_a_job_that_was_deleted_before_are_waited_for(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """Nothing of the name is at work when cancel --delete ends with 0, however the Job was deleted."""
    cluster.apply(indexed("slow", 2))
    pods = at_work(cluster, "slow")
    cluster.delete("jobs", "slow")
    late = kubetpl("cancel", "slow", "--delete", "--timeout", "0.5")
    assert (late.code, late.out) == (75, "") and "2 pods of an earlier Job slow still run" in late.err, late
    cluster.apply(indexed("slow", 1))
    with ended_while_watched(cluster, [*pods, *at_work(cluster, "slow", 1)]):
        said = kubetpl("cancel", "slow", "--delete")
        assert not cluster.items("pods")
    assert (said.code, said.err) == (0, "kubetpl cancel: slow: waiting until 3 pods have ended\n"), said
    assert kubetpl("cancel", "slow", "--delete").code == 66


@pytest.mark.parametrize("run", [False, True])
def test_pods_of_a_job_that_is_gone_are_not_joined_by_a_retry(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, run: bool
) -> None:
    made = manifest(kubetpl, "grey", "true", shards(tmp_path / "in", 2), tmp_path / "out")
    words = ["grey", "-f", str(tmp_path / "grey.yaml")]
    if run:
        made = kubetpl("jobs", "-n", "grey{i}", "-c", "true", "--over", "{0..2}", "-I", "host:1").out
        words = ["grey"]
    (tmp_path / "grey.yaml").write_text(made)
    cluster.apply(made)
    gone = "grey0" if run else "grey"
    pod = cluster.add_pod(gone, 0)
    cluster.delete("jobs", gone, "Orphan")
    for each in ("grey1", "grey2") if run else ():
        cluster.set_job(each, "failed")
    said = kubetpl("retry", *words)
    assert (said.code, said.out) == (2, "") and f"of a Job {gone} that was deleted still run" in said.err, said
    cluster.end_pod(pod)
    assert kubetpl("retry", *words).code == 0


def test_a_job_whose_last_pods_are_ending_is_not_retried(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("slow", 2))
    cluster.set_job("slow", active=1, conditions=ENDING)
    assert kubetpl("status", "slow").out.startswith("slow: ending")
    said = kubetpl("retry", "slow")
    assert said.code == 2 and "Job slow still runs; wait for it (kubetpl wait slow)" in said.err


def test_lists_of_shards_go_with_the_last_job_that_uses_them(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    shards(tmp_path / "in", 2)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/in/in-0.tar\n{tmp_path}/in/in-1.tar\n")
    cluster.apply(manifest(kubetpl, "grey", "exit 1", f"@{tmp_path}/list.txt", tmp_path / "out", "--slices", "1"))
    labels = {"app.kubernetes.io/managed-by": "kubetpl", "tarkit.dev/run": "grey"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "labels": labels}}
    cluster.apply({**other, "data": {"a": "b"}})

    def maps() -> list[str]:
        return [one["metadata"]["name"] for one in cluster.items("configmaps")]

    run_pods(cluster, "grey", tmp_path)
    cluster.apply(kubetpl("retry", "grey").out)
    run_pods(cluster, "grey-r2", tmp_path)
    second, first = (each for each in maps() if "shards" in each)
    said = kubetpl("cancel", "grey", "--delete")
    assert said.code == 0 and said.out.endswith(f"ConfigMap {first}, a list of shards, is deleted\n"), said
    assert maps() == [second, "mine"], "that of the retry stays"
    assert kubetpl("cancel", "grey-r2", "--delete").out.endswith(f"ConfigMap {second}, a list of shards, is deleted\n")
    assert maps() == ["mine"]


def test_the_list_of_a_job_that_is_gone_can_be_deleted(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    shards(tmp_path / "in", 1)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/in/in-0.tar\n")
    cluster.apply(manifest(kubetpl, "grey", "true", f"@{tmp_path}/list.txt", tmp_path / "out"))
    cluster.delete("jobs", "grey")
    said = kubetpl("cancel", "grey", "--delete")
    assert said.code == 0 and said.out.startswith("ConfigMap grey-shards-"), said
    assert kubetpl("cancel", "grey", "--delete").code == 66
