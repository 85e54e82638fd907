"""Weighted sampling: each sample as often as its share, by keys, and the same for any ranks."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from itertools import chain, pairwise
from math import ceil, floor, inf, nan
from pathlib import Path
from typing import Any

import pytest
from trainshards import write_shards

from tarkit.errors import DataError, TarkitError, TransformError, UsageError
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.order import OrderSettings
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.source import BatchSource
from tarkit.trainers.weighting import SampleWeights, ShareOrder

COUNTS = (20, 0, 33, 7)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


def weigh(key: str) -> float:
    """0 for a third of the samples."""
    return int(key.partition("-")[2]) % 3 * 0.7


WEIGHTS = {f"{shard}-{number}": weigh(f"-{number}") for shard, count in enumerate(COUNTS) for number in range(count)}
TOTAL = sum(Fraction(str(weight)) for weight in WEIGHTS.values())


def loader(shards: str, weights: Any = weigh, **options: Any) -> EpochLoader:
    return EpochLoader(BatchSource(shards, **{"batch": 6, "seed": 1, "run": 5, "weights": weights, **options}))


def epoch(each: EpochLoader) -> list[list[str]]:
    return [[sample["__key__"] for sample in batch] for batch in each]


@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 60), ({"epoch_size": 300}, 300), ({"epoch_size": 20, "equalize": "repeat"}, 24), ({"shuffle": False}, 60)],
)
def test_each_sample_comes_by_its_share(shards: str, options: dict[str, Any], size: int) -> None:
    """Rounded down or up in an epoch, and exactly over epochs."""
    each = loader(shards, **options)
    assert len(each) * 6 == size
    used = Counter[str]()
    for number in range(1, 8):
        found = Counter(chain(*epoch(each)))
        assert sum(found.values()) == size
        used += found
        for key, weight in WEIGHTS.items():
            share = Fraction(str(weight)) * size / TOTAL
            assert floor(share) <= found[key] <= ceil(share)
            assert abs(used[key] - number * share) < 2


def test_runs_stay_together(shards: str) -> None:
    """Samples of a run are of one shard, so that few requests read them."""
    order = ShareOrder(SampleWeights(ShardMap(shards), weigh), OrderSettings(5, 1, run=5, block=1), 0, 60)
    found = [place.shard for number in range(12) for place in order.batch(number)]
    assert sum(one != other for one, other in pairwise(found)) <= 16


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("taken", [0, 3, 10])
def test_it_goes_on_with_other_ranks(shards: str, taken: int, replacement: bool) -> None:
    options = {"replacement": replacement, "epoch_size": 63}
    whole = loader(shards, **options)
    epochs = [epoch(whole) for _ in range(2)]
    assert len(whole) == 10 and epochs[0] != epochs[1]
    first = loader(shards, **options)
    running = iter(first)
    for _ in range(taken):
        next(running)
    ranks = [loader(shards, rank=rank, world=4, **options) for rank in range(4)]
    for rank in ranks:
        rank.load_state_dict(first.state_dict())
    rest = [sum(parts, []) for parts in zip(*map(epoch, ranks), strict=True)]
    assert rest == (epochs[0][taken:] if taken < 10 else epochs[1])


def test_with_replacement_the_samples_are_drawn(shards: str) -> None:
    """The numbers are those of this seed, so they are the same in each run."""
    found = Counter(chain(*epoch(loader(shards, replacement=True, epoch_size=6000))))
    assert sum(found.values()) == 6000
    assert not any(found[key] for key, weight in WEIGHTS.items() if not weight)
    for key, weight in WEIGHTS.items():
        share = float(Fraction(str(weight)) * 6000 / TOTAL)
        assert abs(found[key] - share) <= 5 * share**0.5
    counts = sorted(count for key, count in found.items() if WEIGHTS[key] == 0.7)
    assert counts[-1] - counts[0] > 10, "that is not by shares"


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_column_of_numbers(shards: str, tmp_path: Path, kind: str) -> None:
    rows = {**WEIGHTS, "of another data set": 3.0}
    table = tmp_path / f"weights.{kind}"
    if kind == "jsonl":
        table.write_text("".join(f"{json.dumps({'weight': weight, 'key': key})}\n" for key, weight in rows.items()))
    else:
        end = {"csv": ",", "tsv": "\t"}[kind]
        table.write_text(f"key{end}weight\n" + "".join(f"{key}{end}{weight}\n" for key, weight in rows.items()))
    expected = epoch(loader(shards))
    assert (
        epoch(loader(shards, table)) == epoch(loader(shards, str(table))) == epoch(loader(shards, WEIGHTS)) == expected
    )


def test_weights_change_where_an_epoch_begins(shards: str) -> None:
    first = loader(shards)
    running = iter(first)
    next(running)
    state = first.state_dict()
    assert len(json.dumps(state)) < 230
    for change in ({"weights": dict.fromkeys(WEIGHTS, 1)}, {"replacement": True}, {"epoch_size": 120}):
        with pytest.raises(
            UsageError, match=r"^the state is of another order: weights, replacement or epoch_size are "
        ):
            loader(shards, **change).load_state_dict(state)
        loader(shards, **change).load_state_dict(with_checksum({**state, "epoch": 1, "next_batch": 0}))
    loader(shards, {key: 2 * weight for key, weight in WEIGHTS.items()}).load_state_dict(state)
    plain = EpochLoader(BatchSource(shards, batch=6, seed=1, run=5))
    with pytest.raises(UsageError, match=r"^the state is of a data set with weights, and this one has none$"):
        plain.load_state_dict(state)
    plain.load_state_dict(with_checksum({**state, "next_batch": 0}))


def test_a_weight_that_is_small_is_not_0(shards: str) -> None:
    weights = SampleWeights(ShardMap(shards), lambda key: 1e-30 if key == "0-3" else float(key == "3-6"))
    assert weights.place(0)[:2] == (0, 3) and weights.place(1)[:2] == (3, 6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda key: 0, "the weights of all samples are 0; one must be more"),
        (lambda key: -1, "s-0.tar: weight of key '0-0' is -1; it must be a number from 0 on"),
        (lambda key: nan, "s-0.tar: weight of key '0-0' is nan; it must be a number from 0 on"),
        (lambda key: inf, "s-0.tar: weight of key '0-0' is inf; it must be a number from 0 on"),
        (lambda key: 10**400, "s-0.tar: weight of key '0-0' is 1000"),
        (lambda key: "1", "s-0.tar: weight of key '0-0' is '1'; it must be a number from 0 on"),
        ({"0-0": 1}, "s-0.tar: weight of key '0-1' is None; it must be a number from 0 on"),
        (3, "weights is 3; it must be a function, a mapping or a table"),
        ("weights.txt", "weights is weights.txt; a table is a file named"),
    ],
)
def test_weights_that_cannot_be(shards: str, weights: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        loader(shards, weights)


def test_a_function_that_raises_names_the_sample(shards: str) -> None:
    with pytest.raises(TransformError, match=r"s-0\.tar, key '0-0': weights raised KeyError\('0-0'\)$"):
        loader(shards, lambda key: {}[key])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,wait\n0-0,1\n", "has no column 'weight'; it has key, wait"),
        ("key,weight\n0-0,1\n0-0,1\n", "row 3: its key is that of an earlier row"),
        ("key,weight\n0-0,\n", "row 2: weight is ''; it must be a number"),
    ],
)
def test_tables_that_cannot_be(shards: str, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "w.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        loader(shards, tmp_path / "w.csv")


def test_options_that_cannot_be(shards: str) -> None:
    for options, message in (
        ({"replacement": True, "shuffle": False}, "replacement=True draws the samples by chance"),
        ({"epoch_size": "longest"}, "epoch_size is 'longest'; it must be a whole number"),
        ({"epoch_size": 5}, "5 samples do not fill a batch of 6"),
    ):
        with pytest.raises(TarkitError, match=f"^{re.escape(message)}"):
            loader(shards, **options)
