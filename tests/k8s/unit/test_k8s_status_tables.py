"""What a Job's status means, why pods failed, and why none run: tables of what an
API server says.
"""

from __future__ import annotations

from typing import Any

import pytest
from tarkit.cli.kube.jobtext import short_line

from tarkit.errors import UsageError
from tarkit.k8s.apiobject import grouped, index_of, timestamp
from tarkit.k8s.cluster import whynot
from tarkit.k8s.cluster.failures import doubled, failure_of, group_failures, last_line, normalised
from tarkit.k8s.cluster.joblogs import chosen_pods
from tarkit.k8s.cluster.jobview import job_plan, job_view, state_of

NOW = timestamp("2026-11-21T12:10:00Z") or 0.0


def job(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "grey", "namespace": "etl", "uid": "J", **metadata},
        "spec": {"completionMode": "Indexed", "completions": 10, "parallelism": 4, **(spec or {})},
        "status": status or {},
    }


def why_not(
    made: dict[str, Any], pods: list[dict[str, Any]] | None, events: list[dict[str, Any]] | None, now: float,
) -> list[whynot.Reason]:  # fmt: skip
    about = None if events is None else grouped(events, whynot.subject_of)
    return whynot.why_not(made, pods, about, now)


def ended(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    when = "2026-11-21T12:05:00Z"
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": when}


def pod(
    index: int | None = 0,
    phase: str = "Failed",
    terminated: dict[str, Any] | None = None,
    name: str = "",
    memory: str = "4Gi",
    created: str = "2026-11-21T12:00:00Z",
    **status: Any,
) -> dict[str, Any]:
    labels = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    states = [] if terminated is None else [{"name": "main", "state": {"terminated": terminated}}]
    return {
        "metadata": {
            "name": name or f"grey-{index}-abcde", "uid": f"P{index}", "labels": labels, "creationTimestamp": created,
        },
        "spec": {"containers": [{"name": "main", "image": "i:1", "resources": {"limits": {"memory": memory}}}]},
        "status": {"phase": phase, "containerStatuses": states, **status},
    }  # fmt: skip


# ---- numbers


def test_indexes_and_time_left() -> None:
    status = {
        "startTime": "2026-11-21T12:00:00Z", "completedIndexes": "0-2,4", "failedIndexes": "3",
        "succeeded": 4, "active": 2,
    }  # fmt: skip
    view = job_view(job(status=status), [pod(5, "Running"), pod(6, "Pending"), pod(3)], NOW)
    assert (view.state, view.done, view.failed, view.running, view.pending, view.left) == ("running", 4, 1, 1, 1, 3)
    assert view.seconds_left == pytest.approx(600)
    blind = job_view(job(status={**status, "ready": 1}), None, NOW)
    assert (blind.running, blind.pending) == (1, 1)


def test_a_resumed_job_is_not_quicker_than_it_is() -> None:
    status = {
        "startTime": "2026-11-21T12:09:00Z", "completedIndexes": "0-4", "succeeded": 5, "active": 1,
        "conditions": [{"type": "Suspended", "status": "False", "reason": "JobResumed"}],
    }  # fmt: skip
    view = job_view(job(status=status, creationTimestamp="2026-11-21T12:00:00Z"), None, NOW)
    assert view.seconds == 600 and view.seconds_left == pytest.approx(600)


@pytest.mark.parametrize(
    ("status", "suspend", "expected"),
    [
        ({}, False, "waiting"),
        ({}, True, "suspended"),
        ({"conditions": [ended("SuccessCriteriaMet")]}, False, "ending"),
        ({"conditions": [ended("FailureTarget", "FailedIndexes")]}, False, "ending"),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, False, "waiting"),
        ({"conditions": [{"type": "Suspended", "status": "True"}, ended("Failed")]}, True, "failed"),
    ],
)
def test_states(status: dict[str, Any], suspend: bool, expected: str) -> None:
    assert state_of(job({"suspend": suspend}, status)) == expected


