"""Binds pods to the one node, or says why not, in the words of the real scheduler."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from apiadmission import usage
from apiquantity import amount
from apiresources import NODES, PODS
from apiservice import Api
from apistore import Json, stamp
from jobpods import is_over
from kubeevents import Recorder
from podstatus import set_condition

_AFFINITY = "1 node(s) didn't match Pod's node affinity/selector"


class Scheduler:
    """Called whenever pods changed; keeps nothing."""

    def __init__(self, api: Api, node: str) -> None:
        self.api, self.node = api, node
        self.event = Recorder(api, "default-scheduler")

    def schedule(self) -> None:
        with self.api.store.lock:
            pods = self.api.store.items(PODS)[0]
            used: Counter[str] = Counter()
            for pod in pods:
                if pod["spec"].get("nodeName") and not is_over(pod):
                    used.update(_requests(pod))
            for pod in sorted(pods, key=lambda one: int(one["metadata"]["resourceVersion"])):
                if self._is_mine(pod):
                    reasons = self._against(pod, used)
                    if reasons:
                        self._refuse(pod, reasons)
                    else:
                        self._bind(pod)
                        used.update(_requests(pod))

    @staticmethod
    def _is_mine(pod: Json) -> bool:
        spec = pod["spec"]
        mine = spec.get("schedulerName") == "default-scheduler" and not spec.get("schedulingGates")
        return mine and not spec.get("nodeName") and not pod["metadata"].get("deletionTimestamp")

    def _against(self, pod: Json, used: Counter[str]) -> list[str]:
        node = self.api.store.get(NODES, "", self.node)
        labels = node["metadata"]["labels"]
        wanted = pod["spec"].get("nodeSelector", {})
        if any(labels.get(key) != value for key, value in wanted.items()) or not _affine(pod, labels):
            return [_AFFINITY]
        have = node["status"]["allocatable"]
        reasons = []
        for key, value in sorted(_requests(pod).items()):
            if value and Decimal(used[key]) + Decimal(value) > amount(have.get(key, "0")):
                reasons.append("1 Too many pods" if key == "pods" else f"1 Insufficient {key}")
        return reasons

    def _bind(self, pod: Json) -> None:
        def edit(live: Json) -> None:
            live["spec"]["nodeName"] = self.node
            set_condition(live["status"], "PodScheduled", "True")

        meta = pod["metadata"]
        self.api.store.change(PODS, meta["namespace"], meta["name"], edit)
        self.event(pod, "Scheduled", f"Successfully assigned {meta['namespace']}/{meta['name']} to {self.node}")

    def _refuse(self, pod: Json, reasons: list[str]) -> None:
        hopeless = reasons == [_AFFINITY]
        why = "Preemption is not helpful for scheduling" if hopeless else "No preemption victims found for incoming pod"
        said = f"0/1 nodes are available: {', '.join(reasons)}. preemption: 0/1 nodes are available: 1 {why}."
        known = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
        if known and known[0].get("message") == said:
            return

        def edit(live: Json) -> None:
            set_condition(live["status"], "PodScheduled", "False", "Unschedulable", said)

        self.api.store.change(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], edit)
        self.event(pod, "FailedScheduling", said, "Warning")


def _requests(pod: Json) -> Counter[str]:
    found: Counter[str] = Counter({"pods": 1})
    for key, value in usage(pod).items():
        if key.startswith("requests."):
            found[key.partition(".")[2]] += value  # type: ignore[assignment]
    return found


def _affine(pod: Json, labels: dict[str, str]) -> bool:
    """Required node affinity; preferences do not matter with one node."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, labels) for term in required.get("nodeSelectorTerms", []))


def _term(term: Json, labels: dict[str, str]) -> bool:
    for one in term.get("matchExpressions", []):
        key, word, values = one["key"], one["operator"], one.get("values", [])
        fits = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }.get(word, False)
        if not fits:
            return False
    return True


def node_object(name: str, cpu: str, memory: str) -> Json:
    """The one node."""
    room = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "standin-a",
    }
    now = stamp()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "stand-in kubelet is posting ready status",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }
