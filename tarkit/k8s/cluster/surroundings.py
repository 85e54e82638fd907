"""What a cluster has around Jobs: their pods, events about these, Kueue's objects, and the Jobs of the same runs.

One list of each kind, however many Jobs there are; and none that is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import run_of, uid_of
from tarkit.k8s.cluster.livelist import LiveList
from tarkit.k8s.cluster.whynot import subjects
from tarkit.k8s.names import label_value
from tarkit.k8s.wellknown import CONTROLLER, KUEUE_JOB, QUEUE, RUN

Object = Mapping[str, Any]
T = TypeVar("T")

# Events that say that all is well, of which there are many.
_ROUTINE = ("Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "Completed", "SuccessfulDelete")


@dataclass
class Surroundings:
    """pods: by the uid of their Job; events: by the uid of what they are about; both None if they may not be read.
    workloads: Kueue's objects, by the uid of their Job. siblings: Jobs of the same runs. notes: what may not be read,
    and why."""

    pods: dict[str, list[Object]] | None
    events: dict[str, list[Object]] | None = field(default_factory=dict)
    workloads: dict[str, Object] = field(default_factory=dict)
    siblings: Sequence[dict[str, Any]] = ()
    notes: list[str] = field(default_factory=list)

    def pods_of(self, job: Object) -> list[Object] | None:
        """The pods of a Job."""
        return None if self.pods is None else self.pods.get(uid_of(job), [])

    def events_of(self, job: Object) -> list[Object] | None:
        """Those about a Job and its pods."""
        if self.events is None:
            return None
        return [event for each in (job, *(self.pods_of(job) or ())) for event in self.events.get(uid_of(each), ())]


def live_pods(cluster: Cluster, jobs: Sequence[Object]) -> LiveList:
    """The pods of Jobs, to be listed; without those that succeeded, of which there may be 100,000."""
    # The uids of many would make an address that is too long.
    labels = f"{CONTROLLER}={uid_of(jobs[0])}" if len(jobs) == 1 else CONTROLLER
    return LiveList(cluster, "pods", labels=labels, fields="status.phase!=Succeeded")


def ask_around(
    cluster: Cluster,
    jobs: Sequence[Object],
    *,
    pods: Sequence[Object] | None = None,
    siblings: Sequence[dict[str, Any]] | None = None,
) -> Surroundings:
    """Ask for all of it. pods, siblings: if they are known.

    Raises:
        ClusterUnreachableError: the cluster does not answer.
    """
    notes: list[str] = []
    listed = pods if pods is not None else _allowed(notes, "pods", lambda: _listed(live_pods(cluster, jobs)))
    found = Surroundings(None if listed is None else _by(listed, _owner), notes=notes)
    uids = {uid for job in jobs for uid in subjects(job, found.pods_of(job))}
    events = _allowed(notes, "events", lambda: _events(cluster, uids))
    found.events = None if events is None else _by(events, _subject)
    found.workloads = _workloads(cluster, jobs)
    known = siblings if siblings is not None else _allowed(notes, "retries", lambda: _siblings(cluster, jobs))
    found.siblings = known or ()
    return found


def _by(things: Sequence[Object], key: Callable[[Object], str]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for each in things:
        found.setdefault(key(each), []).append(each)
    return found


def _owner(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(CONTROLLER))


def _subject(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("uid"))


def _listed(live: LiveList) -> list[dict[str, Any]]:
    live.list_anew()
    return live.things


def _allowed(notes: list[str], what: str, ask: Callable[[], T]) -> T | None:
    """What may be read; a note, and None, of what may not."""
    try:
        return ask()
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        notes.append(f"{what} cannot be read: {error}")
        return None


def _events(cluster: Cluster, uids: Collection[str]) -> list[dict[str, Any]]:
    """The events about Jobs and pods; of none, nothing is asked."""
    if not uids:
        return []
    fields = ",".join(f"reason!={each}" for each in _ROUTINE)
    return cluster.list("events", fields=fields if len(uids) > 1 else f"involvedObject.uid={next(iter(uids))}")


def _workloads(cluster: Cluster, jobs: Sequence[Object]) -> dict[str, Object]:
    """Kueue's objects for the suspended Jobs among these, as far as they may be read."""
    queued = [uid_of(job) for job in jobs if (job.get("spec") or {}).get("suspend") and _queue(job)]
    if not queued:
        return {}
    for version in ("workloads", "workloads@v1beta1"):
        try:
            found = cluster.list(version, labels=f"{KUEUE_JOB}={queued[0]}" if len(queued) == 1 else KUEUE_JOB)
        except NoSuchObjectError:
            continue
        except ClusterUnreachableError:
            raise
        except ClusterError:
            break
        return {str((each["metadata"].get("labels") or {}).get(KUEUE_JOB)): each for each in found}
    # why_not says that it cannot be read, or is not there.
    return {}


def _queue(job: Object) -> str | None:
    return (job["metadata"].get("labels") or {}).get(QUEUE)


def _siblings(cluster: Cluster, jobs: Sequence[Object]) -> list[dict[str, Any]]:
    """The Jobs of the same runs."""
    runs = {run for job in jobs if label_value(run := run_of(job)) is None}
    return cluster.list("jobs", labels=f"{RUN}={next(iter(runs))}" if len(runs) == 1 else RUN) if runs else []
