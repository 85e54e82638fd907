"""What a ledger answers, case by case.

And a thousand workers that die, stall and report late, in virtual time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.service.dataset import DataSet
from tarkit.service.leases import Lease, LeaseRules, NoShard, TooManyDeadError, Verdict
from tarkit.service.ledger import Ledger

RULES = LeaseRules(floor=10.0, ceiling=100.0, first=30.0, factor=3.0, errors=3, losses=2)


def ledger_of(size: int = 10, per_shard: int = 2, rules: LeaseRules = RULES, **more: Any) -> Ledger:
    return Ledger(DataSet("d", size, per_shard, **more), rules)


def lease(ledger: Ledger, worker: str = "a", now: float = 0.0) -> Lease:
    given = ledger.lease(worker, now)
    assert isinstance(given, Lease)
    return given


def begins(ledger: Ledger, number: int, worker: str = "a", now: float = 0.0) -> list[int]:
    return [lease(ledger, worker, now).shard.start for _ in range(number)]


CONTACTS: dict[str, Callable[[Ledger, Lease], object]] = {
    "renew": lambda ledger, held: ledger.renew("a", 29.0),
    "another lease": lambda ledger, held: lease(ledger, "a", 29.0),
    "no shard": lambda ledger, held: (begins(ledger, 3), ledger.lease("a", 29.0)),
    "a part": lambda ledger, held: ledger.complete(held.token, 29.0, [(0, 1)]),
    "a failure": lambda ledger, held: ledger.fail(held.token, 29.0, "bad"),
}


@pytest.mark.parametrize("contact", CONTACTS)
def test_a_worker_keeps_its_leases_as_long_as_it_is_heard_of(contact: str) -> None:
    ledger = ledger_of()
    held = [lease(ledger), lease(ledger)]
    CONTACTS[contact](ledger, held[1])
    assert ledger.expire(58.9) == 0
    assert ledger.complete(held[0].token, 58.9) is Verdict.ACCEPTED
    ledger.renew("a", 58.9)
    assert ledger.progress().leased == ledger.expire(200.0)


def test_a_worker_that_is_there_and_does_nothing_keeps_its_leases_up_to_the_ceiling() -> None:
    """100 s after it was last given a shard, or reported; whatever else is heard of it."""
    ledger = ledger_of(4)
    begins(ledger, 1, "a", 20.0)
    last = lease(ledger, "a", 40.0)
    ledger.complete(last.token, 60.0, [(0, 1)])
    for now in range(61, 160, 9):
        assert ledger.lease("a", now) is NoShard.WAIT  # to wait for a shard is not to work
        assert (ledger.renew("a", now), ledger.expire(now)) == (2, 0)
    assert ledger.expire(159.9) == 0
    assert ledger.expire(160.0) == 2
    begins(ledger, 2, "b", 160.0)
    for now in range(170, 260, 10):
        ledger.renew("b", now)
    assert ledger.expire(260.0) == 2
    assert [each.reason for each in ledger.dead()] == ["the worker was given no shard and reported none for 100 s"] * 2


def test_losses_are_counted_from_the_last_record_that_was_done() -> None:
    """Workers that are replaced again and again do not kill a long shard that they get on with.

    A record that kills them all does.
    """
    ledger = ledger_of(10, 10)
    for done in range(8):
        ledger.complete(lease(ledger).token, 0.0, [(done, done + 1)])
        ledger.lose("a")
    assert ledger.progress().todo == 1
    lease(ledger)
    ledger.lose("a")
    assert (ledger.progress().dead, ledger.dead()[0].losses) == (1, 2)


def test_how_long_leases_are() -> None:
    ledger = ledger_of(100, 1)
    assert lease(ledger, now=0.0).seconds == 30.0
    ledger.complete(1, 1.0)
    assert lease(ledger, now=1.0).seconds == 10.0  # 3 x 1 s is below the floor
    ledger.complete(2, 16.0)
    assert lease(ledger, now=16.0).seconds == 45.0
    ledger.complete(3, 66.0)
    assert lease(ledger, now=66.0).seconds == 100.0  # 3 x 50 s is above the ceiling


def test_shards_that_take_longer_than_the_first_lease_teach_it() -> None:
    """Workers that are silent while they work: the first shards are done twice, and no others."""
    ledger, now, given = ledger_of(40, 2), 0.0, Counter[int]()
    at_work: list[tuple[float, str, Lease]] = []
    while not ledger.ended:
        for worker in "abcd":
            if worker not in {name for _, name, _ in at_work} and isinstance(held := ledger.lease(worker, now), Lease):
                given[held.shard.start] += 1
                at_work.append((now + 31.0, worker, held))
        at_work.sort(key=lambda each: each[0])
        now, worker, held = at_work.pop(0)
        ledger.expire(now)
        assert ledger.complete(held.token, now) is not Verdict.UNKNOWN
    assert sum(given.values()) <= 20 + 4


@pytest.mark.parametrize("meanwhile", ["queued", "leased to another", "dead", "failed and queued"])
def test_the_first_success_counts(meanwhile: str) -> None:
    ledger = ledger_of()
    first = lease(ledger, "a")
    assert ledger.lose("a") == 1
    second = None
    if meanwhile != "queued":
        second = lease(ledger, "b")
        assert second.shard == first.shard
    if meanwhile == "dead":
        ledger.lose("b")
        assert (ledger.progress().dead, ledger.dead()[0].losses) == (1, 2)
    elif meanwhile == "failed and queued":
        assert second is not None
        ledger.fail(second.token, 0.0, "bad")
    assert ledger.complete(first.token, 0.0) is Verdict.LATE
    counts = ledger.progress()
    assert (counts.done, counts.dead, counts.leased, counts.todo, counts.records) == (1, 0, 0, 4, 2)
    for token in (first.token, second.token if second else first.token):
        assert ledger.complete(token, 0.0) is Verdict.STALE
    assert begins(ledger, 4) == [2, 4, 6, 8]


def test_parts_of_two_workers_make_a_shard() -> None:
    ledger = ledger_of(10, 10)
    first = lease(ledger, "a")
    ledger.complete(first.token, 0.0, [(0, 3), (8, 9)])
    ledger.lose("a")
    second = lease(ledger, "b")
    assert second.ranges == ((3, 8), (9, 10))
    assert ledger.complete(first.token, 0.0, [(3, 5)]) is Verdict.LATE
    assert ledger.complete(second.token, 0.0, [(4, 8)]) is Verdict.ACCEPTED
    assert (ledger.progress().records, ledger.progress().done) == (9, 0)
    assert ledger.complete(second.token, 0.0, [(9, 10)]) is Verdict.ACCEPTED
    assert (ledger.progress().records, ledger.ended) == (10, True)


def test_a_shard_that_failed_comes_after_the_rest_of_its_epoch_and_a_lost_one_first() -> None:
    ledger = ledger_of(epochs=2)
    ledger.fail(lease(ledger).token, 0.0, "bad")
    begins(ledger, 2, "b")
    ledger.lose("b")
    assert begins(ledger, 6) == [2, 4, 6, 8, 0, 0]
    assert ledger.epoch == 2


def test_budgets_for_failures_and_for_losses_are_separate() -> None:
    ledger = ledger_of(2)
    for _ in range(2):
        assert ledger.fail(lease(ledger).token, 0.0, "bad record 7") is Verdict.ACCEPTED
    lease(ledger)
    assert ledger.expire(30.0) == 1
    assert (ledger.progress().todo, ledger.ended) == (1, False)
    assert ledger.fail(lease(ledger).token, 0.0, "bad record 8" + "x" * 10**6) is Verdict.ACCEPTED
    (dead,) = ledger.dead()
    assert (dead.errors, dead.losses, dead.reason[:12], len(dead.reason)) == (3, 1, "bad record 8", 2000)
    assert ledger.lease("a", 0.0) is NoShard.END
    assert (ledger.ended, ledger.progress().dead) == (True, 1)


def test_when_too_many_shards_are_dead_no_more_are_handed_out() -> None:
    ledger = ledger_of(10, rules=LeaseRules(errors=1, dead=2))
    held = [lease(ledger) for _ in range(4)]
    ledger.fail(held[0].token, 0.0, "bad")
    assert not ledger.aborted
    ledger.fail(held[1].token, 0.0, "bad")
    assert (ledger.aborted, ledger.ended, ledger.progress().aborted) == (True, False, True)
    with pytest.raises(TooManyDeadError, match="'d' has 2 dead shards, and the limit is 2: no more"):
        ledger.lease("a", 0.0)
    assert ledger.complete(held[2].token, 0.0) is Verdict.ACCEPTED
    ledger.resume(0, 0, 0, (), 0.0)
    assert begins(ledger, 5) == [0, 2, 4, 6, 8]


def test_shards_that_are_held_one_by_one_are_bounded() -> None:
    """With workers that report each shard as failed, too: failed ones wait for the rest of the
    epoch.
    """
    ledger = ledger_of(2 * 100, rules=LeaseRules(errors=2, outstanding=3, dead=50))
    held = [lease(ledger) for _ in range(3)]
    assert (ledger.available, ledger.lease("b", 0.0), ledger.ended) == (0, NoShard.WAIT, False)
    ledger.complete(held[0].token, 0.0)
    assert ledger.available == 1
    assert begins(ledger, 1) == [6]
    failed = 0
    with pytest.raises(TooManyDeadError):
        while True:
            for entries in [*ledger.workers().values()]:
                for entry in entries:
                    ledger.fail(entry.token, 0.0, "bad")
                    failed += 1
            assert isinstance(ledger.lease("a", 0.0), Lease)
            assert len(ledger.tasks) <= 3 + 50
    assert ledger.progress().dead == 50 and failed <= 2 * (50 + 3)


@pytest.mark.parametrize("rules", [{"floor": 0.0}, {"floor": 9.0, "ceiling": 8.0}])
def test_rules_that_cannot_be(rules: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LeaseRules(**rules)


def test_memory_does_not_grow_with_what_is_done() -> None:
    """Nor with the number of workers that came and went."""
    shards = 10_000
    ledger = ledger_of(8 * 2_000_000, 8, shuffle_shards=True)
    held: list[Lease] = []
    blocks = 0
    for number in range(shards):
        held.append(lease(ledger, f"worker-{number}", number / 20))
        if len(held) > 20:
            ledger.complete(held.pop(0).token, number / 20)
        if number == 1000:
            blocks = sys.getallocatedblocks()
    assert sys.getallocatedblocks() - blocks < 5000
    assert ledger.progress().done == shards - 20
