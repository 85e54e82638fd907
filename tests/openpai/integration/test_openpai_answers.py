"""Servers that cut answers, redirect or answer nonsense."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tarkit.errors import ClusterError, ClusterUnreachableError, TarkitError
from tarkit.openpai.api import submit


def read_request(connection: socket.socket) -> None:
    """All of it, in how many pieces it may come: a connection that is closed with some of it unread
    is reset, and what was answered may be lost.
    """
    with connection.makefile("rb") as stream:
        fields = list(iter(stream.readline, b"\r\n"))
        lengths = [int(each.split(b":")[1]) for each in fields if each.lower().startswith(b"content-length:")]
        stream.read(sum(lengths))


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives these bytes to one connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(120)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            read_request(connection)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()
        listener.close()


def http(body: bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    fields = [f"Content-Length: {len(body) if length is None else length}", "Connection: close", *headers]
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode() + body


def send(url: str) -> None:
    submit(url, "ada", "token-of-ada", "name: a", seconds=60)


@pytest.mark.parametrize("status", ["302 Found", "308 Permanent"])
def test_a_redirected_submission_is_not_taken_for_one_that_arrived(status: str) -> None:
    with (
        answering(http(b"", status, "Location: http://127.0.0.1:9/login")) as url,
        pytest.raises(ClusterError, match=r"sends on to http://127.0.0.1:9/login; use the address"),
    ):
        send(url)


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
     http(b'{"a": {}}', length=100), http(b"x" * (2 << 20)), http(b"x", "500 No", length=100),
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
    ids=["nothing", "not HTTP", "status", "headers", "cut", "long", "cut error", "chunks"],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_an_error_that_names_the_call(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(ClusterUnreachableError, match=r"^POST http://127.0.0.1:"):
        send(url)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>log in</html>", b"[" * 100_000, b"\xff\xfe"])
def test_a_page_is_not_taken_for_a_job_that_was_submitted(body: bytes) -> None:
    with (
        answering(http(body)) as url,
        pytest.raises(ClusterError, match=r"^POST http://.*: the answer is not one of OpenPAI"),
    ):
        send(url)


@pytest.mark.parametrize(
    "answer",
    [http(b'{"code": "x", "message": "no token-of-ada"}', "401 No"), http(b"token-of-ada", "500 No"),
     http(b"", "301 Moved", "Location: http://127.0.0.1:9/token-of-ada"), b"token-of-ada\r\n\r\n"],
)  # fmt: skip
def test_a_server_that_repeats_the_token_does_not_get_it_into_a_message(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(TarkitError) as error:
        send(url)
    assert "token-of-ada" not in str(error.value) and "…" in str(error.value)


def test_control_characters_of_a_server_do_not_reach_the_terminal() -> None:
    message = json.dumps({"code": "\x1b", "message": "\x1b[2J"}).encode()
    with answering(http(message, "400 Bad")) as url, pytest.raises(TarkitError) as error:
        send(url)
    assert "\x1b" not in str(error.value)
