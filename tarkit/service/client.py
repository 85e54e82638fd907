"""Client of the shard service: ``ShardClient``, and the records of the leased shards.

A client is configuration that can be sent to other processes, each of which is a separate worker.
The way of the data: a reader reads the records of the leased shards, the trainer uses them, and the
client acknowledges them.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, groupby, starmap
from operator import attrgetter
from types import TracebackType
from typing import Any, NamedTuple, TypedDict

from tarkit.errors import DataError, ReplacedError, TarkitError, UsageError, counted, printable, quoted
from tarkit.readers.identity import COUNT_ANEW, parsed_content
from tarkit.readers.reader import AbstractDataReader
from tarkit.service.connection import ServiceConnection
from tarkit.service.dataset import DataSet as DataSet
from tarkit.service.leases import NoShard as NoShard
from tarkit.service.progress import DataSetProgress, progress_of_message
from tarkit.service.reports import HeldShard as HeldShard
from tarkit.service.worker import ShardWorker

_log = logging.getLogger(__name__)
_AT_EXIT = 5.0
"""Seconds that the end of the interpreter waits for reports."""
_open_clients: weakref.WeakSet[ShardClient] = weakref.WeakSet()


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of :class:`ShardClient`, which describes them."""

    prefetch: int | None
    patience: float
    token: str
    certificate: bytes
    label: str


