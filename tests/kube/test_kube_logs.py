"""kubetpl logs: which pods, which lines, and logs that are followed through lost connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import indexed, job
from kubestandin import kubeconfig

from tarkit.k8s.cluster.joblogs import _Read

pytestmark = pytest.mark.cluster


def test_nothing_to_show_is_66(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """As documented: 0 only if something was shown."""
    cluster.apply(job("mute", "true"), indexed("talk", "echo one", 1), job("held", "true", suspend=True))
    for name in ("mute", "talk"):
        assert kubetpl("wait", name, "--timeout", "180").code == 0
    for words, why in (
        (["mute"], "mute: its pods have written nothing"),
        (["talk", "--grep", "two"], "talk: its pods have written nothing that --grep two finds"),
        (["talk", "--tail", "0"], "talk: its pods have written nothing"),
        (["talk", "--failed"], "talk has no failed pods"),
        (["talk", "--index", "1"], "Job talk has the indexes 0 to 0; no index 1"),
        (["mute", "--index", "0"], "Job mute has no indexes: it is not an Indexed Job; leave out --index"),
        (["held"], "held has no pods"),
    ):
        said = kubetpl("logs", *words)
        assert (said.code, said.out) == (66, "") and why in said.err, said
    assert kubetpl("logs", "talk", "--index", "").code == 2
    assert kubetpl("logs", "talk").out == "[0] one\n", "lines of the only index have their prefix, too"


def test_a_log_is_followed_before_its_pod_exists(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    cluster.apply(indexed("late", "echo begun; echo done", 3, suspend=True))

    def let_go() -> None:
        if cluster.standin is not None:
            seen, pods = cluster.standin.router.seen, f"/{cluster.namespace}/pods?"
            cluster.wait_for(lambda: any(pods in one and "watch" in one for one in list(seen)), "a watch of pods")
        cluster.kubectl("patch", "job", "late", "-p", '{"spec":{"suspend":false}}', check=True)

    thread = threading.Thread(target=let_go)
    thread.start()
    said = kubetpl("logs", "late", "--follow", "--index", "2")
    thread.join()
    assert (said.code, said.out) == (0, "[2] begun\n[2] done\n"), said
    assert said.err == ("kubetpl logs: its pod has not started; waiting for it (kubetpl status late says why)\n")
    assert kubetpl("wait", "late", "--timeout", "180").code == 0
    cluster.kubectl("delete", "pods", "--all", check=True)
    gone = kubetpl("logs", "late", "--follow", "--index", "2")
    assert gone.code == 66 and "the pods of index 2 are gone" in gone.err, "who waits for what has ended waits for ever"


def test_a_log_is_followed_through_lost_connections(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is lost, and none comes twice, though many have the same second."""
    if cluster.standin is None:
        pytest.skip("THE CONNECTIONS TO A REAL CLUSTER ARE NOT CUT")
    standin = cluster.standin
    go = tmp_path / "go"
    count = (
        f"for i in $(seq 5); do echo $i; done; until [ -e {go} ]; do sleep 0.05; done; for i in 6 7 8; do echo $i; done"
    )
    cluster.apply(job("talk", f"{count}; until [ -e {go}2 ]; do sleep 0.05; done; echo end"))
    host, _, port = standin.url.rpartition("/")[2].partition(":")

    def opened() -> int:
        return sum("/log?" in one and "follow" in one for one in list(standin.router.seen))

    def interrupt() -> None:
        for flag, read in ((go, b"5\n"), (Path(f"{go}2"), b"8\n")):
            before = opened()
            cluster.wait_for(lambda read=read: proxy.carried(read), "lines that were read")
            proxy.cut()
            cluster.wait_for(lambda: proxy.refused, "a try that is refused")
            proxy.refused = 0
            flag.touch()
            proxy.mend()
            cluster.wait_for(lambda before=before: opened() > before, "the log is opened again")

    with CutProxy((host, int(port))) as proxy:
        config = tmp_path / "through-proxy"
        config.write_text(kubeconfig(f"http://127.0.0.1:{proxy.port}", cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            said = kubetpl("logs", "talk", "--follow")
        finally:
            thread.join()
    assert (said.code, said.out) == (0, "".join(f"{n}\n" for n in range(1, 9)) + "end\n"), said
    assert any("sinceTime" in one for one in list(standin.router.seen))


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


def test_follow_one_index(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"echo first; until [ -e {go} ]; do sleep 0.1; done; echo last $JOB_COMPLETION_INDEX"
    cluster.apply(indexed("talk", command, 2))
    cluster.wait_for(lambda: "2 running" in kubetpl("status", "talk").out, what="running pods")
    assert kubetpl("logs", "talk", "--follow").code == 2
    timer = threading.Timer(0.5, go.touch)
    timer.start()
    assert kubetpl("logs", "talk", "--follow", "--index", "1").out == "[1] first\n[1] last 1\n"
    timer.join()
    cluster.wait_for(
        lambda: kubetpl("logs", "talk", "--tail", "1", "--index", "0").out == "[0] last 0\n", "the other's last line"
    )
    absent = kubetpl("logs", "talk", "--index", "7")
    assert absent.code == 66 and "Job talk has the indexes 0 to 1; no index 7" in absent.err


def test_logs_of_a_pod_with_several_containers(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    both = job("both", "echo of main")
    beside = {"name": "beside", "image": "busybox:1", "command": ["sh", "-c", "echo of the other"]}
    both["spec"]["template"]["spec"]["containers"].insert(0, beside)
    cluster.apply(both)
    assert kubetpl("wait", "both", "--timeout", "180").code == 0
    assert kubetpl("logs", "both").out == "of main\n"
    assert kubetpl("logs", "both", "--container", "beside").out == "of the other\n"
