"""Servers that are slow, cut answers, redirect or answer nonsense; and job files that are valid but absurd."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tarkit.errors import ClusterError, ClusterUnreachableError, TarkitError
from tarkit.openpai import api
from tarkit.openpai.api import Job, JobTask, RestServer

TASK = JobTask("map", 0, "RUNNING", None, None)
JOB = Job("ada~a", "RUNNING", 0, [TASK])


@contextmanager
def answering(*answers: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that gives these bytes to one connection each, with a pause after each byte of the last 20."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer[:-20] if pause else answer)
                for byte in answer[-20:] if pause else b"":
                    time.sleep(pause)
                    try:
                        connection.sendall(bytes([byte]))
                    except OSError:
                        return

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


def server(url: str, seconds: float = 5.0) -> RestServer:
    return RestServer(url, "ada", "token-of-ada", seconds=seconds)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirected_submission_is_not_taken_for_one_that_arrived(status: str) -> None:
    with (
        answering(http(b"", status, "Location: http://127.0.0.1:9/login")) as url,
        pytest.raises(ClusterError, match="sends on to http://127.0.0.1:9/login; use the address"),
    ):
        server(url).submit("name: a")


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"5", b"null", b'"x"', b"{}", b'{"jobStatus": "x"}', b'{"jobStatus": {}, "taskRoles": [1]}',
     b'{"jobStatus": {}, "taskRoles": {"a": 5}}', b'{"jobStatus": {}, "taskRoles": {"a": {"taskStatuses": [5]}}}',
     b'{"jobStatus": {}, "taskRoles": {"a": {"taskStatuses": [{"taskIndex": "x"}]}}}',
     b'{"jobStatus": {"retries": "x"}}', b"[" * 100_000, b"\xff\xfe", b"<html>"],
)  # fmt: skip
def test_an_answer_that_is_not_a_job_is_an_error(body: bytes) -> None:
    with answering(http(body)) as url, pytest.raises(ClusterError, match="not a job of OpenPAI"):
        server(url).job("a")


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
     http(b'{"jobStatus": {}}', length=100), http(b"x", "500 No", length=100),
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
    ids=["nothing", "not HTTP", "status", "headers", "cut", "cut error", "chunks"],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_an_error_that_names_the_call(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(ClusterUnreachableError, match="^GET http://127.0.0.1:"):
        server(url).job("a")


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_a_call_for_ever() -> None:
    with (
        answering(http(json.dumps({"jobStatus": {"state": "RUNNING"}}).encode()), pause=0.1) as url,
        pytest.raises(ClusterUnreachableError, match="not complete after 0.3 s"),
    ):
        server(url, 0.3).job("a")


def test_answers_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_BYTES", 1000)
    with answering(http(b"x" * 5000)) as url, pytest.raises(ClusterError, match="more than 1000 bytes"):
        server(url).job("a")
    with answering(http(b"x" * 5000)) as url:
        (log,) = server(url).log(JOB, TASK)
    assert log == "x" * 1000 + "\n(the rest is left out: it has more than 1000 bytes)\n"


@pytest.mark.parametrize("name", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_server_cannot_have_a_file_of_this_machine_printed(name: str) -> None:
    body = json.dumps({"locations": [{"name": "all", "uri": name}]}).encode()
    with answering(http(body)) as url, pytest.raises(ClusterError, match="it is not HTTP"):
        list(server(url).log(JOB, TASK))


@pytest.mark.parametrize("locations", ['"x"', "[5]", "{}", '[{"name": "a"}]', "null"])
def test_places_of_logs_that_are_none_are_printed_as_they_are(locations: str) -> None:
    body = f'{{"locations": {locations}}}'
    with answering(http(body.encode())) as url:
        found = "".join(server(url).log(JOB, TASK))
    assert found == ("" if locations == "{}" else body)


def test_control_characters_of_a_server_do_not_reach_the_terminal() -> None:
    job = {"name": "\x1b[2Ja", "jobStatus": {"state": "\x1b]0;x\x07"},
           "taskRoles": {"\x1bm": {"taskStatuses": [{"taskState": "\x1b"}]}}}  # fmt: skip
    with answering(http(json.dumps(job).encode())) as url:
        assert "\x1b" not in "".join(map(str, server(url).job("a")))
    message = json.dumps({"code": "\x1b", "message": "\x1b[2J"}).encode()
    with answering(http(message, "400 Bad")) as url, pytest.raises(TarkitError) as error:
        server(url).submit("x")
    assert "\x1b" not in str(error.value)
