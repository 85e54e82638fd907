"""What runs a command beside the shard service in pods of kubetpl train."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_for

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
        # Of the seconds of grace, which begin when the service has ended; and fewer tries to find it.
        (folder / "seq").write_text(
            f'#!/bin/sh\nif [ "$1" = 60 ]; then set -- 3; else : > {folder}/grace; fi\nexec /usr/bin/seq "$1"\n'
        )
        for name in ("sleep", "tarkit", "seq"):
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
        return code, self.kill()

    def kill(self) -> str:
        """End what is left of its session; what it printed to stderr."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate()[1]


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


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
    beside.begin(f"until [ -e {beside.folder}/grace ]; do /bin/sleep 0.02; done; exit 5", 1000)
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
    wait_for((beside.folder / "begun").exists)
    process.terminate()
    assert beside.result()[0] == 143
    assert (beside.folder / "saved").exists()


def test_an_image_without_tarkit_or_its_service_fails_at_once(beside: Beside) -> None:
    (beside.folder / "tarkit").write_text("#!/bin/sh\necho 'pip install grpcio' >&2; exit 2\n")
    beside.begin("exec /bin/sleep 1000", 1)
    assert beside.result() == (2, "pip install grpcio\n")
    (beside.folder / "tarkit").unlink()
    process = subprocess.run(
        ["/bin/bash", "-c", _BESIDE, "ps", "touch begun", "5"],
        env={"PATH": "/usr/bin:/bin"}, cwd=beside.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 127 and "is not in this image" in process.stderr
    assert not (beside.folder / "begun").exists()
