"""The PyTorch data set: the same global batches for any number of ranks and workers, and after any
break.
"""

from __future__ import annotations

import inspect
import pickle
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from fcntl import F_GETPIPE_SZ, fcntl
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from trainshards import NEEDS_TORCH, copy_shard, every_key, program_of, torchrun, write_pictures, write_shards

from tarkit.errors import CorruptHeaderError, DataError, UsageError
from tarkit.samples.audio import Audio
from tarkit.samples.sample import Sample
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers import torchprocess
from tarkit.trainers.audit import audit_folder
from tarkit.trainers.checkedstate import with_checksum

pytestmark = NEEDS_TORCH
COUNTS = (70, 0, 55, 31)
BATCH = 12


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    def fields(shard: int, number: int) -> dict[str, str]:
        return {"cls": str(number % 10), "txt": f"text {number}"}

    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, fields)


def dataset(shards: str, **options: Any) -> Any:
    from tarkit.trainers.torch import ShardDataset

    return ShardDataset(shards, **{"batch": BATCH, "seed": 7, "run": 5, "block": 20, **options})


def keys(batches: Iterator[Any]) -> list[list[str]]:
    return [[sample["__key__"] for sample in batch] for batch in batches]


def together(ranks: list[list[list[str]]]) -> list[list[str]]:
    assert len({len(rank) for rank in ranks}) == 1
    return [sum(parts, []) for parts in zip(*ranks, strict=True)]


@pytest.fixture(scope="module")
def epochs(shards: str) -> list[list[list[str]]]:
    """Four epochs of one process."""
    loader = dataset(shards).loader()
    found = [keys(iter(loader)) for _ in range(4)]
    every = set(every_key(COUNTS))
    for epoch in found:
        flat = sum(epoch, [])
        assert len(epoch) == len(loader) == 13 and len(set(flat)) == len(flat) == 156 and set(flat) <= every
    assert len({str(epoch) for epoch in found}) == 4
    return found


@pytest.mark.parametrize(
    ("world", "workers", "options"),
    [
        (1, 2, {}),
        (2, 2, {}),
        (2, 2, {"persistent_workers": True}),
        (3, 4, {}),
        (2, 2, {"multiprocessing_context": "spawn", "persistent_workers": True}),
        (1, 3, {"multiprocessing_context": "forkserver"}),
    ],
)
def test_the_global_batches_are_the_same(
    shards: str, epochs: list[list[list[str]]], world: int, workers: int, options: dict[str, Any]
) -> None:
    loaders = [dataset(shards, rank=rank, world=world).loader(workers, **options) for rank in range(world)]
    for epoch in range(2):
        assert together([keys(iter(loader)) for loader in loaders]) == epochs[epoch]


@pytest.mark.parametrize("taken", [0, 1, 5, 13])
def test_it_goes_on_with_other_ranks_and_workers(shards: str, epochs: list[list[list[str]]], taken: int) -> None:
    loaders = [dataset(shards, rank=rank, world=2).loader(2) for rank in range(2)]
    for loader in loaders:
        list(loader)
    running = [iter(loader) for loader in loaders]
    before = together([keys(next(each) for _ in range(taken)) for each in running])
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] and len(pickle.dumps(states[0])) < 1000
    after = [dataset(shards, rank=rank, world=3).loader(workers) for rank, workers in enumerate((0, 1, 3))]
    for loader in after:
        loader.load_state_dict(states[0])
    if taken not in (0, 13):
        assert before + together([keys(iter(loader)) for loader in after]) == epochs[1]
    # Then whole epochs.
    following = 1 if taken == 0 else 2
    assert together([keys(iter(loader)) for loader in after]) == epochs[following]


def test_a_pipe_for_large_batches(shards: str) -> None:
    """Attributes of torch's iterator lead to the pipe: without them, batches come more slowly."""
    batches: Any = torchprocess._with_large_pipe(iter(dataset(shards).loader(1)._loader))
    assert fcntl(batches._worker_result_queue._reader.fileno(), F_GETPIPE_SZ) == 1 << 20


def test_an_epoch_that_is_left_early_is_over(shards: str, epochs: list[list[list[str]]]) -> None:
    loader = dataset(shards).loader(2)
    for batch in loader:
        assert [sample["__key__"] for sample in batch] == epochs[0][0]
        break
    assert keys(iter(loader)) == epochs[1]
    loader.set_epoch(0)
    assert keys(iter(loader)) == epochs[0]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}])
