"""Subsets of shards without copies: the same samples and batches as a physical copy has, and what
cannot be chosen is refused.
"""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainshards import every_key, write_shards

import tarkit
from tarkit.errors import DataError, MissingInputError, TarkitError, TransformError, UsageError
from tarkit.samples.index import build_index, publish_index
from tarkit.samples.read import read_samples
from tarkit.samples.shardwriter import ShardWriter
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.steps import keylists
from tarkit.steps.select import select_shards
from tarkit.steps.selection import Selection
from tarkit.trainers.audit import audit_folder
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.source import BatchSource
from tarkit.trainers.subset import Subset

COUNTS = (13, 0, 21, 6)
EVERY = every_key(COUNTS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every third sample has a field txt; bin has 100 bytes for each number."""

    def fields(shard: int, number: int) -> dict[str, Any]:
        return {"cls": number, "bin": bytes(100 * number)} | ({} if number % 3 else {"txt": "a"})

    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, fields)


def keys_of(samples: ShardMap) -> list[str]:
    return [samples[number]["__key__"] for number in range(len(samples))]


def number(key: str) -> int:
    return int(key.partition("-")[2])


def batches_of(urls: str | ShardMap, **options: Any) -> list[list[str]]:
    loader = EpochLoader(BatchSource(urls, **{"batch": 4, "run": 3, "block": 9, "seed": 5, **options}))
    return [[sample["__key__"] for sample in batch] for _ in range(2) for batch in loader]


CHOICES: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "keys": ({"keys": ["0-3", "2-20", "3-0", "0-4"]}, lambda key: key in ("0-3", "2-20", "3-0", "0-4")),
    "iterator": ({"keys": iter(["0-3", "2-20"])}, lambda key: key in ("0-3", "2-20")),
    "where": ({"where": "size(bin) > 700 and match(key, '^[02]')"}, lambda key: number(key) > 7),
    "has": ({"where": "has(txt) and not size(bin) == 0"}, lambda key: number(key) % 3 == 0 < number(key)),
    "function": (
        {"where": lambda key, sizes: "txt" in sizes and key[0] != "2"},
        lambda key: number(key) % 3 == 0 and key[0] != "2",
    ),
    "both": ({"keys": EVERY[:20], "where": "size(bin) < 300"}, lambda key: key in EVERY[:20] and number(key) < 3),
}


@pytest.mark.parametrize("name", CHOICES)
def test_chosen_samples(shards: str, name: str) -> None:
    options, wanted = CHOICES[name]
    samples = ShardMap(shards, **options)
    assert keys_of(samples) == [key for key in EVERY if wanted(key)]
    assert [key for shard in range(4) for key in samples.keys_of(shard)] == keys_of(samples)
    assert keys_of(pickle.loads(pickle.dumps(samples))) == keys_of(samples)
    for beyond in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError):
            samples[beyond]
    with pytest.raises(IndexError):
        samples.sample(0, -1)


def test_a_list_of_keys_and_a_column_of_a_table(shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylists, "IN_MEMORY", 2)  # the others are digests on disk
    (tmp_path / "keys.txt").write_text("0-1\n2-7\n3-5\n\n0-2\n")
    (tmp_path / "chosen.jsonl").write_text("".join(json.dumps({"key": key}) + "\n" for key in ("3-1", "0-0")))
    assert keys_of(ShardMap(shards, keys=tmp_path / "keys.txt")) == ["0-1", "0-2", "2-7", "3-5"]
    assert keys_of(ShardMap(shards, keys=f"{tmp_path}/chosen.jsonl:key")) == ["0-0", "3-1"]


def test_the_batches_are_those_of_a_copy(shards: str, tmp_path: Path) -> None:
    """tarkit select -O writes shards of the same names, and the order depends only on counts."""
    where = "size(bin) > 400 and not has(txt)"
    copied = select_shards(shards, str(tmp_path), Selection(where=where))
    for name in copied.shards:
        publish_index(build_index(name), name)
    samples = ShardMap(shards, where=where)
    copy = f"{tmp_path}/s-{{0..3}}.tar"
    assert len(samples) == copied.samples == len(ShardMap(copy)) > 15
    for at, expected in enumerate(read_samples(copy)):
        assert {**samples[at], "__url__": ""} == {**expected, "__url__": ""}
    for options in ({}, {"shuffle": False}, {"equalize": "pad"}, {"on_error": "count"}, {"seed": 9, "turns": 2}):
        assert batches_of(shards, where=where, **options) == batches_of(copy, **options)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_random_parts_of_parts(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    every = [(shard, at) for shard, count in enumerate(counts) for at in range(count) if data.draw(st.booleans())]
    chosen = Subset([array("I", (at for at_shard, at in every if at_shard == shard)) for shard in range(len(counts))])
    for _ in range(3):
        assert Subset.parsed(chosen.texts(), counts).texts() == chosen.texts()
        assert [(shard, at) for shard, numbers in enumerate(chosen.numbers) for at in numbers] == every
        if not every:
            return
        start = data.draw(st.integers(0, len(every) - 1))
        numbers = range(start, data.draw(st.integers(start + 1, len(every))), data.draw(st.integers(1, 4)))
        chosen, every = chosen.part(numbers), every[numbers.start : numbers.stop : numbers.step]


def test_numbers_and_slices(shards: str) -> None:
    samples = ShardMap(shards)
    for numbers in (range(5, 30), range(1, 40, 7), range(39, 40), slice(None, None, 2), slice(-3, None)):
        part = samples.subset(numbers)
        assert keys_of(part) == [EVERY[at] for at in (numbers if isinstance(numbers, range) else range(40)[numbers])]
    large = ShardMap(shards, where="size(bin) > 500")
    assert keys_of(large.subset(slice(1, None, 3))) == keys_of(large)[1::3]
    assert keys_of(samples) == EVERY and samples.chosen is None
    assert samples.subset(range(40)).chosen is None, "all samples are not a subset, so their states fit"


def test_neighbours_of_a_subset_are_read_at_once(shards: str) -> None:
    samples = ShardMap(shards, where="not match(key, '-5$')")
    places = [(2, at) for at in (3, 4, 5, 6, 0, 19)] + [(0, 11)]
    assert [sample["__key__"] for sample in samples.take(places)] == [
        "2-3", "2-4", "2-6", "2-7", "2-0", "2-20", "0-12"
    ]  # fmt: skip


async def _later(key: str, sizes: Any) -> bool:
    """Not called: its result would be a coroutine, which chooses all."""
    return False


WRONG: dict[str, tuple[dict[str, Any], type[TarkitError], str]] = {
    "no field of that name": (
        {"where": "not has(tyt)"},
        DataError,
        "where: no sample has the field 'tyt'; did you mean txt",
    ),
    "none": ({"where": "size(bin) > 10000"}, DataError, "keys=, where= and split= choose none of 40 samples"),
    "contents": (
        {"where": "size(bin) > 3 and cls == 3"},
        UsageError,
        "where 'size(bin) > 3 and cls == 3' reads the content of cls, and",
    ),
    "JSON": ({"where": "json.a == 3"}, UsageError, "where 'json.a == 3' reads the content of json, and an index has"),
    "picture": (
        {"where": "width(bin) == 3"},
        UsageError,
        "where 'width(bin) == 3' reads the content of bin, and an index",
    ),
    "not a condition": ({"where": "size(bin) = 3"}, UsageError, "where 'size(bin) = 3': "),
    "not a function": ({"where": 3}, UsageError, "where is 3; it must be a condition as text, or a function"),
    "asynchronous": ({"where": _later}, UsageError, "where is <function _later"),
    "number": ({"keys": 5}, UsageError, "keys is 5; it must be a file of keys, or several keys"),  # type: ignore[dict-item]
    "key": (
        {"keys": ["0-3", "x", "y"]},
        MissingInputError,
        "keys= has 2 keys that no sample has: 'x', 'y'; on_missing_key='allow' leaves",
    ),
    "not a key": ({"keys": [3]}, UsageError, "3 is not a key, which is a text"),
    "no keys": ({"on_missing_key": "allow"}, UsageError, "on_missing_key= goes with keys="),
    "no list": (
        {"keys": "/nowhere/keys.txt"},
        MissingInputError,
        "/nowhere/keys.txt: no such file; keys= names a file of keys",
    ),
    "policy": (
        {"keys": ["0-3"], "on_missing_key": "skip"},
        UsageError,
        "on_missing_key is 'skip'; it must be one of error, allow",
    ),
    "part": (
        {"split": ("test", "train=.5,val=.5")},
        UsageError,
        "split: 'test' is not a part; the parts are train, val",
    ),
    "shares": ({"split": ("val", "train=.5,val=.6")}, UsageError, "split: the shares add up to 1.1, not to 1"),
    "one text": (
        {"split": "val"},
        UsageError,
        "split is 'val'; split must be a part and the shares, such as ('val', 'train",
    ),
    "no shares": ({"split": ("val", None)}, UsageError, "split is ('val', None); split must be a part and the shares"),
    "no number": ({"split": ("val", {"val": "x"})}, UsageError, "split is ('val', {'val': 'x'}); split must be a part"),
    "no name": ({"split": (1, {1: 1})}, UsageError, "split is (1, {1: 1}); split must be a part and the shares"),
    "no parts": ({"split": 5}, UsageError, "split is 5; split must be a part and the shares"),
    "no pattern": (
        {"split": ("a", "a=.5,b=.5"), "split_by": 5},
        UsageError,
        "split is ('a', 'a=.5,b=.5'), split_by is 5; split must be a part and the shares, such as",
    ),
    "split by alone": ({"split_by": "x"}, UsageError, "split_by= goes with split="),
    "no match": (
        {"split": ("a", "a=.5,b=.5"), "split_by": "^x"},
        DataError,
        "key '0-0': does not match '^x', by which samples are split",
    ),
    "unknown": (
        {"wehre": "x"},
        TypeError,
        "ShardMap() got an unexpected keyword argument 'wehre'. Did you mean 'where'?",
    ),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", WRONG)
def test_choices_that_cannot_be(shards: str, name: str) -> None:
    options, kind, message = WRONG[name]
    with pytest.raises(kind) as found:
        ShardMap(shards, **options)
    assert str(found.value).startswith(message)


def test_a_function_that_raises_names_the_sample(shards: str) -> None:
    with pytest.raises(TransformError, match=r"s-0\.tar, key '0-1': where raised KeyError\('txt'\)$"):
        ShardMap(shards, where=lambda key, sizes: sizes["txt"])


def test_keys_that_may_be_missing(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    samples = ShardMap(shards, keys=["0-3", *map(str, range(5))], on_missing_key="allow")
    assert keys_of(samples) == ["0-3"]
    assert caplog.messages == ["keys= has 5 keys that no sample has: '0', '1', '2', …"]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (range(5, 5), "range(5, 5) has no number"),
        (slice(40, None), "range(40, 40) has no number"),
        (range(30, 41), "range(30, 41) is not within the data set, which has 40 samples"),
        (range(-1, 5), "range(-1, 5) is not within the data set"),
        (range(9, 0, -1), "the numbers are range(9, 0, -1); they must be an ascending range or slice"),
        ([1, 2], "the numbers are [1, 2]; they must be an ascending range or slice"),
    ],
)
def test_numbers_that_cannot_be(shards: str, numbers: Any, message: str) -> None:
    with pytest.raises(UsageError) as found:
        ShardMap(shards).subset(numbers)
    assert str(found.value).startswith(message)


def test_each_chosen_sample_comes_once_an_epoch(shards: str) -> None:
    chosen = [key for key in EVERY if number(key) > 2]
    for options in ({"where": "size(bin) > 200"}, {"keys": chosen}):
        source = BatchSource(shards, batch=7, **options, equalize="pad")  # type: ignore[arg-type]
        assert len(source) == -(-len(chosen) // 7)
        batches = [[sample for sample in batch if not sample["__pad__"]] for batch in EpochLoader(source)]
        assert sorted(sample["__key__"] for batch in batches for sample in batch) == sorted(chosen)


def test_tarkit_batches_of_a_shard_map(shards: str) -> None:
    validation = tarkit.ShardMap(shards).subset(range(30, 40))
    loader = tarkit.batches(validation, batch=5, fields="__key__", decode=None, shuffle=False, collate=None)
    assert [key for batch in loader for (key,) in batch] == EVERY[30:]
    assert len(validation) == 10
    for options in ({"rule": "last-dot"}, {"cache": False}, {"keys": ["0-1"]}):
        with pytest.raises(UsageError, match=r"^rule, cache, cache_size, keys, .* are arguments of the ShardMap$"):
            tarkit.batches(validation, batch=5, fields="cls", **options)  # type: ignore[arg-type]


def test_the_state_of_another_choice_is_refused(shards: str) -> None:
    def loader(**options: Any) -> EpochLoader:
        return EpochLoader(BatchSource(shards, batch=4, **options))

    state = loader(where="size(bin) > 500").state_dict()
    assert len(json.dumps(state)) < 300 and "subset" not in loader().state_dict()
    same = loader(keys=[key for key in EVERY if number(key) > 5])
    same.load_state_dict(state)
    for options in ({"where": "size(bin) > 600"}, {}):
        with pytest.raises(UsageError, match=r"^the state is of another order: other samples are chosen \(keys=, wh"):
            loader(**options).load_state_dict(state)
    with pytest.raises(UsageError, match="other samples are chosen"):
        same.load_state_dict(loader().state_dict())


def test_a_subset_goes_on_with_other_ranks(shards: str) -> None:
    options = {"where": "size(bin) > 200", "seed": 2, "run": 3}
    whole = batches_of(shards, **options)
    first = EpochLoader(BatchSource(shards, batch=4, block=9, **options))  # type: ignore[arg-type]
    running = iter(first)
    assert [[sample["__key__"] for sample in next(running)] for _ in range(3)] == whole[:3]
    ranks = [EpochLoader(BatchSource(shards, batch=4, block=9, **options, rank=rank, world=2)) for rank in range(2)]  # type: ignore[arg-type]
    for rank in ranks:
        rank.load_state_dict(first.state_dict())
    rest = [[sample["__key__"] for part in parts for sample in part] for parts in zip(*ranks, strict=True)]
    assert rest == whole[3 : len(first)]


def audited(shards: str, folder: Path, world: int, **options: Any) -> list[EpochLoader]:
    """The loaders of all ranks."""
    sources = (BatchSource(shards, batch=6, audit=folder, rank=rank, world=world, **options) for rank in range(world))
    return [EpochLoader(source) for source in sources]


def test_the_audit_of_a_subset(shards: str, tmp_path: Path) -> None:
    where = "size(bin) > 200 and size(bin) < 1100"
    ranks = audited(shards, tmp_path, 2, where=where)
    running = [iter(rank) for rank in ranks]
    for _ in range(2):
        [next(each) for each in running]
    state = ranks[0].state_dict()
    del ranks, running  # killed
    for rank in audited(shards, tmp_path, 3, where=where):
        rank.load_state_dict(state)
        list(rank)
    for urls in ([], [shards]):
        (found,) = audit_folder(str(tmp_path), urls)
        assert (found.complete, found.samples, found.used, found.left_out) == (True, 19, 18, 1)
    with pytest.raises(UsageError, match=r"these are not the shards of the training: s-3\.tar is not among them"):
        audit_folder(str(tmp_path), [shards.replace("..3", "..2")])
    (listed,) = tmp_path.glob("shards-*-*.json")
    text = listed.read_text()
    for chosen in ("3-99", "4-11"):
        listed.write_text(text.replace("3-10", chosen, 1))
        with pytest.raises(DataError, match="the list of shards cannot be read: it is not the one of which its name"):
            audit_folder(str(tmp_path), [shards])
    listed.write_text(text.replace('"chosen"', '"others"'))
    with pytest.raises(DataError, match="the list of shards cannot be read: 'chosen'"):
        audit_folder(str(tmp_path), [shards])


@pytest.mark.parametrize("text", ["x", "5-3", "3 3", "1-2 2", "-1", "1/0", "1000", "0-4000000000", "99999999999"])
def test_texts_that_are_not_numbers(text: str) -> None:
    with pytest.raises(DataError, match="the numbers of the chosen samples are not those of these shards"):
        Subset.parsed([text], [1000])


def test_an_audit_has_one_choice(shards: str, tmp_path: Path) -> None:
    list(audited(shards, tmp_path, 1, where="size(bin) > 200")[0])
    other = audited(shards, tmp_path, 1, where="size(bin) > 300")[0]
    with pytest.raises(UsageError, match="has the audit of another training: digest of the chosen samples is '"):
        list(other)
    (tmp_path / "training.json").unlink()
    list(other)
    with pytest.raises(DataError, match=r"this is of another training than rank-.*: digest of the chosen samples is '"):
        audit_folder(str(tmp_path))


def test_a_choice_is_not_for_a_service(shards: str) -> None:
    with pytest.raises(UsageError, match="the shard service hands out all samples of its shards: a subset is not for"):
        BatchSource(shards, batch=4, service="127.0.0.1:1", keys=["0-1"])
    with pytest.raises(UsageError, match="a subset is not for service="):  # a condition that chooses all of today
        BatchSource(shards, batch=4, service="127.0.0.1:1", where="has(bin)")


def test_a_manifest_whose_shard_is_gone(shards: str, tmp_path: Path) -> None:
    """The index of each shard is needed when the data set is opened, unless all are chosen."""
    first = shards.replace("{0..3}", "0")
    write_manifest(f"{tmp_path}/d.json", [ManifestShard(first, 13), ManifestShard(f"{tmp_path}/gone.tar", 5)])
    assert len(ShardMap(f"{tmp_path}/d.json")) == 18
    with pytest.raises(TarkitError, match=r"gone\.tar"):
        ShardMap(f"{tmp_path}/d.json", where="has(bin)")


@pytest.mark.parametrize("cached", [False, True])
def test_a_subset_of_remote_shards(tmp_path: Path, cached: bool) -> None:
    with ShardWriter("memory://subset/s-%d.tar", maxcount=10, index=True) as writer:
        for at in range(25):
            writer.write({"__key__": f"{at:02}", "bin": bytes(at)})
    samples = ShardMap(
        "memory://subset/s-{0..2}.tar", where="size(bin) >= 5", cache=tmp_path if cached else None, run=4
    )
    assert samples.counts == [5, 10, 5] and keys_of(samples) == [f"{at:02}" for at in range(5, 25)]
    places = [(2, 4), (0, 0), (0, 1), (1, 9), (0, 4)]
    samples.fetch(places)
    assert [sample["__key__"] for sample in samples.take(places)] == ["24", "05", "06", "19", "09"]
    assert samples.subset(range(0, 20, 5)).take([(0, 0), (1, 1), (2, 0)]) == [samples[0], samples[10], samples[15]]
