"""Talking to an API server: kubeconfigs, refusals, busy servers, and connections that end."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import on_this_machine

from tarkit.errors import ClusterDeniedError, ClusterError, ClusterUnreachableError, NoSuchObjectError, UsageError
from tarkit.k8s.cluster import config as clusterconfig
from tarkit.k8s.cluster.config import load_access
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.watching import Watching, run_states

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes") is None, reason="NO KUBERNETES CLIENT: pip install kubernetes"
)

Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers by a list, one after the other; the last one again and again.

    Attributes:
        asked: (method, path, headers, body).
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, content = outer.answers[0] if len(outer.answers) == 1 else outer.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def says(self, *answers: Answer | dict[str, Any]) -> None:
        self.answers = [(200, {}, json.dumps(each).encode()) if isinstance(each, dict) else each for each in answers]

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


def config_text(url: str, **context: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", **context}}],
            "current-context": "one",
            "users": [{"name": "u", "user": {"token": "s3cret"}}],
        }
    )


@pytest.fixture
def cluster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("tarkit.k8s.cluster.connection._BACKOFF_SECONDS", 0.0)
    path = tmp_path / "config"
    path.write_text(config_text(server.url, namespace="etl"))
    return Cluster(load_access(str(path), None, None))


def refusal(status: int, message: str = "", **headers: str) -> Answer:
    return status, headers, json.dumps({"kind": "Status", "message": message}).encode()


# ---- which cluster


def test_namespace_context_and_user(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(config_text("https://example.test:6443/"))
    access = load_access(str(path), None, None)
    assert (access.namespace, access.context) == ("default", "one")
    path.write_text(config_text("http://x.test").replace('"current-context": "one",', ""))
    assert load_access(str(path), "one", "other").namespace == "other"


def test_several_files_are_merged(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(config_text("http://first.test"))
    second.write_text(config_text("http://second.test").replace('"one"', '"two"').replace('"c"', '"d"'))
    files = os.pathsep.join((str(first), str(tmp_path / "absent"), str(second)))
    assert load_access(files, "two", None).client.configuration.host == "http://second.test"


@pytest.mark.parametrize(
    ("text", "context", "expected"),
    [
        ("", None, "config"),
        ("a: [", None, "cannot be used"),
        ("[]", None, "cannot be used"),
        ("kind: Config\nclusters: null\ncontexts: null\nusers: null\n", None, "current-context"),
        (config_text("http://x.test").replace('"current-context": "one"', '"current-context": "gone"'), None, "gone"),
        (config_text("http://x.test"), "absent", "name absent in .*contexts list; --context names another context"),
        (config_text("http://x.test").replace('"current-context": "one",', ""), None, "current-context"),
        (config_text("http://x.test").replace('"cluster": "c"', '"cluster": "zzz"'), None, "zzz"),
    ],
)
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str, context: str | None, expected: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError, match=expected) as caught:
        load_access(str(path), context, None)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


LOGIN = "client.authentication.k8s.io/v1"


def login_config(url: str, *words: str) -> str:
    """A kubeconfig with a program that is run to log in."""
    config = json.loads(config_text(url))
    login = {"apiVersion": LOGIN, "command": words[0], "args": words[1:], "interactiveMode": "Never"}
    config["users"] = [{"name": "u", "user": {"exec": login}}]
    return json.dumps(config)


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": LOGIN, "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sh", "-c", "echo expired >&2; exit 1"], "exec: process returned 1. expired"),
        (["echo", credential()], "exec: missing token or clientCertificateData field in plugin output"),
        (["no-such-program"], "No such file or directory: 'no-such-program'"),
    ],
)
def test_a_login_program_that_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    (tmp_path / "config").write_text(login_config("http://x.test", *words))
    with pytest.raises(ClusterDeniedError) as caught:
        load_access(str(tmp_path / "config"), None, None)
    text = str(caught.value)
    assert text.startswith("cannot log in to context one: ") and text.endswith(f"{expected}; log in again")
    assert caught.value.exit_code == 75 and "\n" not in text
    assert capfd.readouterr() == ("", "")


def test_a_token_that_can_not_be_asked_for_anew(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The old one is tried; if it is refused, the reason is in the error."""
    (tmp_path / "answer").write_text(credential(token="t0ken", expirationTimestamp="2001-01-01T00:00:00Z"))
    script = f"cat {tmp_path}/answer || {{ echo no network >&2; exit 1; }}"
    (tmp_path / "config").write_text(login_config(server.url, "sh", "-c", script))
    cluster = Cluster(load_access(str(tmp_path / "config"), None, None))
    (tmp_path / "answer").unlink()
    server.says(named("x"), refusal(401))
    assert cluster.get("jobs", "x") == named("x")
    assert server.asked[0][2]["authorization"] == "Bearer t0ken"
    with pytest.raises(ClusterDeniedError, match=r"log in again: exec: process returned 1.*no network$"):
        cluster.get("jobs", "x")
    assert capfd.readouterr() == ("", "")