class ShardClient:
    """A client of a shard service: leases shards of a data set to one process.

    >>> with ShardClient("localhost:50001", "iris") as client:  # doctest: +SKIP
    ...     for shard in client:
    ...         train(shard.records)
    ...         client.done(shard)

    It connects at its first use. Sent to another process, it begins there as a new worker with the
    same configuration. A process that is forked after a client has connected cannot use one,
    because gRPC does not work there: connect in the children only, or start them with spawn.
    Threads may share a client.

    Args:
        address: ``HOST:PORT`` of the service.
        dataset: the name of a data set that is declared, "" for the only one; or a declaration,
            which must be the same in all workers.
        prefetch: number of shards that are fetched ahead of the current one; None: as many as this
            process uses in a tenth of a second, from 1 to 64.
        patience: seconds for which a service that does not answer is tried again. A Job of
            Kubernetes whose pod was lost a few times waits ten minutes before it makes the next
            one.
        token: the bearer token of the service.
        certificate: PEM of the authority that signed the service's certificate; with it, TLS is
            used.
        label: prefix of the worker ID, which the service shows.

    Raises:
        UsageError: an argument is not valid, or (from all methods) the service rejects a request.
        ServiceLostError: (from all methods) the service did not answer for ``patience`` seconds.
        MissingExtraError: grpcio or protobuf is not installed.
    """

    def __init__(
        self, address: str, dataset: str | DataSet = "", *, prefetch: int | None = None, patience: float = 780.0,
        token: str = "", certificate: bytes = b"", label: str = "",
    ) -> None:  # fmt: skip
        if (prefetch is not None and prefetch < 0) or not patience >= 0:
            raise UsageError(f"prefetch is {prefetch} and patience is {patience}; both must be 0 or more")
        self._settings: dict[str, Any] = {
            "prefetch": prefetch, "patience": patience, "token": token, "certificate": certificate, "label": label
        }  # fmt: skip
        self._address, self._dataset = address, dataset
        self._name = dataset.name if isinstance(dataset, DataSet) else dataset
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._worker: ShardWorker | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ShardClient, self._address, self._dataset, **self._settings), ()

    def __enter__(self) -> ShardClient:
        self._opened()
        return self

    def connect(self) -> None:
        """Connect now: declare the data set, or check that it exists.

        Otherwise the first call of another method connects.
        """
        self._opened()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the client.

        After an exception in the body, or an exit with a code other than 0, the held shards count
        as lost, since one of them may be the reason.
        """
        if error is None:
            self.close()
            return
        lost = isinstance(error, Exception) or (isinstance(error, SystemExit) and bool(error.code))
        try:
            self._close(give_back=not lost, seconds=_AT_EXIT)
        except TarkitError as problem:
            _log.warning("%s", problem)

    def __iter__(self) -> Iterator[HeldShard]:
        """Yield shards to the end of the data set.

        The iterator ends early if no shard is available before this process reports those that it
        holds.
        """
        while isinstance(shard := self.fetch(), HeldShard):
            yield shard

    def fetch(self, timeout: float | None = None) -> HeldShard | NoShard:
        """Return the next shard, or ``NoShard.END`` at the end of the data set.

        ``NoShard.WAIT`` is returned if there was none for ``timeout`` seconds. A worker waits for
        the shards of other workers, which come back if those are lost. If all remaining shards are
        with workers that wait themselves, which happens if batches are made across shards, one that
        holds shards gets ``NoShard.DRAIN``: report them, and call this method again.
        """
        return self._opened().fetch(timeout)

    def done(self, shard: HeldShard, ranges: Iterable[tuple[int, int]] | None = None) -> None:
        """Report a shard as done; or ``ranges`` of it, [first, end) in the order of its records.

        Returns at once.

        Raises:
            UsageError: a range is not in the shard, or another process fetched the shard.
        """
        self._opened().report(shard, ranges, "")

    def failed(self, shard: HeldShard, reason: str) -> None:
        """Report the rest of a shard as failed: it is handed out again, or is dead.

        Returns at once.
        """
        # A name of a file may have bytes that no message can have.
        text = reason.encode("utf-8", "backslashreplace").decode()
        self._opened().report(shard, None, text or "the trainer gave no reason")

    def flush(self) -> None:
        """Return when all reports are on the service's disk."""
        self._opened().flush()

    def close(self, *, give_back: bool = True) -> None:
        """Send all reports, and give back the shards that are not done.

        A closed client cannot be used again.

        Args:
            give_back: give back fetched shards, too; False: they count as lost, since one of them
                may be the reason for the end of the worker.
        """
        self._close(give_back=give_back, seconds=None)

    @property
    def counts(self) -> dict[str, int]:
        """Number of each answer to the reports of this process.

        The answers are: accepted; late, accepted after the lease had ended; stale, the shard had
        been completed, taken over or reset; unknown, never leased; repeated, stale because the
        answer to an earlier report was lost and the report sent again.
        """
        return dict(worker.reports.counts) if (worker := self._own) else {}

    @property
    def ended(self) -> bool:
        """True once the service has answered this process with the end of the data set."""
        return worker.ended if (worker := self._own) else False

    @property
    def ended_before(self) -> bool:
        """True if the data set had ended before this process took part.

        The process gets no record then, for example if a program is run a second time on a service
        that is still running. A warning is logged; a program should end with a specific exit code,
        such as 3. False if the data set ended in the same run as this service (``tarkit serve
        --run``).
        """
        return worker.ended_before if (worker := self._own) else False

    @property
    def worker(self) -> str:
        """ID by which the service knows this process."""
        return self._opened().id

    def progress(self) -> DataSetProgress:
        """Ask the service for the counts of the data set, over all workers."""
        progress = self._opened().connection.call("GetProgress", name=self._name).progress
        if len(progress) != 1:
            raise UsageError(f"the service has {counted(len(progress), 'data set')}; name the one that is meant")
        return progress_of_message(progress[0])

    def save(self) -> str:
        """Return a checkpoint of the data set: JSON text of the shards that are not done.

        Reports of this process are in it.
        """
        worker = self._opened()
        worker.flush()
        return str(worker.connection.call("Save", name=self._name).content)

    def restore(self, checkpoint: str) -> None:
        """Restore the state of the data set from a checkpoint.

        Shards that any worker holds are stale.

        Raises:
            UsageError: the text is not a checkpoint of this data set.
        """
        self._opened().anew("Restore", content=checkpoint)

    def reset(self) -> None:
        """Restart the data set.

        The shards that workers hold are stale then.
        """
        self._opened().anew("Reset")

    @property
    def _own(self) -> ShardWorker | None:
        """Worker of this process; None before it is open, and in a process forked from one."""
        return self._worker if self._worker is not None and self._worker.pid == os.getpid() else None

    def _opened(self) -> ShardWorker:
        if self._pid != os.getpid():
            # Nothing of a lock that a thread of the other process may have held.
            self._pid, self._opening = os.getpid(), threading.Lock()
        with self._opening:
            if self._closed:
                raise UsageError("the client of the shard service is closed; make another one")
            if (worker := self._own) is None:
                worker = self._worker = self._open()
                _open_clients.add(self)
            return worker

    def _open(self) -> ShardWorker:
        settings, dataset = self._settings, self._dataset
        connection = ServiceConnection(self._address, settings["token"], settings["certificate"], settings["patience"])
        try:
            if isinstance(dataset, DataSet):
                values = {each.name: getattr(dataset, each.name) for each in fields(dataset)}
                files = [file._asdict() | {"identity": file.identity} for file in dataset.files]
                connection.call("Declare", **values | {"files": files})
            return ShardWorker(connection, self._name, settings["prefetch"], settings["label"])
        except BaseException:
            connection.close()
            raise

    def _close(self, give_back: bool, seconds: float | None) -> None:
        worker = self._own
        if self._closed or worker is None:
            return
        self._closed = True
        _open_clients.discard(self)
        worker.close(give_back=give_back, seconds=seconds)


