"""Servers that cut answers, redirect or answer nonsense; and job files that are
valid but absurd.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.tarkit import main as tarkit

from tarkit.errors import DataError, UsageError
from tarkit.openpai.api import submit
from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import JobFile, read_job


def send(url: str) -> None:
    submit(url, "ada", "token-of-ada", "name: a", seconds=60)


@pytest.mark.parametrize(
    "url", ["http://ada:hunter2@host", "http://host:hunter2", "http://[::1", "http://", "http://a b", "http://h/?t=x",
            "ftp://host", "http://host:99999", "http://host/\n", "host"]
)  # fmt: skip
def test_what_is_not_the_address_of_a_cluster(url: str) -> None:
    with pytest.raises(UsageError, match="has no user") as error:
        send(url)
    assert "hunter2" not in str(error.value)


def job(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A job of protocol 2.

    Args:
        fields: of each of its roles, those of resourcePerInstance among them.
    """
    wanted = {name: fields.pop(name, least) for name, least in (("cpu", 1), ("memoryMB", 100), ("gpu", 0))}
    role = {"dockerImage": "i", "resourcePerInstance": wanted, "commands": ["<% $parameters.x %>"], **fields}
    image = {"type": "dockerimage", "name": "i", "uri": "i"}
    roles = {f"r{each}": role for each in range(number)}
    return {"protocolVersion": 2, "name": "a", "type": "job", "prerequisites": [image], "taskRoles": roles}


BOMB = "  a0: &a0 [x, x]\n" + "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "message"),
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
