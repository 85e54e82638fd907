"""Addresses of shard services, their TLS and tokens, and calls of ``shards.proto``.

A call that the service refuses raises at once; any other failure is retried.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tarkit.errors import MissingInputError, ServiceLostError, UsageError, printable, quoted
from tarkit.extras import library
from tarkit.service.messages import shard_protocol
from tarkit.service.progress import DataSetProgress, progress_of_message
from tarkit.store.forks import is_inherited
from tarkit.store.retry import Retry

_ADDRESS = re.compile(r"(.*):([0-9]{1,5})", re.DOTALL)
T = TypeVar("T")
_log = logging.getLogger(__name__)
WATCHER = "tarkit-watcher"
"""Metadata of a call: the name of a watcher that the service waits for at its end."""
_REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
_QUIET = 5.0
"""Seconds without an answer after which that is logged, and again whenever they have doubled."""
_OPTIONS = [
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    # A service whose machine is gone says nothing: held calls have no other end.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A process that was forked makes a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
]


def host_and_port(address: str) -> tuple[str, int] | None:
    """Split ``HOST:PORT``, whose host may be empty; None if it has another form."""
    found = _ADDRESS.fullmatch(address)
    return (found[1], int(found[2])) if found and int(found[2]) < 1 << 16 else None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Security:
    """The key and certificate of a service, and the token that its callers need.

    Attributes:
        key, certificate: PEM, for TLS; b"": none.
        token: the bearer token; "": none.
    """

    key: bytes = field(default=b"", repr=False)
    certificate: bytes = b""
    token: str = field(default="", repr=False)


def security_of_files(key: str | None, certificate: str | None, token: str | None) -> Security:
    """Read the key, certificate and token of a service from files.

    Args:
        key, certificate: PEM files.
        token: file that ``token_of_file`` reads.

    Raises:
        UsageError: only one of key and certificate is given, or the token file is empty.
        MissingInputError: a file cannot be read.
    """
    if bool(key) != bool(certificate):
        raise UsageError("TLS needs both a key and a certificate")
    security = Security(
        bytes_of_file(key) if key else b"",
        bytes_of_file(certificate) if certificate else b"",
        token_of_file(token) if token else "",
    )
    if key and certificate:
        _check_pair(key, certificate)
    return security


def token_of_file(path: str) -> str:
    """Read the bearer token from the first line of a file.

    Raises:
        UsageError: the line is empty, or has characters that are not valid in a header.
        MissingInputError: the file cannot be read.
    """
    token = bytes_of_file(path).split(b"\n")[0].strip().decode("utf-8", "replace")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{path}: the first line must be the token: printable ASCII without blanks")
    return token


def bytes_of_file(path: str) -> bytes:
    """Read a local file.

    Raises:
        MissingInputError: the file cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingInputError(f"cannot be read: {error.strerror or error}", url=path) from error


