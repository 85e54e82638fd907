"""``kubetpl lint`` as a program: what is printed where, exit codes, and what kubectl says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KUBETPL = shutil.which("kubetpl", path=os.path.dirname(sys.executable)) or "kubetpl"
DATA = Path(__file__).resolve().parent / "data"
GOOD = (DATA / "k8s_verdicts.indexed.yaml").read_text(encoding="utf-8")
BAD = GOOD.replace("limits: {memory: 4Gi", "limits: {memory: 4GB")


def run(*argv: str, stdin: str | None = None, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": path} if path is not None else None
    words = [KUBETPL, "lint", *argv]
    return subprocess.run(words, input=stdin or "", capture_output=True, text=True, timeout=300, check=False, env=env)


def kubectl_that(folder: Path, script: str) -> str:
    """A PATH on which a kubectl of ours comes first."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_good_manifests(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)
    shutil.copy(DATA / "k8s_verdicts.others.yaml", tmp_path / "others.yaml")
    done = run(str(tmp_path / "job.yaml"), str(tmp_path / "others.yaml"), "--no-schema")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "kubetpl: 7 documents checked (1 ConfigMap, 1 CronJob, 1 Deployment, 1 Job, 1 JobSet, 1 Secret, "
        "1 Service), 0 errors\n"
    )


def test_bad_manifests_from_standard_input() -> None:
    done = run("-", stdin=BAD)
    assert done.returncode == 2
    assert done.stdout == (
        "-: error: job/imgnet-ppm: spec.template.spec.containers[0].resources.limits.memory: 4GB is not a quantity: "
        "write 4G (10^9 bytes) or 4Gi (2^30 bytes); change --memory\n"
    )
    assert run(stdin=BAD).stdout == done.stdout


def test_warnings_are_no_errors() -> None:
    done = run(stdin=GOOD.replace("parallelism: 128", "parallelism: 4"))
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("-: warning: job/imgnet-ppm: metadata.annotations")


def test_json() -> None:
    done = run("--json", stdin=BAD)
    assert json.loads(done.stdout) == {
        "file": "-",
        "severity": "error",
        "where": "job/imgnet-ppm spec.template.spec.containers[0].resources.limits.memory",
        "sentence": "4GB is not a quantity: write 4G (10^9 bytes) or 4Gi (2^30 bytes)",
        "flag": "--memory",
    }


def test_yaml_that_kubectl_reads_otherwise() -> None:
    """Plain words that are numbers and truth values to kubectl, and a text that is a number to other parsers."""
    pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
    data = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n"
    for word in ("y", "n", "N", "1e10", "0o17", "08"):
        done = run(stdin=f"{data}  a: {word}\n")
        assert (done.returncode, "data.a: " in done.stdout, "quotes" in done.stdout) == (2, True, True), word
    assert run(stdin=f"{data}  a: 12:30\n").stdout == ""
    done = run("--no-schema", stdin=f"{data}  on: a\n  1e3: b\n  1e3: b\n")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "-: warning: line-5: the key on is 'true' to kubectl; put it in quotes",
            "-: warning: line-6: the key 1e3 is '1000' to kubectl; put it in quotes",
            "-: warning: line-7: the key 1e3 is '1000' to kubectl; put it in quotes",
            "-: warning: line-7: the key '1000' comes twice; the last one counts, leave out the others",
        ],
    )


def test_the_schema_knows_the_fields_of_all_kinds() -> None:
    pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\nspec: {acessModes: [ReadWriteOnce]}\n"
    done = run(stdin=claim)
    assert done.returncode == 2
    assert done.stdout == (
        "-: error: persistentvolumeclaim/x: spec.acessModes: no such field; did you mean accessModes?\n"
    )
    assert run("--no-schema", stdin=claim).returncode == 0
    # What the rules and the schema both find is said once.
    assert run(stdin=GOOD.replace("completions: 1282", "complettions: 1282")).stdout.count("complettions") == 1


