"""Addresses that a user gives: HOST:PORT, and what is not one."""

from __future__ import annotations

import pytest

from tarkit.service.connection import host_and_port, is_loopback


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:50001", ("localhost", 50001)),
        ("[::1]:0", ("[::1]", 0)),
        (":80", ("", 80)),
        *((bad, None) for bad in ("", "50001", "a:", "a:65536", "a:-1", "a:²", "a:1 ", "a:80/", "a:" + "9" * 5000)),
    ],
)
def test_host_and_port(address: str, parts: tuple[str, int] | None) -> None:
    assert host_and_port(address) == parts


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.8.0.1", "[::1]", "::1")] == [True] * 4
    assert [is_loopback(host) for host in ("", "0.0.0.0", "[::]", "10.0.0.1", "example.org")] == [False] * 5
