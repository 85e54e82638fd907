"""The objects of the stand-in API server: numbered versions, selectors, watches, deletion, logs of
pods.

Wordings and rules are those of a real 1.36.2. What a controller or a kubelet would write, the test
writes.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

Json = dict[str, Any]
Test = Callable[[Json], bool]

GROUPS = {"": "api/v1", "batch": "apis/batch/v1", "networking.k8s.io": "apis/networking.k8s.io/v1"}
KINDS = {
    "namespaces": ("", "Namespace"),
    "pods": ("", "Pod"),
    "events": ("", "Event"),
    "configmaps": ("", "ConfigMap"),
    "services": ("", "Service"),
    "jobs": ("batch", "Job"),
    "networkpolicies": ("networking.k8s.io", "NetworkPolicy"),
}
"""Group and kind by the plural in a path."""
# What the real server can select by; it refuses everything else.
_FIELDS = {
    "pods": {"spec.nodeName", "status.phase"},
    "events": {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"},
    "jobs": {"status.successful"},
}
_SET = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s+\(([^)]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_FOREGROUND = "foregroundDeletion"
_OVER = ("Succeeded", "Failed")


class Refused(Exception):
    """A request that is refused, as an HTTP code and a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code,
        }  # fmt: skip


def qualified(plural: str) -> str:
    """As messages name a kind: ``jobs.batch``."""
    return ".".join(filter(None, (plural, KINDS[plural][0])))


def stamp(seconds: float = 0.0) -> str:
    """The time in so many seconds, as the API writes it."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def selector(plural: str, labels: str, fields: str) -> Test:
    """One test out of labelSelector and fieldSelector."""
    tests = [_label_test(part) for part in _split(labels)] + [_field_test(plural, part) for part in _split(fields)]
    return lambda thing: all(test(thing) for test in tests)


def _split(text: str) -> list[str]:
    """At the commas outside parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label_test(part: str) -> Test:
    def labels(thing: Json) -> dict[str, str]:
        return thing["metadata"].get("labels") or {}

    if found := _SET.fullmatch(part):
        values = {one.strip() for one in found[3].split(",")}
        return lambda thing: (labels(thing).get(found[1]) in values) is (found[2] == "in")
    if found := _EQUAL.fullmatch(part):
        return lambda thing: (labels(thing).get(found[1]) == found[3]) is (found[2] != "!=")
    if found := re.fullmatch(r"(!?)([^\s!=,()]+)", part.strip()):
        return lambda thing: (found[2] in labels(thing)) is not bool(found[1])
    raise Refused(400, "BadRequest", f'unable to parse requirement: found "{part}"')


def _field_test(plural: str, part: str) -> Test:
    found = _EQUAL.fullmatch(part)
    if found is None:
        raise Refused(400, "BadRequest", f'invalid field selector: "{part}"')
    path = found[1]
    if path not in {"metadata.name", "metadata.namespace"} | _FIELDS.get(plural, set()):
        raise Refused(400, "BadRequest", f"field label not supported: {path}")

    def text(thing: Any) -> str:
        for step in path.split("."):
            thing = thing.get(step) if isinstance(thing, dict) else None
        return "" if thing is None else str(thing)

    return lambda thing: (text(thing) == found[3]) is (found[2] != "!=")


