"""Shards for TensorFlow: a tf.data.Dataset of batches, its state, and Keras callbacks.

``docs/order.md`` says which batches those are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tarkit.errors import UsageError
from tarkit.extras import library
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.trainers.arrays import columns
from tarkit.trainers.batchmaker import parts_of
from tarkit.trainers.lasterror import release_at_exit
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.options import EpochOptions, SourceOptions
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream
from tarkit.world import consumer

tf = library("tensorflow", "tarkit.trainers.tensorflow", "tensorflow")
release_at_exit()

_NAME_THEM = (
    "name rank= and world= for its part, such as context.input_pipeline_id and context.num_input_pipelines of "
    "distribute_datasets_from_function; rank=0, world=1 reads all of it"
)
_KEEPING = "apply", "enumerate", "map", "prefetch", "repeat", "scan", "with_options"
"""Steps that keep each batch, in its place. Other steps of a tf.data.Dataset may change that."""


def _alike(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Convert rows to columns that are tensors.

    Raises:
        ValueError: arrays of a field have several shapes.
    """
    made = columns(rows)
    if any(isinstance(column, list) and any(hasattr(value, "shape") for value in column) for column in made):
        raise ValueError("arrays of several shapes do not make one tensor")
    return made


class TensorBatches(EpochLoader):
    """Batches of tensors: each sample once an epoch, over all processes.

    Iterate over it, or give ``dataset()`` and ``callback()`` to ``fit``: then ``state_dict`` says
    which batches were used, not which were read ahead.

    ::

        batches = TensorBatches("train-{0000..0147}.tar", batch=64, fields="jpg cls", seed=1)
        model.fit(batches.dataset(), epochs=3, callbacks=[batches.callback()])

    Args:
        urls: a path, URL, shard spec or manifest (``dataset.json``), or several; or a
            :class:`~tarkit.trainers.shardmap.ShardMap`. Each shard has an index beside it (``tarkit
            index``). Or streams, which are mixed: a list of
            :class:`~tarkit.trainers.streams.Stream`.
        batch: samples of a global batch; each rank has its part of it.
        fields: names of the fields, one for each tensor; ``jpg;png`` takes the first one that a
            sample has.
        decode: form of decoded images: ``rgb`` (float32, 0 to 1) or ``rgb8`` (uint8) for tensors of
            shape (height, width, 3); ``l`` and ``l8`` for grey ones of shape (height, width). None:
            all fields stay bytes.
        collate: function from a list of tuples of fields to a batch.
        signature: the TensorSpecs of a batch. None: those of the first batch, with any number of
            samples.
        prefetch: batches that are read ahead.
        options: the subset, order, rank and world, errors and cache; see
            :class:`~tarkit.trainers.options.EpochOptions`.

    Raises:
        TypeError: an option does not exist.
        UsageError: an option has a wrong value, a shard has no index, or the values of a field do
            not make one tensor; or RANK and WORLD_SIZE or TF_CONFIG are of several processes, and
            ``rank`` and ``world`` are not given.
        MissingExtraError: TensorFlow is not installed.
    """

    @keywords_of(SourceOptions)  # service and audit get an error of their own
    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str] | ShardMap | Stream | Sequence[Stream],
        *,
        batch: int,
        fields: str,
        decode: str | None = "rgb",
        collate: Callable[[list[Any]], Any] | None = _alike,
        signature: Any = None,
        prefetch: int = 2,
        **options: Unpack[EpochOptions],
    ) -> None:
        for name in ("audit", "service"):
            if options.get(name) is not None:
                why = "fit() does not say when it uses a batch"
                raise UsageError(f"{name}= is for ShardDataset and tarkit.batches: {why}")
        if options.get("world") is None:
            _check_named()
        source = BatchSource(urls, batch=batch, fields=fields, decode=decode, collate=collate, **options)
        super().__init__(source)
        self.signature = _signature_of(source) if signature is None else signature
        self._prefetch = prefetch
        self._uncounted = False
        self._step = self._miscounted = ""
        """First step in the pipeline after the data set that changes batches, of the one that is
        read and of one that was used.
        """
        self._unread = [0]
        """Batches that the last iteration of ``dataset()`` has not read yet."""

    def __iter__(self) -> Iterator[Any]:
        self._uncounted = False
        return super().__iter__()

    def _epoch(self, epoch: int, first: int) -> Iterable[Any]:
        raised: list[Exception] = []

        def batches() -> Iterator[Any]:
            try:
                yield from self._read(epoch, first)
            except Exception as error:
                raised.append(error)
                raise

        try:
            yield from self._tensors(batches)
        except tf.errors.OpError as error:
            # TensorFlow has the text of an error of a generator, and not the error.
            raise (raised[0] if raised else error) from None

    def _read(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield the batches of an epoch.

        Raises:
            UsageError: a batch does not match the signature.
        """
        shapes = {name: spec.shape for name, spec in parts_of(self.signature) if hasattr(spec, "shape")}
        for number, batch in enumerate(self.source.epoch_batches(epoch, first), first):
            for name, value in parts_of(batch):
                if name in shapes and hasattr(value, "shape") and not shapes[name].is_compatible_with(value.shape):
                    shown = f"{tuple(value.shape)}, and by the signature {tuple(shapes[name])}"
                    raise UsageError(
                        f"batch {number} of epoch {epoch}: value {name!r} has shape {shown}: pass transform= that "
                        "makes pictures of one size, or signature="
                    )
            yield batch

    def _tensors(self, batches: Callable[[], Iterator[Any]]) -> Any:
        found = tf.data.Dataset.from_generator(batches, output_signature=self.signature)
        return found.prefetch(self._prefetch)

    def dataset(self) -> Any:
        """Return a tf.data.Dataset: each iteration is the next epoch.

        The first one begins where ``state_dict()`` is.

        ``map``, ``prefetch``, ``repeat`` and such may follow, since they keep the batches; after
        any other step ``state_dict`` raises an error. With several ranks, ``shard`` raises an
        error, and so does distribution by tf.distribute: each rank has its part already.
        """
        if not self._uncounted:
            self._next = self._at  # what an interrupted fit() did not use
        whole = self._next[1] == 0
        found = self._tensors(lambda: self._next_epoch(whole))
        if whole:
            found = found.apply(tf.data.experimental.assert_cardinality(len(self)))
        if self.source.consumer.world > 1:
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
            found = found.with_options(options)
        return self._watched(found)

    def _watched(self, found: Any) -> Any:
        """Return the data set, with steps that record which of them follow it in the pipeline."""
        if isinstance(found, tf.data.Dataset):
            for name in dir(tf.data.Dataset):
                if not name.startswith("_") and name not in ("cardinality", "element_spec", "options"):
                    setattr(found, name, partial(self._behind, found, name, getattr(found, name)))
        return found

    def _behind(self, found: Any, name: str, step: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name in _KEEPING:
            return self._watched(step(*given, **named))
        rank, world = self.source.consumer
        if name == "shard" and world > 1:
            raise UsageError(f"this data set is the part of rank {rank} of {world}: shard() would leave batches out")

        def noted() -> Iterator[Any]:
            self._step = f"{name}()"
            yield from ()

        nothing = tf.data.Dataset.from_generator(noted, output_signature=found.element_spec)
        nothing = nothing.apply(tf.data.experimental.assert_cardinality(0))
        return getattr(nothing.concatenate(found), name)(*given, **named)

    def _next_epoch(self, whole: bool) -> Iterator[Any]:
        epoch, first = self._next
        if whole and first:
            raise UsageError("this data set has whole epochs, and a part of one is left to read: call dataset() anew")
        if self._unread[0]:
            self._miscounted = self._miscounted or "a step"
        self._next, self._uncounted = (epoch + 1, 0), True
        unread = self._unread = [len(self) - first]
        for batch in self._read(epoch, first):
            unread[0] -= 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training: under 1 kB, the same for each rank.

        Raises:
            UsageError: ``dataset()`` was read, and no ``callback()`` counted the used batches, or
                it counted batches of another data set.
        """
        if self._miscounted:
            raise UsageError(
                f"the batches that were used are not those of dataset(): {self._miscounted} behind it changes which "
                "they are; use steps_per_epoch= of fit() for short epochs, and batch= and transform= of the data set"
            )
        if self._uncounted:
            raise UsageError("nothing counted which batches of dataset() were used: give callback() to fit()")
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, with any number of ranks.

        Raises:
            UsageError: see the source's ``place_in``.
        """
        super().load_state_dict(state)
        self._uncounted, self._miscounted = False, ""

    def callback(self) -> Any:
        """Return a Keras callback for ``fit`` that counts the used batches, for the state."""
        return _UseCounter(self)

    def begin_counting(self) -> None:
        """Begin to count used batches.

        Batches that were read and not used are read again, such as the first one, which ``fit``
        inspects.
        """
        self._next, self._uncounted, self._unread, self._step = self._at, False, [0], ""

    def is_within_epoch(self) -> bool:
        """Return True if the next batch is not the first of its epoch."""
        return self._next[1] > 0

    def count_used(self, batches: int) -> None:
        """Count further batches of ``dataset()`` as used."""
        self._uncounted = False
        for _ in range(batches):
            epoch, number = self._at
            if number == 0 or epoch != self._skipped.epoch:
                self._begin_counts(epoch)
            self._count(epoch, number)
            number += 1
            self._at = epoch, number
            if number == len(self):
                self._skipped.log(self.counts, number)
                self._at = epoch + 1, 0
        self._miscounted = self._miscounted or self._step or ("a step" if self._at > self._next else "")


class _UseCounter(tf.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    def __init__(self, batches: TensorBatches) -> None:
        super().__init__()
        self._batches, self._done = batches, 0

    def on_train_begin(self, logs: object = None) -> None:
        self._batches.begin_counting()
        # Keras takes the number of batches of its first epoch for that of all, if it knows none.
        self._is_rest = self._batches.is_within_epoch() and self.params.get("steps") is None
        self._began = False

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if self._is_rest and self._began:
            raise UsageError(
                "this data set is the rest of an epoch, and fit() would read no more of each other epoch: call fit() "
                "with epochs=1 for the rest, and then again with a new dataset()"
            )
        self._done, self._began = 0, True

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._batches.count_used(batch + 1 - self._done)  # with steps_per_execution, several
        self._done = batch + 1


class ReportBatchDone(tf.keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """A Keras callback that reports each used batch to the shard service.

    The batches are of the records of ``service.fetch_shard()``, in their order.

    >>> model.fit(dataset, callbacks=[ReportBatchDone(service)])  # doctest: +SKIP

    Args:
        service: result of :func:`tarkit.service.client.build_data_shard_service`.
    """

    def __init__(self, service: Any) -> None:
        super().__init__()
        self._service, self._done = service, 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Number the batches from 0 in each epoch."""
        self._done = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Report this batch, and with ``steps_per_execution`` those before it."""
        for _ in range(self._done, batch + 1):
            self._service.report_batch_done()
        self._done = batch + 1


def _check_named() -> None:
    """Refuse RANK and WORLD_SIZE, or a TF_CONFIG, of several processes.

    Raises:
        UsageError: RANK and WORLD_SIZE or TF_CONFIG are of several processes.
    """
    rank, world = consumer()
    if world > 1:
        raise UsageError(f"this is rank {rank} of {world}: {_NAME_THEM}")
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        workers = sum(len(cluster.get(kind, ())) for kind in ("chief", "master", "worker"))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"TF_CONFIG is not the JSON of a cluster: {error}") from None
    if workers > 1:
        raise UsageError(f"TF_CONFIG has {workers} workers: {_NAME_THEM}")


def _signature_of(source: BatchSource) -> Any:
    batch = next(source.epoch_batches(0))
    specs = {name: _spec(name, column) for name, column in parts_of(batch)}
    return specs if isinstance(batch, dict) else tuple(specs.values()) if isinstance(batch, tuple) else specs[0]


def _spec(name: object, column: Any) -> Any:
    if isinstance(column, list) and all(isinstance(value, (str, bytes)) for value in column):
        return tf.TensorSpec([None], tf.string)
    try:
        found = tf.convert_to_tensor(column)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"value {name!r} of the fields does not make one tensor: pass transform= that makes all of them alike, "
            f"such as pictures of one size, or signature=. {error}"
        ) from None
    return tf.TensorSpec([None, *found.shape[1:]], found.dtype)
