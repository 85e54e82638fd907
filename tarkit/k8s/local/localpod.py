"""One pod as processes of this machine: init containers in turn, then its containers at once.

Each container is a process group (and session) of its own. Exit codes are as a kubelet gives them:
a signal is 128 plus its number, and so is 137 for more memory than the limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND
from tarkit.k8s.apiobject import Object, spec_of
from tarkit.k8s.local.kubelet import Process
from tarkit.k8s.local.policy import PodEnd
from tarkit.k8s.local.processes import MARK, Watchdog, memory_of, signal_group

_DEFAULT_GRACE = 30.0
_TAIL_BYTES = 2048
_TAIL_LINES = 80
_START_ERROR = 128


class Container:
    """A container that was started. reason: Completed, Error, OOMKilled or StartError, once exit_code is known."""

    def __init__(self, process: Process, log: str, watchdog: Watchdog) -> None:
        self.process = process
        self.log = log
        self.exit_code: int | None = None
        self.reason = ""
        self._watchdog = watchdog
        self._over_memory = False
        with open(log, "ab") as stream:
            try:
                self._popen = subprocess.Popen(
                    process.words,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    cwd=process.cwd,
                    env=process.env,
                    start_new_session=True,
                )
            except OSError as error:
                stream.write(f"{process.words[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
                known = {FileNotFoundError: EXIT_NOT_FOUND, PermissionError: EXIT_CANNOT_RUN}
                self.exit_code, self.reason = known.get(type(error), _START_ERROR), "StartError"
                return
        watchdog.watch(self._popen.pid)

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.exit_code is None

    def poll(self) -> None:
        """Look whether it ended; whatever it left behind ends with it."""
        if not self.alive or not _has_ended(self._popen):
            return
        # Before it is reaped, no other process can have this number.
        signal_group(self._popen.pid, signal.SIGKILL, self.process.env[MARK])
        code = self._popen.wait()
        self.exit_code = 128 - code if code < 0 else code
        killed = self._over_memory and code == -signal.SIGKILL
        self.reason = "OOMKilled" if killed else "Error" if code else "Completed"
        self._watchdog.forget(self._popen.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send it to all its processes."""
        if self.alive:
            signal_group(self._popen.pid, number)

    def check_memory(self, table: Mapping[int, tuple[int, int]]) -> None:
        """End it if it has more memory than its limit, as the kernel does in a cluster. table: all processes."""
        limit = self.process.memory
        if limit is not None and self.alive and memory_of(self._popen.pid, limit, table) > limit:
            self._over_memory = True
            self.signal(signal.SIGKILL)


def _has_ended(popen: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return popen.poll() is not None
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


class LocalPod:
    """A pod that runs. Poll it until it gives its end.

    Args:
        pod: its name, grace and deadline count. processes: its containers in order. log_of: container's name -> path
            of its log.
    """

    def __init__(
        self, pod: Object, processes: Sequence[Process], log_of: Callable[[str], str], watchdog: Watchdog, now: float
    ) -> None:
        self.name = str(pod["metadata"]["name"])
        self.containers: list[Container] = []
        self._mains = [each for each in processes if each.role == "main"]
        self._log_of = log_of
        self._watchdog = watchdog
        grace, deadline = (spec_of(pod).get(key) for key in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"))
        self._grace = _DEFAULT_GRACE if grace is None else float(grace)
        self._deadline = float("inf") if deadline is None else now + deadline
        self._kill_at: float | None = None
        self._begin_at = now
        # What is started together; init containers end a step, as they are waited for.
        self._steps: deque[list[Process]] = deque([[]])
        for each in processes:
            self._steps[-1].append(each)
            if each.role == "init":
                self._steps.append([])

    def poll(self, now: float) -> PodEnd | None:
        """Start what is due; its end, once all has ended."""
        if now < self._begin_at and self._kill_at is None:
            return None
        for container in self.containers:
            container.poll()
        if now >= self._deadline:
            self.terminate(now)
        if self._kill_at is not None and now >= self._kill_at:
            self.kill()
        inits = [each for each in self.containers if each.process.role == "init"]
        goes_on = self._kill_at is None and not any(each.exit_code for each in inits)
        if goes_on and self._steps and not any(each.alive for each in inits):
            for process in self._steps.popleft():
                self.containers.append(Container(process, self._log_of(process.name), self._watchdog))
        return None if goes_on and self._steps else self._end(now)

    def _end(self, now: float) -> PodEnd | None:
        alive = {each.process.role for each in self.containers if each.alive}
        if alive == {"sidecar"}:
            self.terminate(now)
        if alive:
            return None
        # Of a container that was started again, the last end counts.
        mains_first = sorted(self.containers, key=lambda each: each.process.role != "main")
        ends = {each.process.name: each.exit_code or 0 for each in mains_first if each.process.role != "sidecar"}
        return PodEnd(self.name, ends or {"": 128 + signal.SIGTERM})

    def restart(self, now: float, delay: float) -> None:
        """Start its containers again in a while, in the same folders."""
        self._steps.append(self._mains)
        self._begin_at = now + delay
        self._kill_at = None

    def terminate(self, now: float) -> None:
        """Ask all processes to end; those that do not are killed after the time of grace."""
        if self._kill_at is None:
            self._kill_at = now + self._grace
            for container in self.containers:
                container.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all processes now."""
        for container in self.containers:
            container.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill what is alive, and wait for it: nothing is left of the pod afterwards."""
        self.kill()
        for container in self.containers:
            while container.alive:
                container.poll()

    @property
    def failed(self) -> Container | None:
        """The last container that failed."""
        return next((each for each in reversed(self.containers) if each.exit_code), None)


def last_words(log: str) -> str:
    """The end of a log, as it goes to a pod's status: at most 80 lines and 2048 bytes."""
    with open(log, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        text = stream.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
