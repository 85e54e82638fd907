"""Run a shard service from its settings, until all data sets have ended."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tarkit.errors import TarkitError, UsageError, printable, quoted
from tarkit.readers.create import create_data_reader, custom_data_reader
from tarkit.readers.reader import Shard, shards_of
from tarkit.service.connection import Security
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules, OtherDataSetError
from tarkit.service.progress import DataSetProgress
from tarkit.service.server import MakeAnswers, ShardCalls, serving
from tarkit.service.statuspage import serving_http
from tarkit.store.publish import open_publish

STATE = "tarkit-serve.state"
"""File of the state by default, in the current folder."""
NO_STATE = "none"
"""Value in place of a file: the state is in memory, and ends with the service."""
_LOOK = 0.25
_REJOIN = 10.0
"""Seconds in which earlier workers and watchers find a restarted service."""
_TELL = 60.0
"""Largest number of seconds for which watchers are informed that a data set is aborted."""


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a shard service.

    Attributes:
        listen: HOST:PORT.
        state: path of the state file, or ``NO_STATE``.
        drain: seconds for which workers are informed of the end before the service stops.
        ready_file: path of a file with the address, and that of HTTP on a second line, while the
            service listens; "": none.
        http: ``[HOST:]PORT`` of the status page; "": none.
        until_ended: also stop when all data sets that clients have declared have ended.
        run: identity of the run; with one, a state that has ended in another run is refused.
        watchers: names of watchers that take no records, for which the service waits at its end.
        trainers: names of watchers beside workers, for which it waits, too.
        desertion: seconds without contact to any worker, once there was one, after which the data
            sets are aborted; None: never.
    """

    listen: str = "127.0.0.1:50001"
    state: str = STATE
    security: Security = field(default_factory=Security)
    insecure: bool = False
    rules: LeaseRules = field(default_factory=LeaseRules)
    drain: float = 30.0
    ready_file: str = ""
    http: str = ""
    until_ended: bool = False
    run: str = ""
    watchers: frozenset[str] = frozenset()
    trainers: frozenset[str] = frozenset()
    desertion: float | None = None


class ServeReporter(Protocol):
    """Receiver of the reports of a running service."""

    def listening(self, address: str, http: str) -> None:
        """Called when workers can call.

        Args:
            http: the address of the status page; "": none.
        """

    def progressed(self, look: Callable[[], list[DataSetProgress]]) -> None:
        """Called several times a second.

        Args:
            look: returns the current counts.
        """

    def ended(self, seconds: float, before: bool) -> None:
        """Called when all data sets have ended; the service answers for ``seconds`` more at most.

        Args:
            before: they had ended before the service was started.
        """

    def deserted(self, seconds: float) -> None:
        """Called when the data sets are aborted, since no worker was heard from for some time."""

    def stopped(self, progress: list[DataSetProgress]) -> None:
        """Called when the service that listened stops, whether the data sets have ended or not."""


async def serve(
    datasets: Sequence[DataSet],
    settings: ServeSettings,
    reporter: ServeReporter,
    protocols: Sequence[MakeAnswers] = (ShardCalls,),
) -> None:
    """Hand out data sets until all have ended.

    Without data sets, those that clients declare are handed out, until the service is cancelled.
    Callers who name no data set get the first one.

    Args:
        protocols: a factory of the answers for each supported protocol.

    Raises:
        UsageError: the state is of another data set or is used by another service, or the port is
            taken or not allowed.
        DataError: the state is damaged.
        MissingExtraError: grpcio is not installed.
    """
    if settings.state in ("", ":memory:"):
        raise UsageError(f"--state is {settings.state!r}; give a file, or {NO_STATE!r} to keep the state in memory")
    with closing(Journal(":memory:" if settings.state == NO_STATE else settings.state)) as journal:
        async with Dispatcher(journal, settings.rules, run=settings.run) as dispatcher:
            await _serve(dispatcher, datasets, settings, reporter, protocols)


def _withdraw(path: str, content: bytes) -> None:
    """Remove a ready file, unless a service that started later has replaced it."""
    with suppress(FileNotFoundError):
        if Path(path).read_bytes() == content:
            os.remove(path)


