"""The folder in which a run on this machine keeps what it must remember, and its lock.

``journal`` is JSON lines, each synced to the disk before anything builds on it; a line cut short by a
crash is as if it had not been written. ``logs/`` and ``claims/`` stay; ``pods/``, ``volumes/`` and ``scale/`` are gone
after the run."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tarkit.errors import DataError, StreamError, UsageError, printable
from tarkit.mapping import removal
from tarkit.store.temporary import may_run, try_lock

_FORMAT = "kubetpl-local-1"
_ELASTIC = "elastic"
_LOCK, _JOURNAL, _LOGS, _PODS, _VOLUMES, _CLAIMS = "lock", "journal", "logs", "pods", "volumes", "claims"
SCALE = "scale"
"""The folder in which a run finds how many pods Jobs are to have from now on: of each a file with the number."""


def ask_to_scale(folder: str, name: str, number: int) -> None:
    """Have the run with this state folder give an elastic Job so many indexes.
    Raises: UsageError: no run is at work there, or it has no elastic Job of this name."""
    try:
        with open(os.path.join(folder, _LOCK), "rb") as lock:
            if not may_run(lock.read(32)):
                raise UsageError(f"{printable(folder)}: no kubetpl local runs with this state folder")
    except FileNotFoundError:
        raise UsageError(f"{printable(folder)} is not a state folder of kubetpl local") from None
    names: list[str] = []
    with suppress(FileNotFoundError), open(os.path.join(folder, _ELASTIC), encoding="utf-8") as file:
        names = file.read().split()
    if name not in names:
        known = f"; it has {', '.join(names)}" if names else ""
        raise UsageError(f"{printable(folder)}: the run has no elastic Job {printable(name)}{known}")
    made = os.path.join(folder, _LOGS, f"{SCALE}.{os.getpid()}")
    with open(made, "w", encoding="ascii") as file:
        file.write(str(number))
    try:
        os.replace(made, os.path.join(folder, SCALE, name))
    except FileNotFoundError:
        raise UsageError(f"{printable(folder)}: the run has just ended") from None


_PATIENCE = 60.0
"""Seconds to wait for the lock: a killed run's watchdog has it until the last of its pods ended. That is five
seconds after SIGTERM, and many more on a busy machine."""


class StateFolder:
    """An open state folder. A context manager; within it no other run has the folder.
    completed: indexes by Job, from earlier runs. logs: the folder of the logs. folder: is made if it does not exist;
    one that another run is using, or that is not such a folder, is refused. digest: of the work; another work's folder
    is refused. fresh: forget what is there, and begin anew."""

    def __init__(
        self, folder: str, digest: str, *, fresh: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.folder = os.path.abspath(folder)
        self.logs = os.path.join(self.folder, _LOGS)
        self.completed: dict[str, set[int]] = {}
        self._attempts: Counter[tuple[str, int]] = Counter()
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            strange = sorted(
                set(os.listdir(self.folder)) - {_LOCK, _JOURNAL, _LOGS, _PODS, _VOLUMES, _CLAIMS, SCALE, _ELASTIC}
            )
            if strange:
                raise UsageError(
                    f"{printable(folder)} holds {printable(strange[0])}, so it is not a state folder of kubetpl local; "
                    "give another one with --state"
                )
            self.lock = os.open(os.path.join(self.folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._take_lock(folder, sleep)
                self._open(folder, digest, fresh)
            except BaseException:
                os.close(self.lock)
                raise
        except StreamError:
            raise
        except OSError as error:
            raise StreamError(
                f"the state folder cannot be used: {error.strerror}", url=folder, hint="give another one with --state"
            ) from None

    def _take_lock(self, folder: str, sleep: Callable[[float], None]) -> None:
        waited = 0.0
        while not try_lock(self.lock):
            # If the run that locked it is gone, its watchdog is about to finish.
            if waited >= _PATIENCE or may_run(os.pread(self.lock, 32, 0)):
                raise UsageError(
                    f"another kubetpl local is running with {printable(folder)}; wait for it, "
                    "or give this one another folder with --state"
                )
            sleep(0.1)
            waited += 0.1
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"{os.getpid()}\n".encode("ascii"), 0)

    def _open(self, folder: str, digest: str, fresh: bool) -> None:
        path = os.path.join(self.folder, _JOURNAL)
        self._remove(_PODS, _VOLUMES, SCALE, _ELASTIC, *((_JOURNAL, _LOGS, _CLAIMS) if fresh else ()))
        good, known = 0, digest
        with open(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600), "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                try:
                    known = self._remember(json.loads(line)) or known
                except (AttributeError, TypeError, ValueError):
                    problem = "the journal is damaged, or of another version"
                    raise DataError(problem, url=path, offset=good, hint="begin anew with --fresh") from None
                good += len(line)
        # Until something was run, any manifest may take the folder: one that could not be run will be corrected.
        if known != digest and self._attempts:
            raise UsageError(
                f"{printable(folder)} belongs to another manifest, or to this one before it was changed; "
                "give another folder with --state, or forget that run with --fresh"
            )
        self._journal = open(path, "ab")
        # What a crash cut short must not run into the next line.
        self._journal.truncate(good)
        self._write(format=_FORMAT, work=digest)
        above = os.open(self.folder, os.O_RDONLY)
        os.fsync(above)
        os.close(above)

    def _remember(self, entry: dict[str, Any]) -> str | None:
        """Take over a line of the journal; the work's digest, if it says that."""
        if entry.get("format", _FORMAT) != _FORMAT:
            raise ValueError(entry["format"])
        job, index, event = str(entry.get("job")), entry.get("index"), entry.get("event")
        if event == "start" and type(index) is int:
            self._attempts[job, index] = max(self._attempts[job, index], int(entry.get("attempt", 0)))
        elif event == "end" and type(index) is int and entry.get("exit_code") == 0:
            self.completed.setdefault(job, set()).add(index)
        return entry.get("work")

    def started(self, job: str, index: int) -> int:
        """Write down that an index is being run; which attempt it is, counted over all runs from 1."""
        self._attempts[job, index] += 1
        self._write(event="start", job=job, index=index, attempt=self._attempts[job, index])
        return self._attempts[job, index]

    def ended(self, job: str, index: int, exit_code: int, reason: str, action: str) -> int:
        """Write down how it ended; which attempt it was."""
        end = {"attempt": self._attempts[job, index], "exit_code": exit_code, "reason": reason, "action": action}
        self._write(event="end", job=job, index=index, **end)
        return self._attempts[job, index]

    def _write(self, **entry: Any) -> None:
        self._journal.write(json.dumps({**entry, "time": round(time.time(), 3)}).encode("ascii") + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def path(self, *parts: str) -> str:
        """A path in the folder; the folders above it are made."""
        found = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(found), 0o700, exist_ok=True)
        return found

    def offer(self, names: Iterable[str]) -> None:
        """Let the number of indexes of these Jobs be changed from now on."""
        os.makedirs(self.path(SCALE), exist_ok=True)
        with open(self.path(_ELASTIC), "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in names)

    def scaled(self) -> dict[str, int]:
        """What was asked for since the last call: Job -> its number of indexes. What is no such answer is left out."""
        asked: dict[str, int] = {}
        # Not path(), which makes folders: a run looks here many times a second.
        folder = os.path.join(self.folder, SCALE)
        taken = os.path.join(self.folder, _LOGS, f"{SCALE}.taken")
        with suppress(FileNotFoundError):
            for name in os.listdir(folder):
                # What is asked for from here on is another file.
                os.replace(os.path.join(folder, name), taken)
                with open(taken, "rb") as file:
                    text = file.read(10)
                os.remove(taken)
                if text.isdigit() and int(text) > 0:
                    asked[name] = int(text)
        return asked

    def _remove(self, *names: str) -> None:
        for name in names:
            removal.remove_folder(os.path.join(self.folder, name))

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(_PODS, _VOLUMES, SCALE, _ELASTIC)
        self._journal.close()
        os.close(self.lock)
