"""Selections: which samples, which fields, under which names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tarkit.errors import DataError, DuplicateFieldError, UsageError
from tarkit.steps.selection import Selection


def samples(*keys: str, **fields: bytes) -> list[dict[str, Any]]:
    return [{"__key__": key, "__url__": "s.tar", **(fields or {"jpg": b"1", "cls": b"2"})} for key in keys]


def chosen(*given: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    with Selection(**options) as selection:
        return [
            {name: value for name, value in sample.items() if name != "__url__"} for sample in selection.select(given)
        ]


def test_without_options_all_samples_pass_unchanged() -> None:
    given = samples("a", "b")
    selection = Selection()
    assert list(selection.select(given)) == given
    assert (selection.selects, selection.changes, selection.kept) == (False, False, 2)
    selection.check()


def test_match_is_found_anywhere_and_others_are_counted() -> None:
    selection = Selection(match="^cat/|9$")
    assert [sample["__key__"] for sample in selection.select(samples("cat/1", "dog/9", "dog/cat/1"))] == [
        "cat/1",
        "dog/9",
    ]
    assert selection.dropped == Counter(match=1)
    assert selection.selects and not selection.changes


def test_fields_of_which_the_first_alternative_is_kept() -> None:
    both = {"__key__": "a", "jpg": b"j", "png": b"p", "cls": b"1", "txt": b"t"}
    assert chosen(both, fields="png|jpg,cls") == [{"__key__": "a", "png": b"p", "cls": b"1"}]
    assert chosen(both, fields=["cls"], drop_fields=None) == [{"__key__": "a", "cls": b"1"}]
    assert chosen(both, drop_fields="png txt") == [{"__key__": "a", "jpg": b"j", "cls": b"1"}]


def test_a_sample_that_lacks_a_field_is_counted_and_one_without_any_is_dropped() -> None:
    selection = Selection(fields="jpg cls")
    given = [*samples("a"), *samples("b", jpg=b"1"), *samples("c", txt=b"1")]
    assert [sample["__key__"] for sample in selection.select(given)] == ["a", "b"]
    assert selection.dropped == Counter(fields=1)
    assert selection.lacking == {"jpg": 1, "cls": 2}
    dropping = Selection(drop_fields="txt")
    assert [sample["__key__"] for sample in dropping.select(given)] == ["a", "b"]
    assert dropping.dropped == Counter(drop_fields=1)


def test_rename_takes_the_first_that_is_there_and_can_swap() -> None:
    given = [*samples("a", jpeg=b"1", cls=b"2"), *samples("b", JPG=b"3")]
    assert chosen(*given, rename=["jpg=jpeg|JPG"]) == [
        {"__key__": "a", "jpg": b"1", "cls": b"2"},
        {"__key__": "b", "jpg": b"3"},
    ]
    swapped = {"__key__": "a", "one": b"2", "two": b"1"}
    assert chosen(*samples("a", one=b"1", two=b"2"), rename="one=two two=one") == [swapped]
    assert chosen(*samples("a", one=b"1", two=b"2"), rename={"one": "two", "two": "one"}) == [swapped]


def test_rename_to_a_field_that_is_there() -> None:
    with pytest.raises(DuplicateFieldError, match=r"key 'a'.*field 'cls' already; drop the field 'cls', too"):
        chosen(*samples("a"), rename=["cls=jpg"])
    assert chosen(*samples("a"), rename=["cls=jpg"], drop_fields="cls") == [{"__key__": "a", "cls": b"1"}]


def test_rekey_has_the_old_key_and_the_number_of_those_that_are_kept() -> None:
    given = samples("cat/1", "dog/1", "cat/2")
    assert [each["__key__"] for each in chosen(*given, match="cat", rekey="new/%s-%03d%%")] == [
        "new/cat/1-000%",
        "new/cat/2-001%",
    ]
    assert [each["__key__"] for each in chosen(*given, rekey="%d")] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"match": "("}, "match '\\(' is not a regular expression"),
        ({"fields": " , "}, "no fields are named"),
        ({"rename": "jpg"}, "NEW=OLD"),
        ({"rename": "=jpg"}, "NEW=OLD"),
        ({"rename": "a=x b=x"}, "names a field twice"),
        ({"rename": "a=x a=y"}, "names a field twice"),
        ({"rekey": "same"}, "write %s for the old key"),
        ({"rekey": "100%%"}, "write %s for the old key"),
        ({"rekey": "%s%x"}, "write %s for the old key"),
        ({"rekey": "%000000000d"}, "write %s for the old key"),
    ],
)
def test_options_that_are_not_valid(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Selection(**options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"fields": "jpg|jpeg clss"}, "fields: no sample has the field 'clss'; did you mean cls\\? .*have cls, jpg"),
        ({"drop_fields": "xyz"}, "fields to drop: no sample has the field 'xyz'; the samples have cls, jpg"),
        ({"rename": "a=b"}, "rename: no sample has the field 'b'"),
    ],
)
def test_a_field_that_no_sample_has_is_an_error_at_the_end(option: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        chosen(*samples("a", "b"), **option)
    assert chosen(**option) == []


def test_the_fields_of_several_calls_are_checked_at_the_last() -> None:
    selection = Selection(fields="txt jpg")
    assert list(selection.select(samples("a"), last=False)) != []
    assert selection.unseen
    assert list(selection.select(samples("b", txt=b"1"))) != []
    assert not selection.unseen
