"""docs/shard-service.md: its program gives the orders that the service gives, its examples are what
comes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tarkit.service.checkpoint import checkpoint, restore
from tarkit.service.dataset import DataSet, Permutation
from tarkit.service.leases import Lease
from tarkit.service.ledger import Ledger

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "shard-service.md").read_text(encoding="utf-8")


def written_order() -> Callable[..., list[int]]:
    """The page's program."""
    (program,) = re.findall(r"```python\n(from hashlib.*?)```", PAGE, re.DOTALL)
    names: dict[str, Callable[..., list[int]]] = {}
    exec(program, names)
    return names["order"]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 63, 64, 65, 100, 1000, 1025])
def test_the_program_of_the_page_is_the_order(n: int) -> None:
    order = written_order()
    for names in ((7, 1, "shards"), (-(2**63), 2**31 - 1, "records", 12)):
        permutation = Permutation(n, *names)
        assert order(n, *names) == [permutation[position] for position in range(n)]


def test_the_example_of_orders() -> None:
    rows = re.findall(r"^\| (\d) \| ([\d–, ]+) \| ([\d, ]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    for epoch, shards, records in rows:
        shuffled = DataSet("iris", 10, 3, 2, shuffle_shards=True, seed=7)
        given = [shuffled.shard(int(epoch), position) for position in range(shuffled.shards)]
        assert ", ".join(f"{shard.start}–{shard.end}" for shard in given) == shards
        shuffled = DataSet("iris", 10, 3, 2, shuffle_records=True, seed=7)
        given = [shuffled.shard(int(epoch), position) for position in range(shuffled.shards)]
        assert ", ".join(" ".join(map(str, shard.indices)) for shard in given) == records
        numbers = written_order()(10, 7, int(epoch), "records")
        assert records.replace(",", "") == " ".join(map(str, numbers))
    (filled,) = re.findall(r"\(here: ([\d–, ]+)\)", PAGE)
    dataset = DataSet("iris", 10, 3, remainder="fill")
    bounds = [dataset.bounds(1, position) for position in range(dataset.shards)]
    assert filled == ", ".join(f"{shard.start}–{shard.end}" for shard in bounds)


def test_the_example_of_a_checkpoint() -> None:
    (text,) = re.findall(r"```json\n(\{\"dataset_name.*?)\n```", PAGE, re.DOTALL)
    ledger = Ledger(DataSet("iris", 10, 3))
    leases = [ledger.lease("w", 0.0) for _ in range(3)]
    assert all(isinstance(lease, Lease) for lease in leases)
    ledger.complete(3, 0.0)
    ledger.release("w", [2])
    assert json.loads(text) == json.loads(checkpoint(ledger))
    restored = Ledger(ledger.dataset)
    restore(restored, text, 0.0)
    assert (restored.progress().todo, restored.progress().done) == (3, 1)
