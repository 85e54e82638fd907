"""Numbers of records one by one, for data that is read by number: ``RecordIndexService`` of ElasticDL's clients."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.errors import ServiceLostError, TarkitError, UsageError, counted, library
from tarkit.service.datashards import TRAINING, DataShardService
from tarkit.service.heldshard import HeldShard

_MOST_AHEAD = 1000
"""Numbers of records that wait in the queue."""


class RecordIndexService(DataShardService):
    """Numbers of records, in the process that made it and in those that it starts, such as a DataLoader's.

    A thread fetches shards and puts the numbers of their records into a queue, which the processes share. Batches are
    reported, with ``report_batch_done``, in the process that made it.

    Args:
        batch_size, num_epochs, dataset_size, task_type, num_minibatches_per_shard, dataset_name, options: as of
            :class:`DataShardService`.
        shuffle: the records come in another order in each epoch.
        master_client, num_workers: not needed; taken, so that a program need not change.
        start_method: of the processes that it is handed to, "fork" or "spawn"; None: the default of Python.
    """

    _shuffled = "shuffle_records"

    def __init__(
        self,
        batch_size: int,
        num_epochs: int | None = None,
        dataset_size: int | None = None,
        task_type: int = TRAINING,
        shuffle: bool = False,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
        master_client: Any = None,
        num_workers: int = 1,
        *,
        start_method: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            batch_size,
            num_epochs,
            dataset_size,
            shuffle,
            task_type=task_type,
            num_minibatches_per_shard=num_minibatches_per_shard,
            dataset_name=dataset_name,
            **options,
        )
        multiprocessing = importlib.import_module("multiprocessing")
        context = multiprocessing.get_context(start_method)
        self._queue = context.SimpleQueue()
        self._ahead = context.Semaphore(_MOST_AHEAD)
        self._feed()

    def __getstate__(self) -> dict[str, Any]:
        return {"_queue": self._queue, "_ahead": self._ahead}

    def fetch_record_index(self) -> int:
        """The number of the next record.

        Raises:
            StopIteration: the end; or all that is left is with workers that wait, so that what this one holds is to be
                reported first, after which more may come, until ``ended``.
            ServiceLostError: the service does not answer.
        """
        found = self._queue.get()
        if isinstance(found, int):
            self._ahead.release()
            return found
        # For the other processes, and for the next call.
        self._queue.put(found)
        if found is None:
            raise StopIteration
        raise (UsageError if found[0] == UsageError.__name__ else ServiceLostError)(found[1])

    def record_index_gen(self) -> Iterator[int]:
        """Numbers of records, to the end."""
        while True:
            try:
                number = self.fetch_record_index()
            except StopIteration:
                return
            yield number

    def get_tf_dataset(self, record_files: Sequence[str] | None = None) -> Any:
        """A ``tf.data.Dataset`` of the numbers, int64 scalars; with ``record_files``, the names of all files, it is of
        the name of each record's file, string scalars. An error, such as a lost service, is one of TensorFlow's own
        there, with the name and message of tarkit's.

        Raises:
            MissingExtraError: TensorFlow is not installed.
        """
        tensorflow = library("tensorflow", "a tf.data.Dataset", "tensorflow")
        kind = tensorflow.int64 if record_files is None else tensorflow.string
        return tensorflow.data.Dataset.from_generator(
            self.record_index_gen if record_files is None else lambda: self._names(record_files),
            output_signature=tensorflow.TensorSpec([], kind),
        )

    def _names(self, files: Sequence[str]) -> Iterator[str]:
        for number in self.record_index_gen():
            if number >= len(files):
                raise UsageError(f"record_files has {counted(len(files), 'name')}; there is none of record {number}")
            yield files[number]

    def clear_shard_queue(self) -> None:
        """Drop the numbers that were not fetched yet; those of the same shards come no more."""
        for end in self._drop_numbers():
            self._queue.put(end)

    def _drop_numbers(self) -> list[Any]:
        """Empty the queue. Returns what was in it beside numbers: the end, or an error."""
        ends = []
        while not self._queue.empty():
            if isinstance(found := self._queue.get(), int):
                self._ahead.release()
            else:
                ends.append(found)
        return ends

    def reset_dataset(self) -> None:
        """Begin the data set anew; numbers in the queue are dropped."""
        self._starve()
        try:
            super().reset_dataset()
        finally:
            self._feed()

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """As of :class:`DataShardService`; numbers in the queue are dropped."""
        self._starve()
        try:
            return super().restore_shard_from_checkpoint(shard_checkpoint)
        finally:
            self._feed()

    def close(self) -> None:
        """As of :class:`DataShardService`."""
        self._starve()
        super().close()

    def _feed(self) -> None:
        self._stopped, self._paused = threading.Event(), False
        self._thread = threading.Thread(target=self._put_numbers, args=(self._stopped,), daemon=True)
        self._thread.start()

    def _starve(self) -> None:
        """End the thread, and drop what it put into the queue."""
        self._stopped.set()
        while self._thread.is_alive():
            self._drop_numbers()
            self._thread.join(0.01)
        self._drop_numbers()

    def _put_numbers(self, stopped: threading.Event) -> None:
        try:
            while not stopped.is_set():
                found = self._fetch(stopped)
                if found is not None:
                    self._put_part(found[1].part, stopped)
                elif self._source.ended:
                    self._queue.put(None)
                    return
                elif not stopped.is_set() and self._queue.empty():
                    # All that is left is with workers that wait: the loops here end, so that batches are reported.
                    self._paused = True
                    self._queue.put(None)
        except TarkitError as error:
            self._queue.put((type(error).__name__, str(error)))

    def _put_part(self, part: HeldShard, stopped: threading.Event) -> None:
        if self._paused:
            self._paused = False
            self._drop_numbers()
        for number in part.indices or range(part.start, part.end):
            while not self._ahead.acquire(timeout=0.1):
                if stopped.is_set():
                    return
            self._queue.put(number)
