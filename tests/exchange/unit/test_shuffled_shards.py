"""What a shuffle writes: all samples, at random, in the same bytes however the work was cut."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, gathered, keys_of, left_in, numbered_inputs, shards_of, write_shard

from tarkit.errors import UsageError
from tarkit.exchange.positions import shuffled
from tarkit.exchange.shuffle import Shuffle
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.read import read_samples

EMPTY = RawSample("", (), 0, b"")


def test_all_samples_come_out_once_with_their_bytes(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [5, 0, 31, 1, 14])
    result = exchange(urls, tmp_path / "out", Shuffle(3), shards=4).run()
    found = gathered(tmp_path / "out")
    wanted = [sample for url in urls for sample in gathered_of(url)]
    assert sorted(sample for shard in found for sample in shard) == sorted(wanted)
    assert [key for shard in found for key, _ in shard] != [key for key, _ in wanted]
    assert (result.counts.read, result.counts.out, result.outputs, result.done) == (51, 51, 4, 4)
    assert [len(shard) for shard in found] == [13, 13, 13, 12]
    assert left_in(tmp_path) == []


def gathered_of(url: str) -> list[tuple[str, dict[str, bytes]]]:
    return [
        (sample.pop("__key__"), {field: content for field, content in sample.items() if field[0] != "_"})
        for sample in read_samples(url)
    ]


@pytest.mark.parametrize("mem", [1 << 26, 40_000])
def test_outputs_do_not_depend_on_slices_memory_and_blocks(tmp_path: Path, mem: int) -> None:
    urls = numbered_inputs(tmp_path / "in", [3] * 30 + [0] * 10 + [1] * 14)
    found = {}
    for slices, block_size in [(1, None), (3, 2_000), (7, None), (7, 1), (50, 600)]:
        out = tmp_path / f"out-{slices}-{block_size}"
        run = exchange(urls, out, Shuffle(9), slices=slices, block_size=block_size, mem=mem, maxsize=35_000)
        run.run()
        found[slices, block_size] = files_of(out)
    first = found[1, None]
    assert len([name for name in first if name.endswith(".tar")]) >= 4
    assert all(each == first for each in found.values())


def test_seven_shards_of_twenty(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [20])
    for slices in (1, 3):
        out = tmp_path / f"out{slices}"
        exchange(urls, out, slices=slices, shards=7).run()
        assert Counter(map(len, gathered(out))) == {3: 6, 2: 1}


@pytest.mark.parametrize(
    ("counts", "shards", "sizes"),
    [([2, 3], 5, [1] * 5), ([7], 1, [7]), ([0, 9, 0], 2, [5, 4]), ([1] * 9, 4, [3, 2, 2, 2])],
)
def test_sizes_differ_by_one_at_most(tmp_path: Path, counts: list[int], shards: int, sizes: list[int]) -> None:
    exchange(numbered_inputs(tmp_path / "in", counts), tmp_path / "out", shards=shards, slices=4).run()
    assert sorted(map(len, gathered(tmp_path / "out")), reverse=True) == sizes


@pytest.mark.parametrize(("counts", "found"), [([2, 1], "3 samples cannot fill 4 shards"), ([0], "0 samples cannot")])
def test_fewer_samples_than_shards(tmp_path: Path, counts: list[int], found: str) -> None:
    run = exchange(numbered_inputs(tmp_path / "in", counts), tmp_path / "out", shards=4)
    with pytest.raises(UsageError, match=found):
        run.run()
    assert shards_of(tmp_path / "out") == []


def test_no_samples_at_all(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [0, 0])
    for options in ({"maxcount": 5}, {"maxsize": 1000}):
        result = exchange(urls, tmp_path / "out", **options).run()
        assert (result.outputs, result.counts.read) == (0, 0)
        assert shards_of(tmp_path / "out") == left_in(tmp_path) == []


def test_maxcount(tmp_path: Path) -> None:
    exchange(numbered_inputs(tmp_path / "in", [9, 12]), tmp_path / "out", maxcount=8).run()
    assert [len(shard) for shard in gathered(tmp_path / "out")] == [8, 8, 5]


def test_no_shard_is_larger_than_maxsize(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [40, 40], most=9000)
    for maxsize in (25_000, 40_960, 100_000, 1_000_000):
        out = tmp_path / str(maxsize)
        exchange(urls, out, Shuffle(2), maxsize=maxsize, slices=2).run()
        sizes = [path.stat().st_size for path in shards_of(out)]
        assert max(sizes) <= maxsize, (maxsize, sizes)
        assert len(keys_of(out)) == 80
        # Not many more than needed.
        assert len(sizes) <= 2.5 * sum(sizes) / maxsize + 1


def test_a_sample_larger_than_maxsize_is_written_whole(tmp_path: Path) -> None:
    samples = [(f"k{number}", {"bin": bytes(30_000 if number == 4 else 100)}) for number in range(20)]
    urls = [write_shard(tmp_path / "in.tar", samples)]
    exchange(urls, tmp_path / "out", maxsize=20_480).run()
    assert sorted(keys_of(tmp_path / "out")) == sorted(key for key, _ in samples)
    over = [shard for shard, path in zip(gathered(tmp_path / "out"), shards_of(tmp_path / "out"), strict=True)
            if path.stat().st_size > 20_480]  # fmt: skip
    assert len(over) == 1 and "k4" in dict(over[0])


def test_each_output_has_an_index_and_can_be_read_by_webdataset(tmp_path: Path) -> None:
    tariterators = pytest.importorskip("webdataset.tariterators")
    urls = numbered_inputs(tmp_path / "in", [11, 12, 13])
    out = tmp_path / "out"
    exchange(urls, out, shards=4, slices=2).run()
    for path, wanted in zip(shards_of(out), gathered(out), strict=True):
        indexed = open_indexed(str(path))
        assert len(indexed) == len(wanted)
        for number in reversed(range(len(wanted))):
            (sample,) = indexed.samples(number, number + 1)
            assert (sample["__key__"], sample["bin"], sample["cls"]) == (wanted[number][0], *wanted[number][1].values())
        with path.open("rb") as file:
            members = tariterators.tar_file_expander([{"url": str(path), "stream": file}])
            found = [(each["__key__"], each["bin"]) for each in tariterators.group_by_keys(members)]
        assert found == [(key, each["bin"]) for key, each in wanted]


def test_outputs_have_no_index_if_not_wanted(tmp_path: Path) -> None:
    exchange(numbered_inputs(tmp_path / "in", [4]), tmp_path / "out", shards=2, index=False).run()
    assert not [*(tmp_path / "out").glob("*.idx")]


def probability(square: float, freedom: int) -> float:
    """Probability of a chi-squared at least this large, by Wilson and Hilferty's approximation."""
    spread = 2 / (9 * freedom)
    z = ((square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2)) / 2


