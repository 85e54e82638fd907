"""The HTTP port of a service: a status page, ``/metrics`` for Prometheus, ``/healthz``.

It only reads.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tarkit.errors import UsageError, printable, quoted
from tarkit.extras import library
from tarkit.service.credentials import host_and_port, is_loopback
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.leases import Verdict
from tarkit.service.statuspage import status_page

_log = logging.getLogger(__name__)
_SECONDS = 10.0
"""For which a caller may be silent, or not read."""
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
"""Field of DataSetProgress -> name of the metric, and what it is."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each caller."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that goes, or is slow, gets no answer."""


class _Server6(_Server):
    """On an address of IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Not shown."""

    def get_stderr(self) -> Any:
        """Where wsgiref prints the traceback of a caller that does not read: it is not shown."""
        return io.StringIO()


@asynccontextmanager
async def serving_http(listen: str, dispatcher: Dispatcher, state: str, *, insecure: bool) -> AsyncIterator[str]:
    """Answer GET for as long as it lasts; what it yields is the address.

    Args:
        listen: ``[HOST:]PORT``; without a host, loopback.
        state: where the state is, for the page.
        insecure: listen elsewhere than on loopback.

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
    """The application of WSGI.

    What it shows is read in the event loop of the service.
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
    """Families of metrics of prometheus-client."""
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
