"""Batches of arrays without a trainer's library: each sample once an epoch, and from the middle of one on."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.trainers.arrays import columns
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        with tarkit.TarWriter(str(folder / f"s-{shard}.tar"), index=True) as writer:
            for number in range(20):
                image = np.full((2, 3, 3), number * 4, "uint8")
                writer.write({"__key__": f"{shard}-{number}", "png": image, "cls": number, "txt": f"text {number}"})
    return f"{folder}/s-{{0..2}}.tar"


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


@pytest.mark.parametrize("equalize", ["drop", "pad"])
def test_it_goes_on_with_another_batch(shards: str, equalize: str) -> None:
    """In the middle of an epoch, and twice; then a whole epoch has the last one."""
    names: list[str] = []
    states = []
    state: dict[str, Any] | None = None
    for batch, taken in ((6, 3), (10, 1), (8, None)):
        ranks = [loader(shards, batch=batch, equalize=equalize, rank=rank, world=2) for rank in range(2)]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(state)
        running = [iter(rank) for rank in ranks]
        for number, parts in enumerate(zip(*running, strict=True), 1):
            assert [len(part[0]) for part in parts] == [batch // 2] * 2
            names += parts[0][0] + parts[1][0]
            if number == taken:
                break
        state = ranks[0].state_dict()
        states.append(state)
        assert state == ranks[1].state_dict() and len(pickle.dumps(state)) < 1000
    assert [each.get("segments") for each in states] == [None, [[6, 2, 1, 3]], None]
    assert [(each["epoch"], each["next_batch"]) for each in states] == [(0, 3), (0, 4), (1, 0)]
    # 60 - 3 * 6 - 10 = 4 * 8
    assert sorted(names) == sorted({f"{shard}-{number}" for shard in range(3) for number in range(20)})
    whole = loader(shards, batch=8, equalize=equalize)
    whole.set_epoch(1)
    assert [batch[0] for batch in whole] == [sum(parts, []) for parts in zip(*map(epoch_names, ranks), strict=True)]


def epoch_names(each: EpochLoader) -> list[list[str]]:
    return [batch[0] for batch in each]


def test_an_epoch_whose_rest_fills_no_batch_has_ended(shards: str) -> None:
    first = loader(shards, batch=6)
    running = iter(first)
    for _ in range(9):
        next(running)
    then = loader(shards, batch=7)
    then.load_state_dict(first.state_dict())
    assert list(then) == []
    then.load_state_dict(first.state_dict())
    then.set_epoch(0)
    assert epoch_names(then) == epoch_names(loader(shards, batch=7)), "an epoch that is begun again has one batch"


def test_a_batch_that_changes_all_the_time(shards: str) -> None:
    state = loader(shards, batch=1).state_dict()
    for number in range(17):
        each = loader(shards, batch=1 + number % 2)
        each.load_state_dict(state)
        next(iter(each))
        state = each.state_dict()
        assert len(pickle.dumps(state)) < 1000
    with pytest.raises(UsageError, match="^the batch was changed 17 times in epoch 0; it can be 16$"):
        loader(shards, batch=7).load_state_dict(state)


def test_a_source_goes_to_another_process(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    source = BatchSource(shards, batch=6)
    sent = pickle.dumps(source)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert pickle.loads(sent).consumer == (1, 3)
    assert source.consumer == (0, 1)
    assert len(next(pickle.loads(sent).epoch_batches(0))) == 2


def test_a_source_that_gives_fewer_batches_is_an_error(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = loader(shards)
    monkeypatch.setattr(EpochLoader, "_epoch", lambda self, epoch, first: [1, 2])
    with pytest.raises(RuntimeError, match="^epoch 0 has 10 batches, and 2 came$"):
        list(short)


def test_the_program_of_the_page(
    shards: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "training.md").read_text("utf-8")
    (program,) = re.findall(r"<!-- program: arrays -->\n```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(program.replace("train-{0..2}.tar", shards).replace("batch=32", "batch=30"), scope)  # noqa: S102
    assert (scope["state"]["epoch"], scope["state"]["next_batch"]) == (3, 0)
    assert capsys.readouterr().out.count("(30, 2, 3, 3) ") == 6


def test_columns() -> None:
    found = columns([(1, 2.5, True, b"a", np.zeros(2)), (2, 1, False, b"b", np.zeros(3))])
    assert [type(each).__name__ for each in found] == ["ndarray", "ndarray", "ndarray", "list", "list"]
    assert [str(each.dtype) for each in found[:3]] == ["int64", "float64", "bool"]


def test_what_cannot_be_is_refused_before_anything_is_read(shards: str) -> None:
    with pytest.raises(UsageError, match="60 samples do not fill a batch of 61"):
        loader(shards, batch=61)
    with pytest.raises(UsageError, match="rank and world are 2 and 2"):
        loader(shards, rank=2, world=2)
