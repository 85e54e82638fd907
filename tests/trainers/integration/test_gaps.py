"""Samples that fail or are dropped: counted and reported, and each rank still has the same number
of batches.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
from collections import Counter
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from trainshards import needs_torch, write_shards

import tarkit
from tarkit import errors
from tarkit.errors import DataError, MissingInputError, TarkitError, TransformError, UsageError
from tarkit.runs.counts import Limit, TooManyErrorsError
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers.delivery import GapCounts
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.skipped import SkippedSamples, skipped_sample

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


def left(value: Any) -> Any:
    sys.exit(3)


def local(value: Any) -> Any:
    class LocalError(Exception):
        """No other process can unpickle it, so no error of this class comes from a worker."""

    raise LocalError("no label")


def unsent(value: Any) -> Any:
    return lambda: value


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


@needs_torch
@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"transform": left}, r"worker \(pid\(s\) \d+\) exited unexpectedly"),
        ({"transform": local}, r"key '\d-\d+': transform raised LocalError\('no label'\)"),
        ({"collate": local}, r"batch 0 of epoch 0: collate raised LocalError\('no label'\)"),
        ({"collate": unsent}, r"worker \(pid\(s\) \d+\) exited unexpectedly"),
    ],
)
def test_a_function_of_workers_whose_error_or_value_cannot_be_sent(
    whole: str, functions: dict[str, Any], message: str
) -> None:
    """The loop would wait forever; here it would raise another error, after 20 s."""
    from tarkit.trainers.torch import ShardDataset

    with pytest.raises((RuntimeError, TransformError), match=message):
        list(ShardDataset(whole, **options(**functions)).loader(1, timeout=20))


def test_an_error_of_collate_names_the_batch(whole: str) -> None:
    with pytest.raises(RuntimeError, match=r"^batch 0 of epoch 0: collate raised LocalError\('no label'\)$") as found:
        list(loader(whole, collate=local))
    assert type(found.value.__cause__).__name__ == "LocalError"


def test_a_signal_that_ends_the_program_is_no_failed_sample(whole: str) -> None:
    """Its handler may call sys.exit() anywhere, also within a transform."""
    with pytest.raises(SystemExit):
        list(loader(whole, transform=left, on_error="count"))


def test_an_error_of_many_megabytes_costs_no_more_than_its_ends(whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As UnicodeDecodeError, whose text has all bytes that were to be decoded."""
    searched: list[int] = []
    monkeypatch.setattr(errors, "redact_text", lambda text, *_: searched.append(len(text)) or text)
    message = str(raised(whole, decode=None, transform=lambda row: (bytes(1 << 20) + b"\xff").decode()))
    assert "transform raised UnicodeDecodeError('utf-8', b'" in message and message.endswith("'invalid start byte')")
    assert len(message) < 500 and 0 < max(searched) < 1 << 17


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


@needs_torch
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_their_iteration_after_an_error(whole: str, persistent: bool) -> None:
    """Persistent ones with their loader; PyTorch would wait 5 s for each, if it were garbage."""
    from tarkit.trainers.torch import ShardDataset

    before, found = active_children(), []
    shown = ShardDataset(whole, **options(transform=odd)).loader(2, persistent_workers=persistent)
    for _ in range(2):
        try:
            list(shown)
        except TransformError as error:
            found.append(error)
    assert len(found) == 2
    if persistent:
        assert len(active_children()) == len(before) + 2
        del shown, found
    assert active_children() == before


def test_errors_of_a_transform_are_counted(whole: str, caplog: pytest.LogCaptureFixture) -> None:
    each = loader(whole, transform=odd, on_error="count", seed=0)  # each batch has something
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
    shown = loader(whole, decode=None, transform=most, seed=0)
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

    more = options(on_error="count", transform=most, equalize=equalize, seed=2)  # of which each batch has something
    alone = tarkit.batches(broken, **more)
    shown = ShardDataset(broken, **more, decode="rgb").loader(2, multiprocessing_context=context)
    for _ in range(2):
        for one, two in zip(alone, shown, strict=True):
            assert one == [tuple(row) for row in two]
            assert (alone.counts, alone.skipped) == (shown.counts, shown.skipped)
        assert shown.counts["filtered"] and shown.counts["failed"] == len(shown.skipped) > 10


REASONS = {
    MISSING: "the index .* does not exist|no such file|has no index",
    DAMAGED[0]: "checksum",
    UNDECODED[0]: "field 'cls'",
}


