"""Works through a data set with a journal, and prints what it has answered, until it is killed: the
other side of ``test_journal.py``.

Argument: the file.

A line for each lease (``given TOKEN POSITION``) and each report (``done TOKEN POSITION``), when it
is in the file.
"""

from __future__ import annotations

import os
import sys

from tarkit.service.dataset import DataSet
from tarkit.service.journal import Journal, change_of, declaration_of
from tarkit.service.leases import Lease, LeaseRules
from tarkit.service.ledger import Ledger

DATASET = DataSet("data", 40_000, 2, shuffle_shards=True)


def main(path: str) -> None:
    journal = Journal(path)
    ledgers = journal.load(LeaseRules(), 0.0)
    if not ledgers:
        ledgers = [Ledger(DATASET)]
        journal.write([declaration_of(DATASET), change_of(ledgers[0])])
    (ledger,) = ledgers
    for held in ledger.workers():
        ledger.release(held)
    print("begun", flush=True)
    while leases := [lease for _ in range(3) if isinstance(lease := ledger.lease("w", 0.0), Lease)]:
        journal.write([change_of(ledger)])
        say("given", ledger, leases)
        places = {lease.token: ledger.tasks[key].position for lease in leases for key in keys(ledger, lease.token)}
        for lease in leases[:-1]:
            ledger.complete(lease.token, 0.0)
        ledger.complete(leases[-1].token, 0.0, [(0, 1)])
        ledger.release("w")
        journal.write([change_of(ledger)])
        os.write(1, "".join(f"done {lease.token} {places[lease.token]}\n" for lease in leases[:-1]).encode())


def keys(ledger: Ledger, token: int) -> list[tuple[int, int]]:
    return [key for key, entry in ledger.tasks.items() if entry.token == token]


def say(word: str, ledger: Ledger, leases: list[Lease]) -> None:
    lines = [f"{word} {lease.token} {key[1]}\n" for lease in leases for key in keys(ledger, lease.token)]
    os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    main(sys.argv[1])
