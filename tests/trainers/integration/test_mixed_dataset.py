"""Streams in PyTorch: the same batches for any ranks and workers, also from the middle on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from trainshards import NEEDS_TORCH, program_of, write_shards

from tarkit.errors import UsageError
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream

pytestmark = NEEDS_TORCH

COUNTS = {"web": (40, 31, 25), "code": (25, 15)}
OPTIONS: dict[str, Any] = {"batch": 12, "seed": 2, "run": 4, "block": 20, "epoch_size": 120}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams")
    for name, counts in COUNTS.items():
        (found / name).mkdir()
        write_shards(found / name, counts, lambda shard, number: {"cls": number}, "train")
    return found


@pytest.fixture(autouse=True)
def _workers_end_here() -> Iterator[None]:
    yield
    gc.collect()


def streams(folder: Path, web: float = 0.7, code: float = 0.3) -> list[Stream]:
    amounts = {"web": web, "code": code}
    return [Stream(f"{folder}/{name}/train-*.tar", proportion=amounts[name], name=name) for name in COUNTS]


def dataset(folder: Path, web: float = 0.7, code: float = 0.3, **options: Any) -> Any:
    from tarkit.trainers.torch import ShardDataset

    return ShardDataset(streams(folder, web, code), **OPTIONS, **options)


def keys(batches: Any) -> list[list[str]]:
    return [[f"{sample['__url__'].split('/')[-2]}/{sample['__key__']}" for sample in batch] for batch in batches]


def together(ranks: list[list[list[str]]]) -> list[list[str]]:
    return [sum(parts, []) for parts in zip(*ranks, strict=True)]


@pytest.fixture(scope="module")
def epochs(folder: Path) -> list[list[list[str]]]:
    """Without PyTorch."""
    loader = EpochLoader(BatchSource(streams(folder), **OPTIONS))
    return [keys(loader) for _ in range(3)]


def test_ranks_and_workers_stop_and_others_go_on(folder: Path, epochs: list[list[list[str]]]) -> None:
    loaders = [dataset(folder, rank=rank, world=2).loader(2) for rank in range(2)]
    assert [len(loader) for loader in loaders] == [10, 10]
    assert together([keys(loader) for loader in loaders]) == epochs[0]
    running = [iter(loader) for loader in loaders]
    before = together([keys(islice(each, 4)) for each in running])
    state = loaders[1].state_dict()
    del running, loaders
    loaders = [dataset(folder, rank=rank, world=3).loader(rank) for rank in range(3)]
    for loader in loaders:
        loader.load_state_dict(state)
    assert before + together([keys(loader) for loader in loaders]) == epochs[1]
    assert together([keys(loader) for loader in loaders]) == epochs[2]


def test_workers_that_persist_see_what_was_used_before_a_change(folder: Path) -> None:
    first = EpochLoader(BatchSource(streams(folder), **OPTIONS))
    list(first)
    state = first.state_dict()
    then = EpochLoader(BatchSource(streams(folder, 0.5, 0.5), **OPTIONS))
    then.load_state_dict(state)
    right = [keys(then) for _ in range(2)]
    options = {"persistent_workers": True, "multiprocessing_context": "spawn"}
    loader = dataset(folder, 0.5, 0.5).loader(1, **options)
    list(loader)
    loader.load_state_dict(state)
    assert [keys(loader) for _ in range(2)] == right
    assert loader.state_dict() == then.state_dict()


def test_a_subset_by_numbers_is_not_for_streams(folder: Path) -> None:
    with pytest.raises(UsageError, match="a subset by numbers is not for streams"):
        dataset(folder).subset(range(50))


def test_torchdatas_loader(folder: Path, epochs: list[list[list[str]]]) -> None:
    pytest.importorskip("torchdata")
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tarkit.trainers.torch import dataset_state

    loader = StatefulDataLoader(dataset(folder), batch_size=None, num_workers=2)
    before = keys(islice(loader, 3))
    state = loader.state_dict()
    again = StatefulDataLoader(dataset(folder), batch_size=None, num_workers=2)
    again.load_state_dict(state)
    assert before + keys(again) == epochs[0]
    other = dataset(folder)
    other.load_state_dict(dataset_state(state))
    assert before + keys(other.loader(1)) == epochs[0]


def test_the_program_of_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    exec(program_of("mixing.md", "mixed"), {"__name__": "__main__"})
    mixture, state = capsys.readouterr().out.splitlines()
    page = (Path(__file__).resolve().parents[3] / "docs" / "mixing.md").read_text("utf-8")
    assert f"```\n{mixture}\n```" in page
    assert "'p0.7', 140]" in state and "'p0.3', 60]" in state
