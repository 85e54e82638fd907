"""The node agent of the stand-in: pods that are bound to its node run as local processes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from apierrors import bad_request
from apiresources import NODES, PODS
from apiservice import Api
from apistore import Json
from jobpods import is_over
from kubeevents import Recorder
from podrun import PodRun
from podsandbox import MemoryGroup, other_mounts, unshare_command
from scheduler import Scheduler, node_object

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessKubelet:
    """One thread for the node (it also schedules), one for each pod."""

    def __init__(
        self,
        api: Api,
        folder: Path,
        shared: list[Path] | None = None,
        backoff: float = 0.1,
        cpu: str = "16",
        memory: str = "64Gi",
        env: dict[str, str] | None = None,
    ) -> None:
        self.api, self.folder, self.backoff = api, folder, backoff
        # Folders that pods and the host have in common; everything else that pods write is gone with them.
        self.shared = shared or []
        self.extra_env = env or {}
        MemoryGroup.remove_stale()
        self.unshare = unshare_command()
        self.other_mounts = other_mounts()
        self.node = api.store.create(NODES, node_object("standin-node", cpu, memory))
        self.scheduler = Scheduler(api, "standin-node")
        self.event = Recorder(api, "kubelet")
        self.failures: list[str] = []
        self._runs: dict[str, PodRun] = {}
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the store is closed: kills all pods and waits for them."""
        self._thread.join()
        for run in self._runs.values():
            run.stop(0, abandon=True)
        for run in self._runs.values():
            run.join()

    def base_env(self, pod: Json) -> dict[str, str]:
        """What an image and the cluster bring; the programs of this Python come first, so that tarproc is found."""
        meta, spec = pod["metadata"], pod["spec"]
        return {
            "PATH": f"{Path(sys.executable).parent}:{_DEFAULT_PATH}",
            "HOME": "/root",
            "HOSTNAME": (spec.get("hostname") or meta["name"])[:63],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
            **self.extra_env,
        }

    def _run(self) -> None:
        store, version = self.api.store, 0
        while not store.closed:
            try:
                with store.lock:
                    version = store.version
                    self.scheduler.schedule()
                    pods = store.items(PODS)[0]
                for pod in pods:
                    self._look(pod)
                self._forget({pod["metadata"]["uid"] for pod in pods})
                store.changes_after(version, 1.0)
            except Exception as error:
                self.failures.append(f"kubelet: {type(error).__name__}: {error}")
                time.sleep(0.1)

    def _look(self, pod: Json) -> None:
        meta = pod["metadata"]
        run = self._runs.get(meta["uid"])
        if run is None and pod["spec"].get("nodeName") == "standin-node" and not is_over(pod):
            run = self._runs[meta["uid"]] = PodRun(self, pod)
        if run is not None and meta.get("deletionTimestamp"):
            run.stop(meta.get("deletionGracePeriodSeconds", 0))

    def _forget(self, alive: set[str]) -> None:
        for uid in [uid for uid in self._runs if uid not in alive]:
            run = self._runs[uid]
            run.stop(0, abandon=True)
            run.join()
            del self._runs[uid]

    def log(self, namespace: str, name: str, query: dict[str, str], gone: Callable[[], bool]) -> Iterator[bytes]:
        """What pods/NAME/log answers. Raises ApiError in the words of the real server."""
        pod = self.api.store.get(PODS, namespace, name)
        names = [one["name"] for kind in ("containers", "initContainers") for one in pod["spec"].get(kind, [])]
        container = query.get("container") or (names[0] if len(pod["spec"]["containers"]) == 1 else "")
        if not container:
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {name}")
        run = self._runs.get(pod["metadata"]["uid"])
        if not pod["spec"].get("nodeName"):
            return iter(())
        if query.get("previous") in ("true", "1"):
            if run is None or container not in run.before:
                raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
            return run.before[container].read(query, gone)
        if run is None or container not in run.logs:
            reason = run.waiting.get(container, "ContainerCreating") if run else "ContainerCreating"
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
        return run.logs[container].read(query, gone)