async def _serve(
    dispatcher: Dispatcher,
    datasets: Sequence[DataSet],
    settings: ServeSettings,
    reporter: ServeReporter,
    protocols: Sequence[MakeAnswers],
) -> None:
    host, until_ended = settings.listen.rpartition(":")[0], bool(datasets) or settings.until_ended
    # Last: a service that could not listen leaves no data set in the state.
    declare = partial(_declare, dispatcher, datasets, settings.state, until_ended)
    async with AsyncExitStack() as stack:
        http = ""
        if settings.http:
            pages = serving_http(settings.http, dispatcher, settings.state, insecure=settings.insecure)
            http = await stack.enter_async_context(pages)
        port = await stack.enter_async_context(
            serving(
                dispatcher,
                settings.listen,
                protocols=protocols,
                security=settings.security,
                insecure=settings.insecure,
                before=declare,
            )
        )
        address = f"{host}:{port}"
        if settings.ready_file:
            content = f"{address}\n{http}\n".encode()
            stack.callback(_withdraw, settings.ready_file, content)
            with open_publish(settings.ready_file) as file:
                file.write(content)
        reporter.listening(address, http)
        before, heartbeats = until_ended and dispatcher.ended, dispatcher.heartbeats
        heartbeats.expected = settings.watchers
        if any(each.epoch for each in dispatcher.progress()):
            heartbeats.last = time.monotonic()
        try:
            while not (until_ended and dispatcher.ended):
                if settings.desertion is not None and heartbeats.is_deserted(settings.desertion):
                    dispatcher.desert()
                    reporter.deserted(settings.desertion)
                    await heartbeats.drained(min(settings.drain, _TELL))
                    return
                reporter.progressed(dispatcher.progress)
                await asyncio.sleep(_LOOK)
            reporter.ended(settings.drain, before)
            # Workers of a service that ended just before are not known to this one, nor are callers
            # without a name.
            if settings.watchers or settings.trainers:
                heartbeats.trainers = settings.trainers
                await heartbeats.drained(settings.drain, _REJOIN)
            else:
                await (asyncio.sleep if before or settings.until_ended else heartbeats.drained)(settings.drain)
        finally:
            reporter.stopped(dispatcher.progress())


async def _declare(dispatcher: Dispatcher, datasets: Sequence[DataSet], state: str, until_ended: bool) -> None:
    known = list(dispatcher.ledgers)
    names = [dataset.name for dataset in datasets]
    hint = "give another --state, or the arguments of before"
    if known and names and not set(known) & set(names):
        raise UsageError(
            f"{printable(state)}: the state is of data set {quoted(known[0])}, not of {quoted(names[0])}; {hint}"
        )
    for dataset in datasets:
        try:
            await dispatcher.declare(dataset)
        except OtherDataSetError as error:
            raise UsageError(f"{printable(state)}: {error}; {hint}") from error
    dispatcher.default = names[0] if names else ""
    other = next((each for each in dispatcher.ledgers.values() if each.run != dispatcher.run), None)
    if dispatcher.run and other is not None and until_ended and dispatcher.ended:
        before = f"in run {printable(other.run)}" if other.run else "in a run without an identity"
        raise UsageError(
            f"{printable(state)}: all data sets have ended, {before}, and run {printable(dispatcher.run)} would hand "
            "out nothing; give another --state, or move this one away"
        )


def files_to_serve(
    data: str, reader_type: str | None = None, function: str | None = None, params: str = ""
) -> list[Shard]:
    """List the files of a source of data, with their numbers of records.

    Args:
        data: a folder, file, shard spec or table; what a function of the user's own is given as
            ``data_origin``.
        reader_type: see :func:`tarkit.readers.create.create_data_reader`.
        function: ``module:function`` or ``file.py:function``, which makes a reader.
        params: arguments of that function.

    Raises:
        UsageError: the source has no records, or the reader or function does not exist.
        MissingInputError: a file does not exist.
        TarkitError: code of the user's own raised an error, which is its cause.
    """
    if function is None:
        found = shards_of(create_data_reader(data, reader_type=reader_type))
    else:
        try:
            found = shards_of(custom_data_reader(function, data, params))
        except TarkitError:
            raise
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}")
            raise TarkitError(f"{function} could not list its shards: {reason}; -v shows where") from error
    if not any(shard.records for shard in found):
        raise UsageError(f"{quoted(data or str(function))}: it has no record to hand out")
    return found
