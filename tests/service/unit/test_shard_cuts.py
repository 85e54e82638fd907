"""How a data set is cut into shards, for each epoch: every record, in the same order on each
machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced import traced_peak

from tarkit.errors import UsageError
from tarkit.readers.reader import Shard, TaskShard
from tarkit.service.dataset import DataSet


def shards(dataset: DataSet, epoch: int = 1) -> list[TaskShard]:
    return [dataset.shard(epoch, position) for position in range(dataset.shards)]


def records(shard: TaskShard) -> list[tuple[str, int]]:
    return [(shard.name, record) for record in shard.indices or range(shard.start, shard.end)]


def spans(dataset: DataSet, epoch: int = 1) -> list[tuple[int, int]]:
    return [(shard.start, shard.end) for shard in shards(dataset, epoch)]


def test_shards_by_size_are_those_of_elasticdl() -> None:
    assert spans(DataSet("d", 6, 2)) == [(0, 2), (2, 4), (4, 6)]
    assert spans(DataSet("d", 22, 8)) == [(0, 8), (8, 16), (16, 22)]
    assert spans(DataSet("d", 10, 3)) == [(0, 3), (3, 6), (6, 9), (9, 10)]


def test_shards_of_files_are_those_of_elasticdl() -> None:
    dataset = DataSet.of_files("d", [Shard("f1", 0, 10), Shard("f0", 0, 0), Shard("f2", 10, 10)], 3)
    cuts = [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert [(each.name, each.start, each.end) for each in shards(dataset)] == [
        *(("f1", start, end) for start, end in cuts),
        *(("f2", 10 + start, 10 + end) for start, end in cuts),
    ]


def test_orders_never_change() -> None:
    iris = DataSet("iris", 10, 3, 2, shuffle_shards=True, seed=7)
    assert spans(iris, 1) == [(6, 9), (3, 6), (9, 10), (0, 3)]
    assert spans(iris, 2) == [(9, 10), (6, 9), (0, 3), (3, 6)]
    shuffled = DataSet("iris", 10, 3, 2, shuffle_records=True, seed=7)
    assert [each.indices for each in shards(shuffled)] == [(7, 8, 0), (6, 4, 9), (1, 2, 3), (5,)]
    files = DataSet.of_files("iris", [Shard("a.rec", 0, 4), Shard("b.rec", 0, 5)], 3, shuffle_records=True, seed=7)
    assert [(each.name, each.indices) for each in shards(files)] == [
        ("b.rec", (0, 2, 1)),
        ("a.rec", (3,)),
        ("b.rec", (3, 4)),
        ("a.rec", (0, 1, 2)),
    ]


@given(
    files=st.lists(st.integers(0, 9), max_size=4),
    size=st.integers(1, 30),
    per_shard=st.integers(1, 8),
    remainder=st.sampled_from(["", "drop", "fill"]),
    flags=st.tuples(st.booleans(), st.booleans()),
    epoch=st.integers(1, 3),
)
def test_each_record_is_in_one_shard(
    files: list[int], size: int, per_shard: int, remainder: str, flags: tuple[bool, bool], epoch: int
) -> None:
    named = tuple(Shard(f"f{number}", 5 * number, records) for number, records in enumerate(files))
    more: dict[str, Any] = {"shuffle_shards": flags[0], "shuffle_records": flags[1], "remainder": remainder}
    lengths = files if sum(files) else [size]
    if remainder == "drop" and max(lengths) < per_shard:
        with pytest.raises(UsageError, match="no file has"):
            DataSet("d", sum(lengths), per_shard, 3, named if sum(files) else (), **more)
        return
    dataset = DataSet("d", sum(lengths), per_shard, 3, named if sum(files) else (), **more)
    given = shards(dataset, epoch)
    counts = Counter(record for shard in given for record in records(shard))
    every = {(file.name, file.start + at) for file in named or [Shard("d", 0, size)] for at in range(file.records)}
    if not sum(files):
        every = {("d", at) for at in range(size)}
    if remainder == "drop":
        assert all(shard.end - shard.start == per_shard for shard in given)
        assert (set(counts) <= every, max(counts.values())) == (True, 1)
        assert len(counts) == sum(length // per_shard * per_shard for length in lengths)
    else:
        assert set(counts) == every
        assert (max(counts.values()) == 1) or remainder == "fill"
    if remainder == "fill":
        assert all(shard.end - shard.start == per_shard or per_shard > min(lengths) for shard in given)


def test_seed_and_epoch_give_other_orders() -> None:
    dataset = DataSet("d", 100, 1, shuffle_shards=True)
    orders = [spans(replace(dataset, seed=seed), epoch) for seed, epoch in product(range(5), range(1, 5))]
    assert len({tuple(order) for order in orders}) == 20
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


REFUSED: list[tuple[Callable[[], DataSet], str]] = [
    (lambda: DataSet("", 1, 1), "a data set's name has 1 to 1024 bytes, not 0"),
    (lambda: DataSet("ü" * 513, 1, 1), "a data set's name has 1 to 1024 bytes, not 1026"),
    (lambda: DataSet("a\udcff", 1, 1), "the name 'a\\\\udcff' of a data set or file is not valid UTF-8"),
    (lambda: DataSet("d", 0, 1), "data set 'd': size is 0; it must be 1 to 4611686018427387904"),
    (lambda: DataSet("d", 1, 0), "data set 'd': records_per_shard is 0; it must be 1 to 2147483647"),
    (lambda: DataSet("d", 1, 2**31), "data set 'd': records_per_shard is 2147483648; it must be 1 to 2147483647"),
    (lambda: DataSet("d", 1, 1, -1), "data set 'd': epochs is -1; it must be 0 to 2147483647"),
    (lambda: DataSet("d", 1, 1, seed=2**63), "seed is 9223372036854775808"),
    (lambda: DataSet("d", 1, 1, task_type=4), "data set 'd': task_type is 4; it must be 1 to 3"),
    (
        lambda: DataSet("d", 1, 1, remainder="x"),
        "data set 'd': remainder is 'x'; it must be '' (keep), 'drop' or 'fill'",
    ),
    (lambda: DataSet("d", 5, 1, files=(Shard("a", 0, 4),)), "data set 'd': size is 5, but its files have 4 records"),
    (lambda: DataSet("d", 4, 1, files=(Shard("a", 0, 4, 8193 * "x"),)), "the identity of file 'a' has more than 8192"),
    (lambda: DataSet("d", 4, 1, files=(Shard("a", -1, 4),)), "file 'a' has 4 records from -1"),
    (lambda: DataSet("d", 1, 1, files=(Shard("a", 0, -3), Shard("b", 0, 4))), "file 'a' has -3 records"),
    (lambda: DataSet("d", 2, 1, files=(Shard("a", 2**62, 2),)), "file 'a' has records beyond"),
    (lambda: DataSet("d", 2, 3, remainder="drop"), "data set 'd': no file has 3 records, and remainder is 'drop'"),
    (lambda: DataSet.of_files("d", [Shard("a", 0, 0)], 3), "data set 'd': size is 0"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], DataSet], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_declaration_as_json_and_its_fingerprint() -> None:
    dataset = DataSet.of_files("ü", [Shard("a\nb", 3, 4), Shard("b", 0, 9)], 3, epochs=0, seed=-1, remainder="fill")
    assert DataSet.from_json(dataset.to_json()) == dataset
    assert DataSet("iris", 150, 8).fingerprint == "a5375af103ee2c4e862000f0574a9563"
    assert replace(dataset, task_type=2).fingerprint == dataset.fingerprint
    others: list[dict[str, Any]] = [{"seed": 1}, {"epochs": 2}, {"name": "u"}, {"strict_epochs": True}]
    assert len({replace(dataset, **other).fingerprint for other in others} | {dataset.fingerprint}) == 5


def test_how_declarations_differ() -> None:
    first = DataSet("iris", 150, 8, seed=1)
    assert first.differences(first) == ""
    assert first.differences(replace(first, size=149, seed=2)) == "size 150, not 149; seed 1, not 2"
    one = DataSet.of_files("d", [Shard("a", 0, 4), Shard("b", 0, 4)], 2)
    other = DataSet.of_files("d", [Shard("a", 0, 4), Shard("c", 2, 4)], 2)
    more = DataSet.of_files("d", [Shard("a", 0, 4), Shard("b", 0, 4), Shard("c", 0, 1)], 2)
    assert one.differences(other) == "file 2 is ('b', 0, 4), not ('c', 2, 4)"
    assert one.differences(more) == "size 8, not 9; 2 files, not 3"


def test_millions_of_shards_and_a_hundred_thousand_files_cost_little() -> None:
    seconds = []
    with traced_peak() as peak:
        for _ in range(3):
            begin = time.process_time()
            dataset = DataSet("d", 16_000_000, 8, shuffle_shards=True)
            dataset.shard(1, 1_999_999)
            seconds.append(time.process_time() - begin)
            assert dataset.shards == 2_000_000
        assert peak() < 1 << 20
    # One of them may be that of the garbage collector, or of another thread.
    assert min(seconds) < 0.05
    files = DataSet.of_files("d", [Shard(f"f{number}.tar", 0, 1000) for number in range(100_000)], 300)
    assert files.shards == 400_000
    assert files.shard(1, 399_999) == TaskShard("f99999.tar", 900, 1000)
    assert DataSet.from_json(files.to_json()).fingerprint == files.fingerprint
