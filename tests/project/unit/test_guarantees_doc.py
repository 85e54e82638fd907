"""The pages of guarantees name a test for every promise, and every test that they name exists."""

from __future__ import annotations

import functools
import re
from pathlib import Path

TESTS = {path.name: path for path in Path(__file__).resolve().parents[2].rglob("test_*.py")}
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, *PARTS = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("guarantees", "guarantees-verbs", "guarantees-training")
)
_NAME = re.compile(r"`(\w+\.py)::(\w+)`")


def promised(page: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each row of a table that makes a promise, with the (file, function) that it names."""
    rows = [line for line in page.splitlines() if line.startswith("|")]
    headers = [number for number, row in enumerate(rows) if set(row) <= set("|- ")]
    heads = {number - 1 for number in headers} | set(headers)
    return [(row, _NAME.findall(row)) for number, row in enumerate(rows) if number not in heads]


@functools.cache
def functions(path: Path) -> set[str]:
    """The tests of a file: functions at its top that pytest would collect."""
    return set(re.findall(r"(?m)^def (test_\w+)", path.read_text(encoding="utf-8")))


def missing(page: str) -> list[str]:
    """What is wrong with a page, a line each."""
    known: dict[str, set[str]] = {}
    problems = []
    for row, named in promised(page):
        if not named:
            problems.append(f"no test: {row}")
        for file, function in named:
            if file not in known:
                known[file] = functions(TESTS[file]) if file in TESTS else set()
            if function not in known[file]:
                problems.append(f"there is no {file}::{function}")
    return problems


def test_every_promise_has_tests_that_exist() -> None:
    assert len(promised(PAGE)) > 80
    assert [problem for page in (PAGE, *PARTS) for problem in missing(page)] == []


def test_the_page_is_a_table_that_can_be_read() -> None:
    # A case that a row has already is added to that row, with its test.
    assert len(PAGE.splitlines()) <= 300


def test_every_row_has_three_cells() -> None:
    # A bar inside a cell would hide the test that comes after it.
    for page in (PAGE, *PARTS):
        for row, _ in promised(page):
            assert row.count("|") == 4, row


def test_a_name_that_is_gone_is_found() -> None:
    first = _NAME.search(PAGE)
    assert first is not None
    assert missing(PAGE.replace(first[0], f"`{first[1]}::test_of_old`", 1)) == [f"there is no {first[1]}::test_of_old"]
    assert missing(PAGE.replace(first[0], "`test_gone.py::test_x`", 1)) == ["there is no test_gone.py::test_x"]
    # A function that is no test proves nothing.
    here = "| a | b | `test_guarantees_doc.py::missing` |"
    assert missing(f"| what |\n|---|\n{here}\n") == ["there is no test_guarantees_doc.py::missing"]
    assert missing("| what |\n|---|\n| a | b | c |\n") == ["no test: | a | b | c |"]
