"""``DataShardService`` of ElasticDL's clients, over tarkit's client: it counts batches.

From the counts it knows which shards are done, and reports them.

Source of the names and arguments: the packages elasticai-api 1.4 and elasticdl-api 1.0 on PyPI.
The differences are in docs/shard-service.md, "Coming from elasticai_api".
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from tarkit.elasticdl.mastercalls import DEFAULT_NAME, MINIBATCHES
from tarkit.errors import UsageError, counted
from tarkit.names.keywords import Unpack
from tarkit.readers.reader import Task, TaskShard
from tarkit.service.client import ClientOptions, DataSet, HeldShard, NoShard, ShardClient

_log = logging.getLogger(__name__)
_ADDRESS, _OLD_ADDRESS = "DLROVER_MASTER_ADDR", "MASTER_ADDR"
TRAINING = 1
"""Task type of training."""


@dataclass
class _Pending:
    """A part of a fetched shard: the records from ``first`` up to, not including, ``end``.

    Attributes:
        count: number of its records that batches have used.
        errors: errors of these batches.
    """

    shard: HeldShard
    first: int
    end: int
    count: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def part(self) -> HeldShard:
        """The part as a shard."""
        start, indices = self.shard.start, self.shard.indices[self.first : self.end]
        return replace(self.shard, start=start + self.first, end=start + self.end, indices=indices)


class DataShardService:
    """A client that fetches shards, and reports them as done when batches have used their records.

    Args:
        batch_size: number of records of a batch.
        num_epochs: number of epochs; None or 0: take part in a data set that another process
            declares.
        dataset_size: number of records of the data set; None or 0: see ``num_epochs``.
        shuffle: use a different order of the shards in each epoch.
        shuffle_shards: an alias of ``shuffle``.
        task_type: 1 training, 2 evaluation, 3 prediction.
        num_minibatches_per_shard: number of batches of a shard; 0: 8.
        dataset_name: the name by which the service knows the data set.
        remainder: treatment of a shorter shard at the end: "" keeps it, "drop" leaves it out,
            "fill" begins it earlier.
        address: ``HOST:PORT`` of the service. None: the environment variable DLROVER_MASTER_ADDR,
            or MASTER_ADDR if that is not set.
        options: options of :class:`tarkit.service.client.ShardClient`, such as ``prefetch`` and
            ``patience``.

    Raises:
        UsageError: a value is not valid, the data set was declared differently, or there is no
            address of a service.
        ServiceLostError: (from all methods, too) the service does not answer.
    """

    _shuffled = "shuffle_shards"
    """Field of a DataSet that ``shuffle`` sets."""

    def __init__(
        self, batch_size: int, num_epochs: int | None = None, dataset_size: int | None = None, shuffle: bool = False,
        shuffle_shards: bool = False, task_type: int = TRAINING, num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None, remainder: str | None = None, *, address: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:  # fmt: skip
        if batch_size < 1 or num_minibatches_per_shard < 0:
            raise UsageError(
                f"batch_size is {batch_size} and num_minibatches_per_shard is {num_minibatches_per_shard}; "
                "they must be at least 1 and 0"
            )
        name = dataset_name or DEFAULT_NAME
        dataset: DataSet | str = name
        if num_epochs and dataset_size:
            others: dict[str, Any] = {"shuffle_shards": shuffle_shards, "remainder": remainder or ""}
            others |= {self._shuffled: True} if shuffle else {}
            per_shard = batch_size * (num_minibatches_per_shard or MINIBATCHES)
            dataset = DataSet(name, dataset_size, per_shard, max(0, num_epochs), task_type=task_type, **others)
        self._batch_size, self._dataset_size, self._task_type = batch_size, dataset_size, task_type
        address = address or os.environ.get(_ADDRESS) or os.environ.get(_OLD_ADDRESS)
        if not address:
            raise UsageError(
                f"{_ADDRESS} is not set: give it the address of a shard service, such as localhost:50001; tarkit "
                "serve starts one"
            )
        options.setdefault("label", f"{os.environ.get('WORKER_TYPE') or 'worker'}-{os.environ.get('WORKER_ID') or 0}")
        self._source = ShardClient(address, dataset, **options)
        self._source.connect()
        self._lock = threading.Lock()
        self._parts: list[_Pending] = []
        self._pending: dict[int, _Pending] = {}
        self._last_task = 0

    def __enter__(self) -> DataShardService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._source.__exit__(kind, error, trace)  # it knows which ends are losses
        self.close()

    def fetch_shard(self) -> HeldShard | None:
        """Return the next shard, with ``name``, ``start``, ``end``, ``indices``; None at the end.

        If all remaining shards are with workers that wait for the end to finish a batch, one of
        them gets None, so that it finishes its batch; called again, it waits for shards that may
        come back.
        """
        found = self._fetch(None)
        return None if found is None else found[1].part

    def get_task(self, task_type: Any = None) -> Task:
        """Return the next shard with its number, ``task.task_id``.

        At the end, return a task of type 0 without records.
        """
        found = self._fetch(None)
        if found is None:
            return Task(TaskShard("", 0, 0), type=0)
        return self._task(*found)

    def get_current_task(self) -> Task | None:
        """Return the oldest unreported shard, or None."""
        with self._lock:
            return next((self._task(*each) for each in self._pending.items()), None)

    def _task(self, number: int, pending: _Pending) -> Task:
        return replace(pending.part.task, type=self._task_type, task_id=number)

    def _fetch(self, stopped: threading.Event | None) -> tuple[int, _Pending] | None:
        with self._lock:
            if self._parts:
                return self._hand_out()
        while (found := self._source.fetch(1.0)) is NoShard.WAIT:
            if stopped is not None and stopped.is_set():
                return None
        if not isinstance(found, HeldShard):
            return None
        with self._lock:
            # The rest of a shard, a part of which was reported before its worker was lost, may
            # be in pieces.
            self._parts += [_Pending(found, first, end) for first, end in found.ranges]
            return self._hand_out()

    def _hand_out(self) -> tuple[int, _Pending]:
        self._last_task += 1
        pending = self._pending[self._last_task] = self._parts.pop(0)
        return self._last_task, pending

    def report_batch_done(self, batch_size: int | None = None, err_msg: str = "", task_ids: Sequence[int] = ()) -> bool:
        """Report a finished batch: its records count for the fetched shards, the oldest first.

        Args:
            batch_size: number of its records; None or 0: that of the constructor.
            err_msg: why it failed: each shard with records in it is reported as failed, when all
                records of the shard have been counted.
            task_ids: ids of the shards that the batch is from; empty: all held shards.

        Returns:
            True if a shard was reported.
        """
        if batch_size is not None and batch_size < 0:
            raise UsageError(f"batch_size is {batch_size}; it must be the number of records of the batch")
        left, reported = batch_size or self._batch_size, False
        with self._lock:
            unknown = [number for number in task_ids if number not in self._pending]
            if unknown:
                _log.warning("tasks %s are not held; their records are not counted", unknown)
            for number in [each for each in task_ids or list(self._pending) if each in self._pending]:
                pending = self._pending[number]
                used = min(left, pending.end - pending.first - pending.count)
                pending.count += used
                left -= used
                pending.errors += [err_msg] if err_msg and err_msg not in pending.errors else []
                if pending.count == pending.end - pending.first:
                    self._report(number)
                    reported = True
                if not left:
                    break
            if left and batch_size:
                _log.warning("%s of a batch are not of a shard that is held; not counted", counted(left, "record"))
        return reported

    def _report(self, number: int) -> None:
        pending = self._pending.pop(number)
        if pending.errors:
            self._source.failed(pending.shard, "; ".join(pending.errors))
        else:
            self._source.done(pending.shard, [(pending.first, pending.end)])

    def report_all_task_error(self, err_msg: str) -> None:
        """Report all shards that are held as failed."""
        with self._lock:
            for number in list(self._pending):
                self._pending[number].errors.append(err_msg or "the trainer gave no reason")
                self._report(number)

    def get_minibatch_count_per_epoch(self) -> int:
        """Return the number of whole batches of an epoch.

        Raises:
            UsageError: the size of the data set was not given.
        """
        if not self._dataset_size:
            raise UsageError("dataset_size was not given, so the number of batches is not known")
        return self._dataset_size // self._batch_size

    def reset_dataset(self) -> None:
        """Restart the data set; shards that are held do not count any more."""
        self._source.reset()
        self._forget()

    def get_shard_checkpoint(self) -> str:
        """Return a checkpoint: JSON text of the shards that are not done."""
        return self._source.save()

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Restore the state of the data set from a checkpoint.

        Returns False, and logs it, if the checkpoint is not one of this data set.
        """
        try:
            self._source.restore(shard_checkpoint)
        except UsageError as error:
            _log.warning("%s", error)
            return False
        self._forget()
        return True

    def _forget(self) -> None:
        with self._lock:
            self._parts.clear()
            self._pending.clear()

    def get_current_epoch(self) -> int:
        """Return the number of epochs that have begun."""
        return self._source.progress().epoch

    @property
    def ended(self) -> bool:
        """True once the service has answered this process with the end of the data set."""
        return self._source.ended

    @property
    def ended_before(self) -> bool:
        """True if the data set had ended before this process took part.

        It gets no record then: see ``ShardClient.ended_before``.
        """
        return self._source.ended_before

    @property
    def counts(self) -> dict[str, int]:
        """Number of each answer to the reports: see ``ShardClient.counts``."""
        return self._source.counts

    def flush(self) -> None:
        """Return when all reports are on the service's disk."""
        self._source.flush()

    def close(self) -> None:
        """Send all reports, and give back the unfinished shards.

        A program that ends without this call counts as lost.
        """
        self._source.close()


build_data_shard_service = DataShardService
"""Constructor under the name that programs of the published clients use."""
