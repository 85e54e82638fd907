"""The names that samples' groups have, as their keys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.exchange.groupnames import groups_of_samples
from tarkit.exchange.reduce import Reduce
from tarkit.exchange.values import plain_value, text_of_plain
from tarkit.samples.rawsamples import RawSample


def sample(key: str, **fields: bytes) -> RawSample:
    data, words = b"", b""
    for field, content in fields.items():
        words += f"{field}\0{len(data)}\0{len(content)}\0{key}.{field}\0".encode()
        data += content
    return RawSample(key, (data,), len(data), words)


@pytest.mark.parametrize(
    ("by", "key", "name"),
    [
        ("folder", "video12/frame003", "video12"),
        ("folder", "a/b/c", "a/b"),
        ("key", "a/b", "a/b"),
        (r"key:^(.*)_\d+$", "cat_7_003", "cat_7"),
        ("key:video([0-9]+)", "x/video12/3", "12"),
        ("key:(?:a|(b))", "b", "b"),
    ],
)
def test_parts_of_the_key(by: str, key: str, name: str) -> None:
    assert groups_of_samples(by)(sample(key, x=b"1")) == name


@pytest.mark.parametrize(
    ("by", "value", "name"),
    [
        ("json.user.id", {"user": {"id": 7}}, "7"),
        ("json.user.id", {"user": {"id": "7"}}, "7"),
        ("json.x", {"x": True}, "true"),
        ("json.x", {"x": 1.5}, "1.5"),
        ("json.x", {"x": -0.0}, "0"),
        ("json.x", {"x": "ü/v"}, "ü/v"),
    ],
)
def test_values_in_json(by: str, value: Any, name: str) -> None:
    assert groups_of_samples(by)(sample("k", json=json.dumps(value).encode())) == name


def test_fields_and_functions(tmp_path: Path) -> None:
    assert groups_of_samples("cls")(sample("k", cls=b"cat\n")) == "cat"
    assert groups_of_samples("cls:number")(sample("k", cls=b" 07.0\n")) == "7"
    assert groups_of_samples("size")(sample("k", a=b"123", b=b"4567")) == "7"
    assert groups_of_samples(lambda found: found["a"][:1])(sample("k", a=b"xyz")) == "x"
    (tmp_path / "by.py").write_text("def of(sample):\n    return len(sample['a']) / 2\n")
    assert groups_of_samples(f"{tmp_path}/by.py:of")(sample("k", a=b"xyz")) == "1.5"


@pytest.mark.parametrize(
    "value",
    [0, 1, -1, 1.5, -2.25, 1e-300, 5e-324, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 10**40 + 1, -(10**40), 1.7e308],
)
def test_numbers_come_back(value: float) -> None:
    text = text_of_plain(plain_value(value))
    assert (int(text) if isinstance(value, int) or value == 1.7e308 else float(text)) == value


@pytest.mark.parametrize("value", ["", "a", "\0", "a\0\xff\0b", "ü\n"])
def test_texts_come_back(value: str) -> None:
    assert text_of_plain(plain_value(value)) == value


@pytest.mark.parametrize(
    ("by", "key", "reason"),
    [
        ("folder", "frame", "its key 'frame' has no folder"),
        (r"key:(\d+)", "a\nb", r"its key 'a\\nb' does not match '(\\d+)'"),
        ("key:(?:a|(b))", "a", "does not match"),
        ("cls", "a", "has no field cls"),
    ],
)
def test_samples_without_a_group(by: str, key: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        groups_of_samples(by)(sample(key, x=b"1"))


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ("key:(", "is not a regular expression after key:"),
        ("key:abc", "must have one group in parentheses"),
        ("key:(a)(b)", "it has 2"),
    ],
)
def test_wrong_expressions(by: str, problem: str) -> None:
    with pytest.raises(UsageError, match="--by") as caught:
        groups_of_samples(by)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def merge(name: str, samples: Any) -> None:
    """Return no sample."""


def one(samples: Any) -> None:
    """Take too few arguments."""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give one of -c COMMAND and --map FUNCTION"),
        ({"command": "true", "function": merge}, "give one of -c COMMAND and --map FUNCTION"),
        ({"function": merge, "timeout": 1.0}, "--timeout and --shell-flags go with -c"),
        ({"function": "nowhere_at_all:merge"}, "the module 'nowhere_at_all' does not exist"),
        ({"function": one}, "is called with the name of a group and an iterator of its samples"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        Reduce("folder", **options)
    assert problem in str(caught.value)


def test_options_depend_on_the_command_and_on_files(tmp_path: Path) -> None:
    script, module, beside = (tmp_path / name for name in ("script.sh", "mapper.py", "beside.py"))
    script.write_text("true")
    beside.write_text("A = 1\n")
    module.write_text("import beside\ndef merge(name, samples):\n    return None\n")
    names = {"command": f"bash {script}"}, {"function": f"{module}:merge"}
    before = [Reduce("folder", **each).options() for each in names]
    assert before == [Reduce("folder", **each).options() for each in names]
    assert before[0] != Reduce("folder", "true").options() != Reduce("key", "true").options()
    script.write_text("false")
    beside.write_text("A = 2\n")
    after = [Reduce("folder", **each).options() for each in names]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True]
    module.write_text("import beside\ndef merge(name, samples):\n    return {}\n")
    assert Reduce("folder", **names[1]).options() != after[1]
    json.dumps(after)


def test_a_callable_is_known_by_its_work_id() -> None:
    assert Reduce("folder", None, merge).options() != Reduce("folder", None, merge).options()
    named = [Reduce("folder", None, merge, work_id=name).options() for name in ("a", "a", "b")]
    assert named[0] == named[1] != named[2]