def test_a_loader_that_is_made_anew_goes_on_with_the_next_epoch(
    shards: str, epochs: list[list[list[str]]], options: dict[str, Any]
) -> None:
    """``for epoch in range(3): for batch in dataset.loader(2): ...``."""
    data = dataset(shards)
    assert [keys(iter(data.loader(**options))) for _ in range(2)] == epochs[:2]
    assert keys(islice(data.loader(**options), 3)) == epochs[2][:3], "and this one is left early"
    last = data.loader(**options)
    assert (last.state_dict()["epoch"], last.state_dict()["next_batch"]) == (3, 0)
    assert keys(iter(last)) == epochs[3]
    data.load_state_dict(dataset(shards).state(1, 5))
    assert keys(iter(data.loader(**options))) + keys(iter(data.loader(**options))) == epochs[1][5:] + epochs[2]


def test_any_other_reader_is_an_error(shards: str) -> None:
    """Which would repeat epochs, or make batches of batches."""
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    some = {"batch_size": 4, "collate_fn": list}
    for read in (
        iter,
        lambda data: DataLoader(data, batch_size=None),
        lambda data: DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True),
        lambda data: DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn"),
        lambda data: DataLoader(data, **some),
        lambda data: StatefulDataLoader(data, **some),
        lambda data: StatefulDataLoader(data, num_workers=2, **some),
    ):
        with pytest.raises(
            UsageError, match=r"^(Caught|a ShardDataset is read by its loader\(\), or by torchdata's State)"
        ):
            list(read(dataset(shards)))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_a_stateful_loader_reads_the_epoch_that_is_set(
    shards: str, epochs: list[list[list[str]]], options: dict[str, Any]
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = dataset(shards)
    data.loader()
    loader = StatefulDataLoader(data, batch_size=None, **options)
    for epoch in (0, 3, 1):
        data.set_epoch(epoch)
        assert keys(iter(loader)) == epochs[epoch]
        with pytest.raises(UsageError, match=rf"epoch {epoch} is read a second time: call set_epoch\(\) before each"):
            next(iter(loader))
    data.set_epoch(2)
    for batch in loader:  # noqa: B007 - it is left early
        break
    with pytest.raises(
        UsageError, match=r"epoch 2 is read a second time: call set_epoch\(\) before each iteration, or"
    ):
        list(loader)
    assert keys(data.loader()) == epochs[3]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_two_loaders_read_at_once_are_an_error(shards: str, options: dict[str, Any]) -> None:
    """A worker that begins late would read the epoch of the other one: samples came twice, and
    others not at all.
    """
    data = dataset(shards)
    one, other = data.loader(**options), data.loader(**options)
    with pytest.raises(UsageError, match=r"^epoch 0 is over, as a later iteration of the data set has begun"):
        list(zip(one, other, strict=True))
    assert len(list(one)) == 13


def test_a_data_set_whose_place_is_set_behind_its_loader_is_an_error(
    shards: str, epochs: list[list[list[str]]]
) -> None:
    data = dataset(shards)
    loader = data.loader()
    data.set_epoch(3)
    with pytest.raises(UsageError, match=r"was called after its loader\(\) was made: call the loader's method"):
        list(loader)
    assert keys(iter(data.loader())) == epochs[3], "a loader that is made then"


@pytest.mark.parametrize("option", [{"batch_size": 4}, {"shuffle": True}, {"shuffle": False}, {"sampler": True}])
def test_what_the_data_set_decides_is_not_an_option_of_the_loader(shards: str, option: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError, match=rf"^loader\(\) has no {next(iter(option))}=: see batch=, shuffle= and equalize= of"
    ):
        dataset(shards).loader(2, **option)


def test_images_as_tensors_by_the_words_of_webdataset(tmp_path: Path) -> None:
    import numpy as np
    import torch

    from tarkit.samples.tarwriter import TarWriter

    with TarWriter(str(tmp_path / "a.tar"), index=True) as writer:
        writer.write({"__key__": "a", "png": np.arange(60, dtype="uint8").reshape(4, 5, 3), "cls": 1})
    for word, kind in (("torchrgb", torch.float32), ("torchrgb8", torch.uint8)):
        ((images, labels),) = dataset(str(tmp_path / "a.tar"), batch=1, fields="png cls", decode=word).loader()
        assert images.shape == (1, 3, 4, 5) and images.dtype == kind and labels.tolist() == [1]
        assert images[0, 1, 0, 2] == (7 if word == "torchrgb8" else np.float32(7 / 255))


@pytest.mark.parametrize("workers", [0, 1])
def test_pictures_of_two_sizes_are_named(tmp_path: Path, workers: int) -> None:
    import numpy as np

    sizes = [4, 4, 4, 5]
    url = write_shards(tmp_path, [4], lambda shard, number: {"png": np.zeros((sizes[number], 4, 3), "uint8")})
    options = {"batch": 4, "fields": "jpg;png", "decode": "rgb", "shuffle": False, "lanes": 1}
    message = (
        r"batch 0 of epoch 0: collate raised RuntimeError\('stack expects .*; field 'jpg;png' has shape \(4, 4, 3\) in "
        r".*s-0\.tar, key '0-0', and \(5, 4, 3\) in .*s-0\.tar, key '0-3': pass transform= that makes all of one size"
    )
    with pytest.raises(UsageError, match=message):
        list(dataset(url, **options).loader(workers))
    (batch,) = dataset(url, **options, collate=list).loader(workers)
    assert [picture.shape[0] for (picture,) in batch] == sizes


def test_audio_of_two_lengths_is_named(shards: str) -> None:
    import numpy as np
    from torch.utils.data import default_collate

    def recording(sample: Sample) -> Audio:
        return Audio(np.zeros((8000 + len(sample["__key__"]) * int(sample["__key__"][-1]), 1), "float32"), 8000)

    with pytest.raises(
        UsageError, match=r"value 0 has shape \(80\d\d, 1\) in .*: pass transform= that makes all of one"
    ):
        list(dataset(shards, transform=recording, collate=default_collate).loader())


def test_what_is_not_a_list_of_samples_says_so(shards: str) -> None:
    with pytest.raises(
        TypeError, match=r"^a ShardDataset gives batches, .* loader\(\); dataset\.samples\[number\] gives"
    ):
        dataset(shards)[0]
    with (
        open(shards.replace("{0..3}", "0"), "rb") as file,
        pytest.raises(UsageError, match="named by text; got Buffered"),
    ):
        dataset(file)


def test_arrays_are_not_read_by_each_of_several_workers(shards: str, epochs: list[list[list[str]]]) -> None:
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    import tarkit

    class Reading(IterableDataset):  # type: ignore[misc,type-arg]
        def __init__(self, placed: bool) -> None:
            self.placed = placed

        def __iter__(self) -> Any:
            info = get_worker_info()
            place = {"rank": info.id, "world": info.num_workers} if self.placed else {}
            options = {"batch": BATCH, "seed": 7, "run": 5, "block": 20, **place}
            return iter(tarkit.batches(shards, fields="__key__", **options))

    with pytest.raises(UsageError, match="worker 0 of 2 of a DataLoader, and each would read every batch: "):
        list(DataLoader(Reading(False), batch_size=None, num_workers=2))
    found = [name for (names,) in DataLoader(Reading(True), batch_size=None, num_workers=2) for name in names]
    assert sorted(found) == sorted(sum(epochs[0], []))
    with pytest.raises(TypeError, match=r"for a DataLoader there is tarkit\.trainers\.torch\.ShardDataset"):
        list(DataLoader(tarkit.batches(shards, batch=BATCH, fields="cls"), batch_size=None))


@pytest.mark.parametrize("taken", [1, 6])
def test_torchdata_keeps_its_state(shards: str, epochs: list[list[list[str]]], taken: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="NO torchdata (tox run -e torch)")
    from tarkit.trainers.torch import dataset_state

    loader = stateful.StatefulDataLoader(dataset(shards), batch_size=None, num_workers=2)
    running = iter(loader)
    before = keys(next(running) for _ in range(taken))
    state = loader.state_dict()
    del running
    same = stateful.StatefulDataLoader(dataset(shards), batch_size=None, num_workers=2)
    same.load_state_dict(state)
    assert before + keys(iter(same)) == epochs[0]
    other = dataset(shards)
    other.load_state_dict(dataset_state(state))
    assert before + keys(iter(other.loader(3))) == epochs[0]
    with pytest.raises(UsageError, match="the state has workers 2, and here it is 1: give dataset_state"):
        dataset(shards).read_epoch().load_state_dict(with_checksum({**dataset_state(state), "workers": 2}))
    with pytest.raises(UsageError, match=r"^there is no state of a ShardDataset in it$"):
        dataset_state({"a": [{}]})


def test_torchdata_and_another_batch(shards: str) -> None:
    """From the next epoch on, as in each loader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tarkit.trainers.torch import dataset_state

    loader = StatefulDataLoader(dataset(shards), batch_size=None, num_workers=2)
    running = iter(loader)
    next(running)
    state, other = loader.state_dict(), dataset(shards, batch=16)
    with pytest.raises(UsageError, match=r"batch is 16, and 12 in the state; it can change where an epoch begins"):
        other.load_state_dict(dataset_state(state))
    again = StatefulDataLoader(other, batch_size=None, num_workers=2)
    again.load_state_dict(state)
    with pytest.raises(UsageError, match=r"batch is 16, and 12 in the state; it can change where an epoch begins"):
        list(again)


def test_fields_are_decoded_and_collated(shards: str) -> None:
    import torch

    data = dataset(shards, fields="__key__ cls txt", decode="rgb", shuffle=False)
    names, classes, texts = next(iter(data.loader(2)))
    assert names == [f"0-{n}" for n in range(2)] + names[2:] and texts[0] == "text 0"
    assert isinstance(classes, torch.Tensor) and classes.tolist() == [int(text.split()[1]) % 10 for text in texts]
    doubled = dataset(shards, fields="cls", decode="rgb", transform=lambda row: row[0] * 2, collate=sum)
    assert isinstance(next(iter(doubled.loader())), int)


@pytest.mark.parametrize(("equalize", "marked"), [("pad", 8), ("repeat", 0)])
def test_the_last_batch_is_filled(shards: str, equalize: str, marked: int) -> None:
    found = [sample for batch in dataset(shards, equalize=equalize, batch=20, lanes=1).loader(2) for sample in batch]
    assert len(found) == 160 and len({sample["__key__"] for sample in found}) == 156
    assert sum(sample.get("__pad__", False) for sample in found) == (4 if marked else 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, "seed is 8, and 7 in the state"),
        ({"block": 24}, "block is 24, and 20 in the state"),
        ({"shuffle": False}, "seed is None, and 7 in the state"),
    ],
)
def test_states_of_another_order_are_refused(shards: str, change: dict[str, Any], message: str) -> None:
    state = dataset(shards).loader().state_dict()
    with pytest.raises(UsageError, match=re.escape(f"the state is of another order: {message}")):
        dataset(shards, **change).loader().load_state_dict(state)
    with pytest.raises(UsageError, match="another order: the shards differ, in their names"):
        dataset(shards.replace("{0..3}", "{0..2}")).loader().load_state_dict(state)
    with pytest.raises(UsageError, match="version of the state is 4, and here it is 3"):
        dataset(shards).load_state_dict(with_checksum({**state, "version": 4}))


def test_a_shard_that_is_damaged_ends_the_epoch_with_its_error(shards: str, tmp_path: Path) -> None:
    damaged = copy_shard(shards.replace("{0..3}", "0"), tmp_path, 20 * 2048)
    message = r"worker process \d\..*s-0\.tar, offset 40960: .*--force makes a new one$"
    with pytest.raises(CorruptHeaderError, match=message):
        list(dataset(damaged).loader(2))


def test_a_manifest_gives_the_same_batches_and_the_same_state(
    shards: str, epochs: list[list[list[str]]], tmp_path: Path
) -> None:
    folder = Path(shards).parent
    write_manifest(
        f"{tmp_path}/dataset.json",
        [ManifestShard(f"{folder}/s-{shard}.tar", count) for shard, count in enumerate(COUNTS)],
    )
    listed = dataset(f"{tmp_path}/dataset.json")
    assert listed.state(1, 3) == dataset(shards).state(1, 3)
    assert keys(iter(listed.loader(2))) == epochs[0]
    listed.load_state_dict(dataset(shards).state(1, 3))
    assert keys(iter(listed.loader(1, multiprocessing_context="spawn"))) == epochs[1][3:]


@pytest.mark.parametrize("more", [-1, 1])
def test_a_manifest_that_counts_one_more_or_less_ends_the_epoch(shards: str, tmp_path: Path, more: int) -> None:
    folder = Path(shards).parent
    write_manifest(
        f"{tmp_path}/dataset.json",
        [ManifestShard(f"{folder}/s-{shard}.tar", count + more * (shard == 2)) for shard, count in enumerate(COUNTS)],
    )
    loader = dataset(f"{tmp_path}/dataset.json").loader(2)
    with pytest.raises(
        DataError, match=rf"s-2\.tar: it has 55 samples by .*s-2\.idx, and {55 + more} by .*dataset\.json"
    ):
        list(loader)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOT GLIBC, WHOSE MEMORY IS KEPT")
def test_a_worker_keeps_the_memory_of_a_batch_for_the_next(shards: str) -> None:
    def megabyte(sample: Any) -> bytes:
        return bytes(sample["txt"]) + bytes(1 << 20)

    def faults_until(values: list[bytes]) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    found = list(dataset(shards, transform=megabyte, collate=faults_until).loader(1))
    # A batch is 12 MiB, which are 3,072 pages.
    assert len(found) == 13 and found[-1] - found[3] < 3072


def test_the_program_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in the middle of its second epoch, and goes on there."""
    program = program_of("training.md", "shards")
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 96)
    limited = program.replace("for images, labels in loader:", "for images, labels in islice(loader, limit):")
    assert limited != program
    scope: dict[str, Any] = {"__name__": "__main__", "islice": islice, "limit": 3}
    exec(limited.replace(", epochs):", ", 1):"), scope)
    state = scope["loader"].state_dict()
    assert (state["epoch"], state["next_batch"]) == (0, 3)
    scope = {"__name__": "__main__"}
    exec(program, scope)
    state = scope["loader"].state_dict()
    steps = scope["optimizer"].state_dict()["state"][0]["step"]
    assert (state["epoch"], state["next_batch"], steps) == (3, 0, 3 * 9)
    assert scope["loss"].item() < 0.3


