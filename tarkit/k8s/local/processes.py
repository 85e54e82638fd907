"""The processes of pods: how much memory they take, and that none outlives its runner.

Memory, descendants and daemons are found in /proc, which is Linux only; elsewhere a pod is its process group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from operator import itemgetter

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = "/proc"
_LONGEST_EXEC = 1.0

MARK = "TARKIT_LOCAL_POD"
"""The variable by which processes are known that left their container's group and session: daemons."""

_SCRIPT = """
trap '' HUP INT TERM
mark=$1
set --
strays() {
  grep -slaF -e "$mark" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do kill -s "$1" "$pid"; done
}
while read -r sign group; do
  if [ "$sign" = + ]; then set -- "$@" "$group"; continue; fi
  n=$#
  while [ "$n" -gt 0 ]; do [ "$1" = "$group" ] || set -- "$@" "$1"; shift; n=$((n - 1)); done
done
[ "$#" -gt 0 ] || exit 0
for group; do kill -s TERM -- "-$group"; done
strays TERM
n=50
while [ "$n" -gt 0 ]; do
  alive=
  for group; do kill -s 0 -- "-$group" && alive=1; done
  [ "$alive" ] || break
  sleep 0.1
  n=$((n - 1))
done
[ "$alive" ] && for group; do kill -s KILL -- "-$group"; done
strays KILL
"""


class Watchdog:
    """A shell that ends the pods when their runner dies without a chance to: kill -9, out of memory.

    It reads process groups from a pipe, and acts when the pipe ends: TERM, after at most five
    seconds KILL. It has the lock of the state folder open until then, so no other run begins before.

    Args:
        lock: descriptor of the lock. pods: the folder in which all marks of this run are.
    """

    def __init__(self, lock: int, pods: str) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", f"{MARK}={pods}/"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, bufsize=0, cwd="/", start_new_session=True, pass_fds=(lock,),
        )  # fmt: skip

    def watch(self, group: int, sign: str = "+") -> None:
        """A process group to end; with the sign -, one that is gone: another process may soon have its number."""
        # Another process may have killed the shell: then the pods are only as safe as any process is.
        with suppress(BrokenPipeError):
            if self._shell.stdin is not None:
                self._shell.stdin.write(f"{sign} {group}\n".encode("ascii"))

    def close(self) -> None:
        """Nothing is left to watch."""
        self._shell.communicate()


def can_measure() -> bool:
    """Whether the memory of processes can be read here."""
    return os.path.exists("/proc/self/statm")


def process_table() -> dict[int, tuple[int, int]]:
    """All processes of the machine at one moment, each with its parent and session."""
    found = {}
    for name in _numbers():
        with suppress(OSError):
            _, parent, _, session = _stat(name)[:4]
            found[int(name)] = int(parent), int(session)
    return found


def memory_of(leader: int, limit: int, table: Mapping[int, tuple[int, int]]) -> int:
    """Bytes that a session takes, with all its descendants. Exact only where resident sizes exceed ``limit`` together.
    Resident sizes count shared pages once for each process; only proportional ones may be added, and those take the
    kernel longer."""
    pids = {pid for pid, (_, session) in table.items() if session == leader}
    while more := {pid for pid, (parent, _) in table.items() if parent in pids and pid not in pids}:
        pids |= more
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= limit else sum(_proportional(pid) for pid in pids)


def marked(mark: str) -> list[int]:
    """Processes that were started with this value of ``MARK``."""
    wanted = f"\0{MARK}={mark}\0".encode("utf-8", "surrogateescape")
    found = []
    for name in _numbers():
        with suppress(OSError):
            if wanted in b"\0" + _environment(name):
                found.append(int(name))
    return found


def _numbers() -> list[str]:
    return list(filter(str.isdigit, os.listdir(_PROC))) if can_measure() else []


def _stat(name: str) -> list[bytes]:
    """proc_pid_stat(5) from its third field on, after the name, which may have blanks and brackets: state, parent, …"""
    with open(f"{_PROC}/{name}/stat", "rb") as stream:
        return stream.read().rpartition(b")")[2].split()


def _environment(name: str) -> bytes:
    """The variables that a process was started with; while it becomes another program, the kernel shows none."""
    end = time.monotonic() + _LONGEST_EXEC
    while True:
        with open(f"{_PROC}/{name}/environ", "rb") as stream:
            content = stream.read()
        if content or time.monotonic() > end:
            return content
        # The 23rd field, vsize, and env_start and env_end, from which it is known whether it has variables at all.
        vsize, first, last = itemgetter(20, 47, 48)(_stat(name))
        if vsize == b"0" or first == last != b"0":
            return content
        time.sleep(0.0005)


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as stream:
        return int(stream.read().split()[1]) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as stream:
        for line in stream:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def signal_group(group: int, number: signal.Signals, mark: str | None = None) -> None:
    """A signal to a process group; with a mark also to processes that left it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for pid in () if mark is None else marked(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
