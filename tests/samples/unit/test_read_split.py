"""read_samples in one of several processes: never every sample in each."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from trainshards import every_key, write_shards

from tarkit.errors import UsageError
from tarkit.samples.read import read_samples
from tarkit.specs.shardspec import expand


def test_read_samples_reads_in_one_process_or_is_given_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, keys = write_shards(tmp_path, [4] * 5, index=False), every_key([4] * 5)
    # Stands in for torch in a DataLoader's second worker of two.
    info = SimpleNamespace(id=1, num_workers=2, dataset=None)
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(get_worker_info=lambda: info))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"read_samples in worker 1 of 2 of a DataLoader: .*ShardDataset.*split=True"):
        list(read_samples(shards))
    mine = read_samples(islice(expand(shards), 1, None, 2), split=True)
    assert [sample["__key__"] for sample in mine] == keys[4:8] + keys[12:16]
    info.num_workers = 1
    assert len(list(read_samples(shards))) == len(keys)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match=r"read_samples in rank 2 of 3: .*ShardDataset.*split=True"):
        list(read_samples(shards))
    assert len(list(read_samples(shards, split=True))) == len(keys)
    monkeypatch.delenv("WORLD_SIZE")
    assert len(list(read_samples(shards))) == len(keys), "RANK alone may be a variable of any program"
