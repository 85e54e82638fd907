"""Batches of arrays without a trainer's library: each sample once an epoch, and from the middle of
one on.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainshards import program_of, write_shards

import tarkit
from tarkit.errors import DecodeError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.samples.codecs import decode_field
from tarkit.samples.images import quick_decoder
from tarkit.trainers.arrays import columns
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource

COUNTS = (20, 20, 20)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    def fields(shard: int, number: int) -> dict[str, Any]:
        return {"png": np.full((2, 3, 3), number * 4, "uint8"), "cls": number, "txt": f"text {number}"}

    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, fields)


def loader(shards: str, **options: Any) -> EpochLoader:
    return tarkit.batches(shards, **{"batch": 6, "fields": "__key__ png cls txt", "decode": "rgb8", **options})


def test_an_epoch_has_each_sample_once_in_arrays(shards: str) -> None:
    for names, images, labels, texts in loader(shards):
        assert isinstance(names, list) and len(names) == 6
        assert images.shape == (6, 2, 3, 3) and images.dtype == np.uint8
        assert labels.dtype == np.int64 and (images[:, 0, 0, 0] == labels * 4).all()
        assert texts == [f"text {label}" for label in labels]
    every = loader(shards)
    epochs = [[name for batch in every for name in batch[0]] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == sorted(epochs[0]) and len(set(epoch)) == 60 for epoch in epochs)


@pytest.mark.parametrize("decode", ["rgb8", "l"])
def test_only_the_fields_that_are_named_are_decoded(tmp_path: Path, decode: str) -> None:
    """Of others, some may be damaged, or cannot be decoded at all."""
    urls = write_shards(tmp_path, [4], lambda shard, number: {"cls": number, "json": b"{", "pkl": b"x"})
    for batch in loader(urls, batch=4, fields="png;cls __key__", decode=decode):
        assert sorted(batch[0]) == [0, 1, 2, 3]
    with pytest.raises(DecodeError, match="field 'json'"):
        list(loader(urls, batch=4, fields="cls json", decode=decode))


def test_pictures_can_stay_bytes(shards: str) -> None:
    """For a decoder of the loop's process, which gets them in their order."""
    decoded, undecoded = loader(shards), loader(shards, decode="bytes")
    for (names, pictures, labels, texts), (kept, files, *others) in zip(decoded, undecoded, strict=True):
        assert kept == names and all(file.startswith(b"\x89PNG") for file in files)
        found = [decode_field("png", file, image="rgb8") for file in files]
        assert np.array_equal(np.stack(found), pictures)  # type: ignore[arg-type]
        assert (others[0] == labels).all() and others[1] == texts


