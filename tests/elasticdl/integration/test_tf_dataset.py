"""``RecordIndexService.get_tf_dataset`` in TensorFlow: tox run -e tensorflow."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shardthread import InThread

if any(importlib.util.find_spec(name) is None for name in ("tensorflow", "grpc")):
    pytest.skip("NO TENSORFLOW OR grpcio, RECORDS ARE NOT FED TO IT (tox run -e tensorflow)", allow_module_level=True)

import tensorflow as tf

from tarkit.elasticdl import RecordIndexService
from tarkit.service import pendingcalls

pytestmark = pytest.mark.tensorflow

Build = Callable[..., RecordIndexService]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """A ``RecordIndexService`` of 22 records, in shards of 8.

    The last batch of 4 waits shortly for the end.
    """
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.2)

    def made(**options: Any) -> RecordIndexService:
        return RecordIndexService(4, 2, 22, num_minibatches_per_shard=2, dataset_name="flowers", **options)

    with InThread(tmp_path / "state") as service:
        monkeypatch.setenv("DLROVER_MASTER_ADDR", service.address)
        yield made


def trained(service: RecordIndexService, batches: tf.data.Dataset) -> list[Any]:
    """All elements of the batches, each of which is reported."""
    read: list[Any] = []
    for batch in batches:
        read += batch.numpy().tolist()
        service.report_batch_done(len(batch))
    return read


@pytest.mark.parametrize("shuffle", [False, True])
def test_each_number_once_an_epoch(build: Build, shuffle: bool) -> None:
    with build(shuffle=shuffle) as service:
        numbers = service.get_tf_dataset()
        assert numbers.element_spec == tf.TensorSpec([], tf.int64)
        read = trained(service, numbers.batch(4).prefetch(2))
        service.flush()
        assert sorted(read) == sorted([*range(22)] * 2) and (read == [*range(22)] * 2) is not shuffle
        assert service.counts["accepted"] == 6 and service.ended
        assert list(service.get_tf_dataset()) == []


def test_names_of_files_by_number(build: Build) -> None:
    files = [f"{number:02}.png" for number in range(22)]
    with build(shuffle=True) as service:
        names = service.get_tf_dataset(files)
        assert names.element_spec == tf.TensorSpec([], tf.string)
        read = trained(service, names.map(lambda name: tf.strings.join(["flowers/", name])).batch(4))
    assert sorted(read) == sorted([f"flowers/{name}".encode() for name in files] * 2)


def test_a_list_of_files_that_is_too_short_is_an_error(build: Build) -> None:
    with build() as service, pytest.raises(tf.errors.InvalidArgumentError, match="3 names; there is none of record 3"):
        trained(service, service.get_tf_dataset(["a", "b", "c"]).batch(4))


def test_a_lost_service_is_an_error_and_never_the_end(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as running:
        service = RecordIndexService(
            4, 1, 40, num_minibatches_per_shard=1, dataset_name="x", address=running.address, patience=0.3
        )
        service.fetch_record_index()
        service._source.flush()
    with pytest.raises(tf.errors.OpError, match=r"ServiceLostError.*has not answered"):
        list(service.get_tf_dataset())
    service.close()
