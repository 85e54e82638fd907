"""From a path and a verb to what is done: the URLs of the Kubernetes API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import apideletion
import apiresources
import apischema
import apiwatch
from apierrors import ApiError, no_such_path
from apiresources import PODS, Resource
from apiserver import Answer, Request, lines
from apiservice import Api, Manner
from apistore import Json
from apitables import table

_PATCHES = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
    "application/apply-patch+yaml": "apply",
}


class Logs(Protocol):
    """Who has the output of containers."""

    def log(self, namespace: str, name: str, query: dict[str, str], gone: Any) -> Iterator[bytes]: ...


class Router:
    """Answers requests; knows nothing of sockets."""

    def __init__(self, api: Api, logs: Logs) -> None:
        self.api, self.logs = api, logs
        # Every request, as verb and path with query: tests look at what a client asked.
        self.seen: list[str] = []

    def answer(self, request: Request) -> Answer:
        self.seen.append(f"{request.verb} {request.path}" + ("?" + "&".join(request.query) if request.query else ""))
        if request.verb == "GET":
            fixed = _document(request.path)
            if fixed is not None:
                return fixed
        found = re.fullmatch(r"/(?:api|apis/([a-z.]+))/v1/(.+)", request.path.rstrip("/"))
        if not found:
            raise no_such_path()
        group, parts = found[1] or "", found[2].split("/")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
            namespace, parts = parts[1], parts[2:]
        resource = apiresources.find(group, parts[0])
        if resource is None or len(parts) > 3:
            raise no_such_path()
        name, sub = (parts + ["", ""])[1:3]
        if sub and sub not in resource.subresources:
            raise no_such_path()
        if not name:
            return self._collection(request, resource, namespace)
        return self._one(request, resource, namespace, name, sub)

    def _manner(self, request: Request) -> Manner:
        query = request.query
        manager = query.get("fieldManager", "")
        return Manner("dryRun" in query, query.get("fieldValidation") or "Warn", manager)

    def _collection(self, request: Request, resource: Resource, namespace: str) -> Answer:
        query, manner = request.query, self._manner(request)
        if request.verb == "GET":
            return self._read_many(request, resource, namespace, "")
        if request.verb == "POST":
            made = self.api.create(resource, namespace, request.json(), manner)
            return self._object(request, resource, made, 201, manner)
        if request.verb == "DELETE":
            options = {**query, **(request.json() or {})}
            test = apiwatch.selector(resource, query)
            found = [one for one in self.api.store.items(resource, namespace)[0] if test(one)]
            for one in found:
                meta = one["metadata"]
                apideletion.delete(
                    self.api, resource, meta.get("namespace", ""), meta["name"], _options(options), manner
                )
            return Answer(_list(resource, found, {"resourceVersion": str(self.api.store.version)}))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _read_many(self, request: Request, resource: Resource, namespace: str, name: str) -> Answer:
        query = request.query
        test = apiwatch.selector(resource, query, name)
        as_table = "as=Table" in request.accept
        if query.get("watch") in ("true", "1"):
            apiwatch.check_watch(query)
            events = apiwatch.watch(self.api.store, resource, namespace, test, query, request.gone)
            return Answer(parts=lines(_tabled(resource, events) if as_table else events))
        things, meta = apiwatch.page(self.api.store, resource, namespace, test, query)
        return Answer(table(resource, things, meta) if as_table else _list(resource, things, meta))

    def _one(self, request: Request, resource: Resource, namespace: str, name: str, sub: str) -> Answer:
        manner, verb = self._manner(request), request.verb
        if sub == "log" and verb == "GET":
            parts = self.logs.log(namespace, name, request.query, request.gone)
            return Answer(parts=parts, content="text/plain")
        if sub == "eviction" and verb == "POST":
            return Answer(apideletion.evict(self.api, namespace, name, request.json(), manner), 201)
        if sub == "binding" and verb == "POST":
            self._bind(namespace, name, request.json()["target"]["name"])
            return Answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)
        if verb == "GET":
            if request.query.get("watch") in ("true", "1"):
                return self._read_many(request, resource, namespace, name)
            return self._object(request, resource, self.api.store.get(resource, namespace, name), 200, manner)
        if verb == "PUT":
            kept = self.api.update(resource, namespace, name, request.json(), manner, sub)
            return self._object(request, resource, kept, 200, manner)
        if verb == "PATCH":
            return self._patch(request, resource, namespace, name, sub, manner)
        if verb == "DELETE":
            options = _options({**request.query, **(request.json() or {})})
            manner.dry_run = manner.dry_run or bool(options.get("dryRun"))
            gone = apideletion.delete(self.api, resource, namespace, name, options, manner)
            return Answer(gone, warnings=manner.warnings)
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _patch(
        self, request: Request, resource: Resource, namespace: str, name: str, sub: str, manner: Manner
    ) -> Answer:
        kind = _PATCHES.get(request.content)
        if kind is None:
            raise ApiError(
                415, "UnsupportedMediaType", f"the body of the request was in an unknown format - {request.content}"
            )
        new = kind == "apply" and self.api.store.find(resource, namespace, name) is None
        kept = self.api.patch(resource, namespace, name, kind, request.json(), manner, sub)
        return self._object(request, resource, kept, 201 if new else 200, manner)

    def _bind(self, namespace: str, name: str, node: str) -> None:
        def edit(live: Json) -> None:
            live["spec"]["nodeName"] = node

        self.api.store.change(PODS, namespace, name, edit)

    def _object(self, request: Request, resource: Resource, thing: Json, code: int, manner: Manner) -> Answer:
        if "as=Table" in request.accept:
            meta = {"resourceVersion": thing["metadata"].get("resourceVersion", "")}
            return Answer(table(resource, [thing], meta), code, warnings=manner.warnings)
        return Answer(thing, code, warnings=manner.warnings)


def _options(found: Json) -> Json:
    """DeleteOptions, from the query or the body; the query has text for numbers."""
    options = dict(found)
    if isinstance(options.get("gracePeriodSeconds"), str):
        options["gracePeriodSeconds"] = int(options["gracePeriodSeconds"])
    return options


def _list(resource: Resource, things: list[Json], meta: Json) -> Json:
    # Items of a typed list carry neither kind nor apiVersion.
    items = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in things]
    return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": items}


def _tabled(resource: Resource, events: Iterator[Json]) -> Iterator[Json]:
    headed = True
    for event in events:
        if event["type"] in ("ERROR", "BOOKMARK"):
            yield event
            continue
        meta = {"resourceVersion": event["object"]["metadata"]["resourceVersion"]}
        yield {"type": event["type"], "object": table(resource, [event["object"]], meta, headed)}
        headed = False


def _document(path: str) -> Answer | None:
    """What is the same for everybody: version, discovery, OpenAPI, health."""
    path = path.rstrip("/")
    if path in ("/healthz", "/readyz", "/livez"):
        return Answer(b"ok", content="text/plain")
    if path in ("/openapi/v3/api/v1", "/openapi/v3/apis/batch/v1"):
        return Answer(apischema.openapi("batch" if "batch" in path else ""))
    documents: dict[str, Callable[[], Json]] = {
        "/version": apiresources.version_document,
        "/api": apiresources.api_versions,
        "/apis": apiresources.api_groups,
        "/apis/batch": apiresources.api_group,
        "/openapi/v3": apischema.openapi_root,
        "/api/v1": lambda: apiresources.resource_list(""),
        "/apis/batch/v1": lambda: apiresources.resource_list("batch"),
    }
    return Answer(documents[path]()) if path in documents else None
