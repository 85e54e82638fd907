"""Servers that cut answers, redirect or answer nonsense; and job files that are valid but absurd."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.tarkit import main as tarkit

from tarkit.errors import ClusterError, ClusterUnreachableError, DataError, TarkitError, UsageError
from tarkit.openpai.api import submit
from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import JobFile, read_job


def read_request(connection: socket.socket) -> None:
    """All of it, in how many pieces it may come: a connection that is closed with some of it unread is reset, and what
    was answered may be lost."""
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
        pytest.raises(ClusterError, match="sends on to http://127.0.0.1:9/login; use the address"),
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
    with answering(answer) as url, pytest.raises(ClusterUnreachableError, match="^POST http://127.0.0.1:"):
        send(url)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>log in</html>", b"[" * 100_000, b"\xff\xfe"])
def test_a_page_is_not_taken_for_a_job_that_was_submitted(body: bytes) -> None:
    with (
        answering(http(body)) as url,
        pytest.raises(ClusterError, match="^POST http://.*: the answer is not one of OpenPAI"),
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


@pytest.mark.parametrize(
    "url", ["http://ada:hunter2@host", "http://host:hunter2", "http://[::1", "http://", "http://a b", "http://h/?t=x",
            "ftp://host", "http://host:99999", "http://host/\n", "host"]
)  # fmt: skip
def test_what_is_not_the_address_of_a_cluster(url: str) -> None:
    with pytest.raises(UsageError, match="has no user") as error:
        send(url)
    assert "hunter2" not in str(error.value)


def test_control_characters_of_a_server_do_not_reach_the_terminal() -> None:
    message = json.dumps({"code": "\x1b", "message": "\x1b[2J"}).encode()
    with answering(http(message, "400 Bad")) as url, pytest.raises(TarkitError) as error:
        send(url)
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