def test_a_pod_that_is_being_ended_does_not_run() -> None:
    ending = pod(0, "Running")
    ending["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    view = job_view(job({"completions": 2}, {"terminating": 1, "active": 1}), [ending, pod(1, "Running")], NOW)
    assert (view.running, view.left) == (1, 1)


def test_a_job_without_indexes() -> None:
    plain = {"completionMode": "NonIndexed", "completions": 1, "parallelism": 1}
    view = job_view(job(plain, {"conditions": [ended("Failed", "BackoffLimitExceeded")]}), [], NOW)
    assert (view.done, view.failed, view.left, view.finished) == (0, 1, 0, True)
    queue = job_view(job({"completions": None, "completionMode": None, "parallelism": None}), None, NOW)
    assert (queue.total, queue.seconds_left) == (None, None)


def test_annotations() -> None:
    notes = {
        "tarkit.dev/shards": "7",
        "tarkit.dev/inputs": '["a", "b"]',
        "tarkit.dev/outdir": "o",
    }
    plan = job_plan(job(annotations=notes))
    assert (plan.shards, plan.inputs, plan.outdir, plan.list_name) == (7, ("a", "b"), "o", None)
    assert job_plan(job()).inputs is None


@pytest.mark.parametrize(("key", "value"), [("inputs", "[1]"), ("inputs", "{"), ("shards", "many"), ("inputs", "3")])
def test_annotations_that_are_not_ours(key: str, value: str) -> None:
    with pytest.raises(UsageError, match="Job grey: the annotations"):
        job_plan(job(annotations={f"tarkit.dev/{key}": value}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("soon", None), ("1970-01-01T00:01:00Z", 60.0), ("1970-01-01T00:00:00.250000Z", 0.25),
     ("1970-01-01T01:00:00+01:00", 0.0), ("1970-01-01T00:00:05", 5.0)],
)  # fmt: skip
def test_timestamps(text: str | None, expected: float | None) -> None:
    assert timestamp(text) == expected


# ---- failures


def exit_of(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"exitCode": code, "reason": reason, "message": message}


TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("made", "title", "advice"),
    [
        (pod(terminated=exit_of(137, reason="OOMKilled")), "OOMKilled", "retry --memory 8Gi"),
        (pod(terminated=exit_of(137, reason="OOMKilled"), memory=""), "OOMKilled", "its node was full; set -M"),
        (pod(terminated=exit_of(137)), "SIGKILL", "killed from outside, and not by its limit of memory"),
        (pod(terminated=exit_of(143)), "SIGTERM", "free if its node was taken away"),
        (pod(terminated=exit_of(139)), "SIGSEGV", "the command crashed"),
        (pod(terminated=exit_of(143), conditions=[TARGET]), "disrupted (PreemptionByScheduler)", "not counted"),
        (pod(conditions=[{**TARGET, "reason": "DeletionByTaintManager"}]), "disrupted (DeletionByTaintManager)",
         "taken"),
        (pod(reason="Evicted", message="The node was low on resource: memory."), "evicted", "-M --memory"),
        (pod(reason="Evicted", message='Usage of EmptyDir volume "scratch" exceeds the limit'), "evicted", "--scratch"),
        (pod(reason="DeadlineExceeded"), "deadline", "--deadline"),
        (pod(), "lost", "its node may be gone"),
        (pod(terminated=exit_of(128, "exec: no such file", "StartError")), "start (StartError)", "-I --image"),
        *[(pod(terminated=exit_of(code)), f"exit {code}", word) for code, word in [
            (1, "see kubetpl logs --failed"), (2, "fix the command"), (3, "--retry-failed"), (64, "fix the command"),
            (65, "--on-damage skip"), (66, "correct --shards"), (75, "temporary: kubetpl retry"),
            (78, "fix the command"),
            (126, "not executable"), (127, "does not exist in this image"), (42, "see kubetpl logs"),
            (255, "see kubetpl"),
        ]],
    ],
)  # fmt: skip
def test_why_a_pod_failed(made: dict[str, Any], title: str, advice: str) -> None:
    found = failure_of(made)
    assert found is not None
    assert found.title == title and advice in found.advice


def test_pods_that_did_not_fail() -> None:
    assert failure_of(pod(phase="Running")) is None
    assert failure_of(pod(phase="Succeeded", terminated=exit_of(0))) is None


def test_an_init_container_that_failed() -> None:
    failed = pod()
    failed["status"]["initContainerStatuses"] = [{"state": {"terminated": exit_of(5, "no disk")}}]
    found = failure_of(failed)
    assert found is not None and (found.title, found.message) == ("exit 5", "no disk")


