"""The Job controller: makes and removes pods, and writes down how a Job stands.

Follows what was measured on a real 1.36 controller. From documentation only: waiting for terminating pods before the
final condition, the counting of pods deleted by hand, suspension. Not done: successPolicy, managedBy.
"""

from __future__ import annotations

import threading
import time

import apideletion
from apierrors import ApiError
from apiresources import JOBS, PODS
from apiservice import Api, Manner
from apistore import Json, clone, owned_by, stamp
from apitables import seconds_since
from joblook import NEVER, Failures, Look, Memory, begin, count, verdict, wanted_indexes
from jobpods import FINALIZER, is_over, is_ready, is_tracked, make_pod
from kubeevents import Recorder

_AT_ONCE = 500


class JobController:
    """A thread that looks at every Job of which something changed."""

    def __init__(self, api: Api, backoff: float = 0.1) -> None:
        self.api, self.backoff = api, backoff
        self.event = Recorder(api, "job-controller")
        self._memory: dict[str, Memory] = {}
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="job-controller")

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Waits for the end, which comes when the store is closed."""
        self._thread.join()

    def _run(self) -> None:
        store, version = self.api.store, 0
        due: dict[str, float] = {}
        while not store.closed:
            now = time.monotonic()
            try:
                with store.lock:
                    jobs = store.items(JOBS)[0] if version == 0 else self._touched(version, due, now)
                    version = store.version
                    for job in jobs:
                        due[job["metadata"]["uid"]] = self._safely(job)
                store.changes_after(version, max(0.01, min([1.0, *(when - time.monotonic() for when in due.values())])))
            except Exception as error:
                # Without this thread every test would wait for its Jobs in vain.
                self.failures.append(f"job controller: {type(error).__name__}: {error}")
                time.sleep(0.1)

    def _touched(self, version: int, due: dict[str, float], now: float) -> list[Json]:
        uids = {uid for uid, when in due.items() if when <= now}
        for change in self.api.store.changes_after(version, 0):
            thing = change.after or change.before or {}
            if change.resource is JOBS:
                uids.add(thing["metadata"]["uid"])
                if change.after is None:
                    due.pop(thing["metadata"]["uid"], None)
                    self._memory.pop(thing["metadata"]["uid"], None)
                    self._let_go(thing)
            elif change.resource is PODS:
                uids.update(ref["uid"] for ref in thing["metadata"].get("ownerReferences", []))
        return [one for one in self.api.store.items(JOBS)[0] if one["metadata"]["uid"] in uids]

    def _let_go(self, job: Json) -> None:
        """Pods of a Job that is gone are nobody's to count."""
        for pod in self.api.store.items(PODS, job["metadata"]["namespace"])[0]:
            owners = {ref["uid"] for ref in pod["metadata"].get("ownerReferences", [])}
            if is_tracked(pod) and (job["metadata"]["uid"] in owners or not owners):
                self._untrack(pod)

    def _safely(self, job: Json) -> float:
        try:
            return self._sync(job)
        except Exception as error:
            self.failures.append(f"job {job['metadata']['name']}: {type(error).__name__}: {error}")
            return time.monotonic() + 1

    def _sync(self, job: Json) -> float:
        """Returns when to look again if nothing changes."""
        uid = job["metadata"]["uid"]
        pods = owned_by(self.api.store.items(PODS, job["metadata"]["namespace"])[0], uid)
        look = Look(job, pods, self._memory.setdefault(uid, Memory()), clone(job.get("status", {})), self.backoff)
        if look.condition("Complete") or look.condition("Failed"):
            for pod in pods:
                if is_tracked(pod):
                    self._untrack(pod)
            return self._expire(look)
        if job["metadata"].get("deletionTimestamp"):
            self._count(look)
            return NEVER
        begin(look, self.event)
        self._count(look)
        end = verdict(look)
        if end:
            self._finish(look, *end)
        elif look.suspended:
            self._remove(look, look.active)
        else:
            self._manage(look)
        self._write(look)
        return look.due

    def _count(self, look: Look) -> None:
        for pod in count(look):
            self._untrack(pod)

    def _expire(self, look: Look) -> float:
        ttl = look.spec.get("ttlSecondsAfterFinished")
        if ttl is None:
            return NEVER
        ended = max(one["lastTransitionTime"] for one in look.status["conditions"])
        left = float(ttl) - seconds_since(ended)
        if left > 0:
            return time.monotonic() + min(left, 1.0)
        meta = look.job["metadata"]
        apideletion.delete(
            self.api, JOBS, meta["namespace"], meta["name"], {"propagationPolicy": "Foreground"}, Manner()
        )
        return NEVER

    def _finish(self, look: Look, kind: str, reason: str, message: str) -> None:
        """First the condition that says how it will end; when no pod is left running, the final one."""
        announced = look.condition(kind) is not None
        look.set(kind, reason, message)
        if not announced and not look.indexed:
            self._announce(look)
        for pod in look.active:
            self._delete(look, pod)
        look.pods = self._fresh(look)
        if look.active or look.going:
            return
        self._write(look)
        if kind == "FailureTarget":
            look.set("Failed", reason, message)
            self.event(look.job, reason, message, "Warning")
        else:
            look.set("Complete", reason, message)
            look.status["completionTime"] = stamp()
            self.event(look.job, "Completed", "Job completed")

    def _announce(self, look: Look) -> None:
        """Of a Job without indexes that condition is written before the counts: its pods are still to be counted."""
        before = look.job.get("status", {})
        counts = {key: before[key] for key in ("succeeded", "failed") if key in before}
        uncounted: Json = {}
        for pod in look.pods:
            if is_tracked(pod) and is_over(pod):
                uncounted.setdefault(pod["status"]["phase"].lower(), []).append(pod["metadata"]["uid"])
        shown = {key: value for key, value in look.status.items() if key not in ("succeeded", "failed", "active")}
        shown.update(counts, ready=0, terminating=len(look.going), uncountedTerminatedPods=uncounted)
        meta = look.job["metadata"]
        self.api.store.change(JOBS, meta["namespace"], meta["name"], lambda live: live.update(status=clone(shown)))

    def _fresh(self, look: Look) -> list[Json]:
        found = self.api.store.items(PODS, look.job["metadata"]["namespace"])[0]
        return owned_by(found, look.job["metadata"]["uid"])

    def _manage(self, look: Look) -> None:
        """Makes or removes pods until as many run as parallelism says."""
        active = look.active
        wanted = look.wanted
        surplus = look.surplus(wanted)
        if surplus:
            self._remove(look, surplus)
            return
        held = active + look.going if look.spec["podReplacementPolicy"] == "Failed" else active
        room = min(wanted - len(held), _AT_ONCE)
        now = time.monotonic()
        if look.memory.retry_at > now:
            look.wake(look.memory.retry_at)
            return
        for index in wanted_indexes(look, held, room, now):
            failures = look.memory.failed.get(index, Failures())
            pod = make_pod(look.job, index, failures.counted, failures.ignored)
            try:
                made = self.api.create(PODS, look.job["metadata"]["namespace"], pod)
            except ApiError as error:
                self.event(look.job, "FailedCreate", f"Error creating: {error.message}", "Warning")
                # The real queue waits 1 s, then twice that, up to a minute.
                look.memory.refused += 1
                look.memory.retry_at = now + min(60.0, self.backoff * 10 * 2 ** (look.memory.refused - 1))
                look.wake(look.memory.retry_at)
                return
            look.memory.refused = 0
            look.pods.append(made)
            self.event(look.job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    def _remove(self, look: Look, pods: list[Json]) -> None:
        """Pods that are too many go uncounted."""
        for pod in pods:
            self._untrack(pod)
            self._delete(look, pod)
        look.pods = self._fresh(look)

    def _delete(self, look: Look, pod: Json) -> None:
        meta = pod["metadata"]
        if not meta.get("deletionTimestamp"):
            apideletion.delete(self.api, PODS, meta["namespace"], meta["name"], {}, Manner())
            self.event(look.job, "SuccessfulDelete", f"Deleted pod: {meta['name']}")

    def _untrack(self, pod: Json) -> None:
        def edit(live: Json) -> None:
            left = [one for one in live["metadata"].get("finalizers", []) if one != FINALIZER]
            live["metadata"].pop("finalizers", None)
            if left:
                live["metadata"]["finalizers"] = left

        meta = pod["metadata"]
        if self.api.store.find(PODS, meta["namespace"], meta["name"]):
            self.api.store.change(PODS, meta["namespace"], meta["name"], edit)

    def _write(self, look: Look) -> None:
        active = look.active
        look.status.pop("active", None)
        if active:
            look.status["active"] = len(active)
        look.status["ready"] = sum(1 for pod in active if is_ready(pod))
        look.status["terminating"] = len(look.going)
        look.status["uncountedTerminatedPods"] = {}

        def edit(live: Json) -> None:
            live["status"] = look.status

        meta = look.job["metadata"]
        self.api.store.change(JOBS, meta["namespace"], meta["name"], edit)
