"""What runs a command beside the shard service in pods of kubetpl train; and requests to scale a run here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.errors import UsageError
from tarkit.k8s.local.state import SCALE, StateFolder, ask_to_scale
from tarkit.k8s.train.job import _BESIDE


class Beside:
    """The script, with a tarkit on PATH whose watch ends with a code as soon as a file has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sleep").write_text('#!/bin/sh\nexec /bin/sleep "$(echo "$1" | sed "s/^[12]$/0.02/")"\n')
        (folder / "tarkit").write_text(
            f'#!/bin/sh\n[ "$1 $2 $3" = "serve --watch iris-shards:1" ] || exit 9\n'
            f"until [ -s {folder}/over ]; do /bin/sleep 0.02; done\nexit $(cat {folder}/over)\n"
        )
        for name in ("sleep", "tarkit"):
            (folder / name).chmod(0o755)
        self.process: subprocess.Popen[str] | None = None

    def begin(self, command: str, grace: int = 5) -> subprocess.Popen[str]:
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "DLROVER_MASTER_ADDR": "iris-shards:1"}
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", _BESIDE, "ps", command, str(grace)],
            env=env, cwd=self.folder, text=True, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        return self.process

    def end(self, code: int) -> None:
        (self.folder / "now").write_text(str(code))
        os.replace(self.folder / "now", self.folder / "over")

    def result(self) -> tuple[int, str]:
        assert self.process is not None
        # What the script leaves behind ends with its pod; here its pipe must not be waited for.
        code = self.process.wait(timeout=60)
        os.killpg(self.process.pid, signal.SIGKILL)
        return code, self.process.communicate()[1]


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.communicate()


@pytest.fixture(autouse=True)
def _nothing_left_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that has ended wholly is nothing to kill."""
    kill = os.killpg

    def quietly(group: int, number: int) -> None:
        try:
            kill(group, number)
        except ProcessLookupError:
            return

    monkeypatch.setattr(os, "killpg", quietly)


@pytest.mark.parametrize("wait", ["", "/bin/sleep 0.3; "])
@pytest.mark.parametrize("code", [0, 7])
def test_a_command_that_ends_first_decides(beside: Beside, code: int, wait: str) -> None:
    # Before the script waits for it, or after.
    beside.begin(f"{wait}exit {code}")
    assert beside.result()[0] == code


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_that_never_ends_is_ended_after_the_service(beside: Beside, code: int) -> None:
    beside.begin("exec /bin/sleep 1000")
    beside.end(code)
    assert beside.result() == (0, "")


def test_a_command_has_its_time_after_the_service(beside: Beside) -> None:
    beside.begin(f"until [ -s {beside.folder}/over ]; do /bin/sleep 0.02; done; echo model > model", 100)
    beside.end(0)
    assert beside.result() == (0, "")
    assert (beside.folder / "model").exists()


def test_a_command_that_fails_after_the_service_says_so(beside: Beside) -> None:
    beside.begin(f"until [ -s {beside.folder}/over ]; do /bin/sleep 0.02; done; /bin/sleep 0.8; exit 5", 1000)
    beside.end(0)
    assert beside.result() == (0, "the command ended with 5 after all was handed out\n")


def test_a_service_that_never_comes_is_a_failure_for_now(beside: Beside) -> None:
    (beside.folder / "over").write_text("75")
    beside.begin("exec /bin/sleep 1000", 1)
    assert beside.result()[0] == 75


def test_a_pod_that_is_taken_away_waits_for_its_command(beside: Beside) -> None:
    process = beside.begin(
        f"trap 'sleep 0.3; echo saved > {beside.folder}/saved; exit 0' TERM; echo > {beside.folder}/begun; "
        "while :; do sleep 0.05; done"
    )
    until = time.monotonic() + 30
    while not (beside.folder / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    process.terminate()
    assert beside.result()[0] == 143
    assert (beside.folder / "saved").exists()


def test_requests_to_scale_reach_elastic_jobs_alone(tmp_path: Path) -> None:
    with StateFolder(str(tmp_path / "s"), "digest") as state:
        os.makedirs(state.logs, exist_ok=True)
        state.offer(["iris-worker"])
        for name in ("iris-ps", "iris"):
            with pytest.raises(UsageError, match=r"no elastic Job .*; it has iris-worker"):
                ask_to_scale(state.folder, name, 2)
        ask_to_scale(state.folder, "iris-worker", 3)
        assert state.scaled() == {"iris-worker": 3}
        assert state.scaled() == {}
        for garbage in (b"", b"{", b"[1]", b'{"iris-worker": "x"}', b'{"iris-worker": -1}', b"\xff\xfe"):
            Path(state.folder, SCALE).write_bytes(garbage)
            assert state.scaled() == {}
    with pytest.raises(UsageError):
        ask_to_scale(state.folder, "iris-worker", 2)
