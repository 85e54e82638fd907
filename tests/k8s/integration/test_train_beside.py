"""What runs in pods of kubetpl train: a command, in an image that has no more than a shell, and a
sidecar that looks at the shard service.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_for

from tarkit.k8s.templates import read_template, template_path

SHELLS = [found for name in ("dash", "bash", "busybox") if (found := shutil.which(name))]


POD = read_template(template_path("train"))[-1]["spec"]["template"]["spec"]
WATCH, MAIN = (POD[each][0]["command"][2] for each in ("initContainers", "containers"))


class Pod:
    """The scripts of both containers, which share a folder.

    The image has a shell and nothing else; the sidecar's has a tarkit whose watch ends with a code
    as soon as a file has it.
    """

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shared, self.shell = folder, folder / "shared" / "end", shell
        for name in ("shared", "bin", "image"):
            (folder / name).mkdir()
        (folder / "image" / "sh").symlink_to(shell)
        self.tool(
            "tarkit", f'echo "$*" > asked; until [ -s {folder}/over ]; do /bin/sleep 0.02; done; exit $(cat over)'
        )
        self.tool(
            "sleep", f'[ "$1" != 60 ] || : > {folder}/grace; exec /bin/sleep "$(echo "$1" | sed "s/^[136].*/0.1/")"'
        )
        self.processes: list[subprocess.Popen[str]] = []

    def tool(self, name: str, script: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def watch(self, *, grace: str = "60") -> subprocess.Popen[str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return self._start(WATCH, path, "iris-shards:1", "ps-0", str(self.shared), grace)

    def main(self, command: str, *, alone: bool = False) -> subprocess.Popen[str]:
        return self._start(MAIN, str(self.folder / "image"), command, *([] if alone else [str(self.shared)]))

    def _start(self, script: str, path: str, *words: str) -> subprocess.Popen[str]:
        self.processes.append(subprocess.Popen(
            [self.folder / "image" / "sh", "-c", script, "pod", *words], env={"PATH": path}, cwd=self.folder, text=True,
            stderr=subprocess.PIPE, start_new_session=True,
        ))  # fmt: skip
        return self.processes[-1]

    def end_service(self, code: int) -> None:
        (self.folder / "now").write_text(str(code))
        os.replace(self.folder / "now", self.folder / "over")

    def result(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        # What a script leaves behind ends with its container; here its pipe must not be waited for.
        code = process.wait(timeout=60)
        self.kill(process)
        return code, process.communicate()[1]

    def kill(self, process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(params=SHELLS)
def pod(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pod]:
    made = Pod(tmp_path, request.param)
    yield made
    for each in made.processes:
        made.kill(each)
        if each.stderr is not None and not each.stderr.closed:
            each.communicate()


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_that_ends_first_decides(pod: Pod, code: int) -> None:
    pod.watch()
    assert pod.result(pod.main(f"exit {code}")) == (code, "")
    assert pod.result(pod.main(f"exit {code}", alone=True)) == (code, "")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_that_never_ends_is_ended_after_the_service(pod: Pod, code: int) -> None:
    main = pod.main("exec /bin/sleep 1000")  # the sidecar may be later
    pod.watch()
    pod.end_service(code)
    assert pod.result(main) == (0, "")
    assert (pod.folder / "asked").read_text() == "serve --watch iris-shards:1 --as ps-0 --quiet\n"
    # A container that is started again in its pod, too.
    assert pod.result(pod.main("exec /bin/sleep 1000")) == (0, "")


def test_a_command_has_its_time_after_the_service(pod: Pod) -> None:
    pod.watch(grace="100")
    main = pod.main(f"until [ -s {pod.shared}.code ]; do /bin/sleep 0.02; done; echo model > model")
    pod.end_service(0)
    assert pod.result(main) == (0, "")
    assert (pod.folder / "model").exists()


def test_a_command_that_fails_after_the_service_says_so(pod: Pod) -> None:
    pod.watch(grace="1000")
    main = pod.main(f"until [ -s {pod.shared}.code ]; do /bin/sleep 0.02; done; exit 5")
    pod.end_service(0)
    assert pod.result(main) == (0, "the command ended with 5 after all was handed out\n")


@pytest.mark.parametrize("code", [2, 75])
def test_a_service_that_never_comes_or_cannot_be_asked_is_a_failure(pod: Pod, code: int) -> None:
    pod.watch()
    pod.end_service(code)
    assert pod.result(pod.main("exec /bin/sleep 1000"))[0] == code


def test_a_pod_that_is_taken_away_waits_for_its_command(pod: Pod) -> None:
    main = pod.main(
        f"trap '/bin/sleep 0.3; echo saved > {pod.folder}/saved; exit 0' TERM; echo > {pod.folder}/begun; "
        "while :; do /bin/sleep 0.05; done"
    )
    wait_for((pod.folder / "begun").exists)
    main.terminate()
    assert pod.result(main)[0] == 143
    assert (pod.folder / "saved").exists()


def test_a_sidecar_that_is_ended_still_learns_of_the_end(pod: Pod) -> None:
    """The command beside it has ended since all is done.

    The service waits until the sidecar knows, too.
    """
    pod.tool("tarkit", "trap 'exit 9' TERM; echo > begun; until [ -e seen ]; do /bin/sleep 0.01; done; echo > told")
    watch = pod.watch()
    wait_for((pod.folder / "begun").exists)
    pod.tool("sleep", ": > seen; until [ -e told ]; do /bin/sleep 0.01; done")
    watch.terminate()
    assert watch.wait(60) == 143
    assert (pod.folder / "told").exists()


def test_a_command_has_the_shell_s_rules_that_its_image_has(pod: Pod) -> None:
    """pipefail, where the image has a shell that knows it: one without is not told of a failure in
    a pipe.
    """
    (pod.folder / "image" / "bash").symlink_to(shutil.which("bash") or "")
    assert pod.result(pod.main("exit 7 | exit 0", alone=True)) == (7, "")
    (pod.folder / "image" / "bash").unlink()
    knows = subprocess.run(
        [pod.folder / "image" / "sh", "-o", "pipefail", "-c", ":"], stderr=subprocess.DEVNULL, check=False
    )
    assert pod.result(pod.main("exit 7 | exit 0", alone=True)) == (0 if knows.returncode else 7, "")