class Objects:
    """All objects, behind one lock.

    Each change is a line of a log, which watches read.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.closed = False
        self._things: dict[tuple[str, str, str], Json] = {}
        self._changes: list[tuple[str, Json | None, Json | None]] = []
        """(plural, before, after); the version is the number of the line."""
        self._oldest = 0
        self._logs: dict[tuple[str, str], list[bytes]] = {}

    def get(self, plural: str, space: str, name: str) -> Json:
        """One object."""
        with self.changed:
            if (found := self._things.get((plural, space, name))) is None:
                raise Refused(404, "NotFound", f'{qualified(plural)} "{name}" not found')
            return found

    def items(self, plural: str, space: str, test: Test = lambda thing: True) -> list[Json]:
        """Those that a selector chooses, by name."""
        with self.changed:
            found = [self._things[key] for key in sorted(self._things) if key[:2] == (plural, space)]
        return [thing for thing in found if test(thing)]

    def page(self, plural: str, space: str, test: Test, query: dict[str, str]) -> tuple[list[Json], Json]:
        """(the objects of one page, the metadata of the list)."""
        with self.changed:
            found, version = self.items(plural, space, test), len(self._changes)
        after, limit = "", int(query.get("limit") or 0)
        if query.get("continue"):
            begun, after = json.loads(query["continue"])
            if begun < self._oldest:
                why = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", why)
            version = begun
        rest = [thing for thing in found if thing["metadata"]["name"] > after]
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(rest) > limit:
            rest = rest[:limit]
            metadata["continue"] = json.dumps([version, rest[-1]["metadata"]["name"]])
        return rest, metadata

    def create(self, plural: str, space: str, body: Json) -> Json:
        """A new object with what every server adds."""
        group, kind = KINDS[plural]
        given = body.get("metadata") or {}
        name = given.get("name") or f"{given['generateName']}{uuid.uuid4().hex[:5]}"
        metadata = {**given, "name": name, "uid": str(uuid.uuid4()), "creationTimestamp": stamp()}
        if plural != "namespaces":
            metadata["namespace"] = space
            self.get("namespaces", "", space)
        with self.changed:
            if (plural, space, name) in self._things:
                raise Refused(409, "AlreadyExists", f'{qualified(plural)} "{name}" already exists')
            version = f"{group}/v1" if group else "v1"
            thing: Json = {"kind": kind, "apiVersion": version, **body, "metadata": metadata}
            if plural == "jobs":
                _complete_job(thing)
            elif plural == "pods":
                thing["status"] = {"phase": "Pending"}
            return self._put(plural, None, thing)

    def change(self, plural: str, space: str, name: str, changes: Json, part: str = "") -> Json:
        """Merge changes into an object.

        Args:
            part: ``status`` for that subresource, which changes nothing else.
        """
        with self.changed:
            before = self.get(plural, space, name)
            after = merged(before, {key: value for key, value in changes.items() if (key == "status") is bool(part)})
            if plural == "jobs" and not part:
                _refuse_changes(before, after)
            return before if after == before else self._put(plural, before, after)

    def delete(self, plural: str, space: str, name: str, options: Json) -> Json:
        """Now, or once its grace is over, or what it owns is gone: as the options say."""
        with self.changed:
            thing = self.get(plural, space, name)
            wanted = (options.get("preconditions") or {}).get("uid", thing["metadata"]["uid"])
            if wanted != thing["metadata"]["uid"]:
                why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
                where = f'Operation cannot be fulfilled on {qualified(plural)} "{name}": '
                raise Refused(409, "Conflict", f"{where}{why}{thing['metadata']['uid']}")
            policy = options.get("propagationPolicy") or ("Orphan" if plural == "jobs" else "Background")
            owned = self._owned(thing)
            if policy == "Orphan":
                for kind, one in owned:
                    self._put(kind, one, merged(one, {"metadata": {"ownerReferences": None}}))
            grace = _grace(plural, thing, options)
            if grace or (policy == "Foreground" and owned):
                marks = {"deletionTimestamp": stamp(grace), "deletionGracePeriodSeconds": grace}
                marks |= {} if grace else {"finalizers": [_FOREGROUND]}
                thing = self._put(plural, thing, merged(thing, {"metadata": marks}))
            else:
                thing = self._put(plural, thing, None)
            if policy != "Orphan":
                for kind, one in owned:
                    self.delete(kind, space, one["metadata"]["name"], {"propagationPolicy": policy})
            return thing

    def delete_namespace(self, name: str) -> None:
        """With all that is in it, at once."""
        with self.changed:
            for plural, space, each in list(self._things):
                if space == name or (plural, each) == ("namespaces", name):
                    self._put(plural, self._things[plural, space, each], None)

    def watch(
        self, plural: str, space: str, test: Test, query: dict[str, str], gone: Callable[[], bool]
    ) -> Iterator[Json]:
        """Events after a version: until timeoutSeconds, until the server closes, or until nobody
        listens.
        """
        ends = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        version = int(query.get("resourceVersion") or 0)
        if not version:
            with self.changed:
                found, version = self.items(plural, space, test), len(self._changes)
            yield from ({"type": "ADDED", "object": thing} for thing in found)
        if version < self._oldest:
            error = Refused(410, "Expired", f"too old resource version: {version} ({self._oldest})")
            yield {"type": "ERROR", "object": error.status}
            return
        while not self.closed and time.monotonic() < ends and not gone():
            with self.changed:
                if len(self._changes) == version and not self.closed:
                    self.changed.wait(max(0.0, min(0.3, ends - time.monotonic())))
                lines, version = self._changes[version:], len(self._changes)
            for kind, before, after in lines:
                if kind == plural and (event := _event(space, test, before, after)) is not None:
                    yield event
        if query.get("allowWatchBookmarks") and not self.closed:
            mark = {"kind": KINDS[plural][1], "metadata": {"resourceVersion": str(version)}}
            yield {"type": "BOOKMARK", "object": mark}

    def compact(self) -> None:
        """From now on older versions cannot be watched or listed any more (410)."""
        with self.changed:
            self._oldest = len(self._changes)

    def close(self) -> None:
        """Every watch ends."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def add_log(self, uid: str, container: str, text: str) -> None:
        """What a pod's container has written."""
        with self.changed:
            self._logs.setdefault((uid, container), []).extend(text.encode().splitlines(keepends=True))

    def read_log(self, space: str, name: str, query: dict[str, str]) -> Iterator[bytes]:
        """What pods/NAME/log answers."""
        pod = self.get("pods", space, name)
        names = [each["name"] for each in pod["spec"]["containers"]]
        if (container := query.get("container")) is None and len(names) > 1:
            why = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
            raise Refused(400, "BadRequest", why)
        container = container or names[0]
        if container not in names:
            raise Refused(400, "BadRequest", f"container {container} is not valid for pod {name}")
        if (pod["metadata"]["uid"], container) not in self._logs:
            why = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", why)
        lines = self._logs[pod["metadata"]["uid"], container]
        return iter(lines[max(0, len(lines) - int(query.get("tailLines", len(lines)))) :])

    def _put(self, plural: str, before: Json | None, after: Json | None) -> Json:
        thing = json.loads(json.dumps(after or before))
        metadata = thing["metadata"]
        metadata["resourceVersion"] = str(len(self._changes) + 1)
        key = plural, metadata.get("namespace", ""), metadata["name"]
        if after is None:
            self._things.pop(key, None)
            # Which watches are sent as it was, with the version of its end.
            self._changes.append((plural, thing, None))
            for owner in metadata.get("ownerReferences", ()):
                self._finish(owner["uid"])
        else:
            self._things[key] = thing
            self._changes.append((plural, before, thing))
        self.changed.notify_all()
        return thing

    def _owned(self, thing: Json) -> list[tuple[str, Json]]:
        uid = thing["metadata"]["uid"]
        return [
            (key[0], one)
            for key, one in list(self._things.items())
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences") or ())
        ]

    def _finish(self, uid: str) -> None:
        """Remove an owner that waits for what it owns, once that is gone."""
        for (plural, _, _), one in list(self._things.items()):
            waits = _FOREGROUND in (one["metadata"].get("finalizers") or ())
            if one["metadata"]["uid"] == uid and waits and not self._owned(one):
                self._put(plural, one, None)


