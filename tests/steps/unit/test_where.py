"""Conditions of --where: what they mean, and what they refuse."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tarkit.errors import DataError, TarkitError, UsageError
from tarkit.steps.where import Where
from tarkit.store.fieldfile import FieldFile


def picture(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "PNG")
    return stream.getvalue()


META = {"width": 512, "label": "cat", "tags": ["a", "b"], "deep": {"score": 0.5}, "none": None, "ok": True, "n": "7"}
SAMPLE: dict[str, Any] = {
    "__key__": "train/0007",
    "__url__": "s.tar",
    "json": json.dumps(META).encode(),
    "cls": b"7\n",
    "txt": "Une Été".encode(),
    "score": b"-1.5e1",
    "png": picture(6, 4),
    "seg.png": picture(3, 2),
    "bin": b"\xff\xfe",
}


@pytest.mark.parametrize(
    "text",
    [
        "cls == 7 and cls != 8 and cls >= 7.0 and 6 < cls <= 7",
        "cls == '7' and cls < '8' and score == -15 and score < cls",
        "cls in [3, 7] and cls in ('7', '8') and cls not in [1]",
        "json.width >= 512 and json.width * 2 - 24 == 1000 and json.width / 2 + 1 == 257 and -json.width < 0",
        "json.label == 'cat' and json.label in ['cat', 'dog'] and json.n == '7'",
        "json.deep.score == .5 and not json.deep.score > 1 and json.deep == json.deep",
        "'a' in json.tags and 'c' not in json.tags and len(json.tags) == 2 and json.tags == ['a', 'b']",
        "'score' in json.deep and 'x' not in json.deep",
        "json.ok and json.ok == true and json.ok != false and not (json.none or false)",
        "json.missing == null and json.none == null and json.label != null and nofield == null and nofield.x == null",
        "not (json.missing == 3 or json.missing != 3 or json.missing < 3 or json.missing in [3] or 3 in json.missing)",
        "not (json.missing + 1 > 0) and not (len(json.missing) == 0) and not match(json.missing, '')",
        "key == 'train/0007' and match(key, '^train/') and not match(key, '^0007') and '000' in key",
        r"match(key, '\d{4}$') and match(key, '\\b0007') and match(key, 'N/00') == false",
        "size(cls) == 2 and has(png) and not has(gif) and size(gif) == null and size(field('seg.png')) > 10",
        "width(png) == 6 and height(png) == 4 and width(field('seg.png')) * 2 == 6 and width(cls) == null",
        "width(nopng) == null and height(nopng) == null",
        "lower(txt) == 'une été' and len(txt) == 7 and lower(json.label) == 'cat'",
        " true ",
        "(cls == 7) == true and None != cls and null == gif and gif == None",
        "cls == score or txt != cls",
        "size(bin) == 2",
    ],
)
def test_conditions_that_hold(text: str) -> None:
    assert Where(text)(SAMPLE) is True
    assert Where(f"not ({text})")(SAMPLE) is False


def test_content_in_a_file_is_read() -> None:
    sample = {**SAMPLE, "json": FieldFile.keep([SAMPLE["json"]]), "png": FieldFile.keep([SAMPLE["png"]])}
    assert Where("json.width == 512 and width(png) == 6 and size(png) > 10")(sample)


def test_the_fields_of_a_condition() -> None:
    found = Where("json.a > 1 and has(x) and width(field('seg.png')) > key and cls in [y]").fields
    assert list(found) == ["json", "x", "seg.png", "cls", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("txt > 3", "key 'train/0007': where: txt is a text and 3 is a number, which cannot be compared"),
        ("json.n == 7", "json.n is a text and 7 is a number"),
        ("key == 7", "key is a text and 7 is a number"),
        ("json.width == true", "json.width is a number and true is true or false"),
        ("json.deep < json.deep", "json.deep is an object and json.deep is an object"),
        ("cls in json.width", "cls is a text and json.width is a number"),
        ("3 in txt", "3 is a number and txt is a text"),
        ("txt in [3]", r"txt is a text and \[3\] is a list"),
        ("json.label + 1 > 2", "json.label is a text, and not a number"),
        ("json.ok + 1 > 2", "json.ok is true or false, and not a number"),
        ("1 / (json.width - 512) > 1", "division by zero"),
        ("1e308 * 1e308 > 1 and 10 * json.width / 1e-320 > 1 and (1 / 0) > 1", "division by zero"),
        ("cls", "cls is a text, and not true or false"),
        ("json.width and true", "json.width is a number, and not true or false"),
        ("len(json.width) == 3", "json.width is a number, and not a text"),
        ("lower(json.tags) == ''", "json.tags is a list, and not a text"),
        ("bin == 'x'", "the field bin is not text in UTF-8"),
        ("txt.x == 1", "the field txt is not JSON"),
    ],
)
def test_values_that_do_not_fit_are_an_error_with_the_key(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Where(text)(SAMPLE)


def test_json_that_is_too_deep() -> None:
    with pytest.raises(DataError, match="the field json is not JSON"):
        Where("json.x == 1")({**SAMPLE, "json": b"[" * 200_000})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("cls = 7", "== for equal"),
        ("cls == 7 AND txt == 'x'", "and"),
        ("cls == 7 & txt == 'x'", "and"),
        ("cls == 7 && txt == 'x'", "and"),
        ("cls == 7 OR txt == 'AND'", "or"),
        ("cls == 7 || txt == 'x'", "or"),
        ("NOT cls == 7", "not"),
        ("!has(cls)", "not"),
        ("cls <> 7", "!="),
        ("cls IN [7]", "in"),
        ("txt LIKE 'a%'", r"match\(x, 'REGEX'\)"),
        ("txt like 'a%'", r"match\(x, 'REGEX'\)"),
        ("txt IS NULL", "x == null"),
        ("txt is null", "x == null"),
        ("txt IS NOT NULL", "x != null"),
        ("txt is not None", "x != null"),
        ("cls BETWEEN 1 AND 3", "1 <= x <= 9"),
        (".json.x > 1", "json.x, without a dot"),
        ("json['x'] > 1", "json.a.b"),
        ("cls ** 2 > 1", "and, or, not"),
    ],
)
def test_words_of_other_languages_are_answered_with_the_right_one(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"; write {word}"):
        Where(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "().__class__.__bases__",
        "json.__class__ == 1",
        "__class__ == 1",
        "__import__('os').system('true')",
        "field('__key__') == 1",
        "'{}'.format(1) == 1",
        "key.x == 1",
        "open('x') == 1",
        "(lambda: 1)() == 1",
        "[x for x in json.a] == []",
        "f'{key}' == 'a'",
        "b'x' == b'x'",
        "1j == 1",
        "... == 1",
        "x if true else y",
        "(x := 1) == 1",
        "{1: 2} == 1",
        "*a",
        "size('cls') == 1",
        "size(json.x) == 1",
        "has(cls, txt)",
        "len() == 1",
        "match(key)",
        "match(key, key)",
        "match(key, '(')",
        "match(key, '\\bcat')",
        "match(key, '(a)\\1')",
        "field(cls) == 1",
        "lower(x=1) == 1",
        "+cls == 1",
        "~cls == 1",
        "cls @ 2 == 1",
        "true null",
        "import os",
        "key\0",
        "key == '\udcff\ud800",
        "(" * 400 + "key" + ")" * 400,
        "[" * 300,
        "-" * 990 + "1 == 1",
        "not " * 240 + "true",
        "json" + ".a" * 450 + ".__class__ == 1",
        "1" * 1001,
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^where"):
        Where(text)


def test_a_hundred_thousand_parentheses_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(UsageError, match="it may have 1000"):
        Where("(" * 100_000)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "json",
                ".x",
                "cls",
                "==",
                "!=",
                "<",
                "in",
                "not",
                "and",
                "or",
                "(",
                ")",
                "[",
                "]",
                ",",
                "1",
                "'a'",
                "7.5",
                "null",
                "true",
                "size(",
                "has(",
                "len(",
                "lower(",
                "match(",
                "-",
                "+",
                "/",
                "key",
                "width(",
                "field(",
                "__x__",
                "=",
                "&",
                "\\",
                "\n",
                "is",
                "lambda",
            ]
        ),
        max_size=12,
    )
)
def test_any_text_is_a_condition_or_an_error_of_this_package(words: list[str]) -> None:
    with contextlib.suppress(TarkitError):
        assert Where(" ".join(words))(SAMPLE) in (True, False)


def test_values_of_json_that_no_sample_had() -> None:
    condition = Where("json.a.b == 1 or json.c == null or cls == 'x' and json.never")
    assert condition({"__key__": "k", "json": b'{"a": {"b": null}}', "cls": b"y"})
    assert condition.found == {"json.a.b": True, "json.c": False}
    condition({"__key__": "k", "json": b'{"c": 0}', "cls": b"y"})
    condition({"__key__": "k", "json": b"[]", "cls": b"y"})
    assert condition.found == {"json.a.b": True, "json.c": True}
