"""Data sets of streams: their states, which resume anywhere, and what cannot be."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from trainshards import write_shards

import tarkit
from tarkit.errors import DataError, UsageError
from tarkit.trainers.audit import audit_folder
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream

COUNTS = {"a": (50, 31, 0, 20), "b": (7, 4), "c": (30,)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams")
    for name, counts in COUNTS.items():
        (found / name).mkdir()
        write_shards(found / name, counts, lambda shard, number: {"cls": number})
    return found


@pytest.fixture(autouse=True)
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def stream(name: str, **amount: Any) -> Stream:
    return Stream(f"{name}/s-{{0..{len(COUNTS[name]) - 1}}}.tar", name=name, **amount)


def loader(*streams: Stream, **options: Any) -> EpochLoader:
    return EpochLoader(BatchSource(list(streams), **{"batch": 6, "seed": 1, **options}))


def mixed(first: Any = 0.7, second: Any = 0.3, **options: Any) -> EpochLoader:
    streams = stream("a", proportion=first), stream("b", proportion=second)
    return loader(*streams, **{"epoch_size": 63, **options})


def keys(batch: list[dict[str, Any]]) -> list[str]:
    """Stream and key of each sample."""
    return [f"{sample['__url__'].split('/')[-2]}/{sample['__key__']}" for sample in batch]


def epoch(each: EpochLoader) -> list[list[str]]:
    return [keys(batch) for batch in each]


def of_stream(batches: list[list[str]], name: str) -> list[str]:
    return [key for batch in batches for key in batch if key.startswith(f"{name}/")]


def every(name: str) -> set[str]:
    return {f"{name}/{shard}-{number}" for shard, count in enumerate(COUNTS[name]) for number in range(count)}


def within(each: EpochLoader, batches: int = 2) -> dict[str, Any]:
    running = iter(each)
    for _ in range(batches):
        next(running)
    return each.state_dict()


@pytest.mark.parametrize("taken", [0, 1, 9, 10])
@pytest.mark.parametrize("options", [{}, {"stratified": False}, {"shuffle": False}, {"equalize": "repeat"}])
def test_it_goes_on_with_other_ranks(taken: int, options: dict[str, Any]) -> None:
    whole = mixed(**options)
    epochs = [epoch(whole) for _ in range(2)]
    length = len(whole)
    assert length == (11 if options.get("equalize") else 10)
    state = pickle.loads(pickle.dumps(within(mixed(**options), taken)))
    ranks = [mixed(rank=rank, world=2, **options) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
        assert len(rank) == length
    rest = [sum(parts, []) for parts in zip(*map(epoch, ranks), strict=True)]
    assert rest == (epochs[0][taken:] if taken < length else epochs[1])


def test_amounts_of_an_epoch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tarkit.trainers.mixture")
    each = loader(stream("a", proportion=0.5), stream("b", repeat=2), stream("c", choose=10), epoch_size=120)
    assert len(each) == 20
    found = Counter(key[0] for batch in epoch(each) for key in batch)
    assert found == {"a": 88, "b": 22, "c": 10}
    text = "epoch of 20 batches of 6, 120 samples: a 88 of 101 (73.33%), b 22 of 11 (18.33%), c 10 of 30 (8.333%)"
    assert str(each.source.mixture) == text and caplog.messages == [text]


def test_each_batch_has_its_shares_of_streams() -> None:
    """Over 1,000 batches of 4 samples too, of which 0.7 are no whole number."""
    each = loader(stream("a", proportion=0.7), stream("b", proportion=0.3), batch=4, epoch_size=4000)
    order = each.source.order(0)
    found = [sum(place.shard < 4 for place in order.batch(number)) for number in range(order.batches)]
    assert set(found) == {2, 3} and sum(found) == 2800
    assert abs(sum(found[:100]) - sum(found[-100:])) <= 3


@pytest.mark.parametrize("options", [{}, {"stratified": False}])
def test_a_state_is_small_and_holds_what_was_used(options: dict[str, Any]) -> None:
    each = mixed(**options)
    state = within(each, 3)
    assert state["streams"] == {"a": ["54b4f078", "p0.7", 0], "b": ["cda45893", "p0.3", 0]}
    assert len(json.dumps(state, separators=(",", ":"))) < 270
    for _ in range(2):
        list(each)
    used = each.state_dict()["streams"]
    assert used["a"][2] + used["b"][2] == 180 and used["a"][2] == 126


def test_new_amounts_begin_with_an_epoch() -> None:
    """No sample of a stream comes again before all others have come."""
    first = mixed(0.7, 0.3)
    seen = epoch(first)
    state = within(first)
    with pytest.raises(UsageError) as caught:
        mixed(0.25, 0.75).load_state_dict(state)
    assert str(caught.value) == (
        "the state is of another order: stream 'a' has proportion=0.25, and had proportion=0.7; streams and amounts "
        "can change where an epoch begins: use a state from the end of epoch 1"
    )
    first = mixed(0.7, 0.3)
    list(first)
    then = mixed(0.25, 0.75, batch=4)
    then.load_state_dict(first.state_dict())
    for _ in range(4):
        seen += epoch(then)
    third = loader(stream("c", choose=12), stream("b", repeat=1), stream("a", choose=31), batch=9)
    third.load_state_dict(then.state_dict())
    for _ in range(2):
        seen += epoch(third)
    for name in "abc":
        found, whole = of_stream(seen, name), every(name)
        for begin in range(0, len(found), len(whole)):
            part = found[begin : begin + len(whole)]
            assert len(set(part)) == len(part)
    assert {*of_stream(seen, "a")} == every("a")
    assert [part[2] for part in third.state_dict()["streams"].values()] == [
        len(of_stream(seen, name)) for name in "cba"
    ]


def test_an_epoch_after_a_change_resumes_in_the_middle() -> None:
    first = mixed()
    list(first)
    then = mixed(0.5, 0.5)
    then.load_state_dict(first.state_dict())
    epochs = [epoch(then) for _ in range(3)]
    again = mixed(0.5, 0.5)
    again.load_state_dict(first.state_dict())
    list(again)
    state = within(again, 4)
    last = mixed(0.5, 0.5)
    last.load_state_dict(state)
    assert [epoch(last), epoch(last)] == [epochs[1][4:], epochs[2]]
    with pytest.raises(UsageError, match=r"^epoch 0 is before epoch 2, with which these amounts began: load a state"):
        last.set_epoch(0)
        next(iter(last))
    last.load_state_dict(mixed(0.5, 0.5).state_dict())
    assert last.state_dict()["epoch"] == 0 and len(epoch(last)) == 10


def test_a_stream_is_added_and_another_is_not_used_any_more() -> None:
    first = loader(stream("a", repeat=1), stream("b", repeat=1))
    list(first)
    more = [stream("a", repeat=1), stream("b", repeat=1), stream("c", choose=6)]
    with pytest.raises(UsageError, match=r"^the state is of another order: stream 'c' is new; streams and amounts can"):
        loader(*more).load_state_dict(within(loader(*more[:2])))
    then = loader(*more)
    then.load_state_dict(first.state_dict())
    assert len(of_stream(epoch(then), "c")) == 6
    end = then.state_dict()
    with pytest.raises(UsageError) as caught:
        loader(*more[:2]).load_state_dict(end)
    assert str(caught.value) == (
        "the state has stream 'c', and the data set does not: a stream that is not used any more has proportion=0, "
        "or choose=0"
    )
    without = loader(*more[:2], stream("c", choose=0))
    without.load_state_dict(end)
    list(without)
    assert without.state_dict()["streams"]["c"] == [end["streams"]["c"][0], "c0", end["streams"]["c"][2]]
    again = loader(*more)
    again.load_state_dict(without.state_dict())
    assert again.state_dict()["streams"]["c"][2] == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch_size": 64}, "epoch_size is 64, and was 63; streams and amounts can change where an epoch begins"),
        ({"stratified": False}, "stratified is False, and was True; streams and amounts can change where"),
        ({"seed": 2}, "seed is 2, and 1 in the state"),
        ({"batch": 12}, "batch is 12, and 6 in the state; it can change where an epoch begins: at the end of epoch 0"),
    ],
)
def test_settings_hold_within_an_epoch(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(f'the state is of another order: {message}')}"):
        mixed(**change).load_state_dict(within(mixed()))


def test_states_of_other_data_sets(tmp_path: Path) -> None:
    state = within(mixed())
    turned = loader(stream("b", proportion=0.3), stream("a", proportion=0.7), epoch_size=63)
    for sorted_state in (state, json.loads(json.dumps(state, sort_keys=True))):
        with pytest.raises(UsageError, match=r"^the state is of another order: its streams were listed in another or"):
            turned.load_state_dict(sorted_state)
    turned.load_state_dict(json.loads(json.dumps(within(turned), sort_keys=True)))
    one = EpochLoader(BatchSource("a/s-0.tar", batch=6, seed=1))
    with pytest.raises(UsageError, match=r"^the state is of a data set of streams, and this one has none$"):
        one.load_state_dict(state)
    with pytest.raises(UsageError, match=r"^the state is of a data set without streams, and this one has streams$"):
        mixed().load_state_dict(within(one))
    other = loader(stream("a", proportion=0.7), Stream("c/s-0.tar", name="b", proportion=0.3), epoch_size=63)
    with pytest.raises(
        UsageError, match=r"^the state is of another order: the shards of stream 'b', or the samples chosen "
    ):
        other.load_state_dict(state)
    for wrong in ({"a": 3}, {"a": ["x", "p1"]}, {3: ["x", "p1", 3]}):
        with pytest.raises(UsageError, match=r"^stream ('a'|3) of the state is "):
            mixed().load_state_dict(with_checksum({**state, "streams": wrong}))
    with pytest.raises(UsageError, match=r"^samples of stream 'a' is -1; it must be a whole number from 0"):
        mixed().load_state_dict(with_checksum({**state, "streams": {"a": ["", "p0.7", -1]}}))
    with pytest.raises(UsageError, match=r"^next_batch of the state is 11, and epoch 0 has 10 batches$"):
        mixed().load_state_dict(with_checksum({**state, "next_batch": 11}))


def test_a_copy_at_another_place_has_the_same_order(folder: Path) -> None:
    there = [Stream(f"{folder}/{name}/s-*.tar", proportion=1) for name in "ab"]
    here = [Stream(f"{name}/s-*.tar", proportion=1) for name in "ab"]
    state = within(loader(*here))
    assert [*state["streams"]] == ["s-*.tar", "s-*.tar#2"]
    loader(*there).load_state_dict(state)
    with pytest.raises(UsageError, match=r"^the state is of another order: the shards of stream 's-\*.tar', or the "):
        loader(*reversed(here)).load_state_dict(state)


def test_streams_of_chosen_samples(tmp_path: Path) -> None:
    """Another choice is of another order; a stream can be added, also with an audit."""
    few = {"where": "size(cls) < 2", "audit": tmp_path}
    each = mixed(**few)
    mixture = str(each.source.mixture)
    assert " of 30 (70%)" in mixture and " of 11 (30%)" in mixture
    found = epoch(each)
    assert {key.rpartition("-")[2] for key in of_stream(found, "a")} == set("0123456789")
    last = mixed(**few)
    last.load_state_dict(within(mixed(**few)))
    assert epoch(last) == found[2:]
    with pytest.raises(UsageError, match=r"^the state is of another order: the shards of stream 'a', or the samples "):
        mixed().load_state_dict(last.state_dict())
    source = BatchSource([stream(name, choose=12) for name in "abc"], batch=6, seed=1, **few)
    source.place_in(last.state_dict())
    more = EpochLoader(source)  # of which the first epoch is not known
    more.set_epoch(1)
    assert Counter(key[0] for batch in epoch(more) for key in batch) == dict.fromkeys("abc", 12)
    assert [each.complete for each in audit_folder(str(tmp_path))] == [True, True]


def test_a_stream_with_0_is_not_opened() -> None:
    each = loader(stream("a", proportion=1), Stream("http://127.0.0.1:1/none.tar", name="none", proportion=0))
    assert each.source.samples.urls == [f"a/s-{number}.tar" for number in range(4)]
    assert {key[0] for batch in epoch(each) for key in batch} == {"a"}


@pytest.mark.parametrize(
    ("streams", "options", "message"),
    [
        (
            [stream("a", choose=5)],
            {},
            "5 samples do not fill a batch of 6: take a smaller one, or in a training equalize='pad'",
        ),
        ([Stream("a/s-2.tar")], {}, "stream 's-2.tar' has no samples, and repeat=1"),
        ([stream("a")], {"stratified": "yes"}, "stratified is 'yes'; it must be True or False"),
        ([stream("a")], {"service": "127.0.0.1:1"}, "streams and weights are not for service=: the service"),
    ],
)
def test_mixtures_that_cannot_be(streams: list[Stream], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        BatchSource(streams, **{"batch": 6, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_size": 60}, "epoch_size= is of streams and weights=: without them, each sample comes once an epoch"),
        ({"stratified": False}, "stratified= is of streams: name Stream objects"),
        ({"replacement": True}, "replacement= is of weights="),
        ({"weights": {}, "audit": "x"}, "audit= is not for weights=: it proves that each sample comes once"),
        ({"weights": {}, "service": "127.0.0.1:1"}, "streams and weights are not for service=: the service decides"),
    ],
)
def test_options_of_streams_without_streams(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        BatchSource("a/s-0.tar", batch=6, **options)
    with pytest.raises(UsageError, match=r"^weights= is for one data set, and not for streams, which have amounts$"):
        loader(stream("a"), weights={})


def test_a_small_stream_with_a_large_share_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    loader(stream("a", proportion=1), stream("b", proportion=1), batch=24)
    (text,) = caplog.messages
    assert text == "stream 'b' has 11 samples, and 12 places in a batch of 24: its samples repeat within the batch"


@pytest.mark.parametrize("equalize", ["repeat", "drop"])
def test_gaps_are_filled_from_their_stream(equalize: str) -> None:
    """Also where a batch has no other sample of it."""

    def transform(sample: dict[str, Any]) -> dict[str, Any] | None:
        return None if sample["__url__"].startswith("b/") and sample["__key__"] in ("0-1", "0-3", "1-2") else sample

    each = mixed(transform=transform, equalize=equalize, on_error="count")
    whole = epoch(mixed(equalize=equalize))
    found = epoch(each)
    assert each.counts["filtered"] > 0
    for batch, right in zip(found, whole, strict=True):
        if equalize == "repeat":
            assert [key[0] for key in batch] == [key[0] for key in right]
        else:
            assert batch == [key for key in right if key not in ("b/0-1", "b/0-3", "b/1-2")]


def test_a_stream_that_fails_wholly_is_an_error() -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any] | None:
        return None if sample["__url__"].startswith("b/") else sample

    with pytest.raises(DataError, match=r"^epoch 0, batch 0: transform dropped all its samples, or they failed"):
        list(mixed(transform=transform, equalize="repeat"))


def test_arrays_of_streams() -> None:
    streams = [stream("a", proportion=0.5), stream("b", proportion=0.5)]
    batches = tarkit.batches(streams, batch=6, fields="__key__ cls", epoch_size="shortest")
    assert len(batches) == 3
    assert [len(names) for names, _ in batches] == [6] * 3


def test_an_index_that_counts_too_many_samples_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(b"v1.2 999999999999999999\ncls 512 1 a.cls\n")
    with pytest.raises(UsageError, match=r"^999999999999999999 samples are more than 100000000 runs of 100: take a"):
        loader(Stream(f"{tmp_path}/a.tar", choose=60))