def test_a_sidecar_that_was_ended_with_its_pod_is_not_why_it_failed() -> None:
    failed = pod(terminated=exit_of(7, "no such module"))
    failed["status"]["initContainerStatuses"] = [{"name": "watch", "state": {"terminated": exit_of(143)}}]
    found = failure_of(failed)
    assert found is not None and (found.title, found.message) == ("exit 7", "no such module")


def test_a_kill_that_is_not_for_memory_advises_none() -> None:
    found = failure_of(pod(terminated=exit_of(137)))
    assert found is not None and not found.is_memory and "--memory" not in found.advice


def test_pods_that_end_are_not_none() -> None:
    """As of a Job that was suspended, or has failed: they have their time of grace."""
    pods = [pod(index, "Running") for index in range(3)]
    for each in pods:
        each["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    view = job_view(job({"completions": 4}), pods, NOW)
    assert (view.running, view.ending) == (0, 3)
    assert "0 of 4 done, 3 ending, 0 failed" in short_line(view)
    view = job_view(job({"completions": 4}), [*pods, pod(3, "Running")], NOW)
    assert "0 of 4 done, 1 running, 3 ending, 0 failed" in short_line(view)


def test_alike_failures_together() -> None:
    log = "Reading\nTraceback\n  ValueError: bad header in s3://b/raw-{:06}.tar at offset {}\n\n"
    pods = [pod(i, terminated=exit_of(65, log.format(i, i * 512))) for i in (9, 5, 7)]
    pods += [pod(i, terminated=exit_of(137, f"line {i}", "OOMKilled")) for i in (1, 2, 3, 4)]
    pods += [pod(i, terminated=exit_of(65, "no end mark")) for i in (5, 5)]
    pods += [pod(i, conditions=[TARGET]) for i in range(20)]
    found = group_failures(pods)
    assert [(each.title, each.count, each.indexes) for each in found[:3]] == [
        ("OOMKilled", 4, [1, 2, 3, 4]),
        ("exit 65", 3, [5, 7, 9]),
        ("exit 65", 2, [5]),
    ]
    assert found[1].message == "ValueError: bad header in s3://b/raw-000009.tar at offset 4608"
    assert found[3].is_free and found[3].count == 20, "what is free comes last, however often it was"
    assert found[0].as_dict()["indexes"] == "1-4"


def test_messages_without_what_differs() -> None:
    one = normalised("s3://b/a-1.tar: offset 512: 0x7f3a /scratch/x/1 shard-000123.tar broke")
    assert one == normalised("s3://c/b-22.tar: offset 9: 0xabc /scratch/y/2 shard-000999.tar broke")
    assert one != normalised("s3://b/a-1.tar: offset 512: 0x7f3a /scratch/x/1 shard-000123.tar is gone")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4Gi", "8Gi"),
        ("1.5G", "3G"),
        ("4194304Ki", "8Gi"),
        ("512Mi", "1Gi"),
        ("1000", "2k"),
        ("", None),
        ("4GB", None),
        ("400m", None),
    ],
)
def test_twice_the_memory(text: str, expected: str | None) -> None:
    assert doubled(text) == expected


# ---- why nothing runs


def event(
    reason: str, message: str, uid: str = "J", when: str = "2026-11-21T12:09:00Z", count: int = 1
) -> dict[str, Any]:
    return {
        "reason": reason, "message": message, "involvedObject": {"uid": uid}, "lastTimestamp": when, "count": count,
    }  # fmt: skip


FORBIDDEN = 'Error creating: pods "grey-0-" is forbidden: '


def test_a_refusal_that_is_over() -> None:
    old = event("FailedCreate", FORBIDDEN + "exceeded quota: q", when="2026-11-21T12:00:00Z")
    assert (
        why_not(job(status={"active": 1}), [pod(0, "Running")], [old, event("SuccessfulCreate", "Created")], NOW) == []
    )
    other = event("FailedCreate", FORBIDDEN, uid="X")
    (new,) = why_not(job(), [], [other], NOW)
    assert new.text.startswith("no pod exists yet")
    assert why_not(job(status={"active": 4}), [], [event("FailedCreate", FORBIDDEN)], NOW) == [], "all are there"


def waiting(reason: str, message: str = "", index: int = 0) -> dict[str, Any]:
    made = pod(index, "Pending")
    state = {"waiting": {"reason": reason, "message": message}}
    made["status"]["containerStatuses"] = [{"name": "main", "image": "i:1", "state": state}]
    return made


