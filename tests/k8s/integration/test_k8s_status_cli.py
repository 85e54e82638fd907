"""What the verbs about Jobs say without any cluster: options that cannot be, manifests, a client
that is missing.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.kubetpl import main

from tarkit.errors import UsageError
from tarkit.k8s.cluster.retryjob import refuse_running
from tarkit.k8s.yamltext import load_documents
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.runrecord import RunRecord
from tarkit.specs.inputset import InputSet

Run = Callable[..., tuple[int, str, str]]

MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: grey
  annotations:
    tarkit.dev/shards: "3"
    tarkit.dev/slices: "2"
    tarkit.dev/outdir: {out}
    tarkit.dev/inputs: '["s3://b/raw-{{0..2}}.tar"]'
spec:
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: i:1
        command: [tarproc]
        args: [--slice, "2", -O, {out}, -c, "true", --, "s3://b/raw-{{0..2}}.tar"]
"""

CONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: old}}}}]
"""
ENDED = {"type": "Failed", "status": "True", "reason": "FailedIndexes"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))

    def run(*words: str | Path) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    path = tmp_path / "grey.yaml"
    path.write_text(MANIFEST.format(out=tmp_path / "out"))
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", "grey"], "no cluster is configured"),
        (["status", ""], "NAME: the name of a Job or run must not be empty; is it a variable that is not set?"),
        (["wait", "grey", "-N", ""], "--namespace must not be empty"),
        (["wait", "grey", "--context", ""], "--context must not be empty"),
        (["wait", "grey", "--kubeconfig", ""], "--kubeconfig must not be empty"),
        (["cancel", "ev/status"], "NAME: the name of a Job or run 'ev/status' may have only a-z, 0-9, -"),
        (["wait", "grey", "--timeout", "soon"], "--timeout soon: write a time"),
        (["logs", "grey", "--index", "9-3"], "is not an index or a range"),
        (["scale", "grey"], "Missing option '-j'"),
        (["scale", "grey", "-j", "-1"], "not in the range"),
        (["retry", "grey", "--slices", "0"], "not in the range"),
        (["retry", "grey", "-n", ""], "--name must not be empty; is it a variable that is not set?"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], expected: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "") and expected in err and err.count("\n") == 1


def test_a_manifest_that_is_not_there(run: Run) -> None:
    for verb in ("status", "retry"):
        code, out, err = run(verb, "grey", "-f", "absent.yaml")
        assert (code, out) == (66, "") and "absent.yaml: no such file" in err


def test_a_manifest_answers_without_a_cluster(run: Run, manifest: Path) -> None:
    code, out, _ = run("status", "grey", "-f", manifest)
    assert code == 1
    assert "grey: from its done records alone" in out and "shards: 0 of 3 done, 3 missing, 0 failed" in out
    code, out, err = run("retry", "grey", "-f", manifest, "--slices", "2")
    assert code == 0 and "name: grey-r2\n" in out, err
    assert "whether it still runs is not known" in err and "0 of 3 shards done; 3 shards to retry" in err


def test_a_manifest_of_something_else(run: Run, manifest: Path) -> None:
    for verb in ("status", "retry"):
        code, _, err = run(verb, "other", "-f", manifest)
        assert code == 2 and "the manifest has no Job other; its Jobs: grey" in err


def test_the_client_is_not_installed(run: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "absent").write_text("{}")
    for name in [each for each in sys.modules if each.split(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    code, _, err = run("wait", "grey")
    assert code == 2 and "pip install 'kubernetes>=30' 'python-dateutil<3'" in err
    code, out, _ = run("status", "grey", "-f", manifest)
    assert code == 1 and "3 missing" in out


def test_records_without_known_inputs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code, out, _ = run("status", "grey", "-O", tmp_path / "out")
    assert code == 1 and "which shards there should be is not known; --shards names them" in out


def test_the_runs_of_a_folder_say_which_shards_there_should_be(run: Run, tmp_path: Path) -> None:
    RunRecord(InputSet(3, ("s3://b/x-{0..2}.tar",)), "w", "1", slices=3).publish(str(tmp_path / "out"), now=0)
    code, out, _ = run("status", "grey", "-O", tmp_path / "out")
    assert code == 1 and "0 done, 3 missing" in out
    assert "the shards are those of all runs that have a record in the folder" in out
    for name in ("x-0", "x-1", "x-2"):
        counts = {"in": 1, "out": 1}
        done = {"state": "done", "input": {"url": f"s3://b/{name}.tar"}, "work": "w", "tarkit": "1", "samples": counts}
        files = [{"path": "/app/s.sh", "sha256": "0"}]
        DoneRecord(**done, output={"size": 1}, files=files).publish(f"{tmp_path}/out/{name}.tar")
        (tmp_path / "out" / f"{name}.tar").write_bytes(b"x")
    code, out, _ = run("status", "grey", "-O", tmp_path / "out")
    assert code == 0 and "3 done, 0 missing" in out
    assert "files that the work uses are not compared for 3 shards: /app/s.sh is not on this machine" in out


def test_who_is_not_known_to_the_cluster_is_answered_from_the_records(
    run: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(401)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is to be said on stderr."""

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            config = tmp_path / "config"
            config.write_text(CONFIG.format(port=server.server_port))
            monkeypatch.setenv("KUBECONFIG", str(config))
            code, out, _ = run("status", "grey", "-f", manifest)
            assert code == 1 and "3 missing" in out and "log in again" in out
            for words in (["status", "grey"], ["wait", "grey"]):
                code, out, err = run(*words)
                assert (code, out) == (75, "") and "does not know who you are (401): log in again" in err
        finally:
            server.shutdown()
            thread.join()


