"""One pod as processes of this machine, in a process group (and session) of its own.

Exit codes are as a kubelet gives them: a signal is 128 plus its number, and so is 137 for more memory than the limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND
from tarkit.k8s.apiobject import Object, spec_of
from tarkit.k8s.local.kubelet import Process
from tarkit.k8s.local.policy import PodEnd
from tarkit.k8s.local.processes import MARK, Watchdog, memory_of, signal_group

_DEFAULT_GRACE = 30.0
_TAIL_BYTES = 2048
_TAIL_LINES = 80
_START_ERROR = 128


class LocalPod:
    """A pod that runs. Poll it until it gives its end.

    reason: Completed, Error, OOMKilled or StartError, once it has ended.

    Args:
        pod: its name, grace and deadline count. process: its container. log: path of its log.
    """

    def __init__(self, pod: Object, process: Process, log: str, watchdog: Watchdog, now: float) -> None:
        self.name = str(pod["metadata"]["name"])
        self.reason = ""
        self.memory_limit = process.memory
        self._process = process
        self._log = log
        self._watchdog = watchdog
        grace, deadline = (spec_of(pod).get(key) for key in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"))
        self._grace = _DEFAULT_GRACE if grace is None else float(grace)
        self._deadline = float("inf") if deadline is None else now + deadline
        self._begin_at = now
        self._kill_at: float | None = None
        self._over_memory = False
        self._popen: subprocess.Popen[bytes] | None = None

    def poll(self, now: float) -> PodEnd | None:
        """Start it if that is due; its end, once all has ended."""
        if now >= self._deadline:
            self.terminate(now)
        if self._kill_at is not None and now >= self._kill_at:
            self.kill()
        if self._popen is not None:
            return self._ended(self.close()) if _has_ended(self._popen) else None
        if self._kill_at is not None:
            return self._ended(-signal.SIGTERM)
        return self._start() if now >= self._begin_at else None

    def _start(self) -> PodEnd | None:
        process = self._process
        with open(self._log, "ab") as stream:
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
                self.reason = "StartError"
                return PodEnd(self.name, {process.name: known.get(type(error), _START_ERROR)})
        self._watchdog.watch(self._popen.pid)
        return None

    def close(self) -> int:
        """Kill what is alive, and wait for it: nothing is left of the pod afterwards. The status of its process."""
        if self._popen is None:
            return 0
        # Before it is reaped, no other process can have this number.
        signal_group(self._popen.pid, signal.SIGKILL, self._process.env[MARK])
        status = self._popen.wait()
        self._watchdog.forget(self._popen.pid)
        self._popen = None
        return status

    def _ended(self, status: int) -> PodEnd:
        killed = self._over_memory and status == -signal.SIGKILL
        self.reason = "OOMKilled" if killed else "Error" if status else "Completed"
        return PodEnd(self.name, {self._process.name: 128 - status if status < 0 else status})

    def restart(self, now: float, delay: float) -> None:
        """Start its container again in a while, in the same folders."""
        self._begin_at = now + delay
        self._kill_at = None
        self._over_memory = False

    def terminate(self, now: float) -> None:
        """Ask all processes to end; those that do not are killed after the time of grace."""
        if self._kill_at is None:
            self._kill_at = now + self._grace
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all processes now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._popen is not None:
            signal_group(self._popen.pid, number)

    def check_memory(self, table: Mapping[int, tuple[int, int]]) -> None:
        """End it if it has more memory than its limit, as the kernel does in a cluster. table: all processes."""
        limit = self.memory_limit
        if limit is not None and self._popen is not None and memory_of(self._popen.pid, limit, table) > limit:
            self._over_memory = True
            self.kill()

    def last_words(self) -> str:
        """The end of its log, as it goes to a pod's status: at most 80 lines and 2048 bytes."""
        with open(self._log, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _has_ended(popen: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return popen.poll() is not None
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
