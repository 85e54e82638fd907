"""The TensorFlow data set: the same batches as everywhere, for any number of processes, and after
any break.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from trainshards import copy_shard, program_of, write_pictures, write_shards

import tarkit
from tarkit.errors import CorruptHeaderError, DataError, UsageError
from tarkit.runs.counts import TooManyErrorsError

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="NO tensorflow (tox run -e tensorflow)"),
    pytest.mark.filterwarnings("ignore"),  # Keras' and TensorFlow's own
]
COUNTS = (30, 0, 25, 17)
ORDER: dict[str, Any] = {"batch": 12, "seed": 7, "run": 5, "block": 20}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    import numpy as np

    def fields(shard: int, number: int) -> dict[str, Any]:
        return {"npy": np.full(3, number / 50, dtype="float32"), "cls": number % 10, "bin": b"\x00\xff"}

    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, fields)


def made(shards: str, **options: Any) -> Any:
    from tarkit.trainers.tensorflow import TensorBatches

    return TensorBatches(shards, **{"fields": "npy cls __key__", **ORDER, **options})


@pytest.fixture(scope="module")
def epochs(shards: str) -> list[list[list[str]]]:
    """The keys of the batches of three epochs."""
    batches = tarkit.batches(shards, fields="__key__", **ORDER)
    return [[names for (names,) in batches] for _ in range(3)]


def keys(batches: Any) -> list[list[str]]:
    return [[name.decode() for name in batch[2].numpy()] for batch in batches]


class Model:
    """A Keras model that keeps the keys of the batches that it was trained on."""

    def __init__(self, **options: Any) -> None:
        import tensorflow as tf

        seen = self.seen = []  # type: ignore[var-annotated]

        class Seeing(tf.keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.dense = tf.keras.layers.Dense(1)

            def train_step(self, data: Any) -> dict[str, Any]:
                values, classes, names = data
                tf.py_function(lambda found: seen.append([name.decode() for name in found.numpy()]), [names], [])
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self.dense(values)[:, 0] - tf.cast(classes, tf.float32)) ** 2)
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                return {"loss": loss}

            def call(self, data: Any) -> Any:
                return self.dense(data[0] if isinstance(data, tuple) else data)

        self.keras = Seeing()
        self.keras.compile("sgd", **options)

    def fit(self, batches: Any, *, epochs: int, stop: int | None = None, **options: Any) -> list[list[str]]:
        """What it was trained on; stop: end after so many batches."""
        import tensorflow as tf

        class Stop(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: object = None) -> None:
                if batch + 1 == stop:
                    self.model.stop_training = True
                    raise KeyboardInterrupt

        self.seen.clear()
        callbacks = [batches.callback(), Stop()]
        try:
            self.keras.fit(batches.dataset(), epochs=epochs, callbacks=callbacks, verbose=0, **options)
        except KeyboardInterrupt:
            assert stop is not None
        return list(self.seen)


def test_a_signature_follows_from_the_samples(shards: str) -> None:
    import tensorflow as tf

    batches = made(shards, fields="npy cls bin __key__")
    kinds = [(spec.shape.as_list(), spec.dtype) for spec in batches.signature]
    assert kinds == [([None, 3], tf.float32), ([None], tf.int64), ([None], tf.string), ([None], tf.string)]
    values, classes, raw, _ = next(iter(batches))
    assert values.shape == (12, 3) and classes.dtype == tf.int64 and set(raw.numpy()) == {b"\x00\xff"}
    named = made(shards, collate=lambda rows: {"x": [row[1] for row in rows]})
    assert named.signature == {"x": tf.TensorSpec([None], tf.int32)}
    assert next(iter(named))["x"].shape == (12,)
    with pytest.raises(UsageError, match=r"value 0 of the fields does not make one tensor: pass transform="):
        made(shards, transform=lambda row: (row[1] * [1],))


def test_arrays_of_several_sizes_are_named(shards: str) -> None:
    import tensorflow as tf

    message = r"collate raised ValueError\('arrays of .*; value 0 has shape \(\d,\) in .*s-\d\.tar, key '\d-\d+', and"
    with pytest.raises(UsageError, match=message):
        made(shards, transform=lambda row: (row[0][: row[1] + 1],))
    sizes = iter([3] * 24 + [2] * 48)  # the first 12 are those of the signature
    batches = made(shards, transform=lambda row: (row[0][: next(sizes)],))
    message = r"batch 1 of epoch 0: value 0 has shape \(12, 2\), and by the signature \(None, 3\): pass transform= that"
    with pytest.raises(UsageError, match=f"^{message}"):
        list(batches)
    sizes = iter([2] * 12)
    with pytest.raises(tf.errors.OpError, match=message):
        list(batches.dataset())


def test_the_batches_are_those_of_every_trainer(shards: str, epochs: list[list[list[str]]]) -> None:
    batches = made(shards)
    assert [keys(batches) for _ in range(3)] == epochs
    data = made(shards).dataset()
    assert len(data) == len(epochs[0]) and [keys(data) for _ in range(2)] == epochs[:2]
    assert keys(made(shards).dataset().repeat(2)) == epochs[0] + epochs[1]


@pytest.mark.parametrize(("equalize", "samples"), [("drop", 60), ("pad", 80), ("repeat", 80)])
def test_each_rank_has_as_many_batches_as_its_length(shards: str, equalize: str, samples: int) -> None:
    found: list[list[list[str]]] = []
    for rank in range(2):
        data = made(shards, rank=rank, world=2, batch=20, equalize=equalize).dataset()
        found.append(keys(data))
        assert len(found[-1]) == len(data) == samples // 20
    every = list(chain(*chain(*found)))
    assert len(every) == samples and len(set(every)) == min(samples, sum(COUNTS))


@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_it_goes_on_with_other_ranks(shards: str, epochs: list[list[list[str]]], taken: int) -> None:
    ranks = [made(shards, rank=rank, world=2) for rank in range(2)]
    before = [keys(islice(rank, taken)) for rank in ranks]
    states = [json.loads(json.dumps(rank.state_dict())) for rank in ranks]
    assert states[0] == states[1] and len(json.dumps(states[0])) < 1000
    after = [made(shards, rank=rank, world=3) for rank in range(3)]
    for rank in after:
        rank.load_state_dict(states[0])
    rest = [keys(rank.dataset()) for rank in after]
    joined = [sum(parts, []) for parts in chain(zip(*before, strict=True), zip(*rest, strict=True))]
    assert joined == (epochs[0] if taken < 6 else epochs[0] + epochs[1])


def test_keras_counts_what_was_used_and_not_what_was_read_ahead(shards: str, epochs: list[list[list[str]]]) -> None:
    model, batches = Model(), made(shards, prefetch=4)
    seen = model.fit(batches, epochs=2)
    assert seen == epochs[0] + epochs[1], "although fit looks at a batch before it begins"
    state = batches.state_dict()
    assert (state["epoch"], state["next_batch"]) == (2, 0)
    assert model.fit(batches, epochs=1, stop=2) == epochs[2][:2]
    state = json.loads(json.dumps(batches.state_dict()))
    assert (state["epoch"], state["next_batch"]) == (2, 2)
    assert model.fit(batches, epochs=1, stop=2) == epochs[2][2:4], "a fit that was interrupted goes on"
    again = made(shards)
    again.load_state_dict(state)
    assert Model().fit(again, epochs=1) == epochs[2][2:]
    assert again.state_dict()["epoch"] == 3


def test_keras_counts_samples_that_are_dropped(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    batches = made(shards, transform=lambda row: None if row[1] == 3 else row)
    Model().fit(batches, epochs=1)
    assert batches.counts == {"filtered": 8}
    assert "samples of epoch 0, up to batch 6: 8 filtered" in caplog.text


def test_keras_lists_samples_that_failed(shards: str) -> None:
    def fails(row: Any) -> Any:
        if row[1] == 3:
            raise ValueError("three")
        return row

    batches = made(shards, transform=fails, on_error="count")
    Model().fit(batches, epochs=1)
    assert batches.counts == {"failed": 8}
    assert [int(str(each.key).partition("-")[2]) % 10 for each in batches.skipped] == [3] * 8
    assert {each.reason for each in batches.skipped} == {"transform raised ValueError('three')"}
    message = (
        r"^epoch 0, batch \d: \d samples failed in the batches of this rank, and max_errors is 2; the first: .*three"
    )
    with pytest.raises(TooManyErrorsError, match=message):
        Model().fit(made(shards, transform=fails, on_error="count", max_errors=2), epochs=1)
    with pytest.raises(TooManyErrorsError, match=message):
        list(made(shards, transform=fails, on_error="count", max_errors=2))


def test_a_subset_as_tensors(shards: str) -> None:
    wanted = tarkit.ShardMap(shards, where="match(key, '[02468]$')")
    expected = sorted(wanted[number]["__key__"] for number in range(len(wanted)))
    for found in (made(wanted, equalize="pad"), made(shards, keys=expected, equalize="pad")):
        assert sorted({key for batch in keys(found) for key in batch}) == expected and len(expected) > 30


def test_a_transform_that_drops_all_samples_is_an_error(shards: str) -> None:
    with pytest.raises(DataError, match="batch 0: transform dropped all its samples"):
        made(shards, transform=lambda row: None)


def test_keras_may_execute_several_steps_or_other_epochs_at_once(shards: str, epochs: list[list[list[str]]]) -> None:
    batches = made(shards)
    assert Model(steps_per_execution=3).fit(batches, epochs=1) == epochs[0]
    assert (batches.state_dict()["epoch"], batches.state_dict()["next_batch"]) == (1, 0)
    batches = made(shards)
    data, model = batches.dataset().repeat(), Model()
    model.keras.fit(data, epochs=2, steps_per_epoch=4, callbacks=[batches.callback()], verbose=0)
    assert model.seen == (epochs[0] + epochs[1])[:8]
    assert (batches.state_dict()["epoch"], batches.state_dict()["next_batch"]) == (1, 2)


def test_the_rest_of_an_epoch_is_fitted_by_itself(shards: str, epochs: list[list[list[str]]]) -> None:
    """Keras would read no more of each later epoch than there is of the rest."""
    batches = made(shards)
    Model().fit(batches, epochs=1, stop=2)
    state = batches.state_dict()
    with pytest.raises(
        UsageError, match=r"this data set is the rest of an epoch, and fit.. would read no more of each"
    ):
        Model().fit(batches, epochs=2)
    assert (batches.state_dict()["epoch"], batches.state_dict()["next_batch"]) == (1, 0), "the rest was used"
    again, model = made(shards), Model()
    again.load_state_dict(state)
    assert model.fit(again, epochs=1) + model.fit(again, epochs=2) == epochs[0][2:] + epochs[1] + epochs[2]
    again.load_state_dict(state)
    model.seen.clear()
    data = again.dataset().repeat()
    model.keras.fit(data, epochs=2, steps_per_epoch=5, callbacks=[again.callback()], verbose=0)
    assert model.seen == (epochs[0][2:] + epochs[1])[:10]


STEPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "take": ("take", lambda data: data.take(2)),
    "skip": ("skip", lambda data: data.skip(2)),
    "cache": ("cache", lambda data: data.cache()),
    "half batches": ("unbatch", lambda data: data.unbatch().batch(6)),
    "double batches": ("unbatch", lambda data: data.unbatch().batch(24)),
    "pairs": ("window", lambda data: data.window(1).flat_map(lambda *parts: type(data).zip(parts))),
    "filter": ("filter", lambda data: data.filter(lambda *batch: True)),
    "shard": ("shard", lambda data: data.shard(2, 0)),
    "shuffle": ("shuffle", lambda data: data.shuffle(4)),
    "behind others": ("skip", lambda data: data.map(lambda *batch: batch).prefetch(1).repeat().skip(1)),
    "repeated": ("unbatch", lambda data: data.unbatch().batch(6).repeat()),
    "applied": ("take", lambda data: data.apply(lambda found: found.take(3))),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_change_which_batches_are_used_leave_no_state(shards: str, name: str) -> None:
    import tensorflow as tf

    step, change = STEPS[name]
    batches, errors = made(shards), list[str]()

    class Save(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            with pytest.raises(UsageError) as found:
                batches.state_dict()
            errors.append(str(found.value))

    options = {"steps_per_epoch": 2} if name in ("behind others", "repeated") else {}
    callbacks = [batches.callback(), Save()]
    Model().keras.fit(change(batches.dataset()), epochs=1, callbacks=callbacks, verbose=0, **options)
    message = f"the batches that were used are not those of dataset(): {step}() behind it changes which they are; "
    assert errors and {error[: len(message)] for error in errors} == {message}, "from the first batch on"
    Model().fit(batches, epochs=1)
    with pytest.raises(UsageError, match=rf"dataset\(\): {step}\(\) behind it"):
        batches.state_dict()
    batches.load_state_dict(made(shards).state_dict())
    assert Model().fit(batches, epochs=1) and batches.state_dict()["epoch"] == 1


def test_a_shorter_data_set_beside_it_leaves_no_state(shards: str) -> None:
    """Which tarkit cannot see; but a part of the epoch was not read."""
    import tensorflow as tf

    batches = made(shards)
    beside = tf.data.Dataset.zip((batches.dataset(), tf.data.Dataset.range(2))).map(lambda batch, number: batch)
    Model().keras.fit(beside, epochs=2, callbacks=[batches.callback()], verbose=0)
    with pytest.raises(UsageError, match=r"those of dataset\(\): a step behind it changes which they are"):
        batches.state_dict()


def test_steps_that_keep_the_batches_keep_the_state(shards: str, epochs: list[list[list[str]]]) -> None:
    batches, model = made(shards), Model()
    data = batches.dataset()
    assert keys(data.take(1)) == epochs[0][:1]
    kept = data.map(lambda *batch: batch).prefetch(2).with_options(data.options()).enumerate()
    model.keras.fit(kept.map(lambda number, batch: batch), epochs=1, callbacks=[batches.callback()], verbose=0)
    assert model.seen == epochs[0], "what was looked at before comes again"
    assert (batches.state_dict()["epoch"], batches.state_dict()["next_batch"]) == (1, 0)


def test_what_nothing_counts_has_no_state(shards: str) -> None:
    batches = made(shards)
    data = batches.dataset()
    next(iter(data))
    with pytest.raises(UsageError, match=r"nothing counted .* dataset\(\) were used: give callback\(\) to fit"):
        batches.state_dict()
    whole = made(shards)
    next(iter(whole))
    state = whole.state_dict()
    batches.load_state_dict(state)
    import tensorflow as tf

    with pytest.raises(tf.errors.OpError, match=r"a part of one is left to read: call dataset\(\) anew"):
        list(data)
    assert len(list(batches.dataset())) == 5


def test_a_part_is_not_divided_again(shards: str, epochs: list[list[list[str]]]) -> None:
    import tensorflow as tf

    part = made(shards, rank=1, world=2).dataset()
    for data in (part, part.map(lambda *batch: batch)):
        with pytest.raises(UsageError, match=r"the part of rank 1 of 2: shard\(\) would leave batches out"):
            data.shard(2, 0)
    assert part.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    # Of one that has all, tf.data's shards are disjoint and complete.
    shared = [keys(made(shards).dataset().shard(2, number)) for number in range(2)]
    assert shared == [epochs[0][0::2], epochs[0][1::2]]


@pytest.mark.parametrize("name", ["audit", "service"])
def test_an_audit_and_a_service_are_for_other_loaders(shards: str, name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name}= is for ShardDataset and tarkit\.batches: fit\(\) does not"):
        made(shards, **{name: "localhost:1"})


def test_several_processes_have_to_be_named(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(UsageError, match=r"TF_CONFIG has 2 workers: name rank= and world= .*input_pipeline_id"):
        made(shards)
    assert len(made(shards, rank=1, world=2)) == 6
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"], "ps": ["c:1"]}}))
    made(shards)
    monkeypatch.setenv("TF_CONFIG", "[1]")
    with pytest.raises(UsageError, match="TF_CONFIG is not the JSON of a cluster"):
        made(shards)
    monkeypatch.delenv("TF_CONFIG")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="this is rank 1 of 2: name rank="):
        made(shards)


TWO_REPLICAS = """
import json, sys
import tensorflow as tf
from tarkit.trainers.tensorflow import TensorBatches
(device,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
def part(context):
    place = {"rank": context.input_pipeline_id, "world": context.num_input_pipelines}
    return TensorBatches(sys.argv[1], fields="__key__", **place, **json.loads(sys.argv[2])).dataset()
steps = [strategy.experimental_local_results(names) for (names,) in strategy.distribute_datasets_from_function(part)]
print(json.dumps([[name.decode() for name in names.numpy()] for step in steps for names in step]))
"""


def test_a_strategy_reads_each_sample_once(shards: str, epochs: list[list[list[str]]]) -> None:
    """Each of two replicas has every second batch."""
    command = [sys.executable, "-c", TWO_REPLICAS, shards, json.dumps(ORDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == epochs[0]


def test_an_error_of_the_data_is_itself(shards: str, tmp_path: Path) -> None:
    import tensorflow as tf

    damaged = copy_shard(shards.replace("{0..3}", "0"), tmp_path, 20 * 3072)
    with pytest.raises(CorruptHeaderError, match=r"s-0\.tar, offset 61440: "):
        list(made(damaged))
    with pytest.raises(tf.errors.OpError, match=r"CorruptHeaderError: .*s-0\.tar, offset 61440: "):
        list(made(damaged).dataset())


@pytest.mark.parametrize("name", ["keras", "resume", "loop"])
def test_the_programs_of_the_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 64)
    scope: dict[str, Any] = {}
    exec(program_of("training-tensorflow.md", name), scope)
    if name == "resume":
        assert json.loads(Path("last.json").read_text())["state"]["next_batch"] == 3
        scope = {}
        exec(program_of("training-tensorflow.md", name), scope)
        scope["state"] = scope["batches"].state_dict()
    assert (scope["state"]["epoch"], scope["state"]["next_batch"]) == (2, 0)
    if name == "keras":
        loss = scope["model"].history.history["loss"]
        assert loss[1] < loss[0]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("grpc", reason="the shard service needs grpcio")
    from shardthread import InThread

    from tarkit.service.leases import LeaseRules

    with InThread(tmp_path / "state", LeaseRules(first=2, floor=2)) as running:
        yield running


def test_keras_reports_batches_of_records_that_were_fetched(service: Any) -> None:
    import numpy as np
    import tensorflow as tf

    from tarkit.elasticdl import build_data_shard_service
    from tarkit.trainers.tensorflow import ReportBatchDone

    given = {"dataset_size": 40, "num_epochs": 1, "num_minibatches_per_shard": 2, "dataset_name": "records"}
    with build_data_shard_service(batch_size=4, address=service.address, **given) as records:

        def rows() -> Iterator[Any]:
            while shard := records.fetch_shard():
                for number in range(shard.start, shard.end):
                    yield np.float32([number]), np.float32(number)

        kinds = tf.TensorSpec([1], tf.float32), tf.TensorSpec([], tf.float32)
        data = tf.data.Dataset.from_generator(rows, output_signature=kinds).batch(4)
        model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(data.prefetch(1), callbacks=[ReportBatchDone(records)], verbose=0)
    from tarkit.service.client import ShardClient

    with ShardClient(service.address, "records") as client:
        assert client.progress().records == 40


AN_ITERATOR_THAT_RAISES_WHILE_ITS_NEXT_VALUE_IS_READ = """
import time
import tensorflow as tf
import tarkit.trainers.tensorflow

class Values:
    given = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.given += 1
        if self.given == 2:
            raise ValueError("damage")
        if self.given > 2:
            time.sleep(3)  # TensorFlow's thread is in Python when the error ends the program
            raise StopIteration
        return self.given

for value in tf.data.Dataset.from_generator(Values, output_signature=tf.TensorSpec([], tf.int64)).prefetch(2):
    pass
"""


def test_an_error_ends_the_program_while_tensorflow_reads_ahead() -> None:
    run = [sys.executable, "-c", AN_ITERATOR_THAT_RAISES_WHILE_ITS_NEXT_VALUE_IS_READ]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1 and "ValueError: damage" in done.stderr
