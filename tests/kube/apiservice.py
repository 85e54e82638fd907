"""What the API server does with a request once it is understood: decode, fill in, check, admit, keep.

Controllers of the stand-in use the same door: a pod that a quota refuses is refused to the Job controller.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from apiadmission import admit_pod
from apidefaults import fill, own_labels, quality_of_service
from apierrors import ApiError, bad_request, conflict, forbidden, invalid
from apipatch import apply, json_patch, merge, strategic
from apiresources import JOBS, NAMESPACES, PODS, Resource
from apischema import decode
from apistore import Json, Store, clone, stamp
from apivalidation import size_of, validate_change, validate_new
from podrules import warnings

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# Not the one of this process: a test (Hypothesis) may give that a seed, and names must differ all the same.
_RANDOM = random.SystemRandom()
_SERVER_SETS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)
# etcd refuses more in one request [measured]; the request itself may be 3 MiB.
_LARGEST = 1_572_864
ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass
class Manner:
    """How a request wants to be treated, and the warnings that go back with the answer."""

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    warnings: list[str] = field(default_factory=list)


def random_suffix() -> str:
    return "".join(_RANDOM.choices(_LETTERS, k=5))


class Api:
    """The verbs, over a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        # What each manager applied last, for server-side apply; keyed by uid and manager.
        self._applied: dict[tuple[str, str], Json] = {}

    def _decoded(self, resource: Resource, body: Any, manner: Manner) -> Json:
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized (must be of type Object)")
        kind, version = body.get("kind", resource.kind), body.get("apiVersion", resource.api_version)
        if (kind, version) != (resource.kind, resource.api_version):
            said = f"({version}, Kind={kind})"
            wanted = f"({resource.api_version}, Kind={resource.kind})"
            raise bad_request(f"the kind of the object {said} does not match the kind of the request {wanted}")
        thing, unknown = decode(resource, body)
        said = ", ".join(f'unknown field "{path}"' for path in unknown)
        if unknown and manner.validation == "Strict":
            version = resource.api_version.rpartition("/")[2]
            kind = resource.kind
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {said}'
            )
        if unknown and manner.validation != "Ignore":
            manner.warnings += [f'unknown field "{path}"' for path in unknown]
        thing.update(apiVersion=resource.api_version, kind=resource.kind)
        thing.setdefault("metadata", {})
        return thing

    def create(self, resource: Resource, namespace: str, body: Any, manner: Manner | None = None) -> Json:
        manner = manner or Manner()
        thing = self._decoded(resource, body, manner)
        meta = thing["metadata"]
        if resource.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            self._check_namespace(resource, namespace, meta.get("name", ""))
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + random_suffix()
        if meta.get("resourceVersion"):
            raise ApiError(500, "InternalError", "resourceVersion should not be set on objects to be created")
        for key in (*_SERVER_SETS, "resourceVersion"):
            meta.pop(key, None)
        meta["uid"] = str(uuid.uuid4())
        fill(resource, thing)
        self._begin(resource, thing)
        causes = validate_new(resource, thing)
        if causes:
            raise invalid(resource, meta.get("name", ""), causes)
        manner.warnings += warnings(resource, thing)
        with self.store.lock:
            if resource is PODS:
                admit_pod(self.store, thing)
            self._check_size(thing)
            if manner.dry_run:
                if self.store.find(resource, meta.get("namespace", ""), meta["name"]):
                    return self.store.create(resource, thing)
                meta["creationTimestamp"] = stamp()
                return thing
            return self.store.create(resource, thing)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self.store.get(NAMESPACES, "", namespace)
        if found["metadata"].get("deletionTimestamp"):
            said = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource, name, said)

    @staticmethod
    def _begin(resource: Resource, thing: Json) -> None:
        if resource is JOBS:
            own_labels(thing)
            thing["metadata"]["generation"] = 1
            thing["status"] = {}
        elif resource is PODS:
            thing["metadata"]["generation"] = 1
            thing["status"] = {"phase": "Pending", "qosClass": quality_of_service(thing["spec"])}

    @staticmethod
    def _check_size(thing: Json) -> None:
        if size_of(thing) > _LARGEST:
            raise ApiError(500, "InternalError", "etcdserver: request is too large")

    def update(
        self, resource: Resource, namespace: str, name: str, body: Any, manner: Manner | None = None, sub: str = ""
    ) -> Json:
        manner = manner or Manner()
        thing = self._decoded(resource, body, manner)
        if thing["metadata"].get("name", name) != name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self._change(resource, namespace, name, lambda live: thing, manner, sub)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: str,
        body: Any,
        manner: Manner | None = None,
        sub: str = "",
    ) -> Json:
        """`kind` is merge, strategic, json or apply."""
        manner = manner or Manner()
        schema = {"$ref": f"/{resource.schema}"}
        if kind == "apply" and self.store.find(resource, namespace, name) is None:
            body["metadata"]["name"] = name
            made = self.create(resource, namespace, body, manner)
            if not manner.dry_run:
                self._applied[made["metadata"]["uid"], manner.manager] = clone(body)
            return made

        def edit(live: Json) -> Json:
            if kind == "merge":
                patched = merge(live, body)
            elif kind == "json":
                patched = json_patch(live, body)
            elif kind == "strategic":
                patched = strategic(schema, live, body)
            else:
                patched = apply(schema, live, body, self._applied.get((live["metadata"]["uid"], manner.manager)))
                self._applied[live["metadata"]["uid"], manner.manager] = clone(body)
            return self._decoded(resource, patched, manner)

        return self._change(resource, namespace, name, edit, manner, sub)

    def _change(self, resource: Resource, namespace: str, name: str, edit: Any, manner: Manner, sub: str) -> Json:
        def checked(live: Json) -> Json:
            old = clone(live)
            new = clone(edit(live))
            wanted = new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
            if wanted != old["metadata"]["resourceVersion"]:
                raise conflict(resource, name)
            if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                wanted, found = new["metadata"]["uid"], old["metadata"]["uid"]
                said = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
                raise conflict(resource, name, said)
            new = self._settled(resource, new, old, sub)
            manner.warnings += warnings(resource, new) if not sub else []
            self._check_size(new)
            return new

        if manner.dry_run:
            return checked(clone(self.store.get(resource, namespace, name)))
        return self.store.change(resource, namespace, name, checked)

    @staticmethod
    def _settled(resource: Resource, new: Json, old: Json, sub: str) -> Json:
        """The new object with what a client may not change put back, checked."""
        if sub in ("status", "finalize"):
            part = "status" if sub == "status" else "spec"
            return {**clone(old), part: new.get(part, {})}
        if "status" in old:
            new["status"] = old["status"]
        for key in (*_SERVER_SETS, "resourceVersion", "generation", "name", "namespace", "generateName"):
            new["metadata"].pop(key, None)
            if key in old["metadata"]:
                new["metadata"][key] = old["metadata"][key]
        fill(resource, new)
        if resource is JOBS:
            for part in ("selector", "manualSelector"):
                if part in old["spec"] and part not in new["spec"]:
                    new["spec"][part] = old["spec"][part]
            if not old["spec"].get("manualSelector"):
                _keep_own_labels(new, old)
        causes = validate_change(resource, new, old)
        if causes:
            raise invalid(resource, old["metadata"]["name"], causes)
        if resource in (JOBS, PODS) and new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return new


def _keep_own_labels(new: Json, old: Json) -> None:
    """A PUT or replace without the labels that the server added keeps them, as the real strategy does."""
    before = old["spec"]["template"].get("metadata", {}).get("labels", {})
    after = new["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    for key in ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"):
        if key in before:
            after.setdefault(key, before[key])
