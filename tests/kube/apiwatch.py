"""Lists in pages, and watches: what is there, then what changes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

from apierrors import ApiError, Cause, bad_request, expired
from apiresources import Resource
from apiselect import field_test, label_test
from apistore import Json, Store

Test = Callable[[Json], bool]


def selector(resource: Resource, query: dict[str, str], name: str = "") -> Test:
    """One test out of labelSelector, fieldSelector and the name of the path."""
    tests = []
    if query.get("labelSelector"):
        tests.append(label_test(query["labelSelector"]))
    if query.get("fieldSelector"):
        tests.append(field_test(resource, query["fieldSelector"]))
    if name:
        tests.append(lambda thing: thing["metadata"]["name"] == name)
    return lambda thing: all(test(thing) for test in tests)


def page(
    store: Store, resource: Resource, namespace: str, test: Test, query: dict[str, str]
) -> tuple[list[Json], Json]:
    """The objects of one page, and the metadata of the list."""
    things, version = store.items(resource, namespace)
    found = [one for one in things if test(one)]
    meta: Json = {"resourceVersion": str(version)}
    limit = int(query.get("limit") or 0)
    start = 0
    if query.get("continue"):
        try:
            token = json.loads(base64.urlsafe_b64decode(query["continue"]))
            keys = [_key(one) for one in found]
            start = sum(1 for key in keys if key <= tuple(token["after"]))
            if token["version"] < store.oldest:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            meta["resourceVersion"] = str(token["version"])
        except (ValueError, KeyError, TypeError):
            raise bad_request("continue key is not valid") from None
    kept = found[start:]
    if limit and len(kept) > limit:
        token = {"version": int(meta["resourceVersion"]), "after": _key(kept[limit - 1])}
        meta["continue"] = base64.urlsafe_b64encode(json.dumps(token).encode()).decode()
        meta["remainingItemCount"] = len(kept) - limit
        kept = kept[:limit]
    return kept, meta


def _key(thing: Json) -> tuple[str, str]:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def check_watch(query: dict[str, str]) -> None:
    """A watch that starts with a list is refused, as by a server without that feature; clients fall back."""
    if query.get("sendInitialEvents") is not None:
        said = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        cause = Cause("sendInitialEvents", "FieldValueForbidden", f"Forbidden: {said}")
        details = {"group": "meta.k8s.io", "kind": "ListOptions"}
        details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]  # type: ignore[assignment]
        message = f'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: {said}'
        raise ApiError(422, "Invalid", message, details)


def watch(
    store: Store, resource: Resource, namespace: str, test: Test, query: dict[str, str], gone: Callable[[], bool]
) -> Iterator[Json]:
    """Events until timeoutSeconds, until the server closes, or until `gone` says that nobody listens."""
    ends = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
    begin = query.get("resourceVersion") or "0"
    bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    if begin == "0":
        with store.lock:
            things, version = store.items(resource, namespace)
        for one in things:
            if test(one):
                yield {"type": "ADDED", "object": one}
    else:
        try:
            version = int(begin)
        except ValueError:
            raise bad_request(f"invalid resource version: {begin}") from None
    while not store.closed and time.monotonic() < ends and not gone():
        try:
            changes = store.watched_after(version, min(0.5, max(0.0, ends - time.monotonic())))
        except ApiError as error:
            yield {"type": "ERROR", "object": error.status()}
            return
        for change in changes:
            version = change.version
            if change.resource is not resource:
                continue
            event = _event(namespace, test, change.before, change.after, change.version)
            if event:
                yield event
    if bookmarks and not store.closed:
        meta = {"resourceVersion": str(version), "creationTimestamp": None}
        yield {
            "type": "BOOKMARK",
            "object": {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta},
        }


def _event(namespace: str, test: Test, before: Json | None, after: Json | None, version: int) -> Json | None:
    """Objects that begin or cease to match a selector are added or deleted to those who watch."""
    was, now = _fits(namespace, test, before), _fits(namespace, test, after)
    if now:
        return {"type": "MODIFIED" if was else "ADDED", "object": after}
    if was and before is not None:
        gone = {**before, "metadata": {**before["metadata"], "resourceVersion": str(version)}}
        return {"type": "DELETED", "object": gone}
    return None


def _fits(namespace: str, test: Test, thing: Json | None) -> bool:
    return thing is not None and (not namespace or thing["metadata"].get("namespace") == namespace) and test(thing)
