"""The Job controller's rules, held against a table and against chance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.local.policy import JobLedger, LocalJob

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [99]}},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [2, 64]}},
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 65]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [2]}},
        {"action": "FailIndex", "onExitCodes": {"containerName": "other", "operator": "NotIn", "values": [2]}},
    ]
}


def indexed(**more: Any) -> dict[str, Any]:
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 2, "backoffLimitPerIndex": 1}
    return {**spec, "podFailurePolicy": POLICY, **more}


def local_job(spec: dict[str, Any], policy: str = "Never") -> LocalJob:
    template = {"spec": {"restartPolicy": policy, "containers": [{"name": "main"}]}}
    return LocalJob({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template, **spec}})


def play(spec: dict[str, Any], ends: dict[int, list[int]], policy: str = "Never") -> JobLedger:
    """Run to the end, one pod after the other.

    ``ends`` are exit codes by index, and 0 where there are none left.
    """
    book, now = JobLedger(local_job(spec, policy), 2, 1), 0.0
    while not book.check(now):
        index = book.take(now)
        if index is None:
            now += 1
        else:
            book.finish(index, "p", (ends.get(index) or [0]).pop(0), now)
    return book


@pytest.mark.parametrize(
    ("spec", "ends", "reason", "done", "failed", "failures"),
    [
        (indexed(), {}, "CompletionsReached", {0, 1, 2, 3}, set(), 0),
        (indexed(), {1: [1]}, "CompletionsReached", {0, 1, 2, 3}, set(), 1),
        (indexed(), {1: [99] * 9}, "CompletionsReached", {0, 1, 2, 3}, set(), 0),
        (indexed(), {1: [1, 1]}, "FailedIndexes", {0, 2, 3}, {1}, 2),
        (indexed(), {1: [3], 3: [65]}, "FailedIndexes", {0, 2}, {1, 3}, 2),
        (indexed(), {1: [2]}, "PodFailurePolicy", {0}, set(), 1),
        (indexed(maxFailedIndexes=0), {1: [65]}, "MaxFailedIndexesExceeded", {0}, {1}, 1),
        (indexed(maxFailedIndexes=1), {1: [65]}, "FailedIndexes", {0, 2, 3}, {1}, 1),
        (indexed(backoffLimitPerIndex=0), {0: [137], 2: [1]}, "FailedIndexes", {1, 3}, {0, 2}, 2),
        (indexed(backoffLimit=1), {0: [1], 1: [1]}, "BackoffLimitExceeded", set(), set(), 2),
        # A Job without limits per index: one limit for all, 6 if none is set.
        ({"completions": 2}, {0: [1] * 6}, "CompletionsReached", {0, 1}, set(), 6),
        ({"completions": 2}, {0: [1] * 7}, "BackoffLimitExceeded", {1}, set(), 7),
        ({"backoffLimit": 0}, {0: [1]}, "BackoffLimitExceeded", set(), set(), 1),
        ({}, {}, "CompletionsReached", {0}, set(), 0),
    ],
)
def test_how_jobs_end(
    spec: dict[str, Any], ends: dict[int, list[int]], reason: str, done: set[int], failed: set[int], failures: int
) -> None:
    book = play(spec, ends)
    assert book.outcome is not None
    assert (book.outcome.reason, book.done, book.failed, book.failures) == (reason, done, failed, failures)
    assert book.outcome.type == ("Complete" if reason == "CompletionsReached" else "Failed")


@pytest.mark.parametrize(("limit", "restarts", "ends"), [(3, 2, True), (3, 3, False), (1, 1, False), (0, 1, False)])
def test_restarts_in_place_use_up_the_limit(limit: int, restarts: int, ends: bool) -> None:
    book = play({"backoffLimit": limit}, {0: [1] * restarts}, "OnFailure")
    assert book.outcome is not None
    assert book.outcome.reason == ("CompletionsReached" if ends else "BackoffLimitExceeded")


@pytest.mark.parametrize(("codes", "expected"), [([3, 3], 3), ([3, 1], 1), ([], 0)])
def test_exit_code_three_only_where_samples_were_set_aside(codes: list[int], expected: int) -> None:
    spec = indexed(backoffLimitPerIndex=0)
    assert play(spec, {index: [code] for index, code in enumerate(codes)}).exit_code == expected


def test_messages_are_those_of_kubernetes() -> None:
    book = play(indexed(), {1: [64]})
    assert book.outcome is not None
    message = "Container main for pod default/p failed with exit code 64 matching FailJob rule at index 2"
    assert book.outcome.message == message


def test_the_delay_of_an_index_doubles_and_others_go_on() -> None:
    book = JobLedger(local_job(indexed(completions=2, backoffLimitPerIndex=19)), 2, 1)
    now, waits = 0.0, []
    assert book.take(now) == 0
    for _ in range(8):
        book.finish(0, "p", 1, now)
        begun = now
        while (index := book.take(now)) != 0:
            assert index in (None, 1)
            now += 0.5
        waits.append(now - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64]


def test_the_deadline_counts_from_the_first_pod() -> None:
    book = JobLedger(local_job(indexed(activeDeadlineSeconds=10)), 2)
    assert book.check(1000) is None
    assert book.take(1000) == 0
    assert book.check(1009.9) is None
    assert book.check(1010) == ("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    assert book.take(1010) is None
    book.stop(0)
    assert (book.done, book.failed, book.running, book.failures) == (set(), set(), set(), 0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"completions": "ten"}, "spec.completions is 'ten', not a whole number"),
        ({"parallelism": -1}, "spec.parallelism is -1"),
        ({"backoffLimit": True}, "spec.backoffLimit is True"),
        ({"completions": 2**31 - 1}, "completions 2147483647 with parallelism 1 is not done here"),
    ],
)
def test_what_no_server_or_no_machine_would_take(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        local_job(spec)


@settings(deadline=None, max_examples=50)
@given(
    completions=st.integers(1, 12),
    parallelism=st.integers(1, 5),
    limit=st.integers(0, 3),
    most=st.none() | st.integers(0, 4),
    data=st.data(),
)
def test_no_index_is_lost_and_no_limit_exceeded(
    completions: int, parallelism: int, limit: int, most: int | None, data: st.DataObject
) -> None:
    spec = indexed(completions=completions, backoffLimitPerIndex=limit, maxFailedIndexes=most)
    book = JobLedger(local_job(spec), parallelism, 1)
    begun: set[int] = set()
    counted = dict.fromkeys(range(completions), 0)
    now = 0.0
    while not book.check(now):
        now += 1
        while (index := book.take(now)) is not None:
            assert index not in book.done | book.failed
            begun.add(index)
        assert len(book.running) <= parallelism
        if book.running:
            index = data.draw(st.sampled_from(sorted(book.running)))
            code = data.draw(st.sampled_from([0, 0, 1, 137, 65, 2, 99]))
            counted[index] += book.finish(index, "p", code, now) in ("Count", "FailIndex")
            assert counted[index] <= limit + 1
    assert book.outcome is not None
    assert not book.done & book.failed and book.done | book.failed <= begun
    if book.outcome.type == "Complete":
        assert book.done == set(range(completions))
    if book.outcome.reason == "FailedIndexes":
        assert book.failed and book.done | book.failed == set(range(completions))
    if book.outcome.reason == "MaxFailedIndexesExceeded":
        assert most is not None and len(book.failed) == most + 1
