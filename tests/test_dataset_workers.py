"""Shards read by several ranks and DataLoader workers: never every sample twice."""

from __future__ import annotations

import abc
import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainshards import every_key, needs_torch, write_shards

from tarkit.errors import DataError, UsageError
from tarkit.formats.tally import Tally
from tarkit.samples.dataset import WebDataset
from tarkit.samples.read import read_samples
from tarkit.samples.splitters import single_node_only, split_by_node, split_by_worker
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import expand

KEYS = every_key([4] * 5)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    return write_shards(folder, [4] * 5, lambda shard, number: {"cls": number, "txt": "text"}, index=False)


def key_of(sample: Any) -> str:
    return str(sample["__key__"])


def in_two(urls: Any) -> list[str]:
    return list(urls)[:2]


class Worker:
    """Stands in for torch.utils.data in one of a DataLoader's workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class IterableDataset(abc.ABC):  # noqa: B024
            pass

        self.IterableDataset, self.info = IterableDataset, None
        monkeypatch.setitem(sys.modules, "torch.utils.data", self)  # type: ignore[arg-type]

    def get_worker_info(self) -> Any:
        return self.info

    def be(self, number: int, workers: int, dataset: object = None) -> None:
        self.info: Any = SimpleNamespace(id=number, num_workers=workers, dataset=dataset)

    def read(self, dataset: Any, workers: int) -> list[list[str]]:
        """The keys that each worker reads of its copy, as a DataLoader makes them."""
        found = []
        for number in range(workers):
            mine = copy.deepcopy(dataset)
            self.be(number, workers, mine)
            found.append([key_of(sample) for sample in mine])
        self.info = None
        return found


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def in_another_data_set(dataset: Any) -> None:
    """As in a DataLoader whose data set has this one inside."""
    list(dataset)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_workers_of_a_loader_share_the_shards(shards: str, worker: Worker, workers: int) -> None:
    found = worker.read(WebDataset(shards), workers)
    assert sorted(chain(*found)) == KEYS
    assert found == worker.read(WebDataset(shards, workersplitter=split_by_worker), workers)


def test_a_data_set_inside_of_another_is_not_split_by_guess(shards: str, worker: Worker) -> None:
    worker.be(1, 2)
    with pytest.raises(UsageError, match="worker 1 of 2 of a DataLoader, .*ShardDataset .*workersplitter=None"):
        list(WebDataset(shards))
    assert [key_of(sample) for sample in WebDataset(expand(shards), workersplitter=None)] == KEYS
    assert [key_of(sample) for sample in WebDataset(shards, workersplitter=split_by_worker)] == KEYS[4:8] + KEYS[12:16]
    assert [key_of(sample) for sample in WebDataset(shards, workersplitter=in_two)] == KEYS[:8]
    worker.be(0, 1)
    assert len(list(WebDataset(shards))) == len(KEYS)


def test_read_samples_reads_in_one_process_or_is_given_its_shards(
    shards: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.be(1, 2)
    with pytest.raises(UsageError, match=r"read_samples in worker 1 of 2 of a DataLoader: .*ShardDataset.*split=True"):
        list(read_samples(shards))
    mine = read_samples(split_by_worker(expand(shards)), split=True)
    assert [key_of(sample) for sample in mine] == KEYS[4:8] + KEYS[12:16]
    worker.info = None
    assert len(list(read_samples(shards))) == len(KEYS)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match=r"read_samples in rank 2 of 3: .*ShardDataset.*split=True"):
        list(read_samples(shards))
    assert len(list(read_samples(shards, split=True))) == len(KEYS)
    monkeypatch.delenv("WORLD_SIZE")
    assert len(list(read_samples(shards))) == len(KEYS), "RANK alone may be a variable of any program"


def test_ranks_are_an_error_or_split(shards: str, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        for dataset in (WebDataset(shards), WebDataset(shards, nodesplitter=single_node_only)):
            with pytest.raises(UsageError, match=rf"rank {rank} of 2, .*ShardDataset .*nodesplitter=split_by_node"):
                list(dataset)
        found += worker.read(WebDataset(shards, nodesplitter=split_by_node), 3)
        assert len(list(WebDataset(shards, nodesplitter=None))) == len(KEYS)
    assert sorted(chain(*found)) == KEYS
    assert [] in found  # a rank of two shards has nothing for its third worker


def test_a_rank_without_shards_is_an_error(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would wait for it."""
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("RANK", "5")
    with pytest.raises(DataError, match="no samples"):
        list(WebDataset(shards, nodesplitter=split_by_node))


