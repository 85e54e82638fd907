"""What is asked of a cluster does not depend on how many Jobs a run has, and what is alike is said once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apiresources import JOBS
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import job
from kubestandin import Standin, kubeconfig

pytestmark = pytest.mark.cluster


def standin_of(cluster: Cluster) -> Standin:
    if cluster.standin is None:
        pytest.skip("WHAT A REAL SERVER IS ASKED IS NOT SEEN")
    return cluster.standin


def make_run(cluster: Cluster, standin: Standin, first: int, last: int, **spec: Any) -> None:
    """Jobs of the run `part`, without a kubectl for each."""
    for number in range(first, last):
        made = job(f"part{number:04}", "true", **spec)
        made["metadata"]["labels"] = {"tarkit.dev/run": "part"}
        standin.api.create(JOBS, cluster.namespace, made)

    def seen() -> bool:
        return all("startTime" in one["status"] or "conditions" in one["status"] for one in cluster.peek("jobs"))

    cluster.wait_for(seen, "the controller's first look")


def asked(cluster: Cluster, standin: Standin, act: Callable[[], Said]) -> tuple[Said, list[str]]:
    before = len(standin.router.seen)
    said = act()
    space = f"/namespaces/{cluster.namespace}"
    return said, [one.partition(space)[2] for one in list(standin.router.seen)[before:] if space in one]


def test_five_hundred_jobs_take_as_many_requests_as_ten(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    standin = standin_of(cluster)
    make_run(cluster, standin, 0, 10, suspend=True)
    few, requests = asked(cluster, standin, lambda: kubetpl("status", "part"))
    assert few.code == 0 and len(requests) == 3, requests
    make_run(cluster, standin, 10, 501, suspend=True)
    begun = time.monotonic()
    many, more = asked(cluster, standin, lambda: kubetpl("status", "part"))
    assert time.monotonic() - begun < 20
    assert [one.partition("?")[0] for one in more] == ["/jobs/part", "/jobs", "/jobs", "/pods"], "a page more"
    assert many.out.splitlines() == [
        "501 Jobs (part0000, part0001, part0002, …), each suspended, 0 of 1 done, 0 running, 0 failed, 1 left",
        "  not running: the Job is suspended (spec.suspend) → kubetpl cancel --undo",
        "501 Jobs: 501 suspended",
    ]
    assert kubetpl("status", "part", "-v").out.count("not running: ") == 501
    _, waiting = asked(cluster, standin, lambda: kubetpl("wait", "part", "--timeout", "0"))
    assert len(waiting) <= 5 and not [one for one in waiting if "/jobs/part0" in one], waiting


def test_events_are_one_list_and_only_of_what_waits(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    standin = standin_of(cluster)
    make_run(cluster, standin, 0, 12, pod={"nodeSelector": {"disk": "none"}})
    cluster.wait_for(
        lambda: kubetpl("status", "part").out.count("no node takes it") == 1 and len(cluster.peek("pods")) == 12,
        "the scheduler's word on all of them",
    )
    said, requests = asked(cluster, standin, lambda: kubetpl("status", "part"))
    assert [one.partition("?")[0] for one in requests] == ["/jobs/part", "/jobs", "/pods", "/events"], requests
    first, reason, last = said.out.splitlines()
    assert first.startswith("12 Jobs (part0000, part0001, part0002, …), each waiting, 0 of 1 done")
    assert reason.startswith("  not running: no node takes it: ") and last == "12 Jobs: 12 waiting"


def test_few_jobs_and_those_that_differ_have_lines_of_their_own(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    standin = standin_of(cluster)
    make_run(cluster, standin, 0, 3, suspend=True)
    lines = kubetpl("status", "part").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "part0000", "  not running", "part0001", "  not running", "part0002", "  not running", "3 Jobs",
    ]  # fmt: skip


def test_a_watch_lists_once_and_says_once_that_the_server_is_away(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubetpl: Callable[..., Said]
) -> None:
    """One line when the cluster stops answering, however often it is asked, and one when it answers again."""
    standin = standin_of(cluster)
    go = tmp_path / "go"
    make_run(cluster, standin, 0, 4)
    cluster.apply(job("last", f"until [ -e {go} ]; do sleep 0.1; done"))
    cluster.kubectl("label", "job", "last", "tarkit.dev/run=part", check=True)
    host, _, port = standin.url.rpartition("/")[2].partition(":")
    before = len(standin.router.seen)

    def requests(word: str) -> list[str]:
        seen = [one for one in list(standin.router.seen)[before:] if f"/{cluster.namespace}/" in one]
        return [one for one in seen if word in one and ("watch" in one) == (word == "watch")]

    def interrupt() -> None:
        cluster.wait_for(lambda: len(requests("watch")) >= 2, "a watch of Jobs and one of pods")
        proxy.cut()
        cluster.wait_for(lambda: proxy.refused >= 6, "two questions that are given up")
        known = len(requests("watch"))
        proxy.mend()
        cluster.wait_for(lambda: len(requests("watch")) > known, "another watch")
        go.touch()

    with CutProxy((host, int(port))) as proxy:
        config = tmp_path / "through-proxy"
        config.write_text(kubeconfig(f"http://127.0.0.1:{proxy.port}", cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            said = kubetpl("status", "part", "--watch", "1")
        finally:
            thread.join()
    assert said.code == 0 and said.out.splitlines()[-1] == "5 Jobs: 5 complete", said
    away, back = said.err.splitlines()
    assert away.startswith("kubetpl status: ") and away.endswith("; asking again")
    assert back == "kubetpl status: the cluster answers again"
    assert len(requests("/jobs?")) <= 3 and len(requests("/pods?")) <= 2, "lists at the beginning, and after the outage"
