"""docs/why-nothing-runs.md shows what ``kubetpl status`` says, line by line, and every reason that
it can give.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.kube.jobtext import status_lines

from tarkit.k8s.apiobject import grouped
from tarkit.k8s.cluster import whynot
from tarkit.k8s.cluster.jobstatus import JobStatus
from tarkit.k8s.cluster.jobview import job_view

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "why-nothing-runs.md").read_text(encoding="utf-8")
NOW = 1_800_000_000.0
EARLIER = "2027-01-15T07:00:00Z"
_REFUSED = 'Error creating: pods "grey-0-x7k2p" is forbidden: '
_PREEMPTION = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
Case = tuple[dict[str, Any], list[dict[str, Any]], "list[dict[str, Any]] | None"]


def job(status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "grey", "uid": "j", **metadata},
        "spec": {"completionMode": "Indexed", "completions": 8, "parallelism": 4, **(spec or {})},
        "status": {"active": 0, **(status or {})},
    }


def event(about: str, reason: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"uid": about}, "reason": reason, "message": message, "lastTimestamp": EARLIER}


def refused(message: str) -> Case:
    """No pod is made, in the words of an admission plugin."""
    return job(), [], [event("j", "FailedCreate", _REFUSED + message)]


def pending(*events: dict[str, Any], node: str = "", **status: Any) -> Case:
    metadata = {"name": "grey-0-x7k2p", "uid": "p", "creationTimestamp": EARLIER}
    pod = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Pending", **status}}
    return job({"active": 4}), [pod], list(events)


def unschedulable(message: str) -> Case:
    """In the words of the scheduler."""
    said = f"0/3 nodes are available: {message}. {_PREEMPTION}"
    return pending(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}])


def waiting(reason: str, message: str) -> Case:
    """In the words of a kubelet."""
    state = {"waiting": {"reason": reason, "message": message}}
    return pending(containerStatuses=[{"image": "example.com/etl:2", "state": state}])


def unmounted(volume: str, message: str) -> Case:
    said = f'MountVolume.SetUp failed for volume "{volume}" : {message}'
    return pending(event("p", "FailedMount", said), node="n")


CASES: dict[str, Case] = {
    "pod security": refused(
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false)"
    ),
    "quota, used up": refused(
        "exceeded quota: team, requested: requests.memory=4Gi, used: requests.memory=510Gi, "
        "limited: requests.memory=512Gi"
    ),
    "quota, a limit": refused("failed quota: team: must specify limits.cpu for: main"),
    "quota, a request": refused("failed quota: team: must specify requests.cpu for: main"),
    "LimitRange": refused("maximum memory usage per Container is 2Gi, but limit is 4Gi"),
    "service account": refused('error looking up service account vision/etl: serviceaccount "etl" not found'),
    "priority class": refused("no PriorityClass with name soon was found"),
    "webhook": refused('admission webhook "policy.example.com" denied the request: label team is missing'),
    "image": waiting("ImagePullBackOff", 'Back-off pulling image "example.com/etl:2"'),
    "cpu": unschedulable("3 Insufficient cpu"),
    "memory": unschedulable("3 Insufficient memory"),
    "disk": unschedulable("3 Insufficient ephemeral-storage"),
    "gpu": unschedulable("3 Insufficient nvidia.com/gpu"),
    "selector": unschedulable("3 node(s) didn't match Pod's node affinity/selector"),
    "taint": unschedulable("3 node(s) had untolerated taint {cloud.google.com/gke-spot: true}"),
    "queue": (job(spec={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "etl"}), [], []),
    "ConfigMap": unmounted("shards", 'configmap "grey-shards-1a2b3c4d" not found'),
    "Secret": unmounted("secret-gac", 'secret "gac" not found'),
    "root": waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
    "creating": pending(node="n"),
    "suspended": (job(spec={"suspend": True}), [], []),
    "paused": (job(spec={"parallelism": 0}), [], []),
    "ending": (job({"terminating": 1}), [], []),
    "back-off": (job({"failed": 3}), [], []),
    "new": (job(), [], []),
    "no events": (job(), [], None),
}  # fmt: skip


def said(case: Case) -> list[str]:
    """The lines of ``kubetpl status`` on why nothing runs."""
    found, pods, events = case
    reasons = whynot.why_not(found, pods, None if events is None else grouped(events, whynot.subject_of), NOW)
    status = JobStatus("grey", job_view(found, pods, NOW), reasons=reasons)
    return [line for line in status_lines(status) if line.startswith("not running:")]


@pytest.mark.parametrize("name", CASES)
def test_the_program_says_what_the_page_says(name: str) -> None:
    (line,) = said(CASES[name])
    assert line in PAGE.splitlines()


def test_the_page_says_nothing_else() -> None:
    shown = {line for line in PAGE.splitlines() if line.startswith("not running:")}
    assert shown == {line for case in CASES.values() for line in said(case)}


def test_all_advice_is_on_it() -> None:
    """But for sentences that name the thing to change by themselves."""
    lines = "\n".join(line for line in PAGE.splitlines() if line.startswith("not running:"))
    assert [pattern for pattern, _ in whynot.ADVICE if not re.search(pattern, lines)] == [
        r"must specify [\w.,\-]*memory",
        r"(maximum|minimum) cpu usage",
        r"(maximum|minimum) (?!cpu|memory)[\w.\-]+ usage|limit to request ratio",
        r"Insufficient pods|Too many pods",
        r"persistentvolumeclaim|PersistentVolumeClaims",
        r"topology spread",
        r"CrashLoopBackOff",
        r'configmap "(?!\S*-shards-)',
    ]