@pytest.mark.parametrize("equalize", ["drop", "repeat"])
def test_what_was_skipped_is_listed_by_key(
    whole: str, broken: str, equalize: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failed sample once, also where others take its place; anew in each epoch."""
    expected = [key for batch in keys(loader(whole, decode=None, equalize=equalize)) for key in batch if fails(key)]
    each = loader(broken, on_error="count", equalize=equalize)
    for epoch in range(2):
        running = keys(each)
        assert not [key for batch in running for key in batch if fails(key)]
        assert len(each.skipped) == each.counts["failed"]
        if epoch == 0:
            assert each.counts["failed"] == len(expected)
            listed = [skipped for skipped in each.skipped if skipped.key is not None]
            assert {parted(str(skipped.key)) for skipped in listed} == {DAMAGED, UNDECODED}
            for skipped in each.skipped:
                shard = int(Path(skipped.url).stem[2:])
                assert skipped.key is None or parted(skipped.key)[0] == shard
                assert re.search(REASONS[shard], skipped.reason), skipped
                assert "\n" not in skipped.reason
    (line, _) = [message for message in caplog.messages if message.startswith("failed samples of epoch ")]
    assert re.search(r"^failed samples of epoch 0: .*s-1\.tar \(\d+ samples\); ", line)
    assert "s-2.tar, key '2-7'" in line and "s-0.tar, key '0-3'" in line


@pytest.mark.parametrize(("limit", "fits"), [(21, False), ("25%", False), (22, True), ("29%", True), ("100%", True)])
def test_a_limit_of_failed_samples(broken: str, limit: int | str, fits: bool) -> None:
    """78 samples are in batches, of which up to 22 fail."""
    each = loader(broken, on_error="count", max_errors=limit)
    every = keys(loader(broken, on_error="count", max_errors=100))
    if fits:
        assert keys(each) == every
        return
    found = []
    with pytest.raises(TooManyErrorsError) as raised:
        found.extend(batch for batch in each)
    epoch, next_batch = each.state_dict()["epoch"], each.state_dict()["next_batch"]
    assert (epoch, next_batch) == (0, len(found)), "the batch of the error was not given"
    most = limit if isinstance(limit, int) else 19
    message = str(raised.value)
    start = f"epoch 0, batch {next_batch}: {each.counts['failed']} samples failed in the batches of this rank, and "
    assert message.startswith(f"{start}max_errors is {limit}; the first: ") and "\n" not in message
    assert message.count("s-") == 3 + message.count("s-1.idx") and each.counts["failed"] > most
    assert [[row[0] for row in batch] for batch in found] == every[: len(found)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_errors": "many", "on_error": "count"}, "'many' is not a limit for errors; write a number, such as 100"),
        ({"max_errors": -1, "on_error": "count"}, "'-1' is not a limit for errors"),
        ({"max_errors": 5}, "max_errors= goes with on_error='count': without it, the first error ends the epoch"),
    ],
)
def test_limits_that_cannot_be(whole: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        loader(whole, **options)
    assert str(raised.value).startswith(message)


def test_the_list_of_skipped_samples_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.trainers.skipped.MOST_LISTED", 3)
    samples = SkippedSamples(Limit(10), 4, 100)
    for batch in range(5):
        samples.add(batch, [skipped_sample("s.tar", str(at), DataError("x\ny" * 200)) for at in range(2)])
    assert [each.key for each in samples.listed] == ["0", "1", "0"]
    assert all(len(each.reason) < 300 and each.reason.isprintable() for each in samples.listed)
    with pytest.raises(
        TooManyErrorsError, match=r"^epoch 4, batch 9: 11 samples failed in .* is 10; the first: s\.tar, key"
    ):
        samples.add(9, [skipped_sample("s.tar", None, UsageError("gone"))])


def test_a_reason_of_several_samples_is_shown_once() -> None:
    samples = SkippedSamples(Limit(2), 0, 100)
    with pytest.raises(TooManyErrorsError, match=r"max_errors is 2; the first: s\.tar: gone; t\.tar: gone$"):
        samples.add(0, [skipped_sample(url, None, UsageError("gone")) for url in ("s.tar", "s.tar", "t.tar")])


@needs_torch
def test_a_limit_of_failed_samples_of_workers(broken: str) -> None:
    """It is for all workers together; and for each where torchdata reads the data set."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tarkit.trainers.torch import ShardDataset

    more = options(on_error="count", max_errors=15)
    alone = loader(broken, **more)
    with pytest.raises(TooManyErrorsError) as expected:
        list(alone)
    each = ShardDataset(broken, **more, decode="rgb").loader(2, collate_fn=list)
    with pytest.raises(TooManyErrorsError) as found:
        list(each)
    assert str(found.value) == str(expected.value) and each.skipped == alone.skipped
    with pytest.raises(TooManyErrorsError, match="max_errors is 5; the first"):
        list(StatefulDataLoader(ShardDataset(broken, **{**more, "max_errors": 5}, decode="rgb"), batch_size=None))
    count = sum(
        len(batch)
        for batch in StatefulDataLoader(ShardDataset(broken, **more, decode="rgb"), batch_size=None, num_workers=2)
    )
    assert count == 78 - 22