def unschedulable(message: str, reason: str = "Unschedulable", index: int = 0) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(index, "Pending", conditions=[condition])


def test_alike_reasons_are_counted() -> None:
    pods = [unschedulable("0/3 nodes are available: 3 Insufficient cpu.", index=i) for i in range(5)]
    found = why_not(job(status={"active": 4}), [*pods, waiting("ErrImagePull")], [], NOW)
    assert [(each.text[:16], each.count) for each in found] == [("no node takes it", 5), ("ErrImagePull, i:", 1)]


def test_a_container_that_is_long_in_the_making() -> None:
    made = waiting("ContainerCreating")
    made["spec"]["nodeName"] = "n1"
    (found,) = why_not(job(status={"active": 4}), [made], [], NOW)
    assert "volume mounted" in found.text
    assert why_not(job(status={"active": 4}), [made], [], NOW - 570) == [], "not yet long"
    mount = event("FailedMount", 'MountVolume.SetUp failed for volume "x" : configmap "absent" not found', uid="P0")
    (found,) = why_not(job(status={"active": 4}), [made], [mount], NOW)
    assert found.text.startswith("FailedMount: ") and "--config-map" in found.advice
    unseen = pod(0, "Pending")
    (found,) = why_not(job(status={"active": 4}), [unseen], [], NOW)
    assert "not been looked at by a scheduler" in found.text


def test_nothing_is_wrong_with_what_has_ended_or_wants_no_more_pods() -> None:
    for made in (
        job(status={"conditions": [ended("Failed", "MaxFailedIndexesExceeded", "too many")]}),
        job(status={"active": 4}),
        job({"completions": 4}, {"succeeded": 3, "active": 1}),
    ):
        assert why_not(made, None, [], NOW) == why_not(made, None, None, NOW) == []


# ---- whose logs


def test_the_last_pod_of_each_index() -> None:
    first = pod(3, created="2026-11-21T12:00:00Z", name="old", terminated=exit_of(1))
    second = pod(3, "Succeeded", created="2026-11-21T12:01:00Z", name="new", terminated=exit_of(0))
    pods = [second, first, pod(10), pod(2), pod(None, name="b"), pod(None, name="a")]
    chosen = chosen_pods(pods, indexes=None, failed=False)
    assert [index_of(each) or each["metadata"]["name"] for each in chosen] == [2, 3, 10, "a", "b"]
    assert [each["metadata"]["name"] for each in chosen_pods(pods, indexes={3}, failed=False)] == ["new"]
    assert chosen_pods(pods, indexes={3}, failed=True) == [], "it went well in the end"


def test_the_line_that_says_why_is_not_that_of_the_counts() -> None:
    log = "tarproc: s3://b/raw-3.tar: offset 1024: bad checksum\ntarproc: shards: done 0, failed 1; in 0 = out 0\n"
    assert last_line(log) == "tarproc: s3://b/raw-3.tar: offset 1024: bad checksum"
    assert last_line("tarproc: in 3 = out 3 + filtered 0 + failed 0\n") == (
        "tarproc: in 3 = out 3 + filtered 0 + failed 0"
    )


@pytest.mark.parametrize("code", [1, 2, 3, 64, 65, 66, 75, 78, 200])
def test_a_command_of_ones_own_gets_no_advice_about_tarproc(code: int) -> None:
    """--raw, and kubetpl job: what its exit codes mean is not known."""
    failed = pod(terminated={"exitCode": code, "reason": "Error"})
    failed["spec"]["containers"][0]["command"] = ["/bin/bash", "-c"]
    found = failure_of(failed)
    assert found is not None and found.title == f"exit {code}"
    assert found.advice == "the command's own exit code: see kubetpl logs --failed; retry once the cause is fixed"
    failed["spec"]["containers"][0]["command"] = ["/usr/bin/tarproc"]
    own = failure_of(failed)
    assert own is not None and own.advice != found.advice


@pytest.mark.parametrize(("parallelism", "suspend"), [(0, False), (4, True)])
def test_a_job_that_is_held_has_no_time_left(parallelism: int, suspend: bool) -> None:
    spec = {"completions": 8, "parallelism": parallelism, "suspend": suspend}
    status = {"startTime": "2026-11-21T11:00:00Z", "completedIndexes": "0-3"}
    view = job_view(job(spec, status), [], NOW)
    assert view.done == 4 and view.seconds_left is None
