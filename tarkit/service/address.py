"""Addresses of a service: ``HOST:PORT``."""

from __future__ import annotations

import ipaddress
import re

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
