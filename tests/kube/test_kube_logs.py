"""kubetpl logs: which pods, which lines, and logs that are followed through lost connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apiserver import kubeconfig
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import indexed, job

from tarkit.k8s.cluster.joblogs import _Read


def test_nothing_to_show_is_66(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """As documented: 0 only if something was shown."""
    cluster.apply(job("mute"), indexed("talk", 1), job("held", suspend=True))
    cluster.add_pod("mute", code=0, log="")
    cluster.add_pod("talk", 0, code=0, log="one\n")
    cluster.end_indexes("talk", {0: 0})
    for words, why in (
        (["mute"], "mute: its pods have written nothing"),
        (["talk", "--tail", "0"], "talk: its pods have written nothing"),
        (["talk", "--failed"], "talk: there are no failed pods"),
        (["talk", "--index", "1"], "Job talk has the indexes 0 to 0; no index 1"),
        (["mute", "--index", "0"], "Job mute has no indexes: it is not an Indexed Job; leave out --index"),
        (["held"], "held: there are no pods"),
    ):
        said = kubetpl("logs", *words)
        assert (said.code, said.out) == (66, "") and why in said.err, said
    assert kubetpl("logs", "talk", "--index", "").code == 2
    assert kubetpl("logs", "talk").out == "[0] one\n", "lines of the only index have their prefix, too"


def test_lines_of_the_pods_that_matter(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("talk", 3))
    cluster.add_pod("talk", 0, code=0, log="seen\nend 0\n")
    cluster.add_pod("talk", 1, code=1, log="seen\nbroken\n")
    cluster.add_pod("talk", 2, phase="Pending")
    cluster.set_job("talk", active=1, completedIndexes="0", succeeded=1, failedIndexes="1")
    every = kubetpl("logs", "talk")
    assert every.out == "[0] seen\n[0] end 0\n[1] seen\n[1] broken\n"
    assert every.err == "kubetpl logs: 2: its container has not started; kubetpl status says why\n"
    assert kubetpl("logs", "talk", "--tail", "1", "--index", "0-1").out == "[0] end 0\n[1] broken\n"
    assert kubetpl("logs", "talk", "--failed").out == "[1] seen\n[1] broken\n"
    assert kubetpl("logs", "talk", "--follow").code == 2


def test_logs_of_a_pod_with_several_containers(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    both = job("both")
    both["spec"]["template"]["spec"]["containers"].insert(0, {"name": "beside", "image": "busybox:1"})
    cluster.apply(both)
    name = cluster.add_pod("both", code=0)
    uid = cluster.get("pods", name)["metadata"]["uid"]
    for container in ("main", "beside"):
        cluster.standin.objects.log_of(uid, container).add(f"of {container}\n", end=True)
    assert kubetpl("logs", "both").out == "of main\n"
    assert kubetpl("logs", "both", "--container", "beside").out == "of beside\n"


def test_a_log_is_followed_before_its_pod_exists(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("late", 3))

    def begin() -> None:
        cluster.wait_for(lambda: cluster.asked("pods?watch"), "a watch of pods")
        cluster.add_pod("late", 2, code=0, log="begun\ndone\n")

    thread = threading.Thread(target=begin)
    thread.start()
    said = kubetpl("logs", "late", "--follow", "--index", "2")
    thread.join()
    assert (said.code, said.out) == (0, "[2] begun\n[2] done\n"), said
    assert said.err == "kubetpl logs: its pod has not started; waiting for it (kubetpl status late says why)\n"
    cluster.end_indexes("late", {0: 0, 1: 0, 2: 0})
    for each in cluster.items("pods"):
        cluster.end_pod(each["metadata"]["name"])
    gone = kubetpl("logs", "late", "--follow", "--index", "2")
    assert gone.code == 66 and "the pods of index 2 are gone" in gone.err, "who waits for what has ended waits for ever"


def test_a_log_is_followed_through_lost_connections(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is lost, and none comes twice, though many have the same second."""
    monkeypatch.setattr("tarkit.k8s.cluster.watching._SHORTEST_PAUSE", 0.1)
    server = cluster.standin
    cluster.apply(job("talk"))
    pod = cluster.add_pod("talk", log="1\n2\n3\n4\n5\n")
    log = server.objects.log_of(cluster.get("pods", pod)["metadata"]["uid"], "main")

    def interrupt() -> None:
        for last, more in ((b"5\n", "6\n7\n8\n"), (b"8\n", "end\n")):
            cluster.wait_for(lambda last=last: proxy.carried(last), "lines that were read")
            before = len(cluster.asked("log?follow"))
            proxy.cut()
            cluster.wait_for(lambda: proxy.refused, "a try that is refused")
            proxy.refused = 0
            log.add(more, end=more == "end\n")
            proxy.mend()
            cluster.wait_for(lambda before=before: len(cluster.asked("log?follow")) > before, "the log is opened again")
        status = cluster.get("pods", pod)["status"]
        ended = [{**each, "state": {"terminated": {"exitCode": 0}}} for each in status["containerStatuses"]]
        cluster.set_status("pods", pod, phase="Succeeded", containerStatuses=ended)

    with CutProxy(server.url) as proxy:
        config = tmp_path / "through-proxy"
        config.write_text(kubeconfig(proxy.url, cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            said = kubetpl("logs", "talk", "--follow")
        finally:
            thread.join()
    assert (said.code, said.out) == (0, "".join(f"{n}\n" for n in range(1, 9)) + "end\n"), said
    assert any("sinceTime" in one for one in cluster.asked("/log?"))


def test_lines_that_are_sent_again_are_known() -> None:
    """By their times and their texts, also where two streams are a little out of order, or a log was rotated."""

    def lines(*pairs: tuple[str, str]) -> Iterator[bytes]:
        return iter([f"2027-01-15T07:00:{at}Z {text}".encode() for at, text in pairs])

    read = _Read()
    assert read.since is None
    first = [("00.1", "a"), ("01.000000002", "b"), ("01.000000001", "c"), ("01.000000002", "b2"), ("02", "a b ")]
    assert list(read.new(lines(*first))) == [b"a", b"b", b"c", b"b2", b"a b "]
    assert read.since == "2027-01-15T07:00:01Z"
    late = [*first[1:], ("01.9", "late"), ("02", "a b "), ("03", "")]
    assert list(read.new(lines(*late))) == [b"late", b"a b ", b""], "the same text at the same time, once more, is new"
    assert list(read.new(lines(("02", "a b "), ("02", "a b "), ("03", ""), ("09+00:00", "z")))) == [
        b"2027-01-15T07:00:09+00:00Z z"
    ], "what has no time is passed on as it is"
    assert list(read.new(iter([b"", b"2027-01-15T09:00:09.5+02:00 z"]))) == [b"", b"z"]
