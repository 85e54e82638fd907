"""What is asked of a cluster does not depend on how many Jobs a run has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apiserver import kubeconfig
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import job


def make_run(cluster: Cluster, first: int, last: int, **spec: Any) -> None:
    """Jobs of the run `part`."""
    for number in range(first, last):
        made = job(f"part{number:04}", **spec)
        made["metadata"]["labels"] = {"tarkit.dev/run": "part"}
        cluster.standin.objects.create("jobs", cluster.namespace, made)


def asked(cluster: Cluster, act: Callable[[], Said]) -> tuple[Said, list[str]]:
    """What a verb said, and the paths that it asked."""
    cluster.standin.seen.clear()
    said = act()
    return said, [one.partition("?")[0] for one in cluster.asked()]


def test_five_hundred_jobs_take_as_many_requests_as_ten(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    make_run(cluster, 0, 3, suspend=True)
    few, requests = asked(cluster, lambda: kubetpl("status", "part"))
    assert few.code == 0 and len(requests) == 3, requests
    assert [line.partition(":")[0] for line in few.out.splitlines()] == [
        "part0000", "  not running", "part0001", "  not running", "part0002", "  not running", "3 Jobs",
    ]  # fmt: skip
    make_run(cluster, 3, 501, suspend=True)
    many, more = asked(cluster, lambda: kubetpl("status", "part"))
    assert more == ["/jobs/part", "/jobs", "/jobs", "/pods"], "a page more"
    assert many.out.count("not running: ") == 501 and many.out.endswith("\n501 Jobs: 501 suspended\n")
    _, waiting = asked(cluster, lambda: kubetpl("wait", "part", "--timeout", "0"))
    assert len(waiting) <= 5 and not [one for one in waiting if "/jobs/part0" in one], waiting


def test_events_are_one_list_and_only_of_what_waits(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    make_run(cluster, 0, 12)
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    for number in range(12):
        cluster.add_pod(f"part{number:04}", phase="Pending", conditions=[why])
        cluster.set_job(f"part{number:04}", active=1)
    said, requests = asked(cluster, lambda: kubetpl("status", "part"))
    assert requests == ["/jobs/part", "/jobs", "/pods", "/events"]
    assert said.out.count("  not running: no node takes it: ") == 12 and said.out.endswith("\n12 Jobs: 12 waiting\n")


def test_a_watch_lists_once_and_says_once_that_the_server_is_away(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubetpl: Callable[..., Said]
) -> None:
    """One line when the cluster stops answering, however often it is asked, and one when it answers
    again.
    """
    server = cluster.standin
    monkeypatch.setattr("tarkit.k8s.cluster.watching._SHORTEST_PAUSE", 0.1)
    monkeypatch.setattr("tarkit.k8s.cluster.connection._BACKOFF_SECONDS", 0.01)
    make_run(cluster, 0, 5)
    for number in range(4):
        cluster.set_job(f"part{number:04}", "complete", succeeded=1)

    def requests(plural: str, *, watch: bool) -> int:
        return len([one for one in cluster.asked(f"/{plural}?") if ("watch" in one) is watch])

    def watches() -> int:
        return requests("jobs", watch=True)

    def interrupt() -> None:
        cluster.wait_for(watches, "a watch")
        proxy.cut()
        cluster.wait_for(lambda: proxy.refused > 12, "a watch and two lists that fail")
        known = watches()
        proxy.mend()
        cluster.wait_for(lambda: watches() > known, "another watch")
        cluster.set_job("part0004", "complete", succeeded=1)

    server.seen.clear()
    with CutProxy(server.url) as proxy:
        config = tmp_path / "through-proxy"
        config.write_text(kubeconfig(proxy.url, cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            said = kubetpl("wait", "part")
        finally:
            thread.join()
    assert said.code == 0 and said.out.splitlines()[-1] == "5 Jobs: 5 complete", said
    away, back = said.err.splitlines()
    assert away.startswith("kubetpl wait: ") and away.endswith("; asking again, for 5 min at most")
    assert back == "kubetpl wait: the cluster answers again"
    assert requests("jobs", watch=False) <= 4 and requests("pods", watch=False) == 1, "lists at the beginning and after"
