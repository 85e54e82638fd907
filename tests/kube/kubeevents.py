"""Events: what controllers, scheduler and kubelet tell people; the same again is counted, not repeated."""

from __future__ import annotations

import contextlib
import secrets

from apierrors import ApiError
from apiresources import EVENTS
from apiservice import Api
from apistore import Json, stamp


class Recorder:
    """Writes core/v1 events in the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        self.api, self.component = api, component
        self._known: dict[tuple[str, str, str], str] = {}

    def __call__(self, about: Json, reason: str, message: str, kind: str = "Normal", field: str = "") -> None:
        meta = about["metadata"]
        key, namespace = (meta["uid"], reason, message), meta.get("namespace", "default")
        # The namespace may be going; then nobody reads its events.
        with contextlib.suppress(ApiError):
            if key in self._known and self.api.store.find(EVENTS, namespace, self._known[key]):
                self.api.store.change(EVENTS, namespace, self._known[key], _again)
                return
            made = self.api.create(EVENTS, namespace, self._event(about, reason, message, kind, field))
            self._known[key] = made["metadata"]["name"]

    def _event(self, about: Json, reason: str, message: str, kind: str, field: str) -> Json:
        meta, now = about["metadata"], stamp()
        involved = {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            "namespace": meta.get("namespace", "default"),
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        if field:
            involved["fieldPath"] = field
        return {
            "metadata": {"name": f"{meta['name']}.{secrets.token_hex(8)}", "namespace": involved["namespace"]},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _again(event: Json) -> None:
    event["count"] += 1
    event["lastTimestamp"] = stamp()
