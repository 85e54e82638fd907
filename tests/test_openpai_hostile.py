"""Servers that are slow, cut answers, redirect or answer nonsense; and job files that are valid but absurd."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tarkit.cli.tarkit import main as tarkit

from tarkit.errors import ClusterError, ClusterUnreachableError, DataError, TarkitError, UsageError
from tarkit.openpai import api
from tarkit.openpai.api import Job, JobTask, RestServer
from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import JobFile, read_job

TASK = JobTask("map", 0, "RUNNING", None, None)
JOB = Job("ada~a", "RUNNING", 0, [TASK])


def read_request(connection: socket.socket) -> None:
    """All of it, in how many pieces it may come: a connection that is closed with some of it unread is reset, and what
    was answered may be lost."""
    with connection.makefile("rb") as stream:
        fields = list(iter(stream.readline, b"\r\n"))
        lengths = [int(each.split(b":")[1]) for each in fields if each.lower().startswith(b"content-length:")]
        stream.read(sum(lengths))


@contextmanager
def answering(*answers: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that gives these bytes to one connection each, with a pause after each byte of the last 20."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(120)

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                read_request(connection)
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


def server(url: str, seconds: float = 60.0) -> RestServer:
    return RestServer(url, "ada", "token-of-ada", seconds=seconds)


@pytest.mark.parametrize("status", ["302 Found", "308 Permanent"])
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
     b'{"jobStatus": {"retries": "x"}}', b'{"jobStatus": {"retries": 1e999}}', b"[" * 100_000, b"\xff\xfe", b"<html>"],
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


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_a_call_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # A minute of the whole call is a second, and of the time-out of the socket, which begins anew with each byte, it is
    # a minute: a machine that stands still for a moment does not end the call in its place.
    monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: 60 * time.monotonic()))
    with (
        answering(http(json.dumps({"jobStatus": {"state": "RUNNING"}}).encode()), pause=0.1) as url,
        pytest.raises(ClusterUnreachableError, match="not complete after 60 s"),
    ):
        server(url).job("a")


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>log in</html>", b"[" * 100_000])
def test_a_page_is_not_taken_for_a_job_that_was_submitted_or_stopped(body: bytes) -> None:
    with answering(http(body), http(body)) as url:
        with pytest.raises(ClusterError, match="^POST http://.*: the answer is not one of OpenPAI"):
            server(url).submit("name: a")
        with pytest.raises(ClusterError, match="^PUT http://.*: the answer is not one of OpenPAI"):
            server(url).stop("a")


@pytest.mark.parametrize(
    "answer",
    [http(b'{"code": "x", "message": "no token-of-ada"}', "401 No"), http(b"token-of-ada", "500 No"),
     http(b"", "301 Moved", "Location: http://127.0.0.1:9/token-of-ada"), b"token-of-ada\r\n\r\n"],
)  # fmt: skip
def test_a_server_that_repeats_the_token_does_not_get_it_into_a_message(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(TarkitError) as error:
        server(url).job("a")
    assert "token-of-ada" not in str(error.value) and "…" in str(error.value)
    job = {"name": "token-of-ada", "jobStatus": {"state": "token-of-ada"}}
    with answering(http(json.dumps(job).encode())) as url:
        assert "token-of-ada" not in str(server(url).job("a"))


@pytest.mark.parametrize(
    "url", ["http://ada:hunter2@host", "http://host:hunter2", "http://[::1", "http://", "http://a b", "http://h/?t=x",
            "ftp://host", "http://host:99999", "http://host/\n", "host"]
)  # fmt: skip
def test_what_is_not_the_address_of_a_cluster(url: str) -> None:
    with pytest.raises(UsageError, match="has no user") as error:
        server(url)
    assert "hunter2" not in str(error.value)


def test_answers_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_BYTES", 1000)
    with answering(http(b"x" * 5000)) as url, pytest.raises(ClusterError, match="more than 1000 bytes"):
        server(url).job("a")
    with answering(http(b"x" * 5000)) as url:
        (log,) = server(url).log(JOB, TASK)
    assert log == "x" * 1000 + "\n(the rest is left out: it has more than 1000 bytes)\n"


@pytest.mark.parametrize("name", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "http://[::1"])
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


def job(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A job of protocol 2. fields: of each of its roles, those of resourcePerInstance among them."""
    wanted = {name: fields.pop(name, least) for name, least in (("cpu", 1), ("memoryMB", 100), ("gpu", 0))}
    role = {"dockerImage": "i", "resourcePerInstance": wanted, "commands": ["<% $parameters.x %>"], **fields}
    image = {"type": "dockerimage", "name": "i", "uri": "i"}
    roles = {f"r{each}": role for each in range(number)}
    return {"protocolVersion": 2, "name": "a", "type": "job", "prerequisites": [image], "taskRoles": roles}


BOMB = "  a0: &a0 [x, x]\n" + "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    "text, message",
    [
        (f"parameters:\n{BOMB}", "with its aliases written out, it has more than"),
        (f"extras:\n{BOMB.replace('[x, x]', '{k: v}').replace(' [', ' {<<: [').replace(']', ']}')}", "written out"),
        ("a: &a [*a]", "recursive"),
        (json.dumps(job())[:-1] + ', "extras": ' + '{"a":' * 101 + "1" + "}" * 102, "more than 100 levels deep"),
        (json.dumps(job())[:-1] + ', "parameters": {"x": ' + "[" * 900 + "]" * 900 + "}}", "more than 100 levels deep"),
        (json.dumps(job())[:-1] + ', "name": "b"}', "the key name comes twice"),
    ],
)
def test_texts_that_would_fill_the_memory_or_the_stack(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_job(text, "job")


@pytest.mark.parametrize("keys", ["1 1.0", 'true "true"', '~ "null"', "0x10 16"])
def test_keys_that_are_one_in_javascript_are_a_key_that_comes_twice(keys: str) -> None:
    """As by js-yaml; the last one counted in silence."""
    one, other = keys.split()
    with pytest.raises(DataError, match="comes twice"):
        read_job(f"protocolVersion: 2\nparameters: {{{one}: a, {other}: b}}", "job")


def test_texts_that_would_take_the_square_of_their_length() -> None:
    roles = [{"name": "r", "command": "c", "taskNumber": "1" * 200_000 + "x"}]
    assert problems_in(JobFile(1, {"jobName": "a", "image": "i", "taskRoles": roles}))


@pytest.mark.parametrize(
    "fields",
    [{"secrets": "HUNTER2"}, {"prerequisites": [{"type": "dockerimage", "name": "i", "uri": "i", "auth": "HUNTER2"}]},
     {"prerequisites": [{"type": "dockerimage", "name": "i", "uri": "i", "auth": {"password": 42424242}}]}],
)  # fmt: skip
def test_secrets_of_a_wrong_type_are_not_shown(fields: dict[str, Any]) -> None:
    (problem,) = problems_in(JobFile(2, {**job(), **fields}))
    assert ": it must be a " in str(problem)
    assert not {"HUNTER2", "42424242"} & set(re.split(r"\W", str(problem)))
    (problem,) = problems_in(JobFile(1, {"jobName": "a", "image": "i", "jobEnvs": "HUNTER2", "taskRoles": [
        {"name": "r", "command": "c"}]}))  # fmt: skip
    assert str(problem) == "jobEnvs: it must be a mapping"


def test_a_command_that_no_yaml_can_hold_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"jobName": "a", "image": "i", "taskRoles": [{"name": "r", "command": "a\0b"}]}))
    assert tarkit(["pai", "convert", str(path)]) == 65
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"tarkit: {path}: ")
