"""The stand-in: that it starts by hand, leaves nothing behind, and says so where it cannot do a thing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apideletion
import apiserver
import pytest
from apiresources import JOBS, PODS
from apiservice import Manner
from apistore import Json
from kubecluster import PATIENCE
from kubejobs import condition, job
from kubestandin import Standin
from podrun import PodRun
from podsandbox import MemoryGroup, Sandbox

pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")

HERE = Path(__file__).resolve().parent


def wait(question: Callable[[], Any], standin: Standin) -> None:
    """Until the answer is true."""
    ends = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < ends, f"not within {PATIENCE} s: {standin.failures}"
        time.sleep(0.02)


def until(standin: Standin, name: str) -> Json:
    """The Job once it has ended."""

    def ended() -> bool:
        found = standin.store.get(JOBS, "default", name)
        return any(condition(found, kind) for kind in ("Complete", "Failed"))

    wait(ended, standin)
    return standin.store.get(JOBS, "default", name)


def reasons(standin: Standin) -> set[str]:
    from apiresources import EVENTS

    return {one["reason"] for one in standin.store.items(EVENTS)[0]}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Standin]:
    started = Standin(tmp_path, [tmp_path])
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
        try:
            assert server.stdout.readline().startswith("http://127.0.0.1:")
            env = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": "/usr/bin:/bin"}
            listed = subprocess.run([kubectl_program, "get", "ns"], env=env, text=True, capture_output=True, check=True)
            assert "kube-system   Active" in listed.stdout
        finally:
            server.terminate()
        assert server.stdout.read() == ""
    assert server.returncode == 0


def test_stopping_leaves_no_thread_no_process_and_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its own threads, and all that those start: the cluster of other tests may start some meanwhile.
    ours, start = {threading.current_thread()}, threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() in ours:
            ours.add(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    started = Standin(tmp_path, [])
    mark = f"{3000 + time.time_ns() % 10**6}.25"
    started.api.create(
        JOBS, "default", job("left", f"(setsid sleep {mark} &); sleep {mark}", completions=3, parallelism=3)
    )
    try:
        wait(lambda: len(_processes(mark)) >= 6, started)
    finally:
        started.stop()
    assert started.failures == []
    # Server, controller, collector, kubelet; and of each pod one, one for its container, one that reads its output.
    assert len(ours) >= 1 + 4 + 3 * 3
    assert [thread for thread in ours if thread.is_alive()] == [threading.current_thread()]
    assert _processes(mark) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list((tmp_path / "pods").glob("*")) == []


def test_stopping_hangs_up_on_who_has_only_just_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Standin(tmp_path, [])
    server, setup = started.server._server, apiserver._Handler.setup
    hang_up, accepted, hung_up = server.hang_up, threading.Event(), threading.Event()

    def late(handler: apiserver._Handler) -> None:
        """The thread of a connection begins when all have been hung up on."""
        if handler.server is server:
            accepted.set()
            hung_up.wait(PATIENCE)
        setup(handler)

    monkeypatch.setattr(apiserver._Handler, "setup", late)
    monkeypatch.setattr(server, "hang_up", lambda: (hang_up(), hung_up.set()))
    stopping = threading.Thread(target=started.stop)
    with socket.create_connection(server.server_address[:2]):
        assert accepted.wait(PATIENCE)
        stopping.start()
        stopping.join(60)
        stopped = not stopping.is_alive()
    stopping.join()
    assert stopped and started.failures == []


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


def test_a_pod_that_ends_just_as_it_is_deleted_goes(
    own: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = PodRun.stop

    def late(run: PodRun, grace: float, abandon: bool = False) -> None:
        """The kubelet has seen the deletion, and says so to a run that has ended."""
        (tmp_path / "go").touch()
        run.join()
        stop(run, grace, abandon)

    monkeypatch.setattr(PodRun, "stop", late)
    main = {"name": "main", "image": "busybox:1", "command": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do :; done"]}
    pod = {"metadata": {"name": "brief"}, "spec": {"restartPolicy": "Never", "containers": [main]}}
    own.api.create(PODS, "default", pod)
    wait(lambda: own.store.get(PODS, "default", "brief")["status"]["phase"] == "Running", own)
    apideletion.delete(own.api, PODS, "default", "brief", {}, Manner())
    wait(lambda: own.store.find(PODS, "default", "brief") is None, own)


def test_controllers_go_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Standin(tmp_path, [])
    collect, broken = apideletion.collect, ["controller", "scheduler", "collector"]

    def once(name: str, work: Callable[[], Any]) -> Any:
        if name in broken:
            broken.remove(name)
            raise ValueError(f"{name} for once")
        return work()

    touched, schedule = started.controller._touched, started.kubelet.scheduler.schedule
    monkeypatch.setattr(started.controller, "_touched", lambda *args: once("controller", lambda: touched(*args)))
    monkeypatch.setattr(started.kubelet.scheduler, "schedule", lambda: once("scheduler", schedule))
    monkeypatch.setattr(
        apideletion,
        "collect",
        lambda api: once("collector", lambda: collect(api)) if api is started.api else collect(api),
    )
    try:
        pod = {"terminationGracePeriodSeconds": 0}
        started.api.create(JOBS, "default", job("long", "sleep 600", pod=pod))
        wait(lambda: any(one["status"]["phase"] == "Running" for one in started.store.items(PODS)[0]), started)
        apideletion.delete(started.api, JOBS, "default", "long", {"propagationPolicy": "Background"}, Manner())
        wait(lambda: not started.store.items(PODS)[0], started)
    finally:
        started.stop()
    assert sorted(one.rpartition(": ")[2] for one in started.failures) == [
        "collector for once", "controller for once", "scheduler for once",
    ]  # fmt: skip


def test_without_cgroups_memory_is_polled(own: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryGroup, "_V1", Path("/nowhere"))
    monkeypatch.setattr(MemoryGroup, "_V2", Path("/nowhere"))
    hog = "import time; kept = bytearray(300_000_000); time.sleep(1000)"
    container = {"command": [sys.executable, "-c", hog], "resources": {"limits": {"memory": "128Mi"}}}
    own.api.create(JOBS, "default", job("hog", "", backoffLimit=0, container=container))
    assert condition(until(own, "hog"), "Failed")
    ended = own.store.items(PODS)[0][0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_a_mount_that_is_gone_keeps_no_pod_from_running(own: Standin) -> None:
    """Another test's mount, while this cluster started, say."""
    own.kubelet.other_mounts.append("/not/there/any/more")
    own.api.create(JOBS, "default", job("mounts", "true", backoffLimit=0))
    assert condition(until(own, "mounts"), "Complete")


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
    wait(lambda: "FailedMount" in reasons(own), own)
    assert own.store.get(JOBS, "default", "mounted")["status"]["active"] == 1