@pytest.mark.parametrize(("decode", "logged"), [("rgb8", 1), ("torchrgb", 1), ("pil", 0), ("bytes", 0), (None, 0)])
def test_the_decoder_of_jpeg_is_logged_once(
    shards: str, decode: str | None, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tarkit.samples.images")
    quick_decoder.cache_clear()
    for _ in range(2):
        BatchSource(shards, batch=6, decode=decode)
    assert len(caplog.messages) == logged
    assert all(text.startswith("JPEG pictures are decoded to arrays by ") for text in caplog.messages)


@pytest.mark.parametrize("taken", [0, 1, 9, 10])
def test_it_goes_on_with_other_ranks(shards: str, taken: int) -> None:
    whole = loader(shards)
    epochs = [[batch[0] for batch in whole] for _ in range(2)]
    first = loader(shards)
    running = iter(first)
    assert [next(running)[0] for _ in range(taken)] == epochs[0][:taken]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    ranks = [loader(shards, rank=rank, world=2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = [sum(parts, []) for parts in zip(*([batch[0] for batch in rank] for rank in ranks), strict=True)]
    assert rest == (epochs[0][taken:] if taken < 10 else epochs[1])
    assert len(first) == len(ranks[0]) == 10


def epoch_names(each: EpochLoader) -> list[list[str]]:
    return [batch[0] for batch in each]


@pytest.mark.parametrize("equalize", ["drop", "pad"])
def test_another_batch_begins_with_an_epoch(shards: str, equalize: str) -> None:
    first = loader(shards, equalize=equalize)
    running = iter(first)
    next(running)
    then = loader(shards, batch=8, equalize=equalize)
    with pytest.raises(
        UsageError, match=r"^the state is of another order: batch is 8, and 6 in the state; .* set_epoch\(1\)$"
    ):
        then.load_state_dict(first.state_dict())
    list(running)
    then.load_state_dict(first.state_dict())
    whole = loader(shards, batch=8, equalize=equalize)
    whole.set_epoch(1)
    assert epoch_names(then) == epoch_names(whole)


def test_a_state_of_another_version_of_the_order_is_refused(shards: str) -> None:
    each = loader(shards)
    state = each.state_dict()
    earlier = {name: value for name, value in {**state, "version": 2}.items() if name != "crc"}
    for found in (earlier, with_checksum({**state, "version": 2}), {**state, "version": 4}):
        message = f"^version of the state is {found['version']}, and here it is 3; resume with the version of tarkit "
        with pytest.raises(UsageError, match=message):
            each.load_state_dict(found)
        assert each.state_dict() == state


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "nothing"),
        ({"model": 1, "loader": {}}, "'model', 'loader'"),
    ],
)
def test_what_is_no_state_is_named(shards: str, state: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^this is not the state of a .* returns: it has {message}$"):
        loader(shards).load_state_dict(state)


@pytest.mark.parametrize("error", [MissingExtraError("video", "video"), ImportError("no module")])
def test_a_library_that_transform_lacks_is_not_counted_as_failed_samples(shards: str, error: ImportError) -> None:
    def lacking(row: tuple[Any, ...]) -> Any:
        if row[0] == "0-3":
            raise error
        return row

    with pytest.raises(ImportError) as found:
        list(loader(shards, transform=lacking, on_error="count", max_errors="100%"))
    assert found.value is error


def test_fillers_are_marked_only_in_batches_that_are_filled(shards: str) -> None:
    with pytest.raises(UsageError, match=r"^fields has __pad__, and equalize is 'drop': .* equalize='pad'$"):
        loader(shards, fields="cls __pad__")


def test_a_source_goes_to_another_process(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    source = BatchSource(shards, batch=6)
    sent = pickle.dumps(source)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert pickle.loads(sent).consumer == (1, 3)
    assert source.consumer == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert pickle.loads(sent).consumer == (1, 3), "Lightning's launcher sets no RANK"
    monkeypatch.delenv("WORLD_SIZE")
    assert len(next(pickle.loads(sent).epoch_batches(0))) == 2


def test_a_data_set_that_goes_from_one_process_to_all_ranks_is_an_error(
    shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would read every sample."""
    source = pickle.dumps(loader(shards).source)
    named = pickle.dumps(loader(shards, rank=1, world=2).source)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(UsageError, match=r"^the data set was made for rank 0 of 1, and was sent to a"):
            next(pickle.loads(source).epoch_batches(0))
        assert pickle.loads(named).consumer == (1, 2)


def test_a_source_that_gives_fewer_batches_is_an_error(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = loader(shards)
    monkeypatch.setattr(EpochLoader, "_epoch", lambda self, epoch, first: [1, 2])
    with pytest.raises(RuntimeError, match=r"^epoch 0 has 10 batches, and 2 came$"):
        list(short)


def test_the_program_of_the_page(
    shards: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = program_of("training.md", "arrays")
    scope: dict[str, Any] = {}
    exec(program.replace("train-{0..2}.tar", shards).replace("batch=32", "batch=30"), scope)
    assert (scope["state"]["epoch"], scope["state"]["next_batch"]) == (3, 0)
    assert capsys.readouterr().out.count("(30, 2, 3, 3) ") == 6


def test_columns() -> None:
    found = columns([(1, 2.5, True, b"a", np.zeros(2)), (2, 1, False, b"b", np.zeros(3))])
    assert [type(each).__name__ for each in found] == ["ndarray", "ndarray", "ndarray", "list", "list"]
    assert [str(each.dtype) for each in found[:3]] == ["int64", "float64", "bool"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": -1}, "epoch of the state is -1; it must be a whole number from 0 to below 2**62"),
        ({"epoch": 10**30}, "epoch of the state is 1000"),
        ({"epoch": None}, "epoch of the state is None"),
        ({"next_batch": -1}, "next_batch of the state is -1"),
        ({"next_batch": 1.5}, "next_batch of the state is 1.5"),
        ({"next_batch": 11}, "next_batch of the state is 11, and epoch 0 has 10 batches"),
        ({"batch": "6"}, "the state is of another order: batch is 6, and '6' in the state; it can change"),
        ({"turns": 10**12}, "the state is of another order: turns is 1, and 1000000000000 in the state; it"),
    ],
)
def test_states_that_cannot_be(shards: str, change: dict[str, Any], message: str) -> None:
    """Of the rest of the epoch, nothing may be left out or come again because of a place that it
    has not.
    """
    each = loader(shards)
    state = with_checksum({**each.state_dict(), "next_batch": 2, **change})
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        each.load_state_dict(state)
    assert (each.state_dict()["epoch"], each.state_dict()["next_batch"]) == (0, 0)


def test_what_is_not_a_state(shards: str) -> None:
    with pytest.raises(UsageError, match=r"^this is not the state of a data set of shards, but a NoneType$"):
        loader(shards).load_state_dict(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^epoch is 'x'; it must be a whole number"):
        loader(shards).set_epoch("x")  # type: ignore[arg-type]


def test_of_two_iterations_of_a_loader_the_first_is_over(shards: str) -> None:
    each = loader(shards)
    first, second = iter(each), iter(each)
    next(first)
    names = [next(second)[0]]
    with pytest.raises(UsageError, match=r"^epoch 0 is over, as a later iteration of the data set has begun: make a"):
        next(first)
    whole = loader(shards)
    whole.set_epoch(1)
    assert names + [batch[0] for batch in second] == epoch_names(whole)
    assert (each.state_dict()["epoch"], each.state_dict()["next_batch"]) == (2, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 32.0}, "batch is 32.0; it must be a whole number from 1"),
        ({"seed": None}, "seed is None; every epoch's order follows from it"),
        ({"seed": float("nan")}, "seed is nan; it must be a whole number"),
        ({"run": 1.5}, "run is 1.5; it must be at least 1, a whole number"),
        ({"turns": 10**12}, "lanes is 2 and turns is 1000000000000; their product can be"),
        ({"rank": 6, "world": 7}, "batch is 6, samples of all ranks together, and there are 7 ranks"),
        (
            {"fields": ["jpg", "cls"]},
            "fields is ['jpg', 'cls']; it must be one text with blanks between the names, such",
        ),
        ({"decode": "RGB"}, "decode is 'RGB'; it must be one of pil, pilrgb, pilrgba, pill, rgb, rgba"),
        ({"transform": "flip"}, "transform is 'flip'; it must be a function"),
        ({"collate": "list"}, "collate is 'list'; it must be a function"),
        ({"cache_size": "2G"}, "cache_size is '2G'; it must be a number of bytes, at least 1, such as 2 * 2**30"),
        ({"cache_size": float("nan")}, "cache_size is nan; it must be a number of bytes, at least 1"),
        ({"cache_size": float("inf")}, "cache_size is inf; it must be a number of bytes, at least 1"),
        ({"cache_size": True}, "cache_size is True; it must be a number of bytes, at least 1"),
        ({"ahead": True}, "ahead is True; it must be a whole number from 0"),
        ({"ahead": float("inf")}, "ahead is inf; it must be a whole number from 0"),
        ({"ahead": 1, "cache": False}, "ahead= fetches into a cache, and there is none: pass cache=, or to a ShardMap"),
        ({"ahead": 1, "service": "localhost:1"}, "ahead= is not for service=: the parts of a batch are fetched when"),
    ],
)
def test_arguments_that_cannot_be(shards: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        loader(shards, **options)


def test_ahead_without_effect_is_no_error_where_data_may_be_local_or_remote(shards: str) -> None:
    for options in ({"ahead": 1}, {"ahead": 0, "cache": False}, {"cache": False}):
        assert len(loader(shards, **options)) == len(loader(shards))


def test_an_index_that_counts_too_many_samples_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(b"v1.2 999999999999999999\ncls 512 1 a.cls\n")
    with pytest.raises(UsageError, match=r"^999999999999999999 samples are more than 100000000 runs of 100: take a"):
        loader(f"{tmp_path}/a.tar")
