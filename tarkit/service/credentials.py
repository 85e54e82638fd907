"""Where a service listens, and what it asks of its callers: TLS and a bearer token, from files."""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from tarkit.errors import MissingInputError, UsageError

_ADDRESS = re.compile(r"(.*):([0-9]{1,5})", re.DOTALL)


def host_and_port(address: str) -> tuple[str, int] | None:
    """The parts of ``HOST:PORT``, of which the host may be empty; None: it has another form."""
    found = _ADDRESS.fullmatch(address)
    return (found[1], int(found[2])) if found and int(found[2]) < 1 << 16 else None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Security:
    """What a caller needs.

    Attributes:
        key, certificate: PEM, for TLS; b"": none.
        token: the bearer token; "": none.
    """

    key: bytes = field(default=b"", repr=False)
    certificate: bytes = b""
    token: str = field(default="", repr=False)


def security_of_files(key: str | None, certificate: str | None, token: str | None) -> Security:
    """The security of a service.

    Args:
        key, certificate: PEM files.
        token: as ``token_of_file`` reads it.

    Raises:
        UsageError: only one of key and certificate, or no token in its file.
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
    """The bearer token in the first line of a file.

    Raises:
        UsageError: the line is empty, or has what a header cannot have.
        MissingInputError: the file cannot be read.
    """
    token = bytes_of_file(path).split(b"\n")[0].strip().decode("utf-8", "replace")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{path}: the first line must be the token: printable ASCII without blanks")
    return token


def bytes_of_file(path: str) -> bytes:
    """All of a local file.

    Raises:
        MissingInputError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingInputError(f"cannot be read: {error.strerror or error}", url=path) from error


def _check_pair(key: str, certificate: str) -> None:
    """Raises:
    UsageError: not a key and its certificate. gRPC would not say so.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"{key} is not the key, without a password, of the certificate {certificate}: {reason}"
        ) from error
