"""The processes of pods: each pod is a process group, and none outlives its runner.

A process that leaves its group, such as a daemon, is found in /proc by the variable MARK: on Linux
only. Run as a program, this module is the watchdog.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tarkit.store.childstart import signals_after_start

MARK = "TARKIT_LOCAL_POD"
"""Environment variable of a pod's processes: the folder of the pod."""
_LONGEST_EXEC = 100
"""Milliseconds to wait for a process that executes another program."""
_GRACE = 5.0
_TAIL_BYTES = 2048


class Process(NamedTuple):
    """A container as a process to start.

    Attributes:
        grace: seconds between SIGTERM and SIGKILL.
        sidecars: processes that run beside it.
    """

    words: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    grace: float
    sidecars: Sequence[Process] = ()


def marked(folder: str) -> list[int]:
    """Return the processes of the pods in a folder.

    The kernel hides the environment of a process while it executes another program; this is waited
    for. Such a process has an executable then, unlike a zombie.
    """
    wanted, found = os.fsencode(f"\0{MARK}={folder}/"), []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.exists("/proc") else ()):
        with suppress(OSError):
            content, tries = b"", 0
            while os.readlink(f"/proc/{name}/exe") and not content and tries < _LONGEST_EXEC:
                time.sleep(0.001 * bool(tries))
                with open(f"/proc/{name}/environ", "rb") as stream:
                    content, tries = stream.read(), tries + 1
            if wanted in b"\0" + content:
                found.append(int(name))
    return found


def signal_all(groups: Collection[int], folder: str | None, number: int) -> None:
    """Send a signal to process groups, and to the processes of the pods in a folder."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in () if folder is None else marked(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Watchdog:
    """A process that ends the pods when their runner is killed, by kill -9 or the OOM killer, too.

    It reads process groups from a pipe; when the pipe ends, it sends SIGTERM, and SIGKILL after
    five seconds. It keeps the lock of the state folder until then, so that no other run begins
    before.

    Args:
        lock: descriptor of the lock.
        pods: the folder with the folders of all pods.
    """

    def __init__(self, lock: int, pods: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, pods], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, bufsize=0, cwd="/", start_new_session=True, pass_fds=(lock,),
        )  # fmt: skip

    def watch(self, group: int, sign: str = "+") -> None:
        """Register a process group that the watchdog must end.

        Args:
            sign: "-" removes a group that has ended, since another process may soon have its
                number.
        """
        # Another process may have killed the watchdog: then the pods are only as safe as any
        # process is.
        with suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.write(f"{sign} {group}\n".encode("ascii"))

    def close(self) -> None:
        """Let the watchdog end the registered groups, and wait for its end."""
        self._process.communicate()


def _watch(folder: str) -> None:
    """Run the watchdog: read groups from standard input, and end those that are left at its end."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        sign, group = line.split()
        (groups.add if sign == "+" else groups.discard)(int(group))
    if groups:
        signal_all(groups, folder, signal.SIGTERM)
        time.sleep(_GRACE)
        signal_all(groups, folder, signal.SIGKILL)


class LocalPod:
    """A running pod.

    Poll it until it returns its exit code: for a signal 128 plus its number, as in a cluster.

    Args:
        log: path of its log.

    Attributes:
        began: when it was started.
        ending: it was asked to end.
    """

    def __init__(self, name: str, process: Process, log: str, watchdog: Watchdog, now: float) -> None:
        self.name, self.began, self._log, self._watchdog, self._grace = name, now, log, watchdog, process.grace
        self._folder = os.path.dirname(process.env[MARK])
        self.ending, self._kill_at = False, float("inf")
        self._all: list[subprocess.Popen[bytes]] = []
        for each in (*process.sidecars, process):
            with open(log if each is process else os.devnull, "wb") as stream, signals_after_start():
                self._all.append(subprocess.Popen(
                    each.words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=each.cwd,
                    env=each.env, start_new_session=True,
                ))  # fmt: skip
                watchdog.watch(self._all[-1].pid)

    def poll(self, now: float) -> int | None:
        """Return the exit code of the pod, or None while it runs.

        When it has ended, all of its processes are killed.
        """
        if now >= self._kill_at:
            signal_all(self._groups, None, signal.SIGKILL)
        status = self._all[-1].poll()
        if status is None:
            return None
        signal_all(self._groups, self._folder, signal.SIGKILL)
        for each in self._all:
            each.wait()
            self._watchdog.watch(each.pid, "-")
        return 128 - status if status < 0 else status

    def terminate(self, now: float) -> None:
        """Ask the processes to end; those that do not are killed after the grace period."""
        if not self.ending:
            self.ending, self._kill_at = True, now + self._grace
            signal_all(self._groups, None, signal.SIGTERM)

    @property
    def _groups(self) -> list[int]:
        return [each.pid for each in self._all]

    def last_line(self) -> str:
        """Return the last line of the log that is not empty."""
        with open(self._log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(self._log) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    _watch(sys.argv[1])
