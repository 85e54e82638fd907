"""When a write of the state begins: at once for a few callers, and for many when no more of them
come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tarkit.service.dataset import DataSet
from tarkit.service.journal import Change, GroupCommit, Journal
from tarkit.service.ledger import Ledger

SIZE = 1000


class Counted(Journal):
    """In memory; it counts its writes."""

    writes = 0

    def write(self, changes: Iterable[Change]) -> None:
        super().write(changes)
        self.writes += 1


def writes_of(*waves: list[int]) -> list[tuple[int, int]]:
    """Of each wave, how many writes it took, and how many callers had not come when they were done.

    A wave: numbers of callers, of whom the first come at once, and the others one after another
    each time that a write waits for them.
    """
    found = []

    async def run() -> None:
        journal, ledger = Counted(":memory:"), Ledger(DataSet("d", SIZE, 1))
        coming: list[int] = []
        callers: list[asyncio.Task[None]] = []

        async def call() -> None:
            ledger.lease("a", 0.0)
            commits.changed(ledger)
            await commits.written()

        async def come(_seconds: float = 0.0) -> None:
            callers.extend(asyncio.create_task(call()) for _ in range(coming.pop(0) if coming else 0))
            await asyncio.sleep(0)

        commits = GroupCommit(journal, come)
        commits.add(ledger.dataset)
        commits.start()
        for wave in waves:
            before = journal.writes
            coming[:] = wave
            await come()
            while callers:
                await callers.pop()
            found.append((journal.writes - before, sum(coming)))
        await commits.stop()
        journal.close()

    asyncio.run(run())
    return found


def test_many_callers_who_come_one_after_another_share_a_write() -> None:
    assert writes_of([5], [5, 5, 1, 3]) == [(1, 0), (1, 0)]


def test_a_few_callers_do_not_wait_for_others() -> None:
    assert writes_of([4], [4, 9]) == [(1, 0), (1, 9)]


def test_callers_without_end_do_not_keep_a_write_from_beginning() -> None:
    (_, (writes, left)) = writes_of([5], [1] * 30)
    assert writes == 1 and left > 0
