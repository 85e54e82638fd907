"""The whole stand-in cluster: API server, Job controller, garbage collector, quotas, scheduler and kubelet."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import apideletion
from apiadmission import used_of
from apiquantity import canonical
from apiresources import NAMESPACES, PODS, QUOTAS
from apiroutes import Router
from apiserver import ApiServer
from apiservice import Api
from apistore import Json, Store
from jobcontroller import JobController
from processkubelet import ProcessKubelet


class Standin:
    """Starts at once; stop() leaves no thread, process or mount behind."""

    def __init__(
        self,
        folder: Path,
        shared: list[Path] | None = None,
        port: int = 0,
        backoff: float = 0.1,
        **node: Any,
    ) -> None:
        self.store = Store()
        self.api = Api(self.store)
        for name in ("default", "kube-system"):
            self.api.create(NAMESPACES, "", {"metadata": {"name": name}})
        self.kubelet = ProcessKubelet(self.api, folder / "pods", shared, backoff, **node)
        self.controller = JobController(self.api, backoff)
        self.router = Router(self.api, self.kubelet)
        self.server = ApiServer(self.store, self.router, port)
        self._collector = threading.Thread(target=self._collect, name="garbage-collector")
        self._failures: list[str] = []
        self.controller.start()
        self.kubelet.start()
        self._collector.start()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def failures(self) -> list[str]:
        """Where the stand-in itself broke."""
        return [*self.server.failures, *self.controller.failures, *self.kubelet.failures, *self._failures]

    def stop(self) -> None:
        self.server.stop()
        self.controller.join()
        self._collector.join()
        self.kubelet.stop()

    def _collect(self) -> None:
        """Garbage, namespaces that are to go, and what quotas are used up."""
        version = 0
        while not self.store.closed:
            try:
                changes = self.store.changes_after(version, 1.0)
                going = (
                    change.after is None or change.after["metadata"].get("deletionTimestamp") for change in changes
                )
                if any(going):
                    apideletion.collect(self.api)
                if any(change.resource in (PODS, QUOTAS) for change in changes):
                    self._count_quotas()
                version = max([version, *(change.version for change in changes)])
            except Exception as error:
                self._failures.append(f"garbage collector: {type(error).__name__}: {error}")
                # What fails for good must not fill the memory.
                time.sleep(0.1)

    def _count_quotas(self) -> None:
        for quota in self.store.items(QUOTAS)[0]:
            hard = quota["spec"].get("hard", {})
            used = {key: canonical(f"{value:f}") for key, value in used_of(self.store, quota).items()}

            def edit(live: Json, hard: Json = hard, used: Json = used) -> None:
                live["status"] = {"hard": hard, "used": used}

            with self.store.lock:
                if self.store.find(QUOTAS, quota["metadata"]["namespace"], quota["metadata"]["name"]):
                    self.store.change(QUOTAS, quota["metadata"]["namespace"], quota["metadata"]["name"], edit)


def kubeconfig(url: str, namespace: str = "default") -> str:
    """A kubeconfig file for a server without certificates and without users."""
    return f"""apiVersion: v1
kind: Config
clusters:
- name: standin
  cluster: {{server: "{url}"}}
contexts:
- name: standin
  context: {{cluster: standin, user: standin, namespace: "{namespace}"}}
current-context: standin
users:
- name: standin
  user: {{token: standin}}
"""
