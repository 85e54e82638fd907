"""Find the processes that a command left running when it ended.

On Linux the shell of a slot adopts its descendants: a process that loses its parent becomes a child
of that shell, daemons included. So between two samples the shell has no children, and the kernel's
list of them shows in a microsecond whether a process is left. The command does not notice this.
Without such a list, the process group of the shell is searched among all processes, and a daemon
that left the group is not found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tarkit.errors import printable

_PR_SET_CHILD_SUBREAPER = 36
_MOST_NAMES = 3
_LIST_SIZE = 65536
_KILL_ROUNDS = 100
_KILL_PAUSE = 0.001  # seconds


def start_adopting(arguments: list[str], **options: Any) -> tuple[subprocess.Popen[bytes], bool]:
    """Start a process that adopts its orphaned descendants, and return whether it can.

    Args:
        options: arguments of subprocess.Popen.

    Raises:
        OSError: the process cannot be started.
    """
    if (adopt := _adoption()) is not None:
        # What is raised between fork and exec comes out as this. Then the kernel knows no adoption.
        with suppress(subprocess.SubprocessError):
            return subprocess.Popen(arguments, **options, preexec_fn=adopt), True  # noqa: PLW1509 - one system call
    return subprocess.Popen(arguments, **options), False


def _adoption() -> Callable[[], None] | None:
    """Return the system call that makes a process adopt orphans, or None without support."""
    if not (_has_proc() and os.path.exists(_children_path(os.getpid()))):
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return None

    def adopt() -> None:
        if prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError("PR_SET_CHILD_SUBREAPER is refused")

    return adopt


class LeftRunning:
    """Processes of a shell's commands that still run while the shell waits for the next command.

    Args:
        shell: process id of the shell, which leads a session and a process group.
        folder: real path of the run's folder.
        adopts: the shell was started by :func:`start_adopting`, which returned True.
    """

    def __init__(self, shell: int, folder: str, *, adopts: bool) -> None:
        self._shell = shell
        self._folder = folder
        self._children = os.open(_children_path(shell), os.O_RDONLY | os.O_CLOEXEC) if adopts else None

    def close(self) -> None:
        """Close the list of children."""
        if self._children is not None:
            os.close(self._children)
            self._children = None

    def processes(self) -> list[int]:
        """Return the ids of the processes that are left.

        A daemon does not count if it has another session, works in a folder outside of the run's,
        and has no open file there: an agent or a server that a command started may serve other
        programs.
        """
        if self._children is None:
            found = _listed().items()
            return [pid for pid, (_, runs, group, _) in found if group == self._shell and runs and pid != self._shell]
        try:
            text = os.pread(self._children, _LIST_SIZE, 0)
        except ProcessLookupError:
            return []
        # What follows the last space is a number that was cut.
        return [pid for pid in map(int, text.rpartition(b" ")[0].split()) if self._counts(pid)] if text else []

    def _counts(self, pid: int) -> bool:
        try:
            _, runs, _, session = _status(pid)
        except (OSError, ValueError):
            return False
        return runs and (session == self._shell or not self._is_elsewhere(pid))

    def _is_elsewhere(self, pid: int) -> bool:
        try:
            places = [os.readlink(f"/proc/{pid}/cwd")]
            places += [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            # It ends, closes a file this very moment, or belongs to another user.
            return False
        return not any(f"{place}/".startswith(f"{self._folder}/") for place in places)

    def names(self, pids: list[int]) -> str:
        """Return the programs of some processes, for a message."""
        found = list(dict.fromkeys(name for pid in pids for name in self._programs(pid)))
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        return ", ".join(found[:_MOST_NAMES]) + more

    def _programs(self, pid: int) -> Iterator[str]:
        """Yield the program of a process; for a forked shell, the programs that it runs.

        A shell is forked by ``&`` and parentheses.
        """
        if _arguments(pid) == _arguments(self._shell) != b"":
            with suppress(OSError), open(_children_path(pid), "rb") as file:
                children = [int(child) for child in file.read().split()]
                for child in children:
                    yield from self._programs(child)
                if children:
                    return
        yield f"{printable(_name(pid))} (process {pid})"

    def kill(self) -> None:
        """Kill remaining processes with their own process group; the caller kills the shell's."""
        for _ in range(_KILL_ROUNDS if self._children is not None else 0):
            left = self.processes()
            if not left:
                return
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            # The children of what was killed are adopted when it has ended.
            time.sleep(_KILL_PAUSE)


def _has_proc() -> bool:
    """Return True if there is a /proc of this process's PID namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _children_path(pid: int) -> str:
    return f"/proc/{pid}/task/{pid}/children"


def _status(pid: int) -> tuple[str, bool, int, int]:
    """Return the name of a process, whether it runs, its process group and its session.

    Raises:
        OSError, ValueError: the process has ended.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        head, _, tail = file.read().rpartition(b")")
    fields = tail.split()
    # The first thread may be a zombie while others go on.
    runs = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    return os.fsdecode(head.partition(b"(")[2]), runs, int(fields[2]), int(fields[3])


def _arguments(pid: int) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
    return b""


def _name(pid: int) -> str:
    program = os.path.basename(os.fsdecode(_arguments(pid).partition(b"\0")[0]))
    return program or _listed().get(pid, ("a program",))[0]


def _listed() -> dict[int, tuple[str, bool, int, int]]:
    """Return the status of all processes by their ids.

    Without /proc the sessions are not known, and are 0.
    """
    found: dict[int, tuple[str, bool, int, int]] = {}
    if _has_proc():
        for each in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError):
                found[int(each)] = _status(int(each))
        return found
    command = ["ps", "-A", "-o", "pid=,pgid=,stat=,comm="]
    for line in subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.splitlines():
        pid, group, state, name = os.fsdecode(line).split(None, 3)
        found[int(pid)] = os.path.basename(name), not state.startswith(("Z", "X")), int(group), 0
    return found
