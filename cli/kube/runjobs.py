"""The Jobs of a run, as ``kubetpl jobs`` prints them: which they are, how they stand, and which of them to name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tarkit.errors import NoSuchObjectError, UsageError

from ..shared.results import counted

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster

Object = Mapping[str, Any]

_NAMED = 3


def jobs_named(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The Job of this very name; if there is none, the Jobs of the run that is called so.

    Raises:
        NoSuchObjectError: neither; or nothing but retries is left, which do not stand for a Job that is gone.
    """
    from tarkit.k8s.cluster.jobfind import find_jobs

    jobs = find_jobs(cluster, name)
    if only_retries(jobs, name):
        raise NoSuchObjectError(f"no job {name} in namespace {cluster.namespace}; its retries: {some_names(jobs)}", 404)
    return jobs


def is_run(jobs: Sequence[Object], name: str) -> bool:
    """Whether these are Jobs of the run that is called so, and not the Job of this name."""
    return bool(jobs[0]["metadata"]["name"] != name)


def only_retries(jobs: Sequence[Object], name: str) -> bool:
    """Whether these are what is left of a run whose first Job, of this name, is gone."""
    from tarkit.k8s.wellknown import RETRY_OF

    return is_run(jobs, name) and all(RETRY_OF in (job["metadata"].get("annotations") or {}) for job in jobs)


def some_names(jobs: Iterable[Object]) -> str:
    """``job0000, job0001, job0002, …``."""
    names = [str(job["metadata"]["name"]) for job in jobs]
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def sum_line(states: Iterable[str], more: Mapping[str, int] | None = None) -> str:
    """``148 Jobs: 145 complete, 3 failed``. more: Jobs that are not among the states, by what became of them."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    number = sum(counts.values())
    counts = {**dict(sorted(counts.items())), **{word: many for word, many in (more or {}).items() if many}}
    return f"{counted(number, 'Job')}: " + ", ".join(f"{many} {word}" for word, many in counts.items())


def failed_of(jobs: Sequence[dict[str, Any]], run: str) -> list[dict[str, Any]]:
    """The Jobs of a run that have failed, but for those that were retried.

    Raises:
        UsageError: none has.
    """
    from tarkit.k8s.cluster.jobview import state_of
    from tarkit.k8s.cluster.runstate import run_state

    failed = [job for job in run_state(jobs).jobs if state_of(job)[0] == "failed"]
    if not failed:
        raise UsageError(
            f"there is no Job {run}, but a run of {counted(len(jobs), 'Job')}, of which none has failed; name one, "
            f"such as {some_names(jobs)}; if {run} was a Job and is gone, -f MANIFEST is what it was made from"
        )
    return failed


def refuse_for_many(options: Mapping[str, Any]) -> None:
    """Refuse the options that say where one Job's shards are.

    Raises:
        UsageError: one of them is given.
    """
    if options["outdir"] or options["specs"]:
        raise UsageError("-O and --shards are about one Job; this names several")


def not_one(name: str, jobs: Sequence[Object], why: str) -> UsageError:
    """What to say if a verb wants one Job and got a run."""
    return UsageError(f"{name} is a run of {counted(len(jobs), 'Job')}, {why}; name one: {some_names(jobs)}")