def run_ranks(shards: str, folder: Path, world: int, stop: int = 0) -> None:
    """By torchrun, which gives ranks their variables; they are killed after so many batches."""
    done = torchrun("trainranks.py", world, shards, folder, stop)
    assert (done.returncode != 0) is bool(stop), done.stderr


def read_by_ranks(folder: Path, world: int) -> list[list[str]]:
    lines = [(folder / f"keys-{rank}-of-{world}").read_text().splitlines() for rank in range(world)]
    return together([[line.split() for line in rank] for rank in lines])


def test_ranks_under_gloo_are_killed_and_another_number_goes_on(
    shards: str, epochs: list[list[list[str]]], tmp_path: Path
) -> None:
    run_ranks(shards, tmp_path, 2, stop=5)
    run_ranks(shards, tmp_path, 3)
    before, after = read_by_ranks(tmp_path, 2), read_by_ranks(tmp_path, 3)
    assert len(before) == 5
    assert before + after == epochs[0]
    (audited,) = audit_folder(str(tmp_path / "audit"), [shards])
    assert audited.complete and (audited.used, audited.again) == (156, 0)


@pytest.mark.parametrize("options", [{}, {"multiprocessing_context": "spawn", "persistent_workers": True}])
def test_the_audit_has_what_was_used_and_not_what_was_prefetched(
    shards: str, epochs: list[list[list[str]]], tmp_path: Path, options: dict[str, Any]
) -> None:
    loaders = [dataset(shards, rank=rank, world=2, audit=tmp_path).loader(2, **options) for rank in range(2)]
    running = [iter(loader) for loader in loaders]
    before = together([keys(next(each) for _ in range(4)) for each in running])
    state = loaders[1].state_dict()
    for each in running:
        next(each)
    del running, loaders
    (audited,) = audit_folder(str(tmp_path), [shards])
    assert (audited.used, audited.in_hand, audited.problems) == (48, 12, []) and not audited.complete
    loaders = [dataset(shards, rank=rank, world=3, audit=tmp_path).loader(2, **options) for rank in range(3)]
    for loader in loaders:
        loader.load_state_dict(state)
    assert before + together([keys(iter(loader)) for loader in loaders]) == epochs[0]
    assert keys(iter(loaders[0]))[0] == epochs[1][0][:4]
    first, second = audit_folder(str(tmp_path), [shards])
    assert first.complete and (first.used, first.again) == (156, 12)
    assert (second.used, second.problems) == (52, []) and not second.complete