def test_the_version_counts() -> None:
    new = GOOD.replace("spec:\n", "spec:\n  scheduling: {}\n", 1)
    assert run("--kube-version", "1.33", stdin=new).returncode == 2
    assert run("--kube-version", "1.37", stdin=new).returncode == 0
    # Of a cluster that is not known, it is not known whether it refuses this.
    done = run(stdin=new)
    assert (done.returncode, done.stdout) == (
        0,
        "-: warning: job/imgnet-ppm: spec.scheduling: in Kubernetes 1.33: no such field; leave it out\n",
    )
    done = run("--kube-version", "newest", stdin=new)
    assert done.returncode == 2
    assert done.stderr == "kubetpl: newest is not a version of Kubernetes; write for example 1.33\n"


def test_files_that_are_none(tmp_path: Path) -> None:
    done = run(str(tmp_path / "missing.yaml"))
    assert done.returncode == 66
    assert done.stderr.endswith("missing.yaml: no such file\n")
    assert run(str(tmp_path)).returncode == 1
    (tmp_path / "latin.yaml").write_bytes(b"kind: \xff")
    done = run(str(tmp_path / "latin.yaml"))
    assert (done.returncode, "this is not UTF-8" in done.stderr) == (2, True)
    (tmp_path / "empty.yaml").write_text("---\n")
    done = run(str(tmp_path / "empty.yaml"))
    assert (done.returncode, "it has no manifest in it" in done.stderr) == (2, True)


def test_without_kubectl(tmp_path: Path) -> None:
    done = run("--server", stdin=GOOD, path=str(tmp_path))
    assert done.returncode == 127
    assert done.stderr == (
        "kubetpl: --server needs kubectl, and there is none on the PATH; install it, or leave out --server\n"
    )


def test_what_the_server_says(tmp_path: Path) -> None:
    path = kubectl_that(
        tmp_path,
        'echo "$@" >"$(dirname "$0")/asked"; cat >"$(dirname "$0")/manifest"\n'
        "echo 'Warning: would violate PodSecurity' >&2\n"
        "echo 'The Job \"imgnet-ppm\" is invalid: spec.x: Forbidden' >&2; exit 1",
    )
    done = run("--server", "-N", "lab", "--context", "here", stdin=GOOD, path=path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "-: warning: server: Warning: would violate PodSecurity",
        '-: error: server: The Job "imgnet-ppm" is invalid: spec.x: Forbidden',
    ]
    words = (tmp_path / "asked").read_text().split()
    assert words[:2] == ["apply", "--dry-run=server"] and words[-2:] == ["-f", "-"]
    assert {"--namespace=lab", "--context=here"} <= set(words)
    assert (tmp_path / "manifest").read_text() == GOOD


def test_a_server_that_takes_it(tmp_path: Path) -> None:
    done = run("--server", stdin=GOOD, path=kubectl_that(tmp_path, "cat >/dev/null; echo job.batch/x created"))
    assert (done.returncode, done.stdout) == (0, "")


def test_kubectl_that_fails_in_silence(tmp_path: Path) -> None:
    done = run("--server", stdin=GOOD, path=kubectl_that(tmp_path, "cat >/dev/null; exit 3"))
    assert done.returncode == 2
    assert done.stdout == "-: error: server: kubectl ended with exit code 3 and no message\n"


def test_a_server_that_is_not_there(tmp_path: Path, kubectl_program: str) -> None:
    """No server has judged the manifest, so it is neither good nor bad, and a later try may help."""
    pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    path = f"{Path(kubectl_program).parent}:{os.environ['PATH']}"
    done = run("--server", "--kubeconfig", str(tmp_path / "config"), stdin=GOOD, path=path)
    assert done.returncode == 75
    assert done.stdout == ""
    assert done.stderr == (
        "kubetpl: no server has looked at the manifests: dial tcp 127.0.0.1:1: connect: connection refused\n"
    )
