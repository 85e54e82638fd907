"""PyTorch's DataLoader on what a shard service hands out: processes are killed, and so is the
service.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shardservice import Service
from trainshards import NEEDS_TORCH, every_key, program_of, write_pictures, write_shards
from waiting import wait_for

from tarkit.errors import UsageError
from tarkit.readers.reader import Shard
from tarkit.service.client import ShardClient
from tarkit.service.dataset import DataSet

pytestmark = NEEDS_TORCH
pytest.importorskip("grpc", reason="the shard service needs grpcio")

COUNTS = (150, 0, 90, 160)
EVERY = every_key(COUNTS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


@pytest.fixture
def service(shards: str, tmp_path: Path) -> Iterator[Service]:
    files = [Shard(shards.replace("{0..3}", str(shard)), 0, count) for shard, count in enumerate(COUNTS)]
    dataset = DataSet.of_files("data", files, 20, shuffle_records=True)
    with Service(tmp_path) as running:
        declare(running, dataset)
        yield running


def declare(service: Service, dataset: DataSet) -> None:
    """In a process of its own: one that is forked after a client connected cannot have another."""
    program = "import sys; from tarkit.service.client import ShardClient; from tarkit.service.dataset import DataSet; "
    program += "ShardClient(sys.argv[1], DataSet.from_json(sys.argv[2])).connect()"
    subprocess.run([sys.executable, "-c", program, service.address, dataset.to_json()], check=True)


def dataset(shards: str, service: Service, **options: Any) -> Any:
    from tarkit.trainers.torch import ShardDataset

    return ShardDataset(shards, **{"batch": 8, "service": service.address, **options})


def test_the_program_of_the_page(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of("training.md", "served")
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 96)
    files = [Shard(f"train-{shard}.tar", 0, 96) for shard in range(3)]
    declare(service, DataSet.of_files("pictures", files, 32, epochs=3))
    named = f'service=ShardClient("{service.address}", "pictures"))'
    program = program.replace('service="127.0.0.1:50001")', named).replace("steps % 100", "steps % 10")
    scope: dict[str, Any] = {"ShardClient": ShardClient}
    exec(program, scope)
    assert scope["steps"] >= 27 and (tmp_path / "model.pt").exists()


def test_a_collate_fn_of_the_loader_gets_the_batch(shards: str, service: Service) -> None:
    found = list(dataset(shards, service).loader(1, collate_fn=len))
    assert sum(found) == len(EVERY) and max(found) == 8


def test_a_loop_that_is_left_gives_back_what_was_prefetched(shards: str, service: Service) -> None:
    loader = dataset(shards, service).loader(2)
    used = []
    for batch in loader:
        used += [sample["__key__"] for sample in batch]
        if len(used) >= 80:  # a batch may be short
            loader.used()
            loader.flush()
            break
    used += [sample["__key__"] for batch in loader for sample in batch]
    assert Counter(used) == Counter(EVERY)


def test_a_loader_of_ones_own_is_refused(shards: str, service: Service) -> None:
    from torch.utils.data import DataLoader

    for workers in (0, 1):
        with pytest.raises(UsageError, match=r"with service= or audit=, read it by loader\(\)"):
            list(DataLoader(dataset(shards, service), batch_size=None, num_workers=workers))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_and_the_service_are_killed(shards: str, service: Service, tmp_path: Path, method: str) -> None:
    """What was acknowledged is not handed out again.

    What was prefetched, or in hand, is, and nothing is lost.
    """
    logs = [tmp_path / "killed", tmp_path / "other"]
    program = Path(__file__).resolve().parents[2] / "support" / "trainserved.py"
    running = [
        subprocess.Popen([sys.executable, program, service.address, shards, log, stop, method, after])
        for log, stop, after in zip(logs, ("8", "0"), ("", logs[0]), strict=True)
    ]
    try:
        wait_for(lambda: logs[1].exists() and logs[1].read_text().count("done") >= 4, 300)
        service.kill()
        service.start()
        assert running[0].wait(300) == -9
        assert running[1].wait(300) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    lines = [log.read_text().splitlines() for log in logs]
    given, done = (
        [[line.split()[1:] for line in each if line.startswith(word)] for each in lines] for word in ("given", "done")
    )
    assert lines[1][-1] == "end" and len(given[0]) == 8 and len(done[0]) == 7
    acknowledged = Counter(key for batches in done for batch in batches for key in batch)
    assert acknowledged == Counter(EVERY), "each was acknowledged once"
    # The killed process was in the middle of its last batch: these alone came twice.
    in_hand = Counter(given[0][-1])
    assert Counter(key for batches in given for batch in batches for key in batch) == acknowledged + in_hand


@pytest.mark.parametrize(
    ("workers", "options"),
    [(2, {}), (2, {"persistent_workers": True, "multiprocessing_context": "spawn"})],
)
def test_each_sample_comes_once(shards: str, service: Service, workers: int, options: dict[str, Any]) -> None:
    import torch

    loader = dataset(shards, service, fields="__key__ cls", decode="rgb").loader(workers, **options)
    found = []
    for names, classes in loader:
        assert isinstance(classes, torch.Tensor) and len(names) == len(classes) <= 8
        found += names
    assert Counter(found) == Counter(EVERY)
    with pytest.raises(UsageError, match="the data set of the shard service has ended"):
        list(loader)
