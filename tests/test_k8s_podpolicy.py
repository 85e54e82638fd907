"""The Job controller's rules, held against a table and against chance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.local.policy import Action, JobLedger, LocalJob, PodEnd

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [2, 64]}},
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 65]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [2]}},
    ]
}


def indexed(**more: Any) -> dict[str, Any]:
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 2, "backoffLimitPerIndex": 1}
    return {**spec, "podFailurePolicy": POLICY, **more}


def ledger(spec: dict[str, Any], **more: Any) -> JobLedger:
    return JobLedger(LocalJob("j", spec), retry_delay=1, **more)


def play(spec: dict[str, Any], ends: dict[int, list[int]], **more: Any) -> JobLedger:
    """Run to the end, one pod after the other; ``ends`` are exit codes by index, and 0 where there are none left."""
    book = ledger(spec, **more)
    now = 0.0
    for _ in range(1000):
        if book.check(now):
            return book
        index = book.take(now)
        if index is None:
            now += 1
            continue
        while True:
            codes = ends.get(index) or [0]
            action = book.finish(index, PodEnd("p", {"main": codes.pop(0)}), now)
            if action is not Action.RESTART:
                break
    pytest.fail("it never ends")


@pytest.mark.parametrize(
    ("spec", "ends", "reason", "done", "failed", "failures"),
    [
        (indexed(), {}, "CompletionsReached", {0, 1, 2, 3}, set(), 0),
        (indexed(), {1: [1]}, "CompletionsReached", {0, 1, 2, 3}, set(), 1),
        (indexed(), {1: [1, 1]}, "FailedIndexes", {0, 2, 3}, {1}, 2),
        (indexed(), {1: [65]}, "FailedIndexes", {0, 2, 3}, {1}, 1),
        (indexed(), {1: [3], 3: [65]}, "FailedIndexes", {0, 2}, {1, 3}, 2),
        (indexed(), {1: [2]}, "PodFailurePolicy", {0}, set(), 1),
        (indexed(maxFailedIndexes=0), {1: [65]}, "MaxFailedIndexesExceeded", {0}, {1}, 1),
        (indexed(maxFailedIndexes=1), {1: [65]}, "FailedIndexes", {0, 2, 3}, {1}, 1),
        (indexed(backoffLimitPerIndex=0), {0: [137], 2: [1]}, "FailedIndexes", {1, 3}, {0, 2}, 2),
        (indexed(backoffLimit=1), {0: [1], 1: [1]}, "BackoffLimitExceeded", set(), set(), 2),
        # A Job without limits per index: one limit for all, 6 if none is set.
        ({"completions": 2}, {0: [1] * 6}, "CompletionsReached", {0, 1}, set(), 6),
        ({"completions": 2}, {0: [1] * 7}, "BackoffLimitExceeded", set(), set(), 7),
        ({"completions": 2, "backoffLimit": 0}, {1: [1]}, "BackoffLimitExceeded", {0}, set(), 1),
        ({}, {}, "CompletionsReached", {0}, set(), 0),
        ({"completions": 0}, {}, "CompletionsReached", set(), set(), 0),
        # A work queue: the first that succeeds ends it.
        ({"parallelism": 3}, {}, "CompletionsReached", {0}, set(), 0),
        ({"parallelism": 3}, {0: [1]}, "CompletionsReached", {0}, set(), 1),
        # FailIndex means nothing where there are no limits per index.
        ({"completions": 2, "podFailurePolicy": POLICY}, {0: [65]}, "CompletionsReached", {0, 1}, set(), 1),
    ],
)
def test_how_jobs_end(
    spec: dict[str, Any], ends: dict[int, list[int]], reason: str, done: set[int], failed: set[int], failures: int
) -> None:
    book = play(spec, ends)
    assert book.outcome is not None
    assert (book.outcome.reason, book.done, book.failed, book.failures) == (reason, done, failed, failures)
    assert book.outcome.type == ("Complete" if reason == "CompletionsReached" else "Failed")


@pytest.mark.parametrize(
    ("exit_codes", "conditions", "action"),
    [
        ({"main": 143}, ["DisruptionTarget"], Action.IGNORE),
        ({"main": 2}, ["DisruptionTarget"], Action.IGNORE),
        ({"main": 143}, [], Action.COUNT),
        ({"main": 2}, [], Action.FAIL_JOB),
        ({"other": 2}, [], Action.COUNT),
        ({"main": 0, "other": 65}, [], Action.FAIL_INDEX),
        ({"main": 1}, [], Action.COUNT),
    ],
)
def test_the_first_rule_that_matches_wins(exit_codes: dict[str, int], conditions: list[str], action: Action) -> None:
    assert LocalJob("j", indexed()).judge(PodEnd("p", exit_codes, conditions))[0] is action


def test_notin_matches_no_container_that_succeeded() -> None:
    rules = [{"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}}]
    judge = LocalJob("j", indexed(podFailurePolicy={"rules": rules})).judge
    assert judge(PodEnd("p", {"main": 0, "other": 1}))[0] is Action.COUNT
    assert judge(PodEnd("p", {"main": 0, "other": 5}))[0] is Action.FAIL_INDEX


def test_messages_are_those_of_kubernetes() -> None:
    book = play(indexed(), {1: [64]})
    assert book.outcome is not None
    assert (
        book.outcome.message
        == "Container main for pod default/p failed with exit code 64 matching FailJob rule at index 1"
    )
    rule = {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}
    rules = LocalJob("j", indexed(podFailurePolicy={"rules": [rule]}), "ns")
    message = rules.judge(PodEnd("p", {"main": 1}, ["ConfigIssue"]))[1]
    assert message == "Pod ns/p has condition ConfigIssue matching FailJob rule at index 0"


def test_ignored_failures_use_up_nothing() -> None:
    book = ledger(indexed(completions=1, backoffLimitPerIndex=0))
    for now in range(50):
        assert book.take(now) == 0
        assert book.finish(0, PodEnd("p", {"main": 143}, ["DisruptionTarget"]), now) is Action.IGNORE
    assert book.failures == 0 and book.outcome is None


def test_the_delay_of_an_index_doubles_and_others_go_on() -> None:
    book = ledger(indexed(completions=2, backoffLimitPerIndex=19))
    now, waits = 0.0, []
    assert book.take(now) == 0
    for _ in range(8):
        book.finish(0, PodEnd("p", {"main": 1}), now)
        begun = now
        while (index := book.take(now)) != 0:
            assert index in (None, 1)
            now += 0.5
        waits.append(now - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64]


def test_the_delay_of_a_job_holds_all_and_ends_with_a_success() -> None:
    book = ledger({"completions": 5, "parallelism": 2, "backoffLimit": 9})
    assert (book.take(0), book.take(0)) == (0, 1)
    book.finish(0, PodEnd("p", {"main": 1}), 0)
    assert book.take(0.9) is None
    assert book.take(1) == 0
    book.finish(0, PodEnd("p", {"main": 1}), 1)
    book.finish(1, PodEnd("p", {"main": 0}), 1)
    assert book.take(2.9) is None
    assert book.take(3) == 0
    book.finish(0, PodEnd("p", {"main": 1}), 3)
    assert book.take(4) == 0


def test_the_deadline_counts_from_the_first_pod() -> None:
    book = ledger(indexed(activeDeadlineSeconds=10))
    assert book.check(1000) is None
    assert book.take(1000) == 0
    assert book.check(1009.9) is None
    outcome = book.check(1010)
    assert outcome == ("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    assert book.take(1010) is None
    book.stop(0)
    assert (book.done, book.failed, book.left, book.failures) == (set(), set(), 4, 1)


def test_restarts_in_place_use_up_the_limit() -> None:
    template = {"template": {"spec": {"restartPolicy": "OnFailure"}}}
    assert play({"backoffLimit": 3, **template}, {0: [1, 1]}).done == {0}
    book = play({"backoffLimit": 3, **template}, {0: [1, 1, 1]})
    assert book.outcome is not None and book.outcome.reason == "BackoffLimitExceeded"
    book = play({"backoffLimit": 0, **template}, {0: [1]})
    assert book.outcome is not None and book.outcome.reason == "BackoffLimitExceeded"


def test_only_some_indexes_and_those_done_before() -> None:
    book = play(indexed(completions=10), {}, only={7, 3, 9}, done_before={3, 5})
    assert book.done == {3, 7, 9} and book.outcome is not None and book.outcome.type == "Complete"
    assert ledger(indexed(), done_before=range(4)).outcome is not None
    with pytest.raises(UsageError, match="has indexes 0-3; correct --index"):
        ledger(indexed(), only={4})
    with pytest.raises(UsageError, match="is not Indexed"):
        ledger({"completions": 3}, only={1})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"completionMode": "Indexed"}, "needs spec.completions"),
        ({"backoffLimitPerIndex": 1}, "needs completionMode: Indexed"),
        ({"completions": "ten"}, "spec.completions is 'ten'; it must be a whole number"),
        ({"parallelism": -1}, "spec.parallelism is -1"),
        ({"backoffLimit": True}, "spec.backoffLimit is True"),
    ],
)
def test_what_no_server_would_take(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        LocalJob("j", spec)


@pytest.mark.exhaustive
@settings(deadline=None, max_examples=150)
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
    spec = indexed(completions=completions, parallelism=parallelism, backoffLimitPerIndex=limit, maxFailedIndexes=most)
    book = ledger(spec)
    begun: set[int] = set()
    counted = dict.fromkeys(range(completions), 0)
    now = 0.0
    while not book.check(now):
        now += 1
        while (index := book.take(now)) is not None:
            assert index not in book.done | book.failed
            begun.add(index)
        assert len(book.running) <= parallelism
        assert len(book.done) + len(book.failed) + len(book.running) + book.left == completions
        if book.running:
            index = data.draw(st.sampled_from(sorted(book.running)))
            code = data.draw(st.sampled_from([0, 0, 1, 137, 65, 2, 143]))
            end = PodEnd("p", {"main": code}, ["DisruptionTarget"] if code == 143 else [])
            counted[index] += book.finish(index, end, now) in (Action.COUNT, Action.FAIL_INDEX)
            assert counted[index] <= limit + 1
    for index in list(book.running):
        book.stop(index)
    assert book.outcome is not None
    assert not book.done & book.failed and book.done | book.failed <= begun
    if book.outcome.type == "Complete":
        assert book.done == set(range(completions))
    if book.outcome.reason == "FailedIndexes":
        assert book.failed and book.done | book.failed == set(range(completions))
    if book.outcome.reason == "MaxFailedIndexesExceeded":
        assert most is not None and len(book.failed) == most + 1


def test_more_pods_than_one_machine_will_ever_run() -> None:
    spec = {"completions": 2**31 - 1, "completionMode": "Indexed"}
    with pytest.raises(UsageError, match="Job j: 2,147,483,647 pods are too many for one machine.*--index 0-99"):
        JobLedger(LocalJob("j", spec))
    assert JobLedger(LocalJob("j", spec), only=[2**31 - 2]).wanted == 1
