"""Answers to the calls of ElasticDL's published clients, its service ``proto.Master``.

The clients are elasticai-api 1.4 and elasticdl-api 1.0. They take each answer without a shard for
the end of the data. So a call waits until there is a shard or the true end, and an error is a
status, after which they retry.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from tarkit.errors import UsageError
from tarkit.readers.reader import IDENTITY
from tarkit.service import checkpoint
from tarkit.service.dataset import INT32, DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.leases import NoShard, NoSuchDataSetError, Report, StoppingError, TaskRequest
from tarkit.service.ledger import Ledger
from tarkit.service.messages import Protocol, read_protocol

_log = logging.getLogger(__name__)

DEFAULT_NAME = "_EDL_DEFAULT_TRAINING_DATA"
"""Name of the data set of a client that names no data set."""

MINIBATCHES = 8
"""Number of batches of a shard, if a client leaves it to the service."""

UNDECLARED = 60.0
"""Seconds for which a call waits for the declaration of its data set."""
_LOOK = 0.1

# Processes may share a number; connections do not: the worker is its connection.
_ONE = TaskRequest(1, bound=True)


def master_protocol() -> Protocol:
    """Return the protocol of ElasticDL's clients, ``elasticdl.proto``.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    return read_protocol(Path(__file__).with_name("elasticdl.binpb"))


class ElasticDLCalls:
    """The methods that answer the calls of ``elasticdl.proto``."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.protocol = master_protocol()
        self._messages = self.protocol.messages

    def _name(self, name: str) -> str:
        """Return the name of the data set that a client means.

        Clients that name no data set send an empty name or the default name. Both mean the
        service's own data set, if it has one.
        """
        own, known = self._dispatcher.default, DEFAULT_NAME in self._dispatcher.ledgers
        if name in ("", DEFAULT_NAME):
            return DEFAULT_NAME if known else own or name
        return name

    def _ledger(self, name: str) -> Ledger:
        return self._dispatcher.ledger(self._name(name))

    async def _declared(self, name: str) -> Ledger:
        """Wait until a data set is declared, and return its ledger."""
        until = time.monotonic() + UNDECLARED
        while not self._dispatcher.heartbeats.closing:
            try:
                return self._ledger(name)
            except NoSuchDataSetError:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_LOOK)
        raise StoppingError

    async def report_dataset_shard_params(self, request: Any, context: Any) -> Any:
        """Declare a data set; each worker does, and the first declaration counts."""
        if request.batch_size < 1 or request.num_minibatches_per_shard < 0:
            raise UsageError(
                f"batch_size is {request.batch_size} and num_minibatches_per_shard is "
                f"{request.num_minibatches_per_shard}; they must be at least 1 and 0"
            )
        dataset = DataSet(
            self._name(request.dataset_name) or DEFAULT_NAME,
            request.dataset_size,
            request.batch_size * (request.num_minibatches_per_shard or MINIBATCHES),
            max(0, request.num_epochs),
            shuffle_shards=request.shuffle_shards,
            shuffle_records=request.shuffle,
            remainder=request.remainder,
            task_type=request.task_type or 1,
        )
        await self._dispatcher.declare(dataset, first_counts=True)
        return self._messages.Empty()

    report_training_params = report_dataset_shard_params

    async def get_dataset_task(self, request: Any, context: Any) -> Any:
        """Answer with a shard, or at the true end with an empty task."""
        ledger = await self._declared(request.dataset_name)
        worker = f"{getattr(request, 'worker_type', '') or 'worker'}-{request.worker_id} {context.peer()}"
        comes = worker not in self._dispatcher.heartbeats.seen
        self._dispatcher.heard(worker)
        if comes:
            self._dispatcher.is_over(ledger, worker)
        _, leases = await self._dispatcher.exchange(ledger, worker, request=_ONE)
        if isinstance(leases, NoShard):
            return self._messages.Task()
        shard = leases[0].shard
        return self._messages.Task(
            task_id=leases[0].token & INT32,
            shard=self._messages.Shard(name=shard.name, start=shard.start, end=shard.end, indices=shard.indices),
            type=ledger.dataset.task_type,
            extended_config={IDENTITY: shard.identity} if shard.identity else None,
        )

    get_task = get_dataset_task

    async def report_dataset_task_result(self, request: Any, context: Any) -> Any:
        """Take the report that a shard is done, or failed.

        A report on a shard that is no longer held is counted, and is not an error.
        """
        ledger = self._ledger(request.dataset_name)
        report = Report(_token(ledger, request.task_id), None, request.err_message)
        await self._dispatcher.exchange(ledger, "", [report])
        return self._messages.Empty()

    report_task_result = report_dataset_task_result

    async def reset_dataset(self, request: Any, context: Any) -> Any:
        """Restart the data set."""
        await self._dispatcher.reset(self._ledger(request.dataset_name))
        return self._messages.Empty()

    async def get_dataset_epoch(self, request: Any, context: Any) -> Any:
        """Answer with the number of epochs that have begun."""
        return self._messages.GetDatasetEpochResponse(epoch=self._ledger(request.dataset_name).epoch)

    async def get_shard_checkpoint(self, request: Any, context: Any) -> Any:
        """Answer with a checkpoint of the data set."""
        ledger = self._ledger(request.dataset_name)
        return self._messages.ShardCheckpoint(content=checkpoint.checkpoint(ledger))

    async def report_shard_checkpoint(self, request: Any, context: Any) -> Any:
        """Restore the state of the data set that a checkpoint names."""
        try:
            ledger = self._dispatcher.ledger(checkpoint.name_in(request.content))
            await self._dispatcher.restore(ledger, request.content)
        except (UsageError, NoSuchDataSetError) as error:
            _log.warning("a checkpoint was not restored: %s", error)
            return self._messages.ReportShardCheckpointResponse(success=False)
        return self._messages.ReportShardCheckpointResponse(success=True)

    async def report_used_resource(self, request: Any, context: Any) -> Any:
        """Answer a call that is not about data, and ignore it."""
        return self._messages.Empty()

    report_global_step = report_model_metric = report_prestop = report_autotune_status = report_used_resource


def _token(ledger: Ledger, task_id: int) -> int:
    """Return the last token that ends with these 31 bits: a task's number has only so many."""
    token = (ledger.last_token & ~INT32) | (task_id & INT32)
    return token if token <= ledger.last_token else token - INT32 - 1
