"""The status of a pod, as a kubelet writes it step by step."""

from __future__ import annotations

from collections.abc import Callable

from apiresources import PODS
from apiservice import Api
from apistore import Json, stamp
from podcontainer import Ended


def set_condition(status: Json, kind: str, value: str, reason: str = "", message: str = "") -> None:
    conditions = status.setdefault("conditions", [])
    found = next((one for one in conditions if one["type"] == kind), None)
    if found is None:
        found = {"type": kind, "status": ""}
        conditions.append(found)
    if found["status"] != value:
        found.update(status=value, lastProbeTime=None, lastTransitionTime=stamp())
    for key, text in (("reason", reason), ("message", message)):
        found.pop(key, None)
        if text:
            found[key] = text


class PodStatus:
    """Writes to the API; a pod that is gone raises ApiError (NotFound)."""

    def __init__(self, api: Api, pod: Json) -> None:
        self.api, self.pod = api, pod
        self.uid = pod["metadata"]["uid"]
        self._names = {
            kind: [one["name"] for one in pod["spec"].get(kind, [])] for kind in ("initContainers", "containers")
        }

    def _edit(self, change: Callable[[Json], None]) -> None:
        def edit(live: Json) -> None:
            if live["metadata"]["uid"] == self.uid:
                change(live["status"])

        meta = self.pod["metadata"]
        self.api.store.change(PODS, meta["namespace"], meta["name"], edit)

    def _container(self, status: Json, name: str) -> Json:
        for kind in ("initContainerStatuses", "containerStatuses"):
            for one in status.get(kind, []):
                if one["name"] == name:
                    found: Json = one
                    return found
        raise KeyError(name)

    def creating(self) -> None:
        def change(status: Json) -> None:
            status.update(hostIP="127.0.0.1", hostIPs=[{"ip": "127.0.0.1"}], startTime=stamp())
            set_condition(status, "PodReadyToStartContainers", "False")
            unready = f"containers with unready status: [{' '.join(self._names['containers'])}]"
            waits = bool(self._names["initContainers"])
            names = " ".join(self._names["initContainers"])
            set_condition(
                status,
                "Initialized",
                "False" if waits else "True",
                "ContainersNotInitialized" if waits else "",
                f"containers with incomplete status: [{names}]" if waits else "",
            )
            for kind in ("Ready", "ContainersReady"):
                set_condition(status, kind, "False", "ContainersNotReady", unready)
            for kind, key in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
                if self._names[kind]:
                    status[key] = [self._fresh(one, waits) for one in self.pod["spec"][kind]]

        self._edit(change)

    @staticmethod
    def _fresh(container: Json, waits: bool) -> Json:
        reason = "PodInitializing" if waits else "ContainerCreating"
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "lastState": {},
            "state": {"waiting": {"reason": reason}},
        }

    def initialized(self) -> None:
        self._edit(lambda status: set_condition(status, "Initialized", "True"))

    def waiting(self, name: str, reason: str, message: str, restarts: int = 0, before: Ended | None = None) -> None:
        def change(status: Json) -> None:
            one = self._container(status, name)
            one["state"] = {"waiting": {"reason": reason, "message": message}}
            one.update(ready=False, started=False)
            if before is not None:
                one["lastState"] = before.state(one.get("containerID", ""))

        self._edit(change)

    def started(self, name: str, when: str, restarts: int) -> None:
        def change(status: Json) -> None:
            one = self._container(status, name)
            number = abs(hash((self.uid, name, restarts))) % 16**12
            one.update(
                containerID=f"process://{number:064x}",
                imageID=one["image"],
                ready=name in self._names["containers"],
                started=True,
                restartCount=restarts,
                state={"running": {"startedAt": when}},
            )
            set_condition(status, "PodReadyToStartContainers", "True")
            status.update(podIP="127.0.0.1", podIPs=[{"ip": "127.0.0.1"}])
            if name in self._names["containers"]:
                status["phase"] = "Running"
                if all(other["ready"] for other in status["containerStatuses"]):
                    set_condition(status, "Ready", "True")
                    set_condition(status, "ContainersReady", "True")

        self._edit(change)

    def ended(self, name: str, how: Ended, restarts: int) -> None:
        def change(status: Json) -> None:
            one = self._container(status, name)
            one.update(ready=False, started=False, restartCount=restarts, state=how.state(one.get("containerID", "")))

        self._edit(change)

    def over(self, ends: list[Ended | None] | None) -> None:
        """The final phase. None for `ends`: an init container failed."""
        good = ends is not None and all(one is not None and one.code == 0 for one in ends)

        def change(status: Json) -> None:
            status["phase"] = "Succeeded" if good else "Failed"
            reason = "PodCompleted" if good else "PodFailed"
            set_condition(status, "PodReadyToStartContainers", "False")
            set_condition(status, "Ready", "False", reason)
            set_condition(status, "ContainersReady", "False", reason)
            if good:
                set_condition(status, "Initialized", "True", reason)

        self._edit(change)

    def never_ran(self) -> None:
        """Deleted before its containers could start."""

        def change(status: Json) -> None:
            status["phase"] = "Failed"
            set_condition(status, "Ready", "False", "PodFailed")
            set_condition(status, "ContainersReady", "False", "PodFailed")

        self._edit(change)
