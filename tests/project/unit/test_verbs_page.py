"""docs/verbs.md has a row for each verb of tarkit, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tarkit.cli.tarkit import VERBS

from tarkit.samples import read
from tarkit.steps import keylists
from tarkit.store.fieldfile import LARGE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "verbs.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]


def test_each_verb_has_a_row() -> None:
    assert sorted(row[0].strip("`") for row in ROWS) == sorted(name for names in VERBS.values() for name in names)
    assert all(len(row) == 4 and all(row) for row in ROWS)


def test_the_bounds_are_those_of_the_code() -> None:
    assert (read.DEFAULT_MEM, LARGE, keylists.IN_MEMORY) == (1 << 30, 32 << 20, 200_000)
    for text in ("1 GiB", "32 MiB", "200,000 keys"):
        assert re.search(rf"\b{text}\b", PAGE)
