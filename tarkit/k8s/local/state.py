"""The folder in which a run on this machine keeps what it must remember, and its lock.

``journal`` is JSON lines, each synced to the disk before anything builds on it; a line cut short by a
crash is as if it had not been written. ``logs/`` stays; ``pods/`` and ``volumes/`` are gone after the run.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tarkit.errors import DataError, StreamError, UsageError, printable
from tarkit.mapping import removal
from tarkit.store.temporary import try_lock

_FORMAT = "kubetpl-local-1"
_LOCK, _JOURNAL, _LOGS, _PODS, _VOLUMES = "lock", "journal", "logs", "pods", "volumes"
_OURS = frozenset((_LOCK, _JOURNAL, _LOGS, _PODS, _VOLUMES))
_PATIENCE = 60.0
"""Seconds to wait for the lock: a killed run's watchdog has it until the last of its pods ended. That is five
seconds after SIGTERM, and many more on a busy machine."""


class StateFolder:
    """An open state folder. A context manager; within it no other run has the folder.

    completed: indexes by Job, from earlier runs.

    Args:
        folder: is made if it does not exist. digest: of the work; another work's folder is refused.
        fresh: forget what is there, and begin anew. sleep: called with seconds.

    Raises:
        UsageError: another run is using it; it is of other work; or it is not such a folder.
        DataError: the journal is damaged. StreamError: the folder cannot be used.
    """

    def __init__(
        self, folder: str, digest: str, *, fresh: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.folder = os.path.abspath(folder)
        self.completed: dict[str, set[int]] = {}
        self._attempts: Counter[tuple[str, int]] = Counter()
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            strange = sorted(set(os.listdir(self.folder)) - _OURS)
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
        while True:
            if try_lock(self.lock):
                break
            if waited >= _PATIENCE or self._owner_lives():
                raise UsageError(
                    f"another kubetpl local is running with {printable(folder)}; wait for it, "
                    "or give this one another folder with --state"
                )
            sleep(0.1)
            waited += 0.1
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"{os.getpid()}\n".encode("ascii"), 0)

    def _owner_lives(self) -> bool:
        """Whether the run that locked it is there; if not, its watchdog is about to finish."""
        try:
            os.kill(int(os.pread(self.lock, 32, 0)), 0)
        except ProcessLookupError:
            return False
        except (ValueError, PermissionError):
            return True
        return True

    def _open(self, folder: str, digest: str, fresh: bool) -> None:
        path = os.path.join(self.folder, _JOURNAL)
        self._remove(_PODS, _VOLUMES, *((_JOURNAL, _LOGS) if fresh else ()))
        good, known = 0, None
        for entry, end in _entries(path) if os.path.exists(path) else ():
            known = entry.get("work", known)
            try:
                self._remember(entry)
            except (TypeError, ValueError):
                raise DataError(
                    "the journal is damaged, or of another version", url=path, offset=good,
                    hint="begin anew with --fresh",
                ) from None  # fmt: skip
            good = end
        # Until something was run, any manifest may take the folder: one that could not be run will be corrected.
        if known not in (None, digest) and self._attempts:
            raise UsageError(
                f"{printable(folder)} belongs to another manifest, or to this one before it was changed; "
                "give another folder with --state, or forget that run with --fresh"
            )
        self._journal = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
        # What a crash cut short must not run into the next line.
        self._journal.truncate(good)
        self._write(format=_FORMAT, work=digest)
        above = os.open(self.folder, os.O_RDONLY)
        os.fsync(above)
        os.close(above)

    def _remember(self, entry: dict[str, Any]) -> None:
        if entry.get("format", _FORMAT) != _FORMAT:
            raise ValueError(entry["format"])
        job, index = str(entry.get("job")), entry.get("index")
        if type(index) is not int:
            return
        if entry.get("event") == "start":
            self._attempts[job, index] = max(self._attempts[job, index], int(entry.get("attempt", 0)))
        elif entry.get("event") == "end" and entry.get("exit_code") == 0:
            self.completed.setdefault(job, set()).add(index)

    def started(self, job: str, index: int) -> int:
        """Write down that an index is being run; which attempt it is, counted over all runs from 1."""
        self._attempts[job, index] += 1
        self._write(event="start", job=job, index=index, attempt=self._attempts[job, index])
        return self._attempts[job, index]

    def ended(self, job: str, index: int, exit_code: int, reason: str, action: str) -> None:
        """Write down how it ended."""
        attempt = self._attempts[job, index]
        self._write(
            event="end", job=job, index=index, attempt=attempt, exit_code=exit_code, reason=reason, action=action
        )

    def _write(self, **entry: Any) -> None:
        line = json.dumps({**entry, "time": round(time.time(), 3)}).encode("ascii") + b"\n"
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def path(self, *parts: str) -> str:
        """A path in the folder; the folders above it are made."""
        found = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(found), 0o700, exist_ok=True)
        return found

    @property
    def logs(self) -> str:
        """The folder of the logs."""
        return os.path.join(self.folder, _LOGS)

    def pod_folder(self, name: str) -> str:
        """A new, empty folder for a pod."""
        path = self.path(_PODS, name)
        removal.remove_folder(path)
        os.mkdir(path, 0o700)
        return path

    def _remove(self, *names: str) -> None:
        for name in names:
            path = os.path.join(self.folder, name)
            if os.path.isdir(path):
                removal.remove_folder(path)
            elif os.path.exists(path):
                os.unlink(path)

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(_PODS, _VOLUMES)
        self._journal.close()
        os.close(self.lock)


def _entries(path: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole lines of a journal, each with the offset after it."""
    end = 0
    with open(path, "rb") as stream:
        for line in stream:
            start, end = end, end + len(line)
            try:
                entry = json.loads(line)
                whole = isinstance(entry, dict) and line.endswith(b"\n")
            except ValueError:
                whole = False
            if whole:
                yield entry, end
            elif stream.read(1):
                raise DataError("the journal is damaged", url=path, offset=start, hint="begin anew with --fresh")
