"""The Jobs of a run: which of them count, and which are retries of which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of, uid_of
from tarkit.k8s.wellknown import RETRY_OF, RETRY_OF_UID

Object = dict[str, Any]


@dataclass
class RunState:
    """The Jobs of a run. jobs: as they are; those that were removed once they had ended, as they were then.
    retried: failed or suspended ones, instead of which a later Job counts: a retry, or one of the same name. deleted:
    names of those that were removed before they had ended."""

    jobs: list[Object]
    retried: list[Object]
    deleted: list[str]

    @property
    def ended(self) -> bool:
        """Whether no pod of any that counts will run again."""
        return all(state_of(job)[0] in ENDED for job in self.jobs)


def run_state(jobs: Iterable[Object], deleted: Iterable[str] = ()) -> RunState:
    """Of Jobs as the API gives them, in the order of their names."""
    ordered = sorted(jobs, key=name_of)
    retries = retries_among(ordered)
    last: dict[str, Object] = {}
    for job in sorted(ordered, key=_created):
        last[origin(name_of(job), retries)] = job
    found = RunState([], [], sorted({*deleted} - {*retries}))
    for job in ordered:
        done_over = last[origin(name_of(job), retries)] is not job and state_of(job)[0] in ("failed", "suspended")
        (found.retried if done_over else found.jobs).append(job)
    return found


def retries_among(jobs: Iterable[Object]) -> dict[str, str | None]:
    """Of each Job by name, which one it is a retry of; None if it is none."""
    return {name_of(job): retry_of(job) for job in jobs}


def origin(name: str, retries: Mapping[str, str | None]) -> str:
    """The name of the Job that a Job is a retry of in the end; its own if it is none. retries: ``retries_among``."""
    passed: set[str] = set()
    while (older := retries.get(name)) is not None and name not in passed:
        passed.add(name)
        name = older
    return name


def retry_of(job: Mapping[str, Any]) -> str | None:
    """The name of the Job that this one was made to finish; None if it is not a retry."""
    found = (job["metadata"].get("annotations") or {}).get(RETRY_OF)
    return None if found is None else str(found)


def retries_of(jobs: Iterable[Mapping[str, Any]], known: Iterable[Object]) -> dict[str, list[Object]]:
    """Of each Job, by its uid, those of the known ones that were made to finish it, or a retry of it."""
    made: dict[str, list[Object]] = {}
    for each in sorted(known, key=_created):
        if (older := retry_of(each)) is not None:
            made.setdefault(older, []).append(each)
    return {uid_of(job): _descendants(job, made) for job in jobs} if made else {}


def _descendants(job: Mapping[str, Any], made: Mapping[str, list[Object]]) -> list[Object]:
    found: list[Object] = []
    passed = {uid_of(job)}
    left: list[Mapping[str, Any]] = [job]
    while left:
        parent = left.pop(0)
        for each in made.get(name_of(parent), ()):
            if uid_of(each) not in passed and _is_of(each, parent):
                passed.add(uid_of(each))
                found.append(each)
                left.append(each)
    return found


def _is_of(retry: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether a retry is of this very Job, and not of an older one that had its name."""
    uid = (retry["metadata"].get("annotations") or {}).get(RETRY_OF_UID)
    return uid == uid_of(job) if uid is not None else _created(retry) >= _created(job)


def _created(job: Mapping[str, Any]) -> str:
    return str(job["metadata"].get("creationTimestamp") or "")
