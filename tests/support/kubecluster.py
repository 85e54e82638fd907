"""What a test gets as `cluster`: a namespace of its own on the stand-in or on a real cluster, whose
state it sets.

Jobs are `managedBy` another controller, so that no Job controller writes their status; the test
writes it, and makes their pods, through the API. What a kubelet would do, as logs, is there on the
stand-in only.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import yaml
from apiobjects import GROUPS, KINDS, stamp
from apiserver import ApiServer, kubeconfig

from tarkit.k8s.indexset import format_indexes

Json = dict[str, Any]
PATIENCE = 120
"""Seconds: for a slow and busy machine."""
CONDITIONS = {"complete": ("SuccessCriteriaMet", "Complete"), "failed": ("FailureTarget", "Failed")}


class Said(NamedTuple):
    """What a program has said, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Cluster:
    """Attributes:
    server: the stand-in, None of a real cluster.
    client: the official one.
    """

    kubeconfig: Path
    namespace: str
    client: Any
    server: ApiServer | None

    @property
    def standin(self) -> ApiServer:
        """The stand-in; on a real cluster the test is skipped."""
        if self.server is None:
            pytest.skip("THE CONNECTIONS, LOGS AND NODES OF A REAL CLUSTER ARE NOT MADE BY A TEST")
        return self.server

    def ask(self, method: str, plural: str, name: str = "", body: Json | None = None, **query: str) -> Json:
        """One request; an error of the client if it is refused."""
        space = () if plural == "namespaces" else ("namespaces", self.namespace)
        path = "/".join(filter(None, (GROUPS[KINDS[plural][0]], *space, plural, name)))
        settings = self.client.configuration
        headers = {each["key"]: each["value"] for each in settings.auth_settings().values() if each["value"]}
        headers["Content-Type"] = f"application/{'merge-patch+json' if method == 'PATCH' else 'json'}"
        answer = self.client.rest_client.pool_manager.request(
            method, f"{settings.host}/{path}?{urlencode(query)}", headers=headers,
            body=None if body is None else json.dumps(body).encode(),
        )  # fmt: skip
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data.decode()}"
        found: Json = json.loads(answer.data)
        return found

    def apply(self, *documents: Json | str) -> None:
        """New objects; a text is a manifest."""
        for document in documents:
            for each in yaml.safe_load_all(document) if isinstance(document, str) else [document]:
                if each["kind"] == "Job":
                    each["spec"]["managedBy"] = "tarkit.dev/test"
                plural = next(plural for plural, (_, kind) in KINDS.items() if kind == each["kind"])
                self.ask("POST", plural, body=each, fieldValidation="Strict")

    def get(self, plural: str, name: str) -> Json:
        return self.ask("GET", plural, name)

    def items(self, plural: str) -> list[Json]:
        found: list[Json] = self.ask("GET", plural)["items"]
        return found

    def delete(self, plural: str, name: str, policy: str = "Background", **options: Any) -> None:
        self.ask("DELETE", plural, name, {"propagationPolicy": policy, **options})

    def set_status(self, plural: str, name: str, **status: Any) -> None:
        self.ask("PATCH", plural, f"{name}/status", {"status": status})

    def set_job(self, name: str, state: str = "running", reason: str = "FailedIndexes", **status: Any) -> None:
        """The status that a controller would write.

        Args:
            state: running, complete or failed.
        """
        now = stamp()
        whole: Json = {"startTime": now, "active": 0, "ready": 0, "terminating": 0, **status}
        if state in CONDITIONS:
            whole["conditions"] = [
                {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now, "lastProbeTime": now}
                for kind in CONDITIONS[state]
            ]
            whole |= {"completionTime": now} if state == "complete" else {}
        self.set_status("jobs", name, **whole)

    def end_indexes(self, name: str, codes: Mapping[int, int]) -> None:
        """Of an Indexed Job, all of whose indexes have ended with these exit codes."""
        done = [index for index, code in codes.items() if not code]
        failed = format_indexes(set(codes) - set(done))
        ended = {"completedIndexes": format_indexes(done), "succeeded": len(done), "failed": len(codes) - len(done)}
        if failed:
            self.set_job(name, "failed", failedIndexes=failed, **ended)
        else:
            self.set_job(name, "complete", "CompletionsReached", **ended)

    def add_pod(
        self, job: str, index: int | None = None, *, phase: str = "Running", code: int | None = None,
        node: str | None = None, reason: str = "", message: str = "", log: str | None = None, **status: Any,
    ) -> str:  # fmt: skip
        """A pod of a Job: its name.

        Args:
            code: with which its containers have ended.
            node: on which it is, so that it takes time to end.
            log: of each container, if it is over.
        """
        owner = self.get("jobs", job)
        template = owner["spec"]["template"]
        name = f"{job}-{'' if index is None else f'{index}-'}{secrets.token_hex(3)[:5]}"
        notes = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": owner["metadata"]["uid"]}
        metadata = {
            "name": name, "labels": {**template["metadata"]["labels"], **notes}, "annotations": notes,
            "ownerReferences": [{**reference, "controller": True}],
        }  # fmt: skip
        spec = {**template["spec"], **({"nodeName": node} if node else {})}
        made = self.ask("POST", "pods", body={"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec})
        if code is not None:
            phase = "Failed" if code else "Succeeded"
        state: Json = {"running": {"startedAt": stamp()}}
        if phase not in ("Running", "Pending"):
            word = reason or ("Error" if code else "Completed")
            state = {"terminated": {"exitCode": code or 0, "reason": word, "message": message}}
        containers = [each["name"] for each in spec["containers"]]
        if phase != "Pending":
            about = {"image": "i:1", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}
            status.setdefault("containerStatuses", [{"name": each, **about} for each in containers])
        self.set_status("pods", name, phase=phase, **status)
        if log is not None:
            for each in containers:
                self.standin.objects.add_log(made["metadata"]["uid"], each, log)
        return name

    def end_pod(self, name: str) -> None:
        """As a kubelet does once the processes of a pod that is being deleted are gone."""
        self.delete("pods", name, gracePeriodSeconds=0)

    def add_event(self, about: Json, reason: str, message: str) -> None:
        metadata = about["metadata"]
        subject = {key: metadata[key] for key in ("name", "namespace", "uid")} | {"kind": about["kind"]}
        event = {"involvedObject": subject, "reason": reason, "message": message, "lastTimestamp": stamp(), "count": 1}
        self.ask("POST", "events", body={"kind": "Event", "metadata": {"generateName": "e-"}, **event})

    def asked(self, word: str = "") -> list[str]:
        """What the stand-in was asked about this namespace, as far as it has a word."""
        space = f"/namespaces/{self.namespace}"
        return [one.partition(space)[2] for one in list(self.standin.seen) if space in one and word in one]

    def wait_for(self, question: Callable[[], Any], what: str = "") -> Any:
        """The first true answer; fails after a time."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if answer := question():
                return answer
            time.sleep(0.02)
        raise AssertionError(f"not within {PATIENCE} s: {what or question}")


@contextmanager
def own_namespace(
    folder: Path, server: ApiServer | None, given: str | None = None, name: str | None = None
) -> Iterator[Cluster]:
    """A fresh namespace on the stand-in, or on the cluster of a kubeconfig."""
    from kubernetes import config

    name = name or f"tarkit-test-{secrets.token_hex(4)}"
    path = folder / f"kubeconfig-{name}"
    text = kubeconfig(server.url, name) if server is not None else Path(str(given)).read_text()
    described = yaml.safe_load(text)
    for context in described["contexts"]:
        context["context"]["namespace"] = name
    path.write_text(json.dumps(described))
    path.chmod(0o600)
    cluster = Cluster(path, name, config.new_client_from_config(str(path)), server)
    cluster.ask("POST", "namespaces", body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield cluster
    finally:
        if server is not None:
            server.objects.delete_namespace(name)
        else:
            cluster.ask("DELETE", "namespaces", name, {})
