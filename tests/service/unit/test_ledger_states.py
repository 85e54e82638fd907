"""Random histories of a ledger against a model that holds each shard and each record by itself.

Leases, reports, silence, restarts through the journal, checkpoints and resets, in any order.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tarkit.readers.reader import Shard
from tarkit.service.checkpoint import checkpoint, restore
from tarkit.service.dataset import DataSet
from tarkit.service.journal import SKIPPED_TOKENS, Journal, change_of, declaration_of
from tarkit.service.leases import Lease, LeaseRules, NoShard, Verdict
from tarkit.service.ledger import Ledger

WORKERS = st.sampled_from(["a", "b", "c"])
Key = tuple[int, int]


@dataclass
class Given:
    """A token that was given.

    Attributes:
        granted: when; None: before a restart.
        state: held; lost, so that a success still counts; or spent.
    """

    key: Key
    worker: str
    granted: float | None
    state: str = "held"


@dataclass
class Model:
    """What a ledger must know, one by one.

    Keys: epoch and position.
    """

    begun: int = 0
    tokens: dict[int, Given] = field(default_factory=dict)
    records: dict[Key, set[int]] = field(default_factory=dict)
    done: set[Key] = field(default_factory=set)
    dead: set[Key] = field(default_factory=set)
    errors: dict[Key, int] = field(default_factory=dict)
    losses: dict[Key, int] = field(default_factory=dict)
    deadlines: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)
    overlapping: set[Key] = field(default_factory=set)

    def held(self, worker: str | None = None) -> dict[int, Key]:
        """Token -> shard."""
        return {
            token: given.key
            for token, given in self.tokens.items()
            if given.state == "held" and worker in (None, given.worker)
        }

    def live(self) -> list[int]:
        """Tokens whose success counts."""
        return [token for token, given in self.tokens.items() if given.state != "spent"]

    def todo(self, shards: int) -> set[Key]:
        """Of the epochs that have begun."""
        every = {(epoch, position) for epoch in range(1, self.begun + 1) for position in range(shards)}
        return every - self.done - self.dead - set(self.held().values())


@st.composite
def datasets(draw: st.DrawFn) -> DataSet:
    """Small ones, of all kinds."""
    remainder = draw(st.sampled_from(["", "", "fill", "drop"]))
    per_shard = draw(st.integers(1, 4))
    files = draw(st.lists(st.integers(0, 5), max_size=2))
    if sum(files) and (remainder != "drop" or max(files) >= per_shard):
        named = tuple(Shard(f"f{number}", 2 * number, records) for number, records in enumerate(files))
        size = sum(files)
    else:
        named, size = (), draw(st.integers(per_shard, 3 * per_shard))
    return DataSet(
        "data",
        size,
        per_shard,
        draw(st.sampled_from([1, 1, 2, 3, 0])),
        named,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 3)),
        remainder,
        draw(st.booleans()),
    )


class LedgerMachine(RuleBasedStateMachine):
    @initialize(
        dataset=datasets(), errors=st.integers(1, 3), losses=st.integers(1, 3), floor=st.sampled_from([1.0, 20.0])
    )
    def begin(self, dataset: DataSet, errors: int, losses: int, floor: float) -> None:
        self.dataset, self.rules = dataset, LeaseRules(floor, 60.0, 30.0, 2.0, errors, losses)
        self.ledger, self.model, self.now = Ledger(dataset, self.rules), Model(), 1000.0
        self.shards = dataset.shards
        self.saved: tuple[str, Model] | None = None
        self.journal = Journal(":memory:")
        self.journal.write([declaration_of(dataset), change_of(self.ledger)])
        self.committed = self.ledger.last_token, self.ledger.longest, deepcopy(self.model)

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()

    # What workers do.

    @rule(worker=WORKERS, want=st.integers(1, 4))
    def lease(self, worker: str, want: int) -> None:
        while want and self._lease(worker):
            want -= 1

    def _lease(self, worker: str) -> bool:
        self._expire()
        self._heard(worker)
        seconds, model = self.ledger.seconds, self.model
        answer = self.ledger.lease(worker, self.now)
        todo, held = model.todo(self.shards), model.held()
        over = bool(self.dataset.epochs) and model.begun == self.dataset.epochs
        if isinstance(answer, NoShard):
            assert not todo
            assert answer is (NoShard.WAIT if held else NoShard.END)
            assert over or (self.dataset.strict_epochs and held and model.begun)
            return False
        assert answer.token > max(model.tokens, default=0)
        assert self.rules.floor <= answer.seconds == seconds <= self.rules.ceiling
        (key,) = (key for key, entry in self.ledger.tasks.items() if entry.token == answer.token)
        assert key[0] == answer.epoch
        if answer.epoch > model.begun:
            assert (answer.epoch, over) == (model.begun + 1, False)
            assert not todo
            assert not (self.dataset.strict_epochs and held)
            model.begun += 1
        else:
            assert key in todo
        assert answer.shard == self.dataset.shard(*key)
        self._is_to_be_done(answer, model.records.setdefault(key, set()))
        model.tokens[answer.token] = Given(key, worker, self.now)
        self._heard(worker, works=True)
        return True

    def _is_to_be_done(self, lease: Lease, done: set[int]) -> None:
        todo = [record for first, end in lease.ranges for record in range(first, end)]
        assert todo == sorted(set(range(lease.shard.end - lease.shard.start)) - done)

    @precondition(lambda self: self.model.live())
    @rule(data=st.data(), whole=st.booleans())
    def complete(self, data: st.DataObject, whole: bool) -> None:
        token = data.draw(st.sampled_from(self.model.live()))
        given = self.model.tokens[token]
        shard = self.dataset.shard(*given.key)
        size = shard.end - shard.start
        ranges = None
        if not whole:
            firsts = data.draw(st.lists(st.integers(0, size - 1), max_size=3))
            ranges = [(first, data.draw(st.integers(first + 1, size))) for first in firsts]
        verdict = self.ledger.complete(token, self.now, ranges)
        assert verdict is (Verdict.ACCEPTED if given.state == "held" else Verdict.LATE)
        records = self.model.records[given.key]
        before = len(records)
        records.update(range(size) if ranges is None else (at for first, end in ranges for at in range(first, end)))
        if len(records) > before and given.key not in self.model.dead:
            self.model.losses.pop(given.key, None)
        if given.state == "held":
            self._heard(given.worker, works=True)
        if len(records) == size:
            if given.granted is not None:
                self.model.durations.append(self.now - given.granted)
            self.model.done.add(given.key)
            self.model.dead.discard(given.key)
            for other in self.model.tokens.values():
                if other.key == given.key:
                    other.state = "spent"

    @precondition(lambda self: self.model.held())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([*self.model.held()]))
        given = self.model.tokens[token]
        assert self.ledger.fail(token, self.now, "bad record") is Verdict.ACCEPTED
        self._heard(given.worker, works=True)
        given.state = "spent"
        self._counted(self.model.errors, given.key, self.rules.errors)

    @precondition(lambda self: self.model.tokens.keys() - self.model.held())
    @rule(data=st.data())
    def report_too_late(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.model.tokens.keys() - self.model.held())))
        assert self.ledger.fail(token, self.now, "bad record") is Verdict.STALE
        if self.model.tokens[token].state == "spent":
            assert self.ledger.complete(token, self.now) is Verdict.STALE

    @precondition(lambda self: self.model.held())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        worker = self._holder(data)
        held = self.model.held(worker)
        mine, others = st.sampled_from([*held]), st.sampled_from([*self.model.tokens, 10**6])
        tokens = data.draw(st.none() | st.lists(mine, max_size=4) | st.lists(others, max_size=4))
        given = [token for token in held if tokens is None or token in tokens]
        assert self.ledger.release(worker, tokens) == len(given)
        for token in given:
            self.model.tokens[token].state = "spent"

    @precondition(lambda self: self.model.held())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        worker = self._holder(data)
        assert self.ledger.lose(worker) == self._lost(worker)

    @rule(worker=WORKERS)
    def renew(self, worker: str) -> None:
        assert self.ledger.renew(worker, self.now) == len(self.model.held(worker))
        self._heard(worker)

    @rule(seconds=st.sampled_from([0.5, 5.0, 29.0, 29.0, 100.0]), expire=st.booleans())
    def wait(self, seconds: float, expire: bool) -> None:
        self.now += seconds
        if expire:
            next_deadline = self.ledger.next_deadline
            held = len(self.model.held())
            lost = self._expire()
            assert next_deadline < math.inf or not held
            assert not lost or next_deadline <= self.now

    @rule(token=st.sampled_from([-1, 0, 10**9, 2**63]))
    def report_what_was_never_given(self, token: int) -> None:
        assert self.ledger.complete(token, self.now) is Verdict.UNKNOWN
        assert self.ledger.fail(token, self.now, "") is Verdict.UNKNOWN

    # What the service does.

    @rule()
    def commit(self) -> None:
        self.journal.write([change_of(self.ledger)])
        self.committed = self.ledger.last_token, self.ledger.longest, deepcopy(self.model)

    @rule()
    def begin_next_epoch(self) -> None:
        """Where all that is left of a strict one is held."""
        model = self.model
        over = bool(self.dataset.epochs) and model.begun == self.dataset.epochs
        may = self.dataset.strict_epochs and model.begun and not over and not model.todo(self.shards)
        assert self.ledger.begin_next_epoch() is bool(may)
        if may:
            model.overlapping |= set(model.held().values())
            model.begun += 1

    @rule(now=st.sampled_from([0.0, 1e6]))
    def restart(self, now: float) -> None:
        """The state of the last commit: what came later was never answered.

        The clock is another one.
        """
        self.now = now
        (self.ledger,) = self.journal.load(self.rules, now)
        last_token, longest, self.model = (*self.committed[:2], deepcopy(self.committed[2]))
        assert (self.ledger.last_token, self.ledger.longest) == (last_token + SKIPPED_TOKENS, longest)
        for worker in self.model.deadlines:
            self._heard(worker, works=True)
        for given in self.model.tokens.values():
            given.granted = None
        self.model.durations = [longest] if longest else []

    @rule()
    def save(self) -> None:
        self.saved = checkpoint(self.ledger), deepcopy(self.model)

    @rule(kind=st.sampled_from(["reset", "restore", "restore", "restore elsewhere"]))
    def take_another_state(self, kind: str) -> None:
        if kind == "restore elsewhere":
            self._begin_journal()
        if kind == "reset" or self.saved is None:
            self.ledger.resume(0, 0, 0, (), self.now)
            self._take(Model())
        else:
            restore(self.ledger, self.saved[0], self.now)
            self._take(deepcopy(self.saved[1]))

    # The model's own steps.

    def _begin_journal(self) -> None:
        last = self.ledger.last_token
        self.ledger = Ledger(self.dataset, self.rules)
        self.ledger.last_token = last
        self.journal.close()
        self.journal = Journal(":memory:")
        self.journal.write([declaration_of(self.dataset), change_of(self.ledger)])
        self.committed = last, 0.0, Model(tokens=self._spent())
        self.model.durations = []

    def _spent(self) -> dict[int, Given]:
        return {token: Given((0, 0), given.worker, None, "spent") for token, given in self.model.tokens.items()}

    def _take(self, model: Model) -> None:
        """Tokens that were given are not in it; shards of which a part is done are to be done."""
        tokens = {token: Given(given.key, given.worker, None, "spent") for token, given in self.model.tokens.items()}
        before, self.model = self.model, model
        model.tokens, model.deadlines, model.durations = tokens, {}, before.durations
        model.errors, model.losses = {}, {}
        model.records = {key: done if key in model.done else set() for key, done in model.records.items()}

    def _holder(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted({self.model.tokens[token].worker for token in self.model.held()})))

    def _heard(self, worker: str, *, works: bool = False) -> None:
        if self.model.held(worker):
            if works:
                self.model.latest[worker] = self.now + self.rules.ceiling
            self.model.deadlines[worker] = min(self.now + self.ledger.seconds, self.model.latest[worker])

    def _expire(self) -> int:
        over = [worker for worker, deadline in self.model.deadlines.items() if deadline <= self.now]
        number = sum(self._lost(worker) for worker in over)
        assert self.ledger.expire(self.now) == number
        return number

    def _lost(self, worker: str) -> int:
        held = self.model.held(worker)
        for token, key in held.items():
            self.model.tokens[token].state = "lost"
            self._counted(self.model.losses, key, self.rules.losses)
        return len(held)

    def _counted(self, counts: dict[Key, int], key: Key, most: int) -> None:
        counts[key] = counts.get(key, 0) + 1
        if counts[key] >= most:
            self.model.dead.add(key)

    # What always holds.

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        if not hasattr(self, "ledger"):
            return
        model, counts = self.model, self.ledger.progress()
        todo, held = model.todo(self.shards), model.held()
        assert (counts.epoch, counts.todo, counts.leased) == (model.begun, len(todo), len(held))
        assert (counts.done, counts.dead) == (len(model.done), len(model.dead))
        assert counts.records == sum(map(len, model.records.values()))
        assert {(each.epoch, each.start) for each in self.ledger.dead()} == {
            (key[0], self.dataset.shard(*key).start) for key in model.dead
        }
        assert self.ledger.longest == max(model.durations, default=0.0)
        over = bool(self.dataset.epochs) and model.begun == self.dataset.epochs
        assert counts.ended == (over and not todo and not held)
        assert bool(self.ledger.available) == bool(
            todo or (not over and not (self.dataset.strict_epochs and model.begun and held))
        )
        assert {worker: {entry.token for entry in held} for worker, held in self.ledger.workers().items()} == {
            worker: set(held) for worker in ("a", "b", "c") if (held := model.held(worker))
        }

    @invariant()
    def strict_epochs_overlap_only_where_the_next_was_begun_for_the_sake_of_batches(self) -> None:
        if hasattr(self, "ledger") and self.dataset.strict_epochs:
            todo = self.model.todo(self.shards) | set(self.model.held().values())
            assert all(epoch == self.model.begun for epoch, _ in todo - self.model.overlapping)


def test_random_histories() -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
