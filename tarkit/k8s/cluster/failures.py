"""Reasons why pods failed, grouped, each with a change that may help.

Source of the codes: docs/exit-codes.md for those of tarproc; 128+n for signals; OOMKilled,
StartError and DisruptionTarget from
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ and .../disruptions/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tarkit import errors
from tarkit.errors import UsageError, printable, signal_name
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.podfields import folders_of_stage, main_container, runs_tarproc
from tarkit.k8s.quantity import is_milli, total
from tarkit.runs.work import PROGRAM

_VARIABLE = (
    (re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s'\",;)]+"), "URL"),
    (re.compile(r"(?<![\w/])/?[\w.\-]*(?:/[\w.\-]+)+"), "PATH"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "HEX"),
    (re.compile(r"[\w.\-]*\d[\w.\-]*"), "N"),
)
_COMMAND = "a retry does not help: fix the command or the image, then retry"
_OWN_CODE = "the command's own exit code: see kubetpl logs --failed; retry once the cause is fixed"
_COUNTS = re.compile(rf"{PROGRAM}: (shards: done|in) [0-9]")
# As other programs have it: sysexits.h.
_SYSEXITS_USAGE, _SYSEXITS_CONFIG = 64, 78
# 128 and the number of the last signal that Linux has.
_LAST_SIGNAL = 192
_ADVICE = {
    errors.EXIT_FAILED: "see kubetpl logs --failed; retry once the cause is fixed",
    errors.EXIT_USAGE: _COMMAND,
    errors.EXIT_SET_ASIDE: (
        "finished, but samples were set aside, or none came out: see OUT/*.failed.tar; tarproc --retry-failed runs "
        "just those"
    ),
    _SYSEXITS_USAGE: _COMMAND,
    errors.EXIT_DATA: (
        "input data is corrupt: the same again ends the same; replace the shard, or pass --on-damage skip"
    ),
    errors.EXIT_MISSING: "input is missing: correct --shards, or put the shard there, then retry",
    errors.EXIT_TEMPORARY: "temporary: kubetpl retry",
    _SYSEXITS_CONFIG: _COMMAND,
    errors.EXIT_CANNOT_RUN: "the command is not executable: fix it or -I --image, then retry",
    errors.EXIT_NOT_FOUND: "the command does not exist in this image: fix it or -I --image, then retry",
}

_OF_STAGE = {
    errors.EXIT_SET_ASIDE: "finished, but samples were set aside: see OUT/*.failed.tar",
    errors.EXIT_DATA: "input data is corrupt, or a key is repeated: the same again ends the same; replace the shard, "
    "or see the options for keys",
    errors.EXIT_TEMPORARY: "temporary, or the stage before was not complete in time (--wait): kubetpl retry",
}
"""Advice for a stage of a verb of tarkit, where it differs from that for tarproc."""

_OF_SIGNAL = {
    9: "killed from outside, and not by its limit of memory, which would be OOMKilled: its node may be gone, or "
    "the command's own program was killed; see kubetpl logs --failed; kubetpl retry",
    15: "terminated from outside: free if its node was taken away; kubetpl retry",
}
_CRASHED = "the command crashed; see kubetpl logs --failed"


@dataclass
class FailureGroup:
    """Failed pods with the same reason.

    Attributes:
        title: ``OOMKilled``, ``exit 65``, ``SIGKILL``, ``disrupted (PreemptionByScheduler)``.
        message: last line of the first pod's log or status.
        is_memory: True if more memory may help.
        is_free: True if these failures do not count for the Job's limit.
    """

    title: str
    message: str
    advice: str
    is_memory: bool = False
    is_free: bool = False
    count: int = 0
    indexes: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        return {**asdict(self), "indexes": format_indexes(self.indexes)}


def group_failures(pods: Iterable[Object]) -> list[FailureGroup]:
    """Group failed pods by the cause: the most frequent first, pods that do not count last."""
    groups: dict[tuple[str, str], tuple[FailureGroup, set[int]]] = {}
    for pod in pods:
        if (found := failure_of(pod)) is not None:
            alike = "" if found.is_memory or found.is_free else normalised(found.message)
            group, indexes = groups.setdefault((found.title, alike), (found, set()))
            group.count += 1
            indexes.update(() if (index := api.index_of(pod)) is None else (index,))
    made = [replace(group, indexes=sorted(indexes)) for group, indexes in groups.values()]
    return sorted(made, key=lambda each: (each.is_free, -each.count, each.title))


def failure_of(pod: Object) -> FailureGroup | None:
    """Return the reason why one pod failed, or None if it did not fail."""
    status = api.status_of(pod)
    if api.phase_of(pod) != "Failed":
        return None
    if api.is_true(pod, "DisruptionTarget"):
        reason = (api.condition_of(pod, "DisruptionTarget") or {}).get("reason")
        advice = "taken away, not counted: another pod does its index"
        return FailureGroup(f"disrupted ({reason})" if reason else "disrupted", "", advice, is_free=True)
    container = _terminated(pod)
    whole, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if container is None or whole in ("Evicted", "DeadlineExceeded"):
        return _by_pod(whole, last_line(message))
    code, reason = int(container.get("exitCode") or 0), str(container.get("reason") or "")
    message = last_line(str(container.get("message") or message))
    if reason == "OOMKilled":
        return FailureGroup("OOMKilled", message, _more_memory(pod), is_memory=True)
    if reason in ("StartError", "ContainerCannotRun"):
        advice = "the container could not start: fix the command or -I --image"
        return FailureGroup(f"start ({reason})", message, advice)
    if 128 < code <= _LAST_SIGNAL:
        number = code - 128
        return FailureGroup(signal_name(number), message, _OF_SIGNAL.get(number, _CRASHED))
    # By tarproc's codes, or the shell's; what other programs mean by theirs is not known.
    own = deciding_container(pod)
    is_stage = bool(folders_of_stage(own))
    known = not own.get("command") or runs_tarproc(own) or code in (errors.EXIT_CANNOT_RUN, errors.EXIT_NOT_FOUND)
    advice = _ADVICE.get(code, _ADVICE[errors.EXIT_FAILED]) if known or is_stage else _OWN_CODE
    advice = _OF_STAGE.get(code, advice) if is_stage else advice
    return FailureGroup(f"exit {code}", message, advice)


def normalised(message: str) -> str:
    """Return a message without the parts that differ between pods: names, numbers, addresses."""
    for pattern, word in _VARIABLE:
        message = pattern.sub(word, message)
    return message


def last_line(text: str) -> str:
    """Return the last line of a log that explains a failure, made printable.

    The line of tarproc's counts is returned only if there is no other.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not _COUNTS.match(line)]
    return printable((telling or lines)[-1]) if lines else ""


