"""Single fields by their paths."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.fieldpath import set_field


def start() -> dict[str, Any]:
    return {
        "kind": "Job",
        "metadata": {"name": "x", "labels": {"a.b/c": "d"}},
        "spec": {
            "suspend": False,
            "none": None,
            "containers": [{"name": "main", "args": ["a", "b"]}, {"name": "side.car", "image": "i"}],
            "values": [1, 2],
        },
    }


CONTAINERS = [
    ("spec.suspend=true", ["spec", "suspend"], True),
    ("spec.completions=5", ["spec", "completions"], 5),
    ("spec.ratio=0.5", ["spec", "ratio"], 0.5),
    ("spec.text='5'", ["spec", "text"], "5"),
    ('spec.text="5"', ["spec", "text"], "5"),
    ("spec.text=", ["spec", "text"], ""),
    ("spec.text=a=b", ["spec", "text"], "a=b"),
    ("spec.text=a b", ["spec", "text"], "a b"),
    ("spec.date=2026-11-21", ["spec", "date"], "2026-11-21"),
    ("spec.list=[1, {a: b}]", ["spec", "list"], [1, {"a": "b"}]),
    ("spec.map={a: [b]}", ["spec", "map"], {"a": ["b"]}),
    ("spec.map={}", ["spec", "map"], {}),
    ("metadata.name=z", ["metadata", "name"], "z"),
    ('metadata.labels."a.b/c"=e', ["metadata", "labels", "a.b/c"], "e"),
    ('metadata.annotations."x.y/z"=1', ["metadata", "annotations", "x.y/z"], 1),
    ('metadata.labels."a=b"=e', ["metadata", "labels", "a=b"], "e"),
    ('"quoted"=1', ["quoted"], 1),
    ("metadata.labels.a/b=e", ["metadata", "labels", "a/b"], "e"),
    ("new.deep.down=1", ["new", "deep", "down"], 1),
    ("spec.none.below=1", ["spec", "none", "below"], 1),
    ("spec.new[0].name=x", ["spec", "new"], [{"name": "x"}]),
    ("spec.new[].name=x", ["spec", "new"], [{"name": "x"}]),
    ("spec.new[0]=x", ["spec", "new"], ["x"]),
    ("spec.values[0]=9", ["spec", "values"], [9, 2]),
    ("spec.values[1]=9", ["spec", "values"], [1, 9]),
    ("spec.values[2]=9", ["spec", "values"], [1, 2, 9]),
    ("spec.values[]=9", ["spec", "values"], [1, 2, 9]),
    ("spec.containers[0].args[]=c", ["spec", "containers", 0, "args"], ["a", "b", "c"]),
    ("spec.containers[main].image=j", ["spec", "containers", 0, "image"], "j"),
    ("spec.containers[side.car].image=j", ["spec", "containers", 1, "image"], "j"),
    ("spec.containers[].name=new", ["spec", "containers", 2], {"name": "new"}),
    ("spec.containers[main]={name: other}", ["spec", "containers", 0], {"name": "other"}),
    ("spec.a.b[0].c[0].d=1", ["spec", "a", "b"], [{"c": [{"d": 1}]}]),
    ("spec.a=x: z", ["spec", "a"], {"x": "z"}),
    ("spec.a=|\n  b\n  c\n", ["spec", "a"], "b\nc\n"),
]


def follow(value: Any, steps: list[Any]) -> Any:
    for step in steps:
        value = value[step]
    return value


@pytest.mark.parametrize(("assignment", "steps", "value"), CONTAINERS)
def test_a_field_is_set_and_nothing_else(assignment: str, steps: list[Any], value: Any) -> None:
    document = start()
    set_field(document, assignment)
    found = follow(document, steps)
    assert found == value
    assert type(found) is type(value)
    # Put back what was there: nothing else has changed.
    before = start()
    for number in range(1, len(steps) + 1):
        try:
            follow(before, steps[:number])
        except (KeyError, IndexError, TypeError):
            holder = follow(document, steps[: number - 1])
            if follow(before, steps[: number - 1]) is None:
                follow(document, steps[: number - 2])[steps[number - 2]] = None
            else:
                del holder[steps[number - 1]]
            break
    else:
        follow(document, steps[:-1])[steps[-1]] = follow(before, steps)
    assert document == before


@pytest.mark.parametrize(
    ("assignment", "steps"),
    [
        ("spec.suspend=null", ["spec", "suspend"]),
        ("spec.suspend=~", ["spec", "suspend"]),
        ("spec.missing=null", ["spec", "missing"]),
        ("spec.containers[1]=null", ["spec", "containers", 1]),
        ("spec.containers[main].args=null", ["spec", "containers", 0, "args"]),
        ('metadata.labels."a.b/c"=null', ["metadata", "labels", "a.b/c"]),
        ("metadata=null", ["metadata"]),
    ],
)
def test_null_takes_away(assignment: str, steps: list[Any]) -> None:
    document, expected = start(), start()
    set_field(document, assignment)
    holder = follow(expected, steps[:-1])
    if isinstance(holder, dict):
        holder.pop(steps[-1], None)
    else:
        del holder[steps[-1]]
    assert document == expected


@pytest.mark.parametrize(
    "assignment",
    [
        "spec.values[]=null",
        "spec.values[2]=null",
        "spec.no.such.thing=null",
        "spec.new[0]=null",
        "spec.none.below=null",
        "spec.values[].x=null",
        "spec.new[].x=null",
    ],
)
def test_taking_away_what_is_not_there_adds_nothing(assignment: str) -> None:
    document = start()
    with contextlib.suppress(UsageError):
        set_field(document, assignment)
    assert document == start()


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("spec.suspend", "write PATH=VALUE"),
        ("", "write PATH=VALUE"),
        ("=x", "write PATH=VALUE"),
        (".spec=x", "'.spec' is not a step"),
        ("spec..a=x", "'..a' is not a step"),
        ("spec.=x", "'.' is not a step"),
        ("spec.a[=x", "write PATH=VALUE"),
        ("spec.a]=x", "']' is not a step"),
        ('spec."a=x', "write PATH=VALUE"),
        ('spec.""=x', "is not a step"),
        ("spec.values[3]=x", "the list has 2 items, so there is no [3]"),
        ("spec.values[-1]=x", "nothing in the list is called -1"),
        ("spec.containers[other].image=x", "nothing in the list is called other"),
        ("spec[0]=x", "no list at [0]"),
        ("spec.suspend.a=x", "a: the value above it is not a mapping"),
        ("spec.suspend[0]=x", "no list at [0]"),
        ("spec.values.a=x", "a: the value above it is not a mapping"),
        ("spec.values[0].a=x", "a: the value above it is not a mapping"),
        ("[0]=x", "no list at [0]"),
        ("spec.a=[", "this cannot be used as YAML"),
        ("spec.a=x\n---\nz", "the value is several YAML documents"),
        ("spec.a={b: 1, b: 2}", "the key 'b' comes twice"),
        ("spec.new[main].a=x", "no list at [main]"),
        ("spec.new[1].a=x", "the list has 0 items, so there is no [1]"),
    ],
)
def test_what_can_not_be_is_refused_and_changes_nothing(assignment: str, said: str) -> None:
    document = start()
    with pytest.raises(UsageError) as caught:
        set_field(document, assignment)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--set ")
    assert "\n" not in str(caught.value)


NAMES = st.text(st.characters(categories=["L", "N"], include_characters="/-_."), min_size=1, max_size=8)


# Of whole numbers those of 64 bits: others are floats to kubectl.
INTEGERS = st.integers(-(2**63), 2**64 - 1)


@given(st.lists(NAMES, min_size=1, max_size=4), INTEGERS | st.booleans() | st.text("abc é", max_size=5))
def test_any_names_can_be_reached_in_quotes(names: list[str], value: Any) -> None:
    document: dict[str, Any] = {}
    path = ".".join(f'"{name}"' for name in names)
    set_field(document, f"{path}={value!r}" if isinstance(value, str) else f"{path}={str(value).lower()}")
    assert follow(document, list(names)) == value
    kept = copy.deepcopy(document)
    set_field(document, f"{path}={value!r}" if isinstance(value, str) else f"{path}={str(value).lower()}")
    assert document == kept


@given(st.text('ab."[]=0', max_size=12))
def test_no_text_makes_it_fall(text: str) -> None:
    document = start()
    with contextlib.suppress(UsageError):
        set_field(document, text)