def merged(thing: Any, changes: Any) -> Any:
    """A JSON merge patch: RFC 7386."""
    if not isinstance(changes, dict):
        return changes
    found = dict(thing) if isinstance(thing, dict) else {}
    for key, value in changes.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def _event(space: str, test: Test, before: Json | None, after: Json | None) -> Json | None:
    """Objects that begin or cease to match a selector are added or deleted to those who watch."""
    was, now = (
        thing is not None and thing["metadata"].get("namespace", "") == space and test(thing)
        for thing in (before, after)
    )
    if now:
        return {"type": "MODIFIED" if was else "ADDED", "object": after}
    version = None if after is None else {"metadata": {"resourceVersion": after["metadata"]["resourceVersion"]}}
    return {"type": "DELETED", "object": merged(before, version or {})} if was else None


def _complete_job(job: Json) -> None:
    """What the server adds: the selector, by which its pods are found, and a few defaults."""
    uid, name, spec = job["metadata"]["uid"], job["metadata"]["name"], job["spec"]
    own = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name, "job-name": name}
    metadata = spec["template"].setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **own, "controller-uid": uid}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    for key in ("parallelism", "completions"):
        spec.setdefault(key, 1)
    job["status"] = {}


def _refuse_changes(before: Json, after: Json) -> None:
    old, new = before["spec"], after["spec"]
    elastic = new["completionMode"] == "Indexed" and new["completions"] == new["parallelism"]
    for key in ("template", "completions", "selector", "completionMode"):
        if old.get(key) != new.get(key) and not (key == "completions" and elastic):
            name = after["metadata"]["name"]
            why = f'Job.batch "{name}" is invalid: spec.{key}: Invalid value: field is immutable'
            raise Refused(422, "Invalid", why)


def _grace(plural: str, thing: Json, options: Json) -> int:
    """Seconds that a pod has to end: none before it has a node, or once it has ended."""
    if plural != "pods" or not thing["spec"].get("nodeName") or thing["status"].get("phase") in _OVER:
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(thing["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)