def doubled(quantity: str) -> str | None:
    """Return twice a quantity of memory, or None if it is not a quantity."""
    try:
        return None if is_milli(quantity) else total(quantity, quantity)
    except UsageError:
        return None


def deciding_container(pod: Object) -> Object:
    """Return the container whose exit code is the pod's, or an empty one if none is named."""
    return main_container(api.spec_of(pod)) if api.spec_of(pod).get("containers") else {}


def _terminated(pod: Object) -> Object | None:
    """Return the termination state of the first container that failed.

    An init container comes last, since sidecars are ended with their pod.
    """
    inits = api.status_of(pod).get("initContainerStatuses") or []
    for each in sorted(api.container_statuses(pod), key=lambda each: each in inits):
        ended = api.part_of(each, "state", "terminated") or api.part_of(each, "lastState", "terminated")
        if ended.get("exitCode") or ended.get("reason") == "OOMKilled":
            return ended
    return None


def _by_pod(reason: str, message: str) -> FailureGroup:
    """Return the group of a pod that failed as a whole."""
    if reason == "DeadlineExceeded":
        return FailureGroup("deadline", message, "it ran out of its time: --deadline")
    if reason == "Evicted":
        memory = "memory" in message and "ephemeral" not in message
        advice = f"it used more than it asked for: {'-M --memory' if memory else '--scratch'}"
        return FailureGroup("evicted", message, advice, is_memory=memory)
    return FailureGroup(f"lost ({reason})" if reason else "lost", message, "its node may be gone: kubetpl retry")


def _more_memory(pod: Object) -> str:
    more = doubled(str(api.part_of(deciding_container(pod), "resources", "limits").get("memory") or ""))
    return f"retry --memory {more}" if more else "it has no limit of its own: its node was full; set -M --memory"
