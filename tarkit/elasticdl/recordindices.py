"""``RecordIndexService`` of ElasticDL's clients: the numbers of the records to read, one by one.

It is for data that is read by the number of a record.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from tarkit.elasticdl.datashards import TRAINING, DataShardService
from tarkit.errors import TarkitError, UsageError, counted
from tarkit.extras import library
from tarkit.names.keywords import Unpack
from tarkit.service.client import ClientOptions
from tarkit.trainers.lasterror import release_at_exit

_MOST_AHEAD = 1000
"""Largest number of record numbers that wait in the queue."""
_LOOK = 0.1
_T = TypeVar("_T")


class _NoNumber(NamedTuple):
    """An entry of the queue that is not a number: the end, or an error.

    Attributes:
        turn: for a temporary end: no number follows before a report, until this turn is over.
    """

    turn: int | None = None
    error: TarkitError | None = None


class _Queue:
    """A queue that processes share.

    Unlike in a SimpleQueue, a waiting process holds no lock, so it may be killed.
    """

    def __init__(self, context: Any) -> None:
        self._reader, self._writer = context.Pipe(duplex=False)
        self._reading, self._writing = context.Lock(), context.Lock()

    def put(self, value: int | _NoNumber) -> None:
        with self._writing:
            self._writer.send(value)

    def get(self) -> int | _NoNumber:
        while (found := self.get_now()) is None:
            self._reader.poll(None)
        return found

    def get_now(self) -> int | _NoNumber | None:
        """Return the next entry, or None if the queue is empty."""
        with self._reading:
            return self._reader.recv() if self._reader.poll() else None

    def empty(self) -> bool:
        return not self._reader.poll()


class RecordIndexService(DataShardService):
    """Record numbers for this process and its children, such as the workers of a DataLoader.

    A thread fetches shards and puts the numbers of their records into a queue, which the processes
    share. Batches are reported, with ``report_batch_done``, in the process that made the service.

    Args:
        batch_size, num_epochs, dataset_size, task_type: see :class:`DataShardService`.
        num_minibatches_per_shard, dataset_name, options: see :class:`DataShardService`.
        shuffle: use a different order of the records in each epoch.
        master_client, num_workers: ignored; accepted, so that a program need not change.
        start_method: start method of the child processes, "fork" or "spawn"; None: the default of
            Python.
    """

    _shuffled = "shuffle_records"

    def __init__(
        self, batch_size: int, num_epochs: int | None = None, dataset_size: int | None = None,
        task_type: int = TRAINING, shuffle: bool = False, num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None, master_client: Any = None, num_workers: int = 1, *,
        start_method: str | None = None, **options: Unpack[ClientOptions],
    ) -> None:  # fmt: skip
        super().__init__(
            batch_size, num_epochs, dataset_size, shuffle, task_type=task_type, dataset_name=dataset_name,
            num_minibatches_per_shard=num_minibatches_per_shard, **options,
        )  # fmt: skip
        multiprocessing = importlib.import_module("multiprocessing")
        context = multiprocessing.get_context(start_method)
        self._queue = _Queue(context)
        self._ahead = context.Semaphore(_MOST_AHEAD)
        # Shards that were fetched, and those that were reported.
        self._turn = context.RawValue("Q")
        self._numbers: Iterator[int] = iter(())
        """Numbers of the last fetched shard that are not in the queue yet."""
        self._feed()

    def __getstate__(self) -> dict[str, Any]:
        return {"_queue": self._queue, "_ahead": self._ahead, "_turn": self._turn}

    def fetch_record_index(self) -> int:
        """Return the number of the next record.

        Raises:
            StopIteration: the end; or all that is left is with workers that wait, so that what this
                one holds is to be reported first, after which more may come, until ``ended``.
            ServiceLostError: the service does not answer.
            UsageError: the service is closed.
        """
        while not isinstance(found := self._queue.get(), int):
            if found.turn not in (None, self._turn.value):
                continue  # what was waited for has been reported since
            # For the other processes, and for the next call.
            self._queue.put(found)
            raise found.error or StopIteration
        self._ahead.release()
        return found

    def record_index_gen(self) -> Iterator[int]:
        """Yield the numbers of records, to the end."""
        while True:
            try:
                number = self.fetch_record_index()
            except StopIteration:
                return
            yield number

    def get_tf_dataset(self, record_files: Sequence[str] | None = None) -> Any:
        """Make a ``tf.data.Dataset`` of the numbers, int64 scalars.

        With ``record_files``, the names of all files, it is of the name of each record's file,
        string scalars. An error, such as a lost service, is one of TensorFlow's own there, with the
        name and message of tarkit's.

        Raises:
            MissingExtraError: TensorFlow is not installed.
        """
        tensorflow = library("tensorflow", "a tf.data.Dataset", "tensorflow")
        release_at_exit()
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

    def reset_dataset(self) -> None:
        """Restart the data set; numbers in the queue are dropped."""
        self._anew(super().reset_dataset)

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Restore the state of the data set from a checkpoint; False if it is refused.

        Numbers in the queue are dropped, unless it is refused.
        """
        restore = super().restore_shard_from_checkpoint
        return self._anew(lambda: restore(shard_checkpoint))

    def _anew(self, call: Callable[[], _T]) -> _T:
        """Make a call that invalidates the numbers in the queue.

        If the call fails, they stay valid, and more follow.
        """
        self._stop()
        done: _T | bool = False
        try:
            done = call()
            return done
        finally:
            wanted = chain(self._drop(), self._numbers)
            self._numbers = wanted if done is False else iter(())
            self._feed()

    def close(self) -> None:
        """Send all reports, give back the shards that are not done, and end the thread."""
        self._stop()
        self._drop()
        try:
            super().close()
        finally:
            closed = f"the {type(self).__name__} is closed, and gives no numbers any more"
            self._queue.put(_NoNumber(error=UsageError(closed)))

    def _drop(self) -> list[int]:
        """Empty the queue, and return its numbers."""
        dropped = []
        while (found := self._queue.get_now()) is not None:
            if isinstance(found, int):
                self._ahead.release()
                dropped.append(found)
        return dropped

    def _stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _feed(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._put_numbers, args=(self._stopped,), daemon=True)
        self._thread.start()

    def _put_numbers(self, stopped: threading.Event) -> None:
        try:
            while not stopped.is_set():
                if not self._ahead.acquire(True, _LOOK):
                    continue
                if (number := next(self._numbers, None)) is not None:
                    self._queue.put(number)
                    continue
                self._ahead.release()
                if (found := self._fetch(stopped)) is not None:
                    part = found[1].part
                    self._numbers = iter(part.indices or range(part.start, part.end))
                elif self._source.ended:
                    self._queue.put(_NoNumber())
                    return
                else:
                    # All that is left is with workers that wait: the loops here end, so that
                    # batches are reported.
                    with self._lock:
                        if self._pending and not stopped.is_set() and self._queue.empty():
                            self._queue.put(_NoNumber(self._turn.value))
        except TarkitError as error:
            self._queue.put(_NoNumber(error=error))

    def _hand_out(self) -> tuple[int, Any]:
        self._turn.value += 1
        return super()._hand_out()

    def _report(self, number: int) -> None:
        self._turn.value += 1
        super()._report(number)