def test_the_rank_goes_to_a_process_that_cannot_know_it(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    pickled = pickle.dumps(WebDataset(shards, nodesplitter=split_by_node))
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("RANK")
    assert [key_of(sample) for sample in pickle.loads(pickled)] == KEYS[4:8] + KEYS[12:16]


def test_a_data_set_that_was_begun_is_pickled(shards: str) -> None:
    dataset = WebDataset(shards, tally=Tally(), seed=3, shardshuffle=5).map(key_of).shuffle(7)
    begun = iter(dataset)
    next(begun)
    again = pickle.loads(pickle.dumps(dataset))
    assert list(again) == list(dataset)


def test_each_epoch_has_an_order_of_its_own(shards: str) -> None:
    dataset = WebDataset(shards, shardshuffle=5, seed=3).shuffle(6).map(key_of)
    epochs = [list(dataset) for _ in range(3)]
    assert all(sorted(epoch) == KEYS for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    dataset.set_epoch(1)
    assert [list(dataset), list(dataset)] == epochs[1:]


def begin(dataset: Any, answers: Any) -> None:
    answers.put(list(dataset))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_new_processes_go_on_counting_epochs(shards: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    dataset, answers, epochs = WebDataset(shards, shardshuffle=5, seed=3).map(key_of), context.SimpleQueue(), []
    for _ in range(2):
        process = context.Process(target=begin, args=(dataset, answers))
        process.start()
        epochs.append(answers.get())
        process.join()
    assert epochs[0] != epochs[1]
    dataset.set_epoch(0)
    assert [list(dataset), list(dataset)] == epochs


def test_what_a_spawned_process_cannot_have_is_named(shards: str) -> None:
    context = multiprocessing.get_context("spawn")
    dataset = WebDataset(shards).map_dict(cls=lambda value: value)
    process = context.Process(target=begin, args=(dataset, context.SimpleQueue()))
    with pytest.raises(UsageError, match=r"what map_fields was given cannot be pickled .* top of a module"):
        process.start()


def test_a_loader_sees_an_iterable_data_set(worker: Worker) -> None:
    assert isinstance(WebDataset("x.tar"), worker.IterableDataset)


def loaded(dataset: Any, **options: Any) -> Any:
    import torch.utils.data

    return torch.utils.data.DataLoader(dataset, **options)


@pytest.fixture(params=["none", "fork", "spawn", "forkserver"])
def options(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    method = request.param
    yield {"num_workers": 0} if method == "none" else {"num_workers": 2, "multiprocessing_context": method}


@needs_torch
def test_torch_reads_each_sample_once(shards: str, options: dict[str, Any]) -> None:
    import torch.utils.data  # noqa: F401

    dataset = WebDataset(shards, shardshuffle=5, seed=1).map(key_of)
    loader = loaded(dataset, batch_size=3, **options)
    epochs = [list(chain(*loader)) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [KEYS, KEYS]
    assert epochs[0] != epochs[1]


@needs_torch
def test_torch_workers_that_persist_have_new_orders(shards: str) -> None:
    import torch.utils.data  # noqa: F401

    dataset = WebDataset(shards, shardshuffle=5, seed=1).map(key_of)
    loader = loaded(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    epochs = [list(loader) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [KEYS] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    dataset.set_epoch(0)
    assert list(loader) == epochs[0]


@needs_torch
def test_torch_workers_of_another_data_set_are_an_error(shards: str) -> None:
    import torch.utils.data

    class Wrapped(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __init__(self, read: Any) -> None:
            self.read = read

        def __iter__(self) -> Any:
            return iter(self.read())

    for read in (lambda: WebDataset(shards), lambda: read_samples(shards)):
        with pytest.raises(UsageError, match=r"worker 0 of 2 of a DataLoader.*ShardDataset"):
            list(loaded(Wrapped(read), batch_size=None, num_workers=2))
    split = Wrapped(lambda: WebDataset(shards, workersplitter=split_by_worker).map(key_of))
    assert sorted(loaded(split, batch_size=None, num_workers=2)) == KEYS


@needs_torch
def test_torch_makes_batches_of_tensors(tmp_path: Path) -> None:
    import io

    import PIL.Image
    import torch

    image = PIL.Image.frombytes("RGB", (4, 3), bytes(range(36)))
    stream = io.BytesIO()
    image.save(stream, "png")
    with TarWriter(str(tmp_path / "s.tar")) as writer:
        for number in range(4):
            writer.write({"__key__": str(number), "png": stream.getvalue(), "cls": str(number)})
    dataset = WebDataset(tmp_path / "s.tar").decode("torchrgb8").to_tuple("png", "cls").batched(2).with_length(2)
    loader = loaded(dataset, batch_size=None, num_workers=1)
    found = list(loader)
    assert len(loader) == 2
    expected = torch.tensor(list(range(36))).reshape(3, 4, 3).permute(2, 0, 1)
    assert all(torch.equal(images[row], expected) for images, _ in found for row in (0, 1))
    assert [labels.tolist() for _, labels in found] == [[0, 1], [2, 3]]


@needs_torch
def test_torchdata_reads_each_sample_once(shards: str) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(WebDataset(shards).map(key_of), batch_size=None, num_workers=2)
    assert [sorted(loader), sorted(loader)] == [KEYS, KEYS]


LATE = """
import sys
from tarkit import WebDataset
dataset = WebDataset(sys.argv[1])
import torch.utils.data
list(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2))
"""


@needs_torch
def test_torch_that_is_imported_later_is_an_error_that_says_so(shards: str) -> None:
    done = subprocess.run([sys.executable, "-c", LATE, shards], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "import torch before the WebDataset is made, or use tarkit.trainers.torch.ShardDataset" in done.stderr


@needs_torch
@pytest.mark.parametrize("taken", [0, 3, 5])
def test_torchdata_goes_on_in_the_middle_of_an_epoch(shards: str, taken: int) -> None:
    """Also where one worker had come to its end. With a fresh seed, which is in the state."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made() -> Any:
        return StatefulDataLoader(
            WebDataset(shards, shardshuffle=5).shuffle(3).map(key_of).listed(4), batch_size=None, num_workers=2
        )

    loader = made()
    first = list(loader)
    running = iter(loader)
    before = [next(running) for _ in range(taken)]
    state = loader.state_dict()
    rest = list(running)
    again = made()
    again.load_state_dict(state)
    assert list(again) == rest
    assert sorted(chain(*before, *rest)) == sorted(chain(*first)) == KEYS and before + rest != first
    assert sorted(chain(*again)) == KEYS


@needs_torch
def test_torch_has_no_state_of_its_workers(shards: str) -> None:
    import torch.utils.data  # noqa: F401

    dataset = WebDataset(shards)
    list(loaded(dataset, batch_size=None, num_workers=2))
    with pytest.raises(UsageError, match=r"only they know where they are: use torchdata's StatefulDataLoader"):
        dataset.state_dict()


@needs_torch
def test_torch_a_web_loader_mixes_what_its_workers_read(shards: str) -> None:
    from tarkit import WebLoader

    dataset = WebDataset(shards, shardshuffle=5, seed=2).map(lambda sample: (key_of(sample),))
    loader = WebLoader(dataset.batched(2), batch_size=None, num_workers=2)
    mixed = loader.unbatched().shuffle(9).map(lambda row: row[0])
    epochs = [list(mixed) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [KEYS, KEYS] and epochs[0] != epochs[1]
    mixed.set_epoch(0)
    assert list(mixed) == epochs[0]
    assert [len(list(loader.with_epoch(7))) for _ in range(2)] == [7, 7]
    assert len(list(WebLoader(dataset, batch_size=3).repeat(2))) == 14
    for call in (mixed.state_dict, lambda: mixed.load_state_dict({})):
        with pytest.raises(UsageError, match="a WebLoader has no state"):
            call()
