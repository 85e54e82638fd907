"""The inputs of a run as they are written down: short, without secrets, and the same names come
back.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import DataError
from tarkit.specs import inputslice
from tarkit.specs.inputset import InputSet
from tarkit.specs.inputslice import all_inputs, plan_slice
from tarkit.specs.shardspec import expand
from tarkit.specs.slicedlist import write_list

NAMES = st.lists(
    st.text("a0189{},\\-.", max_size=6) | st.builds("{}{:0{}d}.tar".format, st.sampled_from(["a-", "a1-"]),
                                                   st.integers(0, 12), st.integers(1, 3)), max_size=30
)  # fmt: skip


@given(NAMES)
def test_names_come_back(names: list[str]) -> None:
    assert list(InputSet.of_names(names).urls() or ()) == names


def test_of_very_many_names_the_number_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.specs.inputset._MOST_TEXT", 5)
    found = InputSet.of_names(["a-1", "a-2"])
    assert (found.count, found.patterns, found.urls()) == (2, None, None)


def test_secrets_are_not_written_down() -> None:
    spec = "https://me:PASSWORD@host/x-{0..3}.tar?token=PASSWORD"
    found = all_inputs([spec], list(expand(spec)))
    assert list(found.urls() or ()) == [f"https://host/x-{number}.tar?token=…" for number in range(4)]
    spec = "s3://KEY:PASSWORD@bucket/x-{0..3}.tar"
    assert all_inputs([spec], list(expand(spec))) == InputSet(4, ("s3://bucket/x-{0..3}.tar",))


def test_all_slices_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list").write_text("in/x-1.tar\nin/x-2.tar\nin/y.tar\nin/z-{1..2}.tar\n")
    specs = ["@list"]
    found = {plan_slice(specs, "out", index, 3)[1] for index in range(3)}
    (same,) = {*found, all_inputs(specs, list(expand(specs)))}
    assert same == InputSet(5, ("in/x-1.tar", "in/x-2.tar", "in/y.tar", "in/z-1.tar", "in/z-2.tar"))


def test_very_many_are_written_as_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = "s3://b/x-{0000000..9999999}.tar"
    assert plan_slice([spec], "gs://out", 5, 10_000)[1] == InputSet(10_000_000, (spec,))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputslice, "FEW", 0)
    Path("x{0..9}.tar").touch()
    found = plan_slice(["x{0..9}.tar"], "out", 0, 1)[1]
    assert found.count == 1 and list(found.urls() or ()) == ["x{0..9}.tar"]


def test_a_list_in_slices_is_named_and_its_change_noticed(tmp_path: Path) -> None:
    url, names = f"{tmp_path}/l.list", [f"/in/{number}.tar" for number in range(6)]
    write_list(url, names, [2, 0, 4], outdir="/out")
    found = {plan_slice([f"@{url}"], "/out", index, 3)[1] for index in range(3)}
    (same,) = found
    assert (same.count, same.patterns, same.list_url) == (6, None, url)
    assert list(same.urls() or ()) == names
    write_list(url, names[:5], [2, 0, 3], outdir="/out")
    with pytest.raises(DataError, match="changed"):
        same.urls()


@pytest.mark.parametrize("found", [InputSet(3, ("a{1..3}",)), InputSet(9), InputSet(4, None, "s3://b/l", "00")])
def test_plain_values_and_back(found: InputSet) -> None:
    assert InputSet.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.parametrize(
    "wrong", [{"count": "3"}, {"inputs": "a"}, {"inputs": [1]}, {"inputs": ["{a"]}, {"list": 5}, {"list_sha256": []}]
)
def test_values_that_cannot_be(wrong: dict[str, object]) -> None:
    values = {**dataclasses.asdict(InputSet(3)), "inputs": ["a{1..3}"], **wrong}
    with pytest.raises(DataError):
        InputSet.from_dict(values)
