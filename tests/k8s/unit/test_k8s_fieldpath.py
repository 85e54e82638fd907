"""Single fields by their paths."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.fieldpath import set_field


def start() -> dict[str, Any]:
    return {
        "metadata": {"name": "x", "labels": {"a.b/c": "d"}},
        "spec": {
            "suspend": False,
            "none": None,
            "containers": [{"name": "main", "args": ["a", "b"]}, {"name": "side.car", "image": "i"}],
            "values": [1, 2],
        },
    }


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("spec.suspend=true", "spec suspend", True),
        ("spec.completions=5", "spec completions", 5),
        ("spec.text='5'", "spec text", "5"),
        ("spec.text=", "spec text", ""),
        ("spec.text=a=b c", "spec text", "a=b c"),
        ("spec.list=[1, {a: b}]", "spec list", [1, {"a": "b"}]),
        ("spec.a=|\n  b\n  c\n", "spec a", "b\nc\n"),
        ('metadata.labels."a.b/c"=e', "metadata labels a.b/c", "e"),
        ('metadata.annotations."a=b"=1', "metadata annotations a=b", 1),
        ("metadata.labels.a/b=e", "metadata labels a/b", "e"),
        ("new.deep.down=1", "new deep down", 1),
        ("spec.none.below=1", "spec none below", 1),
        ("spec.values[0]=9", "spec values", [9, 2]),
        ("spec.values[]=9", "spec values", [1, 2, 9]),
        ("spec.containers[0].args[]=c", "spec containers 0 args", ["a", "b", "c"]),
        ("spec.containers[main].image=j", "spec containers 0 image", "j"),
        ("spec.containers[side.car].image=j", "spec containers 1 image", "j"),
        ("spec.containers[main]={name: other}", "spec containers 0", {"name": "other"}),
    ],
)
def test_a_field_is_set_and_nothing_else(assignment: str, path: str, value: Any) -> None:
    document, expected = start(), start()
    set_field(document, assignment)
    *way, last = [int(step) if step.isdigit() else step for step in path.split()]
    at: Any = expected
    for step in way:
        if isinstance(at, dict) and at.get(step) is None:
            at[step] = {}
        at = at[step]
    at[last] = value
    assert document == expected


@pytest.mark.parametrize(
    ("assignment", "path"),
    [
        ("spec.suspend=null", "spec suspend"),
        ("spec.containers[1]=~", "spec containers 1"),
        ("spec.containers[main].args=null", "spec containers 0 args"),
        ('metadata.labels."a.b/c"=null', "metadata labels a.b/c"),
        ("spec.missing=null", ""),
        ("spec.no.such.thing=null", ""),
        ("spec.none.below=null", ""),
    ],
)
def test_null_takes_away_what_is_there(assignment: str, path: str) -> None:
    document, expected = start(), start()
    set_field(document, assignment)
    at: Any = expected
    *way, last = [int(step) if step.isdigit() else step for step in path.split()] or [""]
    for step in way:
        at = at[step]
    if path:
        del at[last]
    assert document == expected


@pytest.mark.parametrize(
    ("assignment", "found"),
    [
        *((text, "write PATH=VALUE") for text in ("spec.suspend", "", "=x", "spec..a=x", "spec.=x", "spec.a]=x",
                                                  'spec."a=x', 'spec.""=x')),
        ("spec.values[2]=x", "there is nothing at [2]"),
        ("spec.values[]=null", "there is nothing at []"),
        ("spec.containers[other].image=x", "there is nothing at [other]"),
        ("spec.containers[].image=x", "there is nothing at []"),
        ("spec[0]=x", "there is nothing at [0]"),
        ("spec.suspend.a=x", "there is nothing at a"),
        ("spec.values.a=x", "there is nothing at a"),
        ("spec.new[0].a=x", "there is nothing at [0]"),
        ("spec.a=x\n---\nz", "the value is several YAML documents"),
        ("spec.a=[", "this cannot be used as YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(assignment: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        set_field(start(), assignment)
    assert found in str(caught.value) and str(caught.value).startswith("--set ") and "\n" not in str(caught.value)


@given(st.text('ab."[]=0', max_size=12))
def test_any_text_is_set_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        set_field(start(), text)
