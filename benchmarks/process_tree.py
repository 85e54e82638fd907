"""Memory of a process and of all its descendants, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


def _parents() -> dict[int, int]:
    """Process id -> id of its parent, for every process that can be seen."""
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue  # it ended between the listing and the look
            # The name in parentheses may hold anything, so count from its end.
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    return parents


def tree(root: int) -> list[int]:
    """The process and all its descendants that are there now."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents().items():
        children.setdefault(parent, []).append(process)
    found = [root]
    for process in found:
        found.extend(children.get(process, []))
    return found


def resident(process: int) -> int:
    """Bytes of the process in memory, pages that it shares with others counted in full.

    0 if it is gone.
    """
    try:
        return int((PROC / str(process) / "statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def peak_of_tree(root: int, is_running: Callable[[], bool], interval: float = 0.05) -> int:
    """Bytes of a process and all its descendants at most, by a look at each ``interval`` seconds.

    Pages that several of them share are counted in each.
    """
    peak = 0
    while is_running():
        peak = max(peak, sum(map(resident, tree(root))))
        time.sleep(interval)
    return peak


def born(process: int) -> str:
    """A mark that tells this process from a later one with the same id.

    Empty if it is gone or a zombie.
    """
    try:
        words = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] == "Z" else words[19]
