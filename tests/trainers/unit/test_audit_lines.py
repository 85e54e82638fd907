"""Lines of an audit whose checksum is right, and whose values cannot be: an error of one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tarkit.cli.tarkit import main
from trainshards import write_shards

from tarkit.errors import DataError
from tarkit.trainers.audit import audit_folder
from tarkit.trainers.auditlog import audit_line, parsed_line
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream

Lines = list[dict[str, Any]]
DEEP = json.loads("[" * 400 + "]" * 400)
VALUES = st.sampled_from(
    [None, True, False, -1, 0, 1, 2**31, 2**62, 10**30, 0.5, -1e308, float("nan"), float("inf"), "", "x", "0", "0.0",
     "-0.0", "0.0 " * 3, "0.0-*", "9" * 5000, "p1/0", "p1e99999", "p" + "9" * 5000, "q1", "\ud800", "../x", "f" * 16,
     "٣.٣", [], [0], [0, 0, 0], [0, -1], [2**61, 2**61], {}, {"": 0}, {"a": []}, DEEP]
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Lines, list[str]]]:
    """Folders of trainings, of shards, streams, and a subset: with their lines and shards."""
    found = []
    for kind in ("shards", "streams", "subset"):
        folder = tmp_path_factory.mktemp(kind)
        shards = [write_shards(folder, (9, 8), name=name) for name in "ab"]
        options: dict[str, Any] = {"batch": 4, "audit": folder / "audit"}
        if kind == "streams":
            source = BatchSource(
                [Stream(each, name=name) for each, name in zip(shards, "ab", strict=True)], stratified=False, **options
            )
        else:
            source = BatchSource(shards, **options, **({"where": "key != '1-3'"} if kind == "subset" else {}))
        loader = EpochLoader(source)
        list(loader)
        list(loader)
        (path,) = (folder / "audit").glob("*.audit")
        lines = [parsed_line(line, str(path), 0) for line in path.read_bytes().splitlines(keepends=True)]
        found.append((path, lines, shards))
    return found


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dict or list within a value, with each name or number in it."""
    for at in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, at
        yield from places(value[at])


def ends_in_one_line(path: Path, lines: Lines, shards: list[str]) -> None:
    """An audit of these lines reports epochs, or raises an error of the exit code 65."""
    path.write_bytes(b"".join(map(audit_line, lines)))
    for urls in ([], shards):
        try:
            epochs = audit_folder(str(path.parent), urls)
            assert all(len(problem.splitlines()) == 1 for epoch in epochs for problem in epoch.problems)
        except DataError as error:
            assert len(str(error).splitlines()) == 1 and error.exit_code == 65


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_value_of_a_line_gives_a_traceback(
    folders: list[tuple[Path, Lines, list[str]]], data: st.DataObject
) -> None:
    path, whole, shards = folders[data.draw(st.integers(0, 2))]
    lines = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(1, 2))):
        line = data.draw(st.integers(0, len(lines) - 1))
        found = list(places(lines[line]))
        container, at = found[data.draw(st.integers(0, len(found) - 1))] if found else ({}, "x")
        value = copy.deepcopy(data.draw(VALUES))
        match data.draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "move"])):
            case "replace":
                container[at] = value
            case "remove" if found:
                del container[at]
            case "add" if isinstance(container, dict):
                container[data.draw(st.sampled_from(["audit", "begin", "batch", "streams", "subset", "x"]))] = value
            case "move":
                lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(line))
        for each in lines if data.draw(st.booleans()) else ():
            if isinstance(each.get("begin"), dict):
                each["begin"] = with_checksum(each["begin"])
    ends_in_one_line(path, lines, shards)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("audit", {"rank": -1}, "line 1 is damaged: rank is -1; it must be a whole number from 0 on"),
        ("audit", {"rank": 1}, "line 1 is damaged: rank is 1, and world is 1"),
        ("begin", {"at": None}, "line 2 is damaged: at is None; it must be a number of seconds"),
        ("begin", {"begin": {}}, "line 2 is damaged: version is None; it must be a whole number from 0 on"),
        ("batch", {"worker": "x"}, "line 3 is damaged: worker is 'x'; it must be a whole number from 0 on"),
        ("batch", {"batch": [0]}, "line 3 is damaged: batch is [0]; it must be the numbers of an epoch and a batch"),
        ("batch", {"batch": [7, 0]}, "line 3 is damaged: its batch does not come after a line that begins its epoch"),
        ("batch", {"samples": 0}, "line 3 is damaged: samples is 0; it must be a list such as '5.0 0.12- 1.3*'"),
        ("batch", {"keys": ""}, "line 3 is damaged: keys is ''; it must be 8 hexadecimal digits for each sample"),
        ("batch", {"keys": "0" * 8}, "line 3 is damaged: samples and keys are of different numbers of samples"),
    ],
)
def test_the_line_is_named(
    folders: list[tuple[Path, Lines, list[str]]],
    capfd: pytest.CaptureFixture[str],
    kind: str,
    change: Any,
    message: str,
) -> None:
    path, whole, _ = folders[0]
    at = next(number for number, line in enumerate(whole) if kind in line)
    path.write_bytes(b"".join(map(audit_line, [*whole[:at], {**whole[at], **change}, *whole[at + 1 :]])))
    offset = sum(map(len, map(audit_line, whole[:at])))
    assert main(["audit", str(path.parent)]) == 65
    hint = "restore the file, or take it out of the folder: its batches are then reported as missing"
    assert capfd.readouterr() == ("", f"tarkit: {path}, offset {offset}: {message}; {hint}\n")


def test_a_line_of_another_kind_and_a_state_without_an_order(folders: list[tuple[Path, Lines, list[str]]]) -> None:
    path, whole, _ = folders[1]
    path.write_bytes(b"".join(map(audit_line, [*whole, {"more": 1}])))
    with pytest.raises(DataError, match=f"line {len(whole) + 1} is damaged: it begins with the name 'more'"):
        audit_folder(str(path.parent))
    for change, message in (
        ({"lanes": 3}, "its state has no order: lanes is 3; it must divide the batch, 4"),
        ({"epoch_size": 5}, "its state has no order: epoch_size is 5, and the epoch has 34 samples by repeat"),
        ({"streams": {"a": ["", "p1e999999999", 0]}}, "stream 'a' of the state is "),
        ({"shards": "../../x"}, "shards is '../../x'; it must be 16 hexadecimal digits"),
    ):
        lines = [
            {**each, "begin": with_checksum({**each["begin"], **change})} if "begin" in each else each for each in whole
        ]
        path.write_bytes(b"".join(map(audit_line, lines)))
        with pytest.raises(DataError) as caught:
            audit_folder(str(path.parent))
        assert "line 2 is damaged" in str(caught.value) or "line 12 is damaged" in str(caught.value)
        assert message in str(caught.value)
