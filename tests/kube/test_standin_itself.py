"""The stand-in: that it starts by hand, leaves nothing behind, and says so where it can not do a thing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiresources import JOBS, PODS
from apistore import Json
from kubecluster import PATIENCE
from kubejobs import condition, job
from kubestandin import Standin
from podsandbox import MemoryGroup, Sandbox

pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")

HERE = Path(__file__).resolve().parent


def until(standin: Standin, name: str) -> Json:
    """The Job once it has ended."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = standin.store.get(JOBS, "default", name)
        if condition(found, "Complete") or condition(found, "Failed"):
            return found
        time.sleep(0.02)
    raise AssertionError(f"{name} did not end: {found['status']}, {standin.failures}")


def reasons(standin: Standin) -> set[str]:
    from apiresources import EVENTS

    return {one["reason"] for one in standin.store.items(EVENTS)[0]}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Standin]:
    started = Standin(tmp_path, [])
    try:
        yield started
    finally:
        started.stop()
    assert started.failures == []


def test_it_can_be_started_by_hand(tmp_path: Path, kubectl_program: str) -> None:
    config = tmp_path / "config"
    command = [sys.executable, str(HERE / "apiserver.py"), "--kubeconfig", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        env = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": "/usr/bin:/bin"}
        listed = subprocess.run([kubectl_program, "get", "ns"], env=env, text=True, capture_output=True, check=True)
        assert "kube-system   Active" in listed.stdout
        server.terminate()
        assert server.stdout.read() == ""
    assert server.returncode == 0


def test_stopping_leaves_no_thread_no_process_and_no_mount(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    started = Standin(tmp_path, [])
    mark = f"{3000 + time.time_ns() % 10**6}.25"
    started.api.create(
        JOBS, "default", job("left", f"(setsid sleep {mark} &); sleep {mark}", completions=3, parallelism=3)
    )
    ends = time.monotonic() + PATIENCE
    while len(_processes(mark)) < 6 and time.monotonic() < ends:
        time.sleep(0.02)
    assert len(_processes(mark)) >= 6
    started.stop()
    assert started.failures == []
    assert set(threading.enumerate()) <= before
    assert _processes(mark) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list((tmp_path / "pods").glob("*")) == []


def _processes(mark: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(str(file))
    return found


def test_its_controllers_lose_nothing_when_clients_must_list_again(own: Standin) -> None:
    for name in ("first", "second"):
        with own.store.lock:
            own.api.create(JOBS, "default", job(name, "true"))
            own.store.compact()
        assert condition(until(own, name), "Complete")


def test_without_cgroups_memory_is_polled(own: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryGroup, "_V1", Path("/nowhere"))
    monkeypatch.setattr(MemoryGroup, "_V2", Path("/nowhere"))
    hog = "import time; kept = bytearray(300_000_000); time.sleep(1000)"
    container = {"command": [sys.executable, "-c", hog], "resources": {"limits": {"memory": "128Mi"}}}
    own.api.create(JOBS, "default", job("hog", "", backoffLimit=0, container=container))
    assert condition(until(own, "hog"), "Failed")
    ended = own.store.items(PODS)[0][0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_chroot_is_found_by_ordinary_users_of_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their PATH has no sbin."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    sandbox = Sandbox(tmp_path, [], [], "host", False, "/dev/termination-log")
    last = sandbox.script(["true"], {}, "/", "").splitlines()[-1].split()
    assert (last[0], Path(last[1]).name) == ("exec", "chroot")
    assert shutil.which(last[1])


def test_without_mounts_a_pod_with_volumes_is_refused_and_others_run(own: Standin) -> None:
    own.kubelet.unshare = None
    own.api.create(
        JOBS, "default", job("plain", "test $JOB_COMPLETION_INDEX = 0", completionMode="Indexed", completions=1)
    )
    assert condition(until(own, "plain"), "Complete")
    pod = {"volumes": [{"name": "s", "emptyDir": {}}], "terminationGracePeriodSeconds": 0}
    container = {"volumeMounts": [{"name": "s", "mountPath": "/scratch"}]}
    own.api.create(JOBS, "default", job("mounted", "true", pod=pod, container=container))
    ends = time.monotonic() + PATIENCE
    while "FailedMount" not in reasons(own) and time.monotonic() < ends:
        time.sleep(0.02)
    assert "FailedMount" in reasons(own)
    assert own.store.get(JOBS, "default", "mounted")["status"]["active"] == 1