GARBAGE = """
import gc, os, sys
from tarkit.trainers.torch import ShardDataset

class NotHere:
    def __init__(self):
        self.me, self.process = self, os.getpid()

    def __del__(self):
        if os.getpid() != self.process:
            os.write(2, b"freed in a fork")

gc.disable()
NotHere()  # in a cycle, as an iterator of a DataLoader is after an error
dataset = ShardDataset(sys.argv[1], batch=12, seed=7, run=5, block=20)
print(len(list(dataset.loader(1, collate_fn=lambda batch: gc.collect()))))
"""


def test_a_worker_does_not_free_what_its_parent_has_not_collected(shards: str) -> None:
    done = subprocess.run([sys.executable, "-c", GARBAGE, shards], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("13\n", "")


def test_ranks_that_are_forked_with_the_data_set_have_epochs_of_their_own(shards: str) -> None:
    images = dataset(shards)
    images.set_epoch(2)

    def rank() -> None:
        images.set_epoch(5)
        assert (images.epoch, images.loader().state_dict()["epoch"]) == (5, 5)

    child = get_context("fork").Process(target=rank)
    child.start()
    child.join()
    assert (child.exitcode, images.epoch) == (0, 2)


def test_an_audit_wants_the_loader_of_the_data_set(shards: str, tmp_path: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    assert {*dataset(shards).loader(1, collate_fn=len)} == {dataset(shards).settings.batch}
    for workers in (0, 2):
        (first, *_) = dataset(shards, fields="cls", collate=tuple).loader(workers, collate_fn=list)
        assert isinstance(first, list)
    images, *_ = dataset(shards, fields="cls", decode="rgb", audit=tmp_path).loader(1, collate_fn=len)
    assert images == 1
    # Last: a worker that is forked while torch's failed loader is alive ends that, too, and may
    # fail itself.
    with pytest.raises(UsageError, match=r"with service= or audit=, read it by loader\(\), which knows what your loop"):
        list(StatefulDataLoader(dataset(shards, audit=tmp_path), batch_size=None, num_workers=1))


@pytest.mark.parametrize(("workers", "taken"), [(1, 4), (2, 5), (2, 13)])
def test_a_state_of_torchdata_that_is_older_than_the_last_batch(
    shards: str, epochs: list[list[list[str]]], workers: int, taken: int
) -> None:
    """``snapshot_every_n_steps``: what came after the snapshot was used, and does not
    come again.
    """
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="NO torchdata (tox run -e torch)")
    from tarkit.trainers.torch import dataset_state

    options = {"batch_size": None, "num_workers": workers, "snapshot_every_n_steps": 3}
    loader = stateful.StatefulDataLoader(dataset(shards), **options)
    running = iter(loader)
    before = keys(next(running) for _ in range(taken))
    other = dataset(shards)
    other.load_state_dict(dataset_state(loader.state_dict()))
    assert before + keys(iter(other.loader(3))) == epochs[0]


def test_batches_that_come_out_of_order(shards: str) -> None:
    """A state says up to which batch all were used: it would leave out some, and give others
    again."""
    from tarkit.trainers.torch import dataset_state

    with pytest.raises(UsageError, match=r"^in_order=False: a state is a place in the order"):
        dataset(shards).loader(2, in_order=False)
    state = dataset(shards).state(0, 0)
    with pytest.raises(UsageError, match="as with in_order=False"):
        dataset_state({n: with_checksum({**state, "next_batch": n, "workers": 2}) for n in (0, 3)})
    with pytest.raises(UsageError, match=r"^the state was edited or damaged: its checksum \(crc\) is missing or diff"):
        dataset_state({"worker": {**with_checksum({**state, "workers": 2}), "next_batch": 2}})


def test_of_two_iterations_the_first_is_over(shards: str, epochs: list[list[list[str]]]) -> None:
    """Its second worker begins when the epoch is the next one already, and would give batches of
    that.
    """
    loader = dataset(shards).loader(2, worker_init_fn=begin_late)
    first, second = iter(loader), iter(loader)
    assert keys([next(first)]) == epochs[0][:1]
    begun = keys([next(second)])
    with pytest.raises(UsageError, match=r"^epoch 0 is over, as a later iteration of the data set has begun"):
        next(first)
    assert begun + keys(second) == epochs[1]


def begin_late(worker: int) -> None:
    time.sleep(worker * 0.5)


def test_options_of_a_loader_are_those_of_a_dataloader() -> None:
    from torch.utils.data import DataLoader

    from tarkit.trainers.torch import LoaderOptions

    theirs = {*inspect.signature(DataLoader).parameters} - {"dataset", "num_workers"}
    refused = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}
    assert theirs - refused == LoaderOptions.__optional_keys__


def test_what_each_worker_needs_is_imported_before_they_are_forked(shards: str) -> None:
    """PyTorch seeds NumPy in each worker, which would import its random numbers for that."""
    program = (
        "import sys; from tarkit.trainers.torch import ShardDataset; "
        "loader = ShardDataset(sys.argv[1], batch=4).loader(1); before = 'numpy.random' in sys.modules; "
        "next(iter(loader)); print(before, 'numpy.random' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program, shards], capture_output=True, check=True, timeout=300)
    assert found.stdout == b"False True\n"
