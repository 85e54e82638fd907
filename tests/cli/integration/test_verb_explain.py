"""tarkit explain: the names of a shard, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_text(run: Run) -> None:
    result = run("tarkit", "explain", "images/a.b.JPG", ".x")
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == [
        "images/a.b.JPG",
        "  tarkit first-dot  key images/a  field b.JPG  (first dot of the base name)",
        "  tarkit last-dot   key images/a.b  field JPG  (last dot of the base name)",
        "  WebDataset        key images/a  field b.jpg  (first dot after the last slash, field in lower case)",
        "  HF datasets       key images/a  field b.JPG  (first dot after the last slash)",
        "  DALI              key images/a  field b.JPG  (first dot of the base name, field by exact case)",
        ".x",
        "  tarkit first-dot  skipped: hidden: its base name begins with a dot, and the rule finds no field",
        "  tarkit last-dot   skipped: hidden: its base name begins with a dot, and the rule finds no field",
        "  WebDataset        skipped: its base name has no dot, or nothing before the first one",
        "  HF datasets       skipped: hidden: its base name begins with a dot, or with __",
        "  DALI              skipped: hidden: its base name begins with a dot",
    ]


def test_json_of_names_from_standard_input(run: Run) -> None:
    result = run("tarkit", "explain", "--json", "--key-rule", "(.*)_(.*)", "-", stdin=b"a_b.c\n\xff.d\n")
    first, second = map(json.loads, result.lines)
    assert (first["name"], second["name"]) == ("a_b.c", "\udcff.d")
    assert first["readings"][2] == {
        "reader": "tarkit (.*)_(.*)", "rule": "the two groups of the expression", "key": "a", "field": "b.c",
        "skipped": None,
    }  # fmt: skip
    assert second["readings"][2]["skipped"] == "no-extension: the rule finds no key and field"
    assert run("tarkit", "explain", "-", stdin=b"").stdout == b""


def test_no_name_and_a_wrong_rule(run: Run) -> None:
    assert run("tarkit", "explain").code == 2
    result = run("tarkit", "explain", "a.b", "--key-rule", "(")
    assert result.code == 2 and "key rule '(' is not first-dot" in result.stderr
