"""One run of one container: a local process, its output, its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from apistore import Json, stamp
from podlogs import ContainerLog
from podsandbox import MemoryGroup, Sandbox

_LONGEST_MESSAGE = 4096


@dataclass
class Ended:
    """state.terminated of a container."""

    code: int
    reason: str
    message: str = ""
    started: str = ""
    finished: str = ""

    def state(self, container_id: str) -> Json:
        state: Json = {
            "exitCode": self.code,
            "reason": self.reason,
            "startedAt": self.started,
            "finishedAt": self.finished,
        }
        if self.message:
            state["message"] = self.message
        if container_id:
            state["containerID"] = container_id
        return {"terminated": state}


def find_program(word: str, path: str, sandbox: Sandbox | None) -> bool:
    """Whether the first word of a command line can be run inside; else a runtime says StartError and 128."""
    if "/" not in word:
        return shutil.which(word, path=path) is not None
    for mount in reversed(sandbox.mounts if sandbox else []):
        if word.startswith(mount.target.rstrip("/") + "/"):
            word = str(mount.source / word[len(mount.target.rstrip("/")) + 1 :])
            break
    return os.path.isfile(word) and os.access(word, os.X_OK)


class Container:
    """Starts at once; poll() tells how it ended."""

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        spec: Json,
        log: ContainerLog,
        memory: MemoryGroup,
        sandbox: Sandbox | None,
        unshare: list[str],
    ) -> None:
        self.spec, self.log, self.memory, self.sandbox = spec, log, memory, sandbox
        self.started = stamp()
        workdir = spec.get("workingDir") or "/"
        if sandbox:
            # A file, since one argument is at most 128 KiB.
            script = sandbox.folder / "script"
            script.write_text(sandbox.script(argv, env, workdir, memory.procs), errors="surrogateescape")
            command, cwd = [*unshare, "/bin/sh", str(script)], None
        else:
            enter = f"echo 0 > {memory.procs}; " if memory.procs else ""
            command, cwd = ["/bin/sh", "-c", enter + 'exec "$@"', "sh", *argv], workdir
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self.log.add(line)

    def terminate(self) -> None:
        """SIGTERM, to the command itself and not to what it started, as a container runtime does."""
        pid = self._process.pid
        if self.sandbox:
            # unshare waits for process 1 of the namespace.
            children = Path(f"/proc/{pid}/task/{pid}/children")
            with contextlib.suppress(OSError):
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGTERM)
        else:
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """True when the process has ended; kills it when it is out of memory."""
        ends = time.monotonic() + seconds
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, min(0.05, ends - time.monotonic())))
                return True
            if self.memory.out_of_memory(self._process.pid):
                self.kill()
            if time.monotonic() >= ends:
                return False

    def end(self) -> Ended:
        """Ends it if it still runs, and what it left behind; tells how it went."""
        oom = self.memory.out_of_memory(self._process.pid)
        self.kill()
        self._process.wait()
        self.memory.remove()
        self._reader.join()
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        reason = "Completed" if code == 0 else "Error"
        if oom:
            code, reason = 137, "OOMKilled"
        return Ended(code, reason, self._message(code), self.started, stamp())

    def _message(self, code: int) -> str:
        path = self.sandbox.message_file if self.sandbox else None
        text = _read_text(path) if path else ""
        if not text and code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return self.log.tail_message()
        return text


def _read_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes()[:_LONGEST_MESSAGE].decode(errors="replace")
    return ""