def _check_pair(key: str, certificate: str) -> None:
    """Check that a key belongs to its certificate, which gRPC does not report.

    Raises:
        UsageError: the key does not belong to the certificate, or needs a password.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"{key} is not the key, without a password, of the certificate {certificate}: {reason}"
        ) from error


class Unwanted(Exception):
    """The caller has stopped waiting for the answer."""


class ServiceConnection:
    """A channel to a shard service; threads share it.

    Args:
        address: ``HOST:PORT``.
        token: bearer token of the service.
        certificate: PEM of the authority that signed the service's certificate; with it, TLS is
            used.
        patience: seconds for which a call is retried.
        watcher: name of this watcher, for which the service waits at its end.

    Raises:
        UsageError: ``address`` is not HOST:PORT, or this process was forked from one that had a
            connection.
        MissingExtraError: grpcio or protobuf is not installed.
    """

    def __init__(self, address: str, token: str, certificate: bytes, patience: float, watcher: str = "") -> None:
        grpc = library("grpc", "a client of the shard service", "service")
        if not all(host_and_port(address) or ("", 0)):
            raise UsageError(f"{quoted(address)} is not HOST:PORT of a shard service, such as localhost:50001")
        if is_inherited("grpc"):
            # Calls in such a process hang or crash now and then.
            raise UsageError(
                "this process was forked from one that had a connection to a shard service, and gRPC does not work "
                "in it; connect in the children only, or start them with the method 'spawn'"
            )
        calls = shard_protocol().calls
        self.patience = patience
        self._address = address
        self.broken = (grpc.RpcError, grpc.FutureCancelledError)
        """Exceptions of a call that gets no answer."""
        self._tls = bool(certificate)
        if certificate and b"-----BEGIN CERTIFICATE-----" not in certificate:
            raise UsageError("the certificate of the shard service is not PEM: it has no BEGIN CERTIFICATE")
        if certificate:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        given = {"authorization": token and f"Bearer {token}", WATCHER: watcher}
        self._metadata = tuple((key, value) for key, value in given.items() if value)
        self._stubs = {call.name: (call.stub(self._channel), call.request) for call in calls}

    def start(self, name: str, /, **fields: Any) -> Any:
        """Begin a call, without waiting for its answer.

        A call of one answer has ``result()`` and ``cancel()``; one of many is an iterator with
        ``cancel()``.
        """
        stub, request = self._stubs[name]
        return getattr(stub, "future", stub)(request(**fields), metadata=self._metadata)

    def call(self, name: str, patience: float | None = None, /, **fields: Any) -> Any:
        """Make a call, retry it, and return its answer.

        It raises the errors of :meth:`insist`.
        """
        return self.insist(lambda: self.start(name, **fields).result(), threading.Event(), patience)

    def insist(self, attempt: Callable[[], T], stopped: threading.Event, patience: float | None = None) -> T:
        """Retry until ``attempt()`` returns, and return its result.

        Raises:
            UsageError: the service refuses the call; the message is that of the service.
            ServiceLostError: the service did not answer for ``patience`` seconds.
            Unwanted: ``stopped`` is set.
        """
        patience = self.patience if patience is None else patience
        waits = Retry(base=0.1, cap=2.0)
        failures, since, quiet = 0, time.monotonic(), _QUIET
        while not stopped.is_set():
            began = time.monotonic()
            try:
                return attempt()
            except self.broken as error:
                reason = self._reason(error)
            if not failures:
                # A held call may have lasted for hours before it broke.
                since, quiet = max(began, time.monotonic() - 1.0), _QUIET
            failures += 1
            passed = time.monotonic() - since
            if passed >= patience:
                raise ServiceLostError(
                    f"the shard service at {self._address} has not answered for {passed:.0f} s: {reason}; "
                    "start it again with the same state, then this program"
                )
            if passed >= quiet:
                quiet = 2 * passed
                _log.warning("no answer from %s for %.0f s: %s; trying again", self._address, passed, reason)
            stopped.wait(min(waits.wait_before(failures), patience - passed))
        raise Unwanted

    def _reason(self, error: Any) -> str:
        """Return the reason why a call failed that may be tried again.

        Raises:
            UsageError: the call must not be tried again.
        """
        if not hasattr(error, "code"):
            return "the call was cancelled"
        code, said = error.code().name, error.details() or ""
        details = printable(said)
        if code in _REFUSALS:
            raise UsageError(details) from None
        if code == "UNIMPLEMENTED":
            raise UsageError(f"{quoted(self._address)} is not a shard service of tarkit: {details}") from None
        if "handshake failed" in said.lower():
            reason = "its certificate is not signed by the given one" if "VERIFY" in said else "is it one that has TLS?"
            raise UsageError(f"no TLS with the shard service at {quoted(self._address)}: {reason}") from None
        if "Failed parsing HTTP/2" in said:
            details = "what listens there is not a shard service: its answer is not that of gRPC"
        if "Socket closed" in said and not self._tls:
            details += " (if the service has TLS, give its certificate)"
        return f"{code}: {details}" if details else code

    def close(self) -> None:
        """Break all calls."""
        self._channel.close()


def watched_progress(
    address: str, certificate: str | None = None, token: str | None = None, *, patience: float = 60.0, watcher: str = ""
) -> Iterator[list[DataSetProgress]]:
    """Yield the progress of all data sets, once a second, until all have ended.

    The last one shows the end.

    Args:
        address: HOST:PORT.
        certificate: PEM file of what to trust; None: no TLS.
        token: a file whose first line is the bearer token.
        patience: seconds for which the service may not answer.
        watcher: a name of ASCII; the service waits at its end until this watcher has seen it. "":
            it does not.

    Raises:
        ServiceLostError: the service did not answer for so long.
        UsageError: the service refused to answer, for example without a token, or ``address`` is
            not valid.
        MissingInputError: a file cannot be read.
        MissingExtraError: grpcio is not installed.
    """
    trusted = bytes_of_file(certificate) if certificate else b""
    secret = token_of_file(token) if token else ""
    with closing(ServiceConnection(address, secret, trusted, patience, watcher)) as connection:
        while True:
            found = [progress_of_message(each) for each in connection.call("GetProgress").progress]
            yield found
            if found and all(each.over for each in found):
                return
            time.sleep(1.0)