def test_a_command_of_ones_own_keeps_no_records(run: Run, manifest: Path, tmp_path: Path) -> None:
    text = MANIFEST.format(out=tmp_path / "out")
    manifest.write_text(text.replace("[tarproc]", "[bash, -c]").replace("[--slice", "[tarproc, --slice"))
    code, _, err = run("status", "grey", "-f", manifest)
    assert code == 2 and "does not say where its records are (--raw?)" in err


def test_a_retry_waits_for_what_it_is_a_retry_of() -> None:
    def job(name: str, retry_of: str | None = None, **status: int) -> dict[str, Any]:
        notes = {} if retry_of is None else {"tarkit.dev/retry-of": retry_of}
        metadata = {"name": name, "labels": {"tarkit.dev/run": "grey"}, "annotations": notes}
        return {"metadata": metadata, "spec": {}, "status": {"conditions": [ENDED], **status}}

    chain = (job("grey"), job("grey-r2", "grey"), job("grey-r3", "grey-r2"))
    known = {each["metadata"]["name"]: each for each in chain}
    refuse_running("grey-r3", known, print)
    known["grey"] = job("grey", active=1)
    with pytest.raises(UsageError, match="grey, of the same shards, still runs; kubetpl wait grey"):
        refuse_running("grey-r3", known, print)
    # Others of the run that kubetpl jobs made have shards of their own; so have their retries.
    known["grey-r3"] = job("grey-r3")
    known["part-r2"], known["part"] = job("part-r2", "part", active=1), job("part")
    refuse_running("grey-r3", known, print)
    # Of what this one is a retry, nobody can tell any more.
    del known["part"]
    with pytest.raises(UsageError, match="part-r2, of the same shards, still runs"):
        refuse_running("grey-r3", known, print)


@pytest.fixture
def server(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """An API server whose answers are under METHOD and kind of the request.

    What is not there is forbidden.
    """
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = self.path.partition("?")[0].partition("/namespaces/default/")[2].partition("/")
            found = answers.get(f"{self.command} {kind[0]}{'/NAME' if kind[2] else ''}")
            content = json.dumps({"message": "no role"} if found is None else found).encode()
            self.send_response(403 if found is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is to be said on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        config = tmp_path / "config"
        config.write_text(CONFIG.format(port=http.server_port))
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield answers
        http.shutdown()
        thread.join()


def failed_job(manifest: Path) -> dict[str, Any]:
    (job,) = load_documents(manifest.read_text(), "grey.yaml")
    job["metadata"] |= {"uid": "U", "namespace": "default"}
    job["status"] = {"conditions": [ENDED]}
    return job


def test_a_retry_reports_that_pods_may_not_be_listed(run: Run, manifest: Path, server: dict[str, Any]) -> None:
    """Pods of a Job of this name that was deleted may be at work on the same shards."""
    job = failed_job(manifest)
    server |= {"GET jobs/NAME": job, "GET jobs": {"metadata": {}, "items": [job]}}
    code, out, err = run("retry", "grey")
    assert (code, "name: grey-r2\n" in out) == (0, True)
    assert "you may not list pods" in err
    assert "whether pods of a Job grey that was deleted still run is not known" in err
    server["GET pods"] = {"metadata": {}, "items": []}
    assert "is not known" not in run("retry", "grey")[2]