@atexit.register
def _close_at_exit() -> None:
    """Send the reports of clients that the program never closed, if the service answers.

    Their held shards count as lost, since one of them may be why the program ends.
    """
    for client in list(_open_clients):
        try:
            client._close(give_back=False, seconds=_AT_EXIT)
        except TarkitError as error:
            _log.warning("%s", error)


class ServedRecord(NamedTuple):
    """A record of a shard.

    Attributes:
        value: value that the reader returned.
        at: its position in the order of the shard's records.
    """

    value: Any
    shard: HeldShard
    at: int


def served_records(client: ShardClient, reader: AbstractDataReader, max_failures: int = 10) -> Iterator[ServedRecord]:
    """Yield the records of all shards that the client leases, with their places.

    The iterator ends with the data set.

    The records may be used in any order; ``acknowledge`` reports the used ones.

    The iterator ends early if all remaining shards are with workers that wait for each other: use
    and acknowledge the records that are held, in a batch or a buffer, and call it again until
    ``client.ended``.

    A shard that the reader cannot read is reported as failed, with the reason, and the next one
    follows.

    Raises:
        ReplacedError: the content of a source has changed since its records were counted; raised
            after its first task.
        Exception: the reader raised it, after ``max_failures`` consecutive shards could not be read
            to their end.
        ServiceLostError: the service does not answer.
    """
    failures = 0
    for shard in client:
        try:
            yield from _records(shard, reader)
            failures = 0
        except Exception as error:
            client.failed(shard, f"{type(error).__name__}: {printable(str(error))}")
            failures += 1
            place = f"{quoted(shard.name)}, records {shard.start} to {shard.end}"
            _log.warning("%s could not be read and is reported as failed: %s", place, printable(str(error)))
            if failures >= max_failures or isinstance(error, ReplacedError):
                client.flush()
                raise


def _records(shard: HeldShard, reader: AbstractDataReader) -> Iterator[ServedRecord]:
    counted_then, now = map(parsed_content, (shard.identity, reader.content_identity(shard.name)))
    if not counted_then.is_same(now):
        raise counted_then.replaced(shard.name, now, "since its records were counted", COUNT_ANEW)
    places, records, number = chain.from_iterable(starmap(range, shard.ranges)), shard.end - shard.start, 0
    wanted, last = next(places, None), None
    for number, value in enumerate(reader.read_records(shard.task), 1):
        if number > records:
            raise DataError(f"the task has {counted(records, 'record')}, and the reader gave more", url=shard.name)
        if number - 1 == wanted:
            found, wanted = ServedRecord(value, shard, wanted), next(places, None)
            if wanted is None:
                last = found  # it makes the shard complete, which more records, or too few, would show as wrong
            else:
                yield found
    if number != records:
        raise DataError(f"the reader gave {number} of {counted(records, 'record')}", url=shard.name)
    if last is not None:
        yield last


def acknowledge(client: ShardClient, records: Iterable[ServedRecord]) -> None:
    """Report records as used, so that they are not handed out again.

    Returns at once.
    """
    for shard, used in groupby(records, attrgetter("shard")):
        client.done(shard, [(record.at, record.at + 1) for record in used])


def read_shards(client: ShardClient, reader: AbstractDataReader, max_failures: int = 10) -> Iterator[Any]:
    """Yield the records of all shards that the client leases, as the reader returns them.

    A record is acknowledged when the next one is requested, so use it before; it is not enough that
    it is in a batch or buffer then.
    """
    for found in served_records(client, reader, max_failures):
        yield found.value
        client.done(found.shard, [(found.at, found.at + 1)])
