"""The HTTP port of a service: a status page, ``/metrics`` for Prometheus, ``/healthz``.

It only reads. The page is plain HTML, without external resources.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import escape
from http import HTTPStatus
from itertools import islice
from socketserver import ThreadingMixIn
from threading import Thread
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tarkit.errors import UsageError, printable, quoted
from tarkit.extras import library
from tarkit.names.redaction import redact
from tarkit.service.connection import host_and_port, is_loopback
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.leases import Verdict
from tarkit.service.progress import DataSetProgress

_MOST = 100
"""Largest number of rows of a table."""
_HEAD = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>tarkit serve</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="5">
<style>:root { color-scheme: light dark } body { font: 15px/1.45 system-ui, sans-serif; margin: 1.2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } .bad { color: #c33; font-weight: 600 }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; vertical-align: top }
</style></head><body><h1>tarkit serve</h1>
"""
_log = logging.getLogger(__name__)
_SECONDS = 10.0
"""Seconds for which a caller may be silent, or not read."""
_POLICY = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
_GAUGES = {
    "epoch": ("epoch", "Epochs that have begun."),
    "epochs": ("epochs", "Epochs of the data set; 0 is without an end."),
    "todo": ("shards_todo", "Shards of the epochs that have begun, not handed out or come back."),
    "leased": ("shards_leased", "Shards that workers hold."),
    "done": ("shards_done", "Shards that are done, of the epochs that have begun."),
    "dead": ("shards_dead", "Shards that are not tried any more."),
    "records": ("records_done", "Records that are done, of all epochs."),
    "epochs_done": ("epochs_done", "Epochs of which each shard is done or dead."),
    "workers": ("workers", "Workers that hold a shard, wait for one, or did so less than a lease ago."),
    "rate": ("shards_per_second", "Shards done per second, of the last minute."),
    "ended": ("ended", "1 when no shard is left, and none is with a worker."),
}
"""Field of DataSetProgress -> name and description of the metric."""


def status_page(dispatcher: Dispatcher, state: str) -> str:
    """Make the status page from the current counts.

    Args:
        state: path of the state file.
    """
    return "".join([_HEAD, *_lines(dispatcher, state), "</body></html>\n"])


def _lines(dispatcher: Dispatcher, state: str) -> Iterator[str]:
    verdicts = ", ".join(f"{number} {word}" for word, number in sorted(dispatcher.verdicts.items()))
    yield f"<p>state {_text(state)}; {dispatcher.pending.number} calls held; reports: {verdicts or 'none'}</p>"
    if dispatcher.trouble is not None:
        yield f'<p class="bad">No shard is handed out: {_text(str(dispatcher.trouble))}</p>'
    progress = dispatcher.progress()
    yield "<h2>Data sets</h2>"
    sets = ("data set", "is", "progress", "leased", "todo", "records done", "lost leases")
    yield _table(sets, map(_data_set, progress), len(progress)) if progress else "<p>No data set was declared yet.</p>"
    if number := sum(each.dead for each in progress):
        yield f'<h2 class="bad">Dead shards ({number:,})</h2>'
        yield _table(("shard", "epoch", "errors / lost workers", "reason"), _dead(progress), number)
    held = _held(dispatcher)
    yield f"<h2>Workers ({len(held):,})</h2>"
    head = ("worker", "last heard of", "holds")
    yield (
        _table(head, _workers(dispatcher, held), len(held))
        if held
        else "<p>No worker holds a shard or waits for one.</p>"
    )


def _data_set(each: DataSetProgress) -> tuple[str, ...]:
    state = "ended" if each.ended else "running" if each.epoch else "not begun"
    if each.aborted or (each.ended and each.dead):
        why = "aborted" if each.aborted else "ended, incomplete"
        state = f'<span class="bad">{why}</span>'
    counts = (each.leased, each.todo, each.records, each.lost)
    return _text(each.name), state, each.standing, *(f"{count:,}" for count in counts)


def _dead(progress: Iterable[DataSetProgress]) -> Iterator[tuple[str, ...]]:
    for dataset in progress:
        for each in dataset.dead_shards:
            shard = _text(f"{redact(each.name)} {each.start}-{each.end}")
            yield shard, f"{each.epoch}", f"{each.errors} / {each.losses}", _text(each.reason)


def _held(dispatcher: Dispatcher) -> dict[str, list[str]]:
    """Return the workers with the shards that they hold, as text.

    Workers that hold shards come first, and among them those with the longest silence.
    """
    seen = dispatcher.heartbeats.seen
    held: dict[str, list[str]] = {name: [] for name in dispatcher.heartbeats.attached}
    for ledger in dispatcher.ledgers.values():
        held.update({name: [] for name in dispatcher.workers(ledger) if name not in held})
        for name, entries in ledger.workers().items():
            shards = [ledger.dataset.bounds(*entry.key) for entry in entries[:3]]
            held.setdefault(name, []).extend(f"{redact(shard.name)} {shard.start}-{shard.end}" for shard in shards)
            held[name] += [f"… and {len(entries) - 3} more"] if len(entries) > 3 else []
    return {name: held[name] for name in sorted(held, key=lambda name: (not held[name], seen.get(name, 0.0)))}


