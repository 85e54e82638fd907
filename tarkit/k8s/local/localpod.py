"""One pod as processes of this machine: init containers in turn, then its containers at once.

Each container is a process group (and session) of its own. Exit codes are as a kubelet gives them:
a signal is 128 plus its number, and so is 137 for more memory than the limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND
from tarkit.k8s.local.localjob import Process
from tarkit.k8s.local.policy import PodEnd
from tarkit.k8s.local.processes import MARK, ProcessTable, Watchdog, marked, memory_of, send

DEFAULT_GRACE = 30.0
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
        self._popen: subprocess.Popen[bytes] | None = None
        with open(log, "ab") as stream:
            try:
                self._start(stream)
            except OSError as error:
                stream.write(f"{process.words[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
                known = {FileNotFoundError: EXIT_NOT_FOUND, PermissionError: EXIT_CANNOT_RUN}
                self._ended(known.get(type(error), _START_ERROR), "StartError")

    def _start(self, stream: IO[bytes]) -> None:
        popen = subprocess.Popen(
            self.process.words,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=self.process.cwd,
            env=self.process.env,
            start_new_session=True,
        )
        self._popen = popen
        self._watchdog.began(popen.pid)

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.exit_code is None

    def poll(self) -> bool:
        """Look whether it ended; whatever it left behind ends with it."""
        popen = self._popen
        if popen is None or self.exit_code is not None or not _has_ended(popen):
            return self.exit_code is not None
        # Before it is reaped, no other process can have this number.
        send(popen.pid, marked(self.process.env[MARK]), signal.SIGKILL)
        code = popen.wait()
        code = 128 - code if code < 0 else code
        killed = self._over_memory and code == 128 + signal.SIGKILL
        self._ended(code, "OOMKilled" if killed else "Error" if code else "Completed")
        return True

    def signal(self, number: signal.Signals, processes: ProcessTable | None = None) -> None:
        """Send it to all its processes."""
        if self.alive and self._popen is not None:
            send(self._popen.pid, () if processes is None else processes.of(self._popen.pid), number)

    def check_memory(self, processes: ProcessTable) -> None:
        """End it if it has more memory than its limit, as the kernel does in a cluster."""
        limit = self.process.memory
        if limit is None or self._popen is None or not self.alive:
            return
        pids = processes.of(self._popen.pid)
        if memory_of(pids, limit) > limit:
            self._over_memory = True
            send(self._popen.pid, pids, signal.SIGKILL)

    def _ended(self, code: int, reason: str) -> None:
        self.exit_code, self.reason = code, reason
        if self._popen is not None:
            self._watchdog.ended(self._popen.pid)


def _has_ended(popen: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return popen.poll() is not None
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


class LocalPod:
    """A pod that runs. Poll it until it gives its end.

    Args:
        name: the pod's. processes: its containers in order. log_of: container's name -> path of its log.
        grace: seconds between SIGTERM and SIGKILL. deadline: seconds after which it is ended; None is never.
    """

    def __init__(
        self,
        name: str,
        processes: Sequence[Process],
        log_of: Callable[[str], str],
        watchdog: Watchdog,
        *,
        now: float,
        grace: float,
        deadline: float | None,
    ) -> None:
        self.name = name
        self.containers: list[Container] = []
        self.began = now
        self._mains = [each for each in processes if each.role == "main"]
        self._log_of = log_of
        self._grace = grace
        self._deadline = deadline
        self._watchdog = watchdog
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
        if self._deadline is not None and now - self.began >= self._deadline:
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
        if any(each.alive for each in self.containers if each.process.role != "sidecar"):
            return None
        if any(each.alive for each in self.containers):
            self.terminate(now)
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
        if any(each.alive for each in self.containers):
            processes = ProcessTable()
            for container in self.containers:
                container.signal(signal.SIGKILL, processes)

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