def test_no_kubeconfig_and_no_pod(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist, and this is not a pod; name a kubeconfig with --kubeconfig"):
        load_access(str(tmp_path / "absent"), None, None)


def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files and variables that a pod's service account has."""
    from kubernetes.config import incluster_config

    for name, content in (("namespace", "own\n"), ("token", "t0ken"), ("ca.crt", "none")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(clusterconfig, "_IN_POD", str(tmp_path / "namespace"))
    monkeypatch.setattr(clusterconfig, "DEFAULT_FILE", str(tmp_path / "absent"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    with pytest.raises(UsageError, match="service account cannot be used: Service host/port is not set"):
        load_access(None, None, None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    access = load_access(None, None, None)
    assert (access.namespace, access.context) == ("own", "in-cluster")
    assert Cluster(access)._headers("GET")["authorization"] == "bearer t0ken"


# ---- requests


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def test_no_name_leads_to_another_path(cluster: Cluster, server: Server) -> None:
    """Whoever calls: annotations of a manifest are names, too."""
    server.says({})
    for name in ("x/status", "..", "", "x?watch=1", "X", "%2e%2e", "x\n"):
        for ask in (
            lambda name: cluster.get("configmaps", name), lambda name: cluster.patch("jobs", name, {}),
            lambda name: list(cluster.log(name)),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=r"^the name of a (job|pod|configmap) "):
                ask(name)
    assert not server.asked


@pytest.mark.parametrize("space", ["", "a/b", "..", "A"])
def test_a_namespace_is_no_path(tmp_path: Path, space: str) -> None:
    path = tmp_path / "config"
    path.write_text(config_text("http://x.test", namespace=space))
    with pytest.raises(UsageError, match=r"^--namespace: the name of a namespace "):
        load_access(str(path), None, space)
    if space:
        with pytest.raises(UsageError, match=f"^kubeconfig {path}, context one: the name of a namespace "):
            load_access(str(path), None, None)


@pytest.mark.parametrize("answer", [{}, {"metadata": []}, {"metadata": {"name": 3}}])
def test_what_is_no_object_is_refused(cluster: Cluster, server: Server, answer: dict[str, Any]) -> None:
    server.says(answer)
    with pytest.raises(ClusterUnreachableError, match=r"has no metadata.name; is it a Kubernetes API server"):
        cluster.get("jobs", "x")


def test_a_list_comes_in_pages_with_the_token(cluster: Cluster, server: Server) -> None:
    server.says({"metadata": {"continue": "more"}, "items": [named("a")]}, {"metadata": {}, "items": [named("b")]})
    found = list(cluster.list("pods", labels="a=b", fields="status.phase!=Succeeded"))
    assert found == [named("a"), named("b")]
    (_, first, headers, _), (_, second, _, _) = server.asked
    assert first.startswith("/api/v1/namespaces/etl/pods?") and "labelSelector=a%3Db" in first
    assert "continue=more" in second and headers["authorization"] == "Bearer s3cret"


def test_a_list_that_took_too_long_may_be_asked_for_again(cluster: Cluster, server: Server) -> None:
    server.says({"metadata": {"continue": "more"}, "items": [named("a")]}, refusal(410))
    with pytest.raises(ClusterUnreachableError, match=r"is busy .410."):
        cluster.list("pods")


def test_writes(cluster: Cluster, server: Server) -> None:
    server.says({})
    cluster.patch("jobs", "x", {"spec": {"parallelism": 2}})
    ((method, _, headers, body),) = server.asked
    assert (method, headers["Content-Type"]) == ("PATCH", "application/merge-patch+json")
    assert json.loads(body) == {"spec": {"parallelism": 2}}


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (401, ClusterError, 75, "does not know who you are .401.: log in again"),
        (403, ClusterError, 75, "you may not get jobs in namespace etl .403.; have a role with the verb get on jobs"),
        (404, NoSuchObjectError, 66, "no job x in namespace etl of http"),
        (422, ClusterError, 1, "refuses to get job x .422.: said"),
        (429, ClusterUnreachableError, 75, "is busy .429.: said; try again later"),
        (503, ClusterUnreachableError, 75, "is busy .503."),
    ],
)
def test_refusals(
    cluster: Cluster, server: Server, status: int, kind: type[ClusterError], code: int, expected: str
) -> None:
    server.says(refusal(status, "said"))
    with pytest.raises(kind, match=expected) as caught:
        cluster.get("jobs", "x")
    assert (caught.value.status, caught.value.exit_code) == (status, code)


@pytest.mark.parametrize("content", [b"<html>Bad Gateway</html>", b'{"kind": "Job", "meta', b"[]", b""])
def test_an_answer_that_is_no_json_object_is_none(cluster: Cluster, server: Server, content: bytes) -> None:
    """What a proxy says, and what was cut: nobody knows how the Job is."""
    server.says((200, {}, content))
    with pytest.raises(ClusterUnreachableError, match="not a JSON object; is it a Kubernetes API server") as caught:
        cluster.get("jobs", "x")
    assert caught.value.exit_code == 75


def test_the_log_of_a_pod_that_may_not_be_read(cluster: Cluster, server: Server) -> None:
    server.says(refusal(403))
    with pytest.raises(ClusterError, match="you may not get pods/log in namespace etl"):
        list(cluster.log("p"))


def test_busy_servers_are_asked_again(cluster: Cluster, server: Server) -> None:
    server.says(refusal(429, **{"Retry-After": "3600"}), refusal(503), named("x"))
    assert cluster.get("jobs", "x") == named("x")


def test_a_body_that_is_cut(cluster: Cluster, server: Server) -> None:
    server.says((200, {"Content-Length": "100", "Connection": "close"}, b"{"))
    with pytest.raises(ClusterUnreachableError, match="cannot be reached"):
        cluster.get("jobs", "x")


def test_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(config_text("http://127.0.0.1:9"))
    expected = r"^http://127.0.0.1:9 \(context one\) cannot be reached: .*refused$"
    with pytest.raises(ClusterUnreachableError, match=expected):
        Cluster(load_access(str(path), None, None)).get("jobs", "x")


def test_logs_by_lines(cluster: Cluster, server: Server) -> None:
    server.says((200, {}, b"one\r\n\xff two\n\nlast"))
    assert list(cluster.log("p", container="main", tail=5)) == [b"one\r", b"\xff two", b"", b"last"]
    assert "tailLines=5" in server.asked[0][1]


def test_a_signal_ends_a_program_while_the_name_of_its_cluster_is_looked_up(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(config_text("http://cluster.example"))
    # As a C library that waits for a name server: no signal reaches it.
    program = (
        "import ctypes, os, socket, sys\n"
        "def look_up(*arguments, **more):\n"
        "    os.write(1, b'.')\n"
        "    mutex = ctypes.create_string_buffer(256)\n"
        "    while True: ctypes.CDLL(None).pthread_mutex_lock(mutex)\n"
        "socket.getaddrinfo = look_up\n"
        "from tarkit.cli.kubetpl import main\n"
        "sys.argv = ['kubetpl', 'wait', 'x']\n"
        "sys.exit(main())\n"
    )
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "config")}
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            try:
                assert child.stdout is not None and child.stdout.read(1) == b"."
                # By now it waits; if not, the signal comes too early to be missed.
                time.sleep(0.3)
                begin = time.monotonic()
                child.send_signal(number)
                child.communicate(timeout=120)
                seconds = time.monotonic() - begin
            finally:
                child.kill()
        assert child.returncode == 128 + number
        # 5 seconds are promised, on a machine that is not so busy.
        assert seconds < on_this_machine(10)


# ---- watching


def events(*pairs: tuple[str, str]) -> Answer:
    lines = [
        {"type": kind, "object": {"metadata": {"name": "x", "uid": "u", "resourceVersion": v}}} for kind, v in pairs
    ]
    return 200, {}, b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def state(version: str, uid: str = "u") -> dict[str, Any]:
    """The list with one Job."""
    job = {"metadata": {"name": "x", "uid": uid, "resourceVersion": version}}
    return {"metadata": {"resourceVersion": version}, "items": [job]}


def watched(
    cluster: Cluster, report: Callable[[str], None] = lambda why: None, seconds: float | None = None
) -> Iterator[str]:
    """Versions of the Job.

    By this clock every watch ends early, so that a list follows it.
    """
    ticks = iter(range(10_000))
    watching = Watching(report, seconds, 60.0, clock=lambda: float(next(ticks)), sleep=lambda seconds: None)
    for state in run_states(cluster, "x", watching, of_run=False):
        yield str(state.jobs[0]["metadata"]["resourceVersion"])


def test_a_watch_goes_on_after_its_end_and_after_410(cluster: Cluster, server: Server) -> None:
    server.says(
        state("1"), events(("MODIFIED", "2"), ("BOOKMARK", "3")), state("3"), events(("ERROR", "")), state("4"),
        refusal(410), state("5"), events(("MODIFIED", "6"), ("DELETED", "6")),
    )  # fmt: skip
    seen = watched(cluster)
    assert [next(seen) for _ in range(6)] == ["1", "2", "3", "4", "5", "6"]
    with pytest.raises(NoSuchObjectError, match="Job x was deleted meanwhile"):
        next(seen)
    assert "resourceVersion=3" in server.asked[3][1]


def test_a_job_created_anew_while_not_watched_is_another_one(cluster: Cluster, server: Server) -> None:
    server.says(state("1", "a"), events(), state("2", "b"), events())
    seen = watched(cluster)
    assert next(seen) == "1"
    with pytest.raises(NoSuchObjectError, match="Job x was deleted meanwhile, and another one has its name"):
        next(seen)


def test_an_event_of_any_length_is_whole(cluster: Cluster, server: Server) -> None:
    big = {"metadata": {"name": "x", "annotations": {"a": "b" * 3_000_000}}}
    text = json.dumps({"type": "MODIFIED", "object": big}).encode()
    server.says((200, {}, text + b"\n" + text + b"\n"))
    assert list(cluster.watch("jobs", version="1", seconds=5)) == [("MODIFIED", big)] * 2


def test_a_watch_that_is_cut_or_forbidden(cluster: Cluster, server: Server) -> None:
    """Who may list and not watch is served by lists."""
    cut, forbidden = (200, {}, b'{"type": "MODI'), refusal(403)
    server.says(state("1"), cut, state("2"), forbidden, state("3"), forbidden, state("4"))
    seen = watched(cluster)
    assert [next(seen) for _ in range(4)] == ["1", "2", "3", "4"]


def test_a_server_that_is_away_for_a_while(cluster: Cluster, server: Server) -> None:
    lost: list[str] = []
    server.says(state("1"), events(), *[refusal(503)] * 8, state("2"), events())
    seen = watched(cluster, lost.append)
    assert [next(seen), next(seen)] == ["1", "2"]
    assert len(lost) == 2 and "is busy (503)" in lost[0] and lost[1] == "the cluster answers again"


def test_patience_ends(cluster: Cluster, server: Server) -> None:
    server.says(state("1"), events(), refusal(503))
    seen = watched(cluster)
    assert next(seen) == "1"
    with pytest.raises(ClusterUnreachableError):
        next(seen)


def test_the_time_is_up(cluster: Cluster, server: Server) -> None:
    server.says(state("1"), events(), state("2"), events(), state("3"), events())
    assert len(list(watched(cluster, seconds=9.0))) == 2
    server.says(state("1"))
    assert len(list(watched(cluster, seconds=0.0))) == 1, "one look, though the time was up before it"


def test_patience_is_for_the_first_answer_too(cluster: Cluster, server: Server) -> None:
    server.says(*[refusal(503)] * 8, state("1"), events())
    assert next(watched(cluster)) == "1"