def test_the_approximation_of_probabilities() -> None:
    # Quantiles of tables: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4.
    for square, freedom, wanted in [
        (124.342, 100, 0.05),
        (149.449, 100, 0.001),
        (16.919, 9, 0.05),
        (77.929, 100, 0.95),
    ]:
        assert probability(square, freedom) == pytest.approx(wanted, rel=0.02)


def squared(pairs: Counter[tuple[int, int]], total: int, rows: int, columns: int) -> float:
    wanted = total / rows / columns
    return sum((pairs[row, column] - wanted) ** 2 / wanted for row in range(rows) for column in range(columns))


def test_all_orders_have_the_same_probability() -> None:
    shards, each, bins = 20, 500, 20
    total = shards * each
    for seed in range(20):
        positions = []
        for shard in range(shards):
            place_of = shuffled(seed, shard)
            positions += [(place_of(EMPTY, number), shard, number) for number in range(each)]
        positions.sort()
        by_shard = Counter((shard, at * bins // total) for at, (_, shard, _) in enumerate(positions))
        by_number = Counter(
            ((number * bins) // each, at * bins // total) for at, (_, _, number) in enumerate(positions)
        )
        # Both margins are fixed, so that both have the same degrees of freedom.
        freedom = (bins - 1) ** 2
        assert 0.001 < probability(squared(by_shard, total, bins, bins), freedom) < 0.999, seed
        assert 0.001 < probability(squared(by_number, total, bins, bins), freedom) < 0.999, seed
        neighbours = sum(one[1] == two[1] and one[2] + 1 == two[2] for one, two in pairwise(positions))
        assert neighbours < 10


def test_positions_across_a_block_of_random_numbers() -> None:
    place_of = shuffled(5, 3)
    found = [place_of(EMPTY, number) for number in range(10_000)]
    assert len({each[:8] for each in found}) == 10_000
    for block in range(3):
        # As the docstring says, in the words of another implementation.
        digest = hashlib.new("shake_128", b"tarkit shuffle 5 3 %d" % block).digest(8 * 4096)
        for number in (4096 * block, 4096 * block + 1, min(4096 * block + 4095, 9999)):
            at = 8 * (number - 4096 * block)
            assert found[number] == digest[at : at + 8] + bytes([0, 0, 3]) + number.to_bytes(5, "big")


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [30])
    orders = set()
    for seed in range(4):
        exchange(urls, tmp_path / str(seed), Shuffle(seed), shards=1).run()
        orders.add(tuple(keys_of(tmp_path / str(seed))))
    assert len(orders) == 4


def test_order_of_the_inputs_counts(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [10, 10])
    exchange(urls, tmp_path / "a", shards=1).run()
    exchange(urls[::-1], tmp_path / "b", shards=1).run()
    assert keys_of(tmp_path / "a") != keys_of(tmp_path / "b")


def test_environment_does_not_change_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 5])
    exchange(urls, tmp_path / "a", rekey=True).run()
    before = os.umask(0o077)
    try:
        exchange(urls, tmp_path / "b", rekey=True).run()
    finally:
        os.umask(before)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