def _workers(dispatcher: Dispatcher, held: dict[str, list[str]]) -> Iterator[tuple[str, ...]]:
    heartbeats, now = dispatcher.heartbeats, time.monotonic()
    for name, shards in held.items():
        seen = heartbeats.seen.get(name)
        ago = "before this service" if seen is None else f"{timedelta(seconds=int(now - seen))} ago"
        yield (
            _text(name),
            ago + (", connected" if name in heartbeats.attached else ""),
            _text("; ".join(shards) or "none"),
        )


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]], number: int) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in islice(rows, _MOST))
    more = f"<p>… and {number - _MOST:,} more</p>" if number > _MOST else ""
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>{more}"


def _text(text: str) -> str:
    """Escape a name for HTML, on one line and of bounded length."""
    return escape(printable(text))


class _Server(ThreadingMixIn, WSGIServer):
    """An HTTP server with a thread for each caller."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a caller that disconnects, or is slow."""


class _Server6(_Server):
    """An HTTP server on an IPv6 address."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def get_stderr(self) -> Any:
        """Return a stream that hides wsgiref's tracebacks about callers that do not read."""
        return io.StringIO()


@asynccontextmanager
async def serving_http(listen: str, dispatcher: Dispatcher, state: str, *, insecure: bool) -> AsyncIterator[str]:
    """Answer HTTP requests for as long as the context lasts, and yield the address.

    Args:
        listen: ``[HOST:]PORT``; without a host, loopback.
        state: path of the state, shown on the page.
        insecure: allow addresses other than loopback.

    Raises:
        UsageError: ``listen`` is not ``[HOST:]PORT``, the port is taken, or the address is not a
            loopback one.
        MissingExtraError: prometheus-client is not installed.
    """
    parts = host_and_port(listen if ":" in listen else f":{listen}")
    if parts is None:
        raise UsageError(f"{quoted(listen)} is not [HOST:]PORT, such as 8080")
    host, port = parts[0] or "127.0.0.1", parts[1]
    if not (insecure or is_loopback(host)):
        raise UsageError(f"{quoted(listen)} can be read from other machines, without TLS or a token: see --insecure")
    kind = _Server6 if host.startswith("[") else _Server
    try:
        server = make_server(host.strip("[]"), port, _pages(dispatcher, state), kind, _Handler)
    except OSError as error:
        raise UsageError(f"{quoted(listen)}: HTTP cannot listen there: {printable(str(error))}") from error
    Thread(target=server.serve_forever, args=(0.1,), name="tarkit HTTP", daemon=True).start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def _pages(dispatcher: Dispatcher, state: str) -> Callable[..., Iterable[bytes]]:
    """Make the WSGI application.

    It reads the counts in the event loop of the service.
    """
    client = library("prometheus_client", "the HTTP port of the shard service", "service")
    core = library("prometheus_client.core", "the HTTP port of the shard service", "service")
    loop = asyncio.get_running_loop()

    async def page(path: str) -> tuple[HTTPStatus, str, str]:
        status, kind = HTTPStatus.OK, "text/plain; charset=utf-8"
        if path == "/":
            return status, "text/html; charset=utf-8", status_page(dispatcher, state)
        if path == "/metrics":
            families = SimpleNamespace(collect=lambda: _metrics(core, dispatcher))
            return status, client.CONTENT_TYPE_LATEST, client.generate_latest(families).decode()
        if path != "/healthz":
            return HTTPStatus.NOT_FOUND, kind, "the pages are /, /metrics, /healthz\n"
        if dispatcher.heartbeats.closing:
            return HTTPStatus.SERVICE_UNAVAILABLE, kind, "the service is stopping\n"
        if dispatcher.trouble is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, kind, f"no shard is handed out: {dispatcher.trouble}\n"
        return status, kind, "ok\n"

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        asked = asyncio.run_coroutine_threadsafe(page(environ["PATH_INFO"]), loop)
        try:
            status, kind, text = asked.result(_SECONDS)
        except Exception as error:  # of any kind: else it would be a traceback, or no line at all
            _log.error("unexpected %s: %s; this is a bug in tarkit", type(error).__name__, error)
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8"
            text = "this is a bug in tarkit; see the messages of the service\n"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", kind), _POLICY])
        return [text.encode("utf-8", "backslashreplace")]

    return answer


def _metrics(core: Any, dispatcher: Dispatcher) -> Iterator[Any]:
    """Yield the metrics as families of prometheus-client."""
    gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
    progress = dispatcher.progress()
    for field, (name, text) in _GAUGES.items():
        family = gauge(f"tarkit_{name}", text, labels=["dataset"])
        for each in progress:
            family.add_metric([each.name], float(getattr(each, field)))
        yield family
    lost = counter("tarkit_leases_lost", "Leases that ended because their worker was lost.", labels=["dataset"])
    for each in progress:
        lost.add_metric([each.name], each.lost)
    yield lost
    reports = counter("tarkit_reports", "Reports of workers, by what became of them.", labels=["verdict"])
    for verdict in Verdict:
        reports.add_metric([verdict.value], dispatcher.verdicts[verdict.value])
    yield reports
    yield counter("tarkit_differing_declarations", "Declarations that differed from the first.", dispatcher.differing)
    yield gauge("tarkit_held_calls", "Calls that wait for a shard or the end.", dispatcher.pending.number)
    yield gauge("tarkit_state_writable", "0 while the state cannot be written.", float(dispatcher.trouble is None))
