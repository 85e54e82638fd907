"""Deleting: grace for running pods, finalizers, dependents, namespaces, evictions."""

from __future__ import annotations

import datetime
from typing import Any

from apierrors import conflict
from apiresources import EVENTS, JOBS, NAMESPACES, PODS, RESOURCES, Resource
from apiservice import ORPHANS, Api, Manner
from apistore import Json, clone, owned_by, stamp

_OVER = ("Succeeded", "Failed")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def delete(api: Api, resource: Resource, namespace: str, name: str, options: Json, manner: Manner) -> Json:
    """Returns what the server answers: the object where it lives on for a while (and for pods), else a Status."""
    with api.store.lock:
        thing = api.store.get(resource, namespace, name)
        wanted = options.get("preconditions") or {}
        for key in ("uid", "resourceVersion"):
            if wanted.get(key, thing["metadata"][key]) != thing["metadata"][key]:
                said = (
                    f"Precondition failed: {key.upper() if key == 'uid' else key} in precondition: {wanted[key]}, "
                    f"{key.upper() if key == 'uid' else key} in object meta: {thing['metadata'][key]}"
                )
                raise conflict(resource, name, said)
        if manner.dry_run:
            return _success(resource, thing)
        policy = options.get("propagationPolicy")
        if resource is JOBS and policy is None and options.get("orphanDependents") is None:
            # What a batch/v1 client gets that says nothing; kubectl always says Background.
            policy = "Orphan"
            manner.warnings.append(ORPHANS)
        if policy == "Orphan" or options.get("orphanDependents"):
            _orphan(api, thing)
        grace = _grace(resource, thing, options)
        if policy == "Foreground" and _dependents(api, thing):
            _mark(api, resource, thing, 0, [FOREGROUND])
        elif grace or thing["metadata"].get("finalizers") or resource is NAMESPACES:
            _mark(api, resource, thing, grace, [])
        else:
            gone = api.store.remove(resource, namespace, name)
            return gone if resource is PODS else _success(resource, thing)
        return api.store.find(resource, namespace, name) or thing


def _success(resource: Resource, thing: Json) -> Json:
    details = {"name": thing["metadata"]["name"], "kind": resource.plural, "uid": thing["metadata"]["uid"]}
    if resource.group:
        details["group"] = resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _grace(resource: Resource, thing: Json, options: Json) -> int:
    if resource is not PODS or not thing["spec"].get("nodeName") or thing["status"].get("phase") in _OVER:
        return 0
    asked = options.get("gracePeriodSeconds")
    grace = thing["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    if thing["metadata"].get("deletionTimestamp"):
        grace = min(grace, thing["metadata"].get("deletionGracePeriodSeconds", grace))
    return int(grace)


def _mark(api: Api, resource: Resource, thing: Json, grace: int, finalizers: list[str]) -> None:
    """Writes down that the object is to go; the store drops it when no grace and no finalizer are left."""

    def edit(live: Json) -> None:
        meta = live["metadata"]
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=grace)
        meta.setdefault("deletionTimestamp", stamp(when))
        meta["deletionGracePeriodSeconds"] = grace
        meta["finalizers"] = list(dict.fromkeys([*meta.get("finalizers", []), *finalizers]))
        if not meta["finalizers"]:
            del meta["finalizers"]
        if resource is NAMESPACES:
            meta["finalizers"] = ["kubernetes"]
            live["status"] = {"phase": "Terminating"}

    api.store.change(resource, thing["metadata"].get("namespace", ""), thing["metadata"]["name"], edit)


def _dependents(api: Api, thing: Json) -> list[tuple[Resource, Json]]:
    uid, namespace = thing["metadata"]["uid"], thing["metadata"].get("namespace", "")
    kinds = [one for one in RESOURCES if one.namespaced and one is not EVENTS]
    return [(kind, one) for kind in kinds for one in owned_by(api.store.items(kind, namespace)[0], uid)]


def _orphan(api: Api, thing: Json) -> None:
    uid = thing["metadata"]["uid"]
    for kind, one in _dependents(api, thing):

        def edit(live: Json) -> None:
            left = [ref for ref in live["metadata"].pop("ownerReferences") if ref["uid"] != uid]
            if left:
                live["metadata"]["ownerReferences"] = left

        api.store.change(kind, one["metadata"]["namespace"], one["metadata"]["name"], edit)


def evict(api: Api, namespace: str, name: str, body: Any, manner: Manner) -> Json:
    """The pod gets the condition by which policies know a disruption, then it is deleted."""
    with api.store.lock:
        pod = api.store.get(PODS, namespace, name)
        options = dict((body or {}).get("deleteOptions") or {})
        answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        if manner.dry_run:
            return answer
        if pod["status"].get("phase") not in _OVER and not pod["metadata"].get("deletionTimestamp"):
            disrupt(api, namespace, name, "EvictionByEvictionAPI", "Eviction API: evicting")
        delete(api, PODS, namespace, name, options, manner)
        return answer


def disrupt(api: Api, namespace: str, name: str, reason: str, message: str) -> None:
    """Sets the condition DisruptionTarget, as the eviction API, the scheduler and the pod GC do."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": stamp(),
    }

    def edit(live: Json) -> None:
        conditions = live["status"].setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != "DisruptionTarget"] + [clone(condition)]

    api.store.change(PODS, namespace, name, edit)


def collect(api: Api) -> None:
    """One round of the garbage collector and of the namespace controller."""
    with api.store.lock:
        alive = {one["metadata"]["uid"] for kind in RESOURCES for one in api.store.items(kind)[0]}
        foreground = set()
        for kind in RESOURCES:
            for one in api.store.items(kind)[0]:
                if FOREGROUND in one["metadata"].get("finalizers", []):
                    foreground.add(one["metadata"]["uid"])
        for kind in RESOURCES:
            for one in api.store.items(kind)[0]:
                owners = {ref["uid"] for ref in one["metadata"].get("ownerReferences", [])}
                going = one["metadata"].get("deletionTimestamp")
                if owners and not going and (not owners & alive or owners & foreground):
                    delete(
                        api,
                        kind,
                        one["metadata"]["namespace"],
                        one["metadata"]["name"],
                        {"propagationPolicy": "Background"},
                        Manner(),
                    )
        _finish(api, foreground)
        _empty_namespaces(api)


def _finish(api: Api, foreground: set[str]) -> None:
    for kind in RESOURCES:
        for one in api.store.items(kind)[0]:
            if one["metadata"]["uid"] in foreground and not _dependents(api, one):

                def edit(live: Json) -> None:
                    live["metadata"]["finalizers"].remove(FOREGROUND)

                api.store.change(kind, one["metadata"].get("namespace", ""), one["metadata"]["name"], edit)


def _empty_namespaces(api: Api) -> None:
    for space in api.store.items(NAMESPACES)[0]:
        if not space["metadata"].get("deletionTimestamp"):
            continue
        name, left = space["metadata"]["name"], 0
        for kind in RESOURCES:
            if not kind.namespaced:
                continue
            for one in api.store.items(kind, name)[0]:
                if not one["metadata"].get("deletionTimestamp"):
                    delete(api, kind, name, one["metadata"]["name"], {"propagationPolicy": "Background"}, Manner())
            left += len(api.store.items(kind, name)[0])
        if not left:
            api.store.remove(NAMESPACES, "", name)
