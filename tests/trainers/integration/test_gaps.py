"""Samples that fail or are dropped: counted and reported, and each rank still has the same number
of batches.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from trainshards import needs_torch, write_shards

import tarkit
from tarkit.errors import DataError, MissingInputError, TarkitError, TransformError, UsageError
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers.delivery import GapCounts
from tarkit.trainers.loader import EpochLoader

COUNT, BATCH = 20, 6
MISSING, DAMAGED, UNDECODED = 1, (2, 7), (0, 3)
"""A shard that is gone, a sample with a damaged header, and one whose class is not a number."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("whole")
    write_shards(folder, [COUNT] * 4, lambda *at: {"cls": b"x" if at == UNDECODED else b"%d" % at[1]})
    write_manifest(f"{folder}/d.json", [ManifestShard(f"{folder}/s-{shard}.tar", COUNT) for shard in range(4)])
    return f"{folder}/d.json"


@pytest.fixture(scope="module")
def broken(whole: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("broken") / "d"
    shutil.copytree(Path(whole).parent, folder)
    os.unlink(folder / f"s-{MISSING}.tar")
    with open(folder / f"s-{DAMAGED[0]}.tar", "r+b") as file:
        file.seek(DAMAGED[1] * 1024)
        file.write(b"!")
    return f"{folder}/d.json"


def options(**more: Any) -> dict[str, Any]:
    return {"batch": BATCH, "fields": "__key__ cls", "run": 5, "block": 20, "seed": 1, "collate": list, **more}


def loader(urls: str, **more: Any) -> EpochLoader:
    return tarkit.batches(urls, **options(**more))


def keys(each: EpochLoader) -> list[list[str]]:
    return [[row[0] for row in batch] for batch in each]


def parted(key: str) -> tuple[int, int]:
    shard, _, number = key.partition("-")
    return int(shard), int(number)


def fails(key: str) -> bool:
    return parted(key)[0] == MISSING or parted(key) in (DAMAGED, UNDECODED)


def raised(urls: str, **more: Any) -> TarkitError:
    with pytest.raises(TarkitError) as caught:
        list(loader(urls, **more))
    return caught.value


def test_an_error_ends_the_epoch_by_default(broken: str) -> None:
    assert isinstance(raised(broken), (MissingInputError, DataError, UsageError))
    with pytest.raises(UsageError, match="on_error is 'ignore'; it must be one of raise, count"):
        loader(broken, on_error="ignore")


def ended(value: Any) -> Any:
    return next(iter(()))


def odd(row: tuple[str, bytes]) -> tuple[str, bytes]:
    if int(row[0].partition("-")[2]) % 2:
        raise KeyError("label")
    return row


ENDED = {
    "transform": r"s-\d\.tar, key '\d-\d+': transform raised StopIteration\(\)",
    "collate": r"batch 0 of epoch 0: collate raised StopIteration\(\)",
}


@pytest.mark.parametrize("function", ENDED)
def test_a_function_that_raises_what_ends_an_iterator(whole: str, function: str) -> None:
    """As next() of an iterator that has ended: neither the batch is shorter, nor the epoch."""
    with pytest.raises((RuntimeError, TransformError), match=ENDED[function]):
        list(loader(whole, **{function: ended}))


@needs_torch
@pytest.mark.parametrize("function", ENDED)
def test_a_function_of_workers_that_raises_what_ends_an_iterator(whole: str, function: str) -> None:
    from tarkit.trainers.torch import ShardDataset

    with pytest.raises((RuntimeError, TransformError), match=ENDED[function]):
        list(ShardDataset(whole, **options(**{function: ended})).loader(1))


def test_an_error_of_a_transform_names_the_sample(whole: str) -> None:
    with pytest.raises(
        TransformError, match=r"s-\d\.tar, key '\d-\d*[13579]': transform raised KeyError\('label'\)$"
    ) as found:
        list(loader(whole, transform=odd))
    assert isinstance(found.value.__cause__, KeyError)
    assert found.value.key is not None and int(found.value.key.partition("-")[2]) % 2


@needs_torch
def test_an_error_of_a_transform_in_a_worker_names_the_sample(whole: str) -> None:
    from tarkit.trainers.torch import ShardDataset

    with pytest.raises(TransformError, match=r"s-\d\.tar, key '\d-\d*[13579]': transform raised KeyError\('label'\)"):
        list(ShardDataset(whole, **options(transform=odd)).loader(1))


def test_errors_of_a_transform_are_counted(whole: str, caplog: pytest.LogCaptureFixture) -> None:
    each = loader(whole, transform=odd, on_error="count")
    found = sum(keys(each), [])
    assert len(found) == 4 * COUNT // BATCH * BATCH - each.counts["failed"]
    assert not [key for key in found if parted(key)[1] % 2] and each.counts["failed"] >= 4 * COUNT // 2 - BATCH
    lines = [record.getMessage() for record in caplog.records if "transform raised KeyError" in record.getMessage()]
    assert len(lines) == 4, "one line for each shard"


@pytest.mark.parametrize("world", [1, 2])
def test_what_fails_is_counted_and_reported(
    whole: str, broken: str, world: int, caplog: pytest.LogCaptureFixture
) -> None:
    expected = keys(loader(whole, decode=None))
    ranks = [loader(broken, on_error="count", rank=rank, world=world) for rank in range(world)]
    found = [list(dict.fromkeys(sum(parts, []))) for parts in zip(*map(keys, ranks), strict=True)]
    assert [sorted(batch) for batch in found] == [sorted(key for key in batch if not fails(key)) for batch in expected]
    counts = sum((rank.counts for rank in ranks), Counter[str]())
    assert counts["failed"] == sum(fails(key) for batch in expected for key in batch)
    assert counts["filled"] < (1 if world == 1 else 5)
    assert counts["failed"] > COUNT
    lines = [message for message in caplog.messages if "left out and counted (on_error='count')" in message]
    shards = {name for name in ("s-0.tar", "s-1.tar", "s-2.tar") for line in lines if name in line}
    assert len(shards) == 3 and 3 <= len(lines) <= 3 * world
    assert sum(message.startswith("samples of epoch 0, up to batch 13: ") for message in caplog.messages) == world


@pytest.mark.parametrize("equalize", ["pad", "repeat"])
def test_gaps_are_filled_the_same_for_any_number_of_ranks(whole: str, broken: str, equalize: str) -> None:
    fields = "__key__ cls __pad__" if equalize == "pad" else "__key__ cls"
    expected = keys(loader(whole, decode=None, equalize=equalize))
    found = []
    for world in (1, 2, 3):
        ranks = [
            loader(broken, on_error="count", rank=rank, world=world, equalize=equalize, fields=fields)
            for rank in range(world)
        ]
        found.append([sum(parts, []) for parts in zip(*ranks, strict=True)])
        counts = sum((rank.counts for rank in ranks), Counter[str]())
        assert counts["failed"] == counts["filled"] == sum(fails(key) for batch in expected for key in batch)
    assert found[0] == found[1] == found[2]
    for batch, before in zip(found[0], expected, strict=True):
        left = [key for key in before if not fails(key)]
        assert len(batch) == BATCH and {row[0] for row in batch} == set(left)
        for at, (row, key) in enumerate(zip(batch, before, strict=True)):
            following = [*before[at:], *before[:at]]
            assert row[0] == next(each for each in following if not fails(each))
            if equalize == "pad" and fails(key):
                assert row[2] is True


def most(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return row if parted(row[0])[1] % 4 else None


@pytest.mark.parametrize("on_error", ["raise", "count"])
def test_a_transform_that_drops_samples(whole: str, on_error: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = keys(loader(whole, decode=None))
    shown = loader(whole, decode=None, transform=most, on_error=on_error)
    found = keys(shown)
    assert found == [[key for key in batch if parted(key)[1] % 4] for batch in expected]
    dropped = sum(map(len, expected)) - sum(map(len, found))
    assert shown.counts == {"filtered": dropped} and dropped > 15
    assert caplog.messages == [f"samples of epoch 0, up to batch 13: {dropped} filtered"]
    assert len(keys(shown)) == 13 and shown.counts["filtered"] < 2 * dropped, "each epoch has its own counts"


def test_a_part_of_which_nothing_is_left_has_one_sample_of_another_rank(broken: str) -> None:
    """Without a shuffle, all of a rank's samples may be of the shard that is gone."""
    more = {"on_error": "count", "shuffle": False, "lanes": 4, "batch": 8, "run": 20}
    ranks = [loader(broken, **more, rank=rank, world=4) for rank in range(4)]
    found = list(zip(*map(keys, ranks), strict=True))
    assert len(found) == 10
    for parts in found:
        assert (
            all(parts) and len(parts[MISSING]) == 1 and parts[MISSING][0] in {key for part in parts[2:] for key in part}
        )
    assert ranks[MISSING].counts == {"failed": 20, "filled": 10}


@pytest.mark.parametrize("equalize", ["drop", "repeat", "pad"])
def test_a_batch_of_which_nothing_is_left(whole: str, equalize: str) -> None:
    for world in (1, 2):
        found = raised(whole, decode=None, transform=lambda row: None, equalize=equalize, rank=0, world=world)
        assert isinstance(found, DataError)
        assert str(found).startswith("epoch 0, batch 0: transform dropped all its samples, or they failed; see")


def test_errors_of_the_program_end_it(whole: str) -> None:
    def wrong(row: tuple[Any, ...]) -> Any:
        raise KeyError("typo")

    with pytest.raises(
        DataError, match=r"^epoch 0, batch 0: transform dropped all its samples, or they failed; see the w"
    ):
        list(loader(whole, decode=None, transform=wrong, on_error="count"))
    with pytest.raises(UsageError, match=r"^fields is ' ', which names no field$"):
        loader(whole, fields=" ")
    with pytest.raises(UsageError, match="must be a field, or fields"):
        list(loader(whole, decode=None, fields=";", on_error="count"))


def test_an_iteration_that_is_left_early_reports_what_it_delivered(
    whole: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown = loader(whole, decode=None, transform=most)
    for _ in shown:
        break
    assert caplog.messages == [f"samples of epoch 0, up to batch 1: {shown.counts['filtered']} filtered"]


def test_copies_count_by_themselves() -> None:
    counts = GapCounts()
    counts.note(9000, Counter(failed=2))
    assert counts.of(9000) == {"failed": 2} and counts.of(9001) == {}
    copied = pickle.loads(pickle.dumps(counts))
    copied.note(9000, Counter(filled=1))
    assert copied.of(9000) == {"filled": 1} and counts.of(9000) == {"failed": 2}


@needs_torch
@pytest.mark.parametrize(("equalize", "context"), [("drop", "spawn"), ("repeat", "fork")])
def test_pytorch_counts_what_was_delivered(broken: str, equalize: str, context: str) -> None:
    """Not what workers made ahead."""
    from tarkit.trainers.torch import ShardDataset

    more = options(on_error="count", transform=most, equalize=equalize, seed=3)  # of which each batch has something
    alone = tarkit.batches(broken, **more)
    shown = ShardDataset(broken, **more, decode="rgb").loader(2, multiprocessing_context=context)
    for _ in range(2):
        for one, two in zip(alone, shown, strict=True):
            assert one == [tuple(row) for row in two]
            assert alone.counts == shown.counts
        assert shown.counts["filtered"] and shown.counts["failed"]
