"""The folder of a run on this machine, and its lock.

``logs/`` and ``claims/`` stay; ``pods/``, ``volumes/`` and ``scale/`` are removed after the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tarkit.errors import UsageError, printable
from tarkit.mapping import removal
from tarkit.store.temporary import try_lock

_GONE = ("pods", "volumes", "scale")
_LOCK = "kubetpl-local.lock"


@contextmanager
def locked_folder(folder: str) -> Iterator[int]:
    """Create and lock a state folder for as long as the context lasts; yield the lock's descriptor.

    Raises:
        UsageError: another run uses the folder, or the watchdog of a killed run, until its last pod
            has ended; or the folder is not one of ``kubetpl local``.
    """
    os.makedirs(folder, 0o700, exist_ok=True)
    if os.listdir(folder) and not os.path.exists(os.path.join(folder, _LOCK)):
        raise UsageError(f"{printable(folder)} holds files that are not of kubetpl local; give another --state")
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(lock):
            raise UsageError(f"{printable(folder)}: another run, or its last pods, are at work; wait, or give --state")
        _clean(folder)
        yield lock
        _clean(folder)
    finally:
        os.close(lock)


def _clean(folder: str) -> None:
    for name in _GONE:
        removal.remove_folder(os.path.join(folder, name))


def ask_to_scale(folder: str, name: str, number: int) -> None:
    """Ask the run with this state folder to give an elastic Job a new number of indexes.

    Raises:
        UsageError: no run is active there, or it has no elastic Job of this name.
    """
    asked = os.path.join(folder, "scale")
    with suppress(FileNotFoundError), open(os.path.join(folder, _LOCK), "rb") as lock:
        if not try_lock(lock.fileno()) and name in os.listdir(asked):
            made = os.path.join(folder, f"logs.{os.getpid()}")
            with open(made, "w", encoding="ascii") as file:
                file.write(str(number))
            os.replace(made, os.path.join(asked, name))
            return
    wrong = f"no run of kubetpl local with this state folder has an elastic Job {printable(name)}"
    raise UsageError(f"{printable(folder)}: {wrong}")
