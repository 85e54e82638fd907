"""Subsets in PyTorch's workers, and beside the programs that make the same choice."""

from __future__ import annotations

import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from trainshards import every_key, needs_torch, program_of, write_pictures, write_shards

from tarkit.errors import UsageError
from tarkit.samples.read import read_samples
from tarkit.trainers.audit import audit_folder
from tarkit.trainers.shardmap import ShardMap

COUNTS = (13, 0, 21, 6)
EVERY = every_key(COUNTS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """bin has 100 bytes for each number."""
    folder = tmp_path_factory.mktemp("shards")
    return write_shards(folder, COUNTS, lambda shard, number: {"cls": number, "bin": bytes(100 * number)})


def keys_of(samples: ShardMap) -> list[str]:
    return [samples[number]["__key__"] for number in range(len(samples))]


def test_a_split_is_that_of_tarkit_create(shards: str, tmp_path: Path) -> None:
    """A sample is never in both, and all are in one."""
    folder = tmp_path / "files"
    folder.mkdir()
    for key in EVERY:
        (folder / f"{key}.cls").write_text("1")
    shares = "train=0.6,val=0.4"
    for more in ([], ["--split-by", "-."]):
        command = [program_path("tarkit"), "create", ".", "-o", f"{tmp_path}/%s-{len(more)}.tar", "--split"]
        subprocess.run([*command, shares, *more], cwd=folder, check=True, capture_output=True)
        split_by = more[1] if more else None
        for part in ("train", "val"):
            expected = {sample["__key__"] for sample in read_samples(f"{tmp_path}/{part}-{len(more)}.tar")}
            found = ShardMap(shards, split=(part, shares), split_by=split_by)
            assert set(keys_of(found)) == expected and 10 < len(expected) < 30
    assert len(ShardMap(shards, split=("val", {"train": 0.6, "val": 0.4}))) == 40 - len(
        ShardMap(shards, split=("train", {"train": 0.6, "val": 0.4}))
    )


OPTIONS: dict[str, Any] = {"batch": 6, "fields": "__key__ cls", "collate": list, "run": 3, "block": 9, "seed": 4}


def batches(loader: Any, most: int | None = None) -> list[list[str]]:
    return [[row[0] for row in batch] for batch in islice(loader, most)]


@needs_torch
@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_workers_read_a_subset(shards: str, tmp_path: Path, workers: int, context: str | None) -> None:
    """The function where= need not be picklable: workers get the numbers that it chose."""
    from tarkit.trainers.torch import ShardDataset

    def dataset(**more: Any) -> ShardDataset:
        return ShardDataset(shards, where=lambda key, sizes: sizes["bin"] > 200, **{**OPTIONS, **more})

    whole = batches(dataset().loader())
    assert len(whole) == 5 and all(int(key.partition("-")[2]) > 2 for batch in whole for key in batch)
    audited = dataset(audit=tmp_path).loader(workers, multiprocessing_context=context)
    assert batches(audited, 2) == whole[:2]
    state = audited.state_dict()
    ranks = [dataset(rank=rank, world=3, audit=tmp_path).loader(workers and 1) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(state)
    assert [sum(parts, []) for parts in zip(*map(batches, ranks), strict=True)] == whole[2:]
    (found,) = audit_folder(str(tmp_path), [shards])
    assert (found.complete, found.samples, found.used, found.problems) == (True, 31, 30, [])


@needs_torch
def test_a_range_for_training_and_the_rest_for_validation(shards: str, tmp_path: Path) -> None:
    from tarkit.trainers.torch import ShardDataset

    dataset = ShardDataset(shards, keys=EVERY[2:], rule="first-dot", cache=False, **OPTIONS)
    train = dataset.subset(slice(None, 30))
    test = dataset.subset(range(30, 38), shuffle=False, equalize="pad", batch=3)
    assert sorted(sum(batches(train.loader(1)), [])) == sorted(EVERY[2:32])
    assert batches(test.loader(1)) == [EVERY[32:35], EVERY[35:38], [*EVERY[38:40], EVERY[32]]]
    assert (len(test.samples), test.samples[0]["__key__"]) == (8, EVERY[32])
    with pytest.raises(UsageError, match=r"^the state is of another order: other samples are chosen"):
        train.load_state_dict(dataset.loader().state_dict())
    with pytest.raises(TypeError, match=r"^ShardDataset.subset\(\) got an unexpected keyword argument 'bach'.*'batch'"):
        dataset.subset(range(9), bach=3)
    audited = ShardDataset(shards, audit=tmp_path, **OPTIONS)
    with pytest.raises(UsageError, match=r"^an audit is of one data set: give audit= of the subset, a folder or None$"):
        audited.subset(range(9))
    assert audited.subset(range(9), audit=None).audit is None
    with pytest.raises(TypeError, match=r"dataset\.samples\[number\] gives a sample"):
        dataset[0]


@needs_torch
def test_the_program_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 96)
    scope: dict[str, Any] = {}
    exec(program_of("training.md", "subset"), scope)
    assert capsys.readouterr().out == "288 0-7\n"
    parts = [{*keys_of(scope[name].samples)} for name in ("train", "val")]
    assert not parts[0] & parts[1] and sorted(parts[0] | parts[1]) == sorted(every_key([96] * 3))
    assert len(scope["val"].loader()) == -(-len(parts[1]) // 32) and 10 < len(parts[1]) < 50
    assert keys_of(scope["small"].samples) == keys_of(scope["train"].samples)[::10] and len(scope["small"]) == 1
    ((named,),) = (list(scope["named"].loader()),)
    assert sorted(sample["__key__"] for sample in named) == ["0-5", "1-17", "2-3"]
    assert len(scope["rest"].samples) == 188
