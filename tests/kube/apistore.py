"""Where the stand-in API server keeps its objects: numbered versions, and a log of changes to watch."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from apierrors import already_exists, conflict, expired, not_found
from apiresources import Resource

Json = dict[str, Any]
Key = tuple[str, str]


def clone(value: Any) -> Any:
    """A copy that shares nothing; what is kept is JSON, so JSON is the quickest way."""
    return json.loads(json.dumps(value))


def stamp(when: datetime.datetime | None = None) -> str:
    """A time as the API writes it, to the second, UTC."""
    when = when or datetime.datetime.now(datetime.timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


class Change(NamedTuple):
    """One line of the log: the version it made, what it was about, before and after."""

    version: int
    resource: Resource
    before: Json | None
    after: Json | None


class Store:
    """All objects of all kinds, behind one lock.

    What is handed out is never changed by the store afterwards, and must not be changed by those who got it:
    they clone. Every change is one line of the log; those who watch wait on `changed`.
    """

    def __init__(self, log_length: int = 50_000) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1
        self.closed = False
        self._objects: dict[str, dict[Key, Json]] = {}
        self._log: deque[Change] = deque(maxlen=log_length)
        self._compacted = 1

    def close(self) -> None:
        """Wakes all who watch; they end."""
        with self.lock:
            self.closed = True
            self.changed.notify_all()

    def compact(self) -> None:
        """From now on older versions cannot be watched any more (410).

        The log stays: the stand-in's own controllers, which read it at their own pace, must not lose a change.
        """
        with self.lock:
            self._compacted = self.version

    @property
    def oldest(self) -> int:
        """The oldest version that can be watched."""
        return max(self._compacted, self._forgotten)

    @property
    def _forgotten(self) -> int:
        """The newest version of which the log has no line any more."""
        return self._log[0].version - 1 if len(self._log) == self._log.maxlen else 0

    def watched_after(self, version: int, wait: float) -> list[Change]:
        """As changes_after, for clients: raises what they get for a version that is too old."""
        with self.lock:
            if version < self.oldest:
                raise expired(f"too old resource version: {version} ({self.oldest})")
            return self.changes_after(version, wait)

    def changes_after(self, version: int, wait: float) -> list[Change]:
        """The log after a version; waits up to `wait` seconds for a first line."""
        with self.lock:
            if version < self._forgotten:
                raise RuntimeError(f"the log begins after version {self._forgotten}, asked was {version}")
            if self.version <= version and not self.closed:
                self.changed.wait(wait)
            if self.version <= version:
                return []
            count = 0
            for change in reversed(self._log):
                if change.version <= version:
                    break
                count += 1
            return [self._log[index] for index in range(len(self._log) - count, len(self._log))]

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        with self.lock:
            found = self._objects.get(resource.qualified, {}).get((namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        with self.lock:
            return self._objects.get(resource.qualified, {}).get((namespace, name))

    def items(self, resource: Resource, namespace: str = "") -> tuple[list[Json], int]:
        """All objects of a kind (of a namespace), sorted by name as by the real one, and the version of this moment."""
        with self.lock:
            kept = self._objects.get(resource.qualified, {})
            keys = sorted(key for key in kept if not namespace or key[0] == namespace)
            return [kept[key] for key in keys], self.version

    def create(self, resource: Resource, thing: Json) -> Json:
        thing = clone(thing)
        meta = thing["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        with self.lock:
            kept = self._objects.setdefault(resource.qualified, {})
            if key in kept:
                raise already_exists(resource, meta["name"])
            meta.setdefault("uid", str(uuid.uuid4()))
            meta["creationTimestamp"] = stamp()
            return self._put(resource, key, None, thing)

    def change(self, resource: Resource, namespace: str, name: str, edit: Callable[[Json], Json | None]) -> Json:
        """Gives a copy to `edit`, keeps what it returns (or the copy, changed). No difference, no new version."""
        with self.lock:
            before = self.get(resource, namespace, name)
            after = clone(before)
            after = clone(edit(after) or after)
            wanted = after["metadata"].get("resourceVersion")
            if wanted not in (None, "", before["metadata"]["resourceVersion"]):
                raise conflict(resource, name)
            after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            if after == before:
                return before
            meta = after["metadata"]
            if meta.get("deletionTimestamp") and not meta.get("finalizers") and self._is_over(after):
                self._put(resource, (namespace, name), after, None)
                return dict(after)
            return self._put(resource, (namespace, name), before, after)

    @staticmethod
    def _is_over(thing: Json) -> bool:
        return bool(thing["metadata"].get("deletionGracePeriodSeconds", 0) == 0)

    def remove(self, resource: Resource, namespace: str, name: str) -> Json:
        with self.lock:
            before = self.get(resource, namespace, name)
            self._put(resource, (namespace, name), before, None)
            return before

    def _put(self, resource: Resource, key: Key, before: Json | None, after: Json | None) -> Json:
        self.version += 1
        kept = self._objects.setdefault(resource.qualified, {})
        if after is None:
            gone = clone(before)
            gone["metadata"]["resourceVersion"] = str(self.version)
            del kept[key]
            self._log.append(Change(self.version, resource, gone, None))
        else:
            after["metadata"]["resourceVersion"] = str(self.version)
            kept[key] = after
            self._log.append(Change(self.version, resource, before, after))
        self.changed.notify_all()
        return after if after is not None else gone


def owned_by(things: Iterable[Json], uid: str) -> list[Json]:
    """Those with an owner reference to this uid."""
    return [one for one in things if any(ref.get("uid") == uid for ref in one["metadata"].get("ownerReferences", []))]
