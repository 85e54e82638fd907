"""tarkit's reader in webdataset's own pipelines, and webdataset's stages behind tarkit's reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from trainshards import copy_shard, needs_torch, program_of, write_pictures, write_shards

import tarkit
from tarkit.errors import CorruptHeaderError, UsageError
from tarkit.trainers.source import BatchSource
from tarkit.trainers.world import LoaderWorker

wds = pytest.importorskip("webdataset", reason="webdataset is not installed (pip install webdataset)")
pytest.importorskip("numpy", reason="arrays need NumPy")

from tarkit.trainers import webdataset as adapter  # noqa: E402

COUNTS = (30, 0, 25, 17)
BATCH = 12
ORDER = {"batch": BATCH, "seed": 7, "run": 5, "block": 20}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, lambda shard, number: {"cls": number % 10})


@pytest.fixture(scope="module")
def epochs(shards: str) -> list[list[list[str]]]:
    """The keys of the batches of three epochs."""
    source = BatchSource(shards, **ORDER)
    return [[[sample["__key__"] for sample in batch] for batch in source.epoch_batches(epoch)] for epoch in range(3)]


def pipeline(shards: str, *stages: Any, **options: Any) -> Any:
    return wds.DataPipeline(adapter.ShardSamples(shards, **{**ORDER, **options}), wds.decode(), *stages)


def batched(shards: str, **options: Any) -> Any:
    return pipeline(shards, wds.to_tuple("__key__", "cls"), wds.batched(BATCH), **options)


def keys(batches: Any) -> list[list[str]]:
    return [list(batch[0]) for batch in batches]


def test_a_pipeline_of_webdataset_has_the_samples_of_an_epoch(shards: str, epochs: list[list[list[str]]]) -> None:
    samples = pipeline(shards)
    for epoch in (0, 1):
        found = list(samples)
        assert [sample["__key__"] for sample in found] == list(chain(*epochs[epoch]))
        assert all(sample["cls"] == int(sample["__key__"].split("-")[1]) % 10 for sample in found)
    samples.stage(0).set_epoch(0)
    assert keys(batched(shards)) == epochs[0]
    assert [sample["__key__"] for sample in samples] == list(chain(*epochs[0]))
    with pytest.raises(UsageError, match="epoch is -1; it must be a whole number"):
        samples.stage(0).set_epoch(-1)
    # An epoch of webdataset that is longer than the data goes on with the next one.
    long = pipeline(shards).with_epoch(100)
    assert [sample["__key__"] for sample in long] == list(chain(*epochs[0], *epochs[1]))[:100]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_ranks_and_workers_have_each_sample_once(
    shards: str, epochs: list[list[list[str]]], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for rank in range(2):
        source = adapter.ShardSamples(shards, rank=rank, world=2, **ORDER)
        for worker in range(workers):
            monkeypatch.setattr(adapter, "loader_worker", lambda worker=worker: LoaderWorker(worker, workers, None))
            source.set_epoch(1)
            parts.append([sample["__key__"] for sample in source()])
    assert sorted(chain(*parts)) == sorted(chain(*epochs[1]))


def test_stages_of_webdataset_make_batches_behind_the_reader(shards: str, epochs: list[list[list[str]]]) -> None:
    stages = adapter.BatchStages(
        wds.decode(), wds.map(lambda sample: {**sample, "cls": sample["cls"] + 1}), wds.detshuffle(1),
        wds.to_tuple("__key__", "cls"), wds.batched(BATCH),
    )  # fmt: skip
    loader = tarkit.batches(shards, fields=None, decode=None, collate=stages, **ORDER)
    running = iter(loader)
    first = next(running)
    assert first[0] == epochs[0][0] and first[1].tolist() == [int(key.split("-")[1]) % 10 + 1 for key in epochs[0][0]]
    state = json.loads(json.dumps(loader.state_dict()))
    again = tarkit.batches(shards, fields=None, decode=None, collate=stages, **ORDER)
    again.load_state_dict(state)
    assert keys(again) == epochs[0][1:]


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((wds.decode(),), r"make 12 items of the 12 samples of a batch, .* webdataset\.batched\(12\)"),
        ((wds.batched(5),), "make 3 items of the 12"),
        ((wds.select(lambda sample: False), wds.batched(12)), "make 0 items of the 12"),
    ],
)
def test_stages_that_do_not_make_a_batch_are_an_error(shards: str, stages: tuple[Any, ...], words: str) -> None:
    loader = tarkit.batches(shards, fields=None, decode=None, collate=adapter.BatchStages(*stages), **ORDER)
    with pytest.raises(UsageError, match=words):
        list(loader)


def test_stages_that_leave_samples_out_are_refused(shards: str) -> None:
    for stage in (wds.split_by_worker, wds.split_by_node):
        with pytest.raises(UsageError, match=f"{stage.__name__} would leave samples out"):
            adapter.BatchStages(stage)
        with pytest.raises(UsageError, match=f"{stage.__name__} would leave samples out"):
            list(pipeline(shards, stage))
    with pytest.raises(UsageError, match=r"service= is for tarkit\.trainers\.torch\.ShardDataset"):
        adapter.ShardSamples(shards, batch=2, service="h:1")
    with pytest.raises(UsageError, match=r"audit= is for tarkit\.trainers\.torch\.ShardDataset"):
        adapter.ShardSamples(shards, batch=2, audit="audited")


def test_samples_that_are_left_out_are_counted_and_logged(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    samples = pipeline(shards, transform=lambda sample: None if sample["cls"] == b"3" else sample)
    assert len(list(samples)) == 64
    assert "samples of epoch 0, up to batch 6: 8 filtered" in caplog.text


def test_damage_ends_the_pipeline_with_its_error(shards: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptHeaderError, match=r"s-0\.tar, offset 9216: "):
        list(pipeline(copy_shard(shards.replace("{0..3}", "0"), tmp_path, 9 * 1024)))


@needs_torch
@pytest.mark.parametrize(
    ("workers", "options"),
    [(0, {}), (2, {}), (2, {"persistent_workers": True}), (3, {"multiprocessing_context": "spawn"})],
)
def test_torch_loaders_have_the_batches_of_an_epoch(
    shards: str, epochs: list[list[list[str]]], workers: int, options: dict[str, Any]
) -> None:
    import torch.utils.data

    for make in (torch.utils.data.DataLoader, wds.WebLoader):
        loader = make(batched(shards), batch_size=None, num_workers=workers, **options)
        assert [keys(loader) for _ in range(2)] == epochs[:2]


@needs_torch
def test_torch_mixed_by_webdataset_each_sample_comes_once(shards: str, epochs: list[list[list[str]]]) -> None:
    mixed = wds.WebLoader(batched(shards), batch_size=None, num_workers=2).unbatched().shuffle(50).batched(8)
    assert sorted(chain(*keys(mixed))) == sorted(chain(*epochs[0]))


@needs_torch
@pytest.mark.parametrize("taken", [0, 1, 4])
def test_torch_a_pipeline_goes_on_with_other_ranks(shards: str, epochs: list[list[list[str]]], taken: int) -> None:
    loaders = [adapter.loader(batched(shards, rank=rank, world=2), num_workers=2) for rank in range(2)]
    running = [iter(loader) for loader in loaders]
    before = together([[next(each) for _ in range(taken)] for each in running])
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] and len(loaders[0]) == len(epochs[0])
    after = [adapter.loader(batched(shards, rank=rank, world=3), num_workers=rank) for rank in range(3)]
    for loader in after:
        loader.load_state_dict(states[0])
    assert before + together(after) == epochs[0]
    assert together(after) == epochs[1]


def together(ranks: list[Any]) -> list[list[str]]:
    parts: Iterator[Any] = zip(*(keys(rank) for rank in ranks), strict=True)
    return [list(chain(*part)) for part in parts]


@needs_torch
def test_torch_other_pipelines_have_no_loader(shards: str) -> None:
    with pytest.raises(UsageError, match=r"must begin with tarkit\.trainers\.webdataset\.ShardSamples"):
        adapter.loader(wds.DataPipeline(wds.SimpleShardList(shards)))
    with pytest.raises(UsageError, match="the pipeline has with_epoch or repeat"):
        adapter.loader(batched(shards).with_epoch(3))
    with pytest.raises(UsageError, match="split_by_worker would leave samples out"):
        adapter.loader(pipeline(shards, wds.split_by_worker, wds.batched(BATCH)))


@needs_torch
def test_torch_the_programs_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 64)
    for name, batches in (("pipeline", 12), ("stages", 6)):
        scope: dict[str, Any] = {}
        exec(program_of("training-webdataset.md", name), scope)  # noqa: S102
        assert capsys.readouterr().out.count("[32, 8, 8, 3]") == batches
        assert name == "stages" or scope["state"]["epoch"] == 2
    composed = tarkit.WebDataset("train-{0..2}.tar").compose(wds.decode("rgb"), wds.shuffle(1000))
    assert len(list(composed)) == 192
