"""kubetpl in this process, its output caught, and checks that everything which it prints has to
pass.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from tarkit.cli.kubetpl import main

# Whole files that check manifests by it are skipped, by name.
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="NO SCHEMAS TO CHECK MANIFESTS BY: pip install kubernetes-validate"
)
# It reads and parses its files anew for each manifest, which takes most of the time of a test.
read_once = functools.cache(kubernetes_validate.utils.schema_contents)
MISSING = "missing"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SPEC = "spec template spec"
MAIN = f"{SPEC} containers 0"
VERSIONS = ("1.33", "1.37")


@dataclass(frozen=True)
class Outcome:
    """What a command line gave."""

    code: int
    out: str
    err: str


def kubetpl(*arguments: str) -> Outcome:
    """Run it with this process's folder and environment."""
    err, text = io.StringIO(), io.StringIO()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stderr(err), contextlib.redirect_stdout(text):
                code = main(list(arguments))
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return Outcome(code, text.getvalue() + file.read().decode("utf-8"), err.getvalue())


def documents(text: str) -> list[dict[str, Any]]:
    """What PyYAML, as other people use it, reads."""
    found = list(yaml.load_all(text, LOADER))
    assert found
    assert all(isinstance(each, dict) for each in found)
    return found


def rendered(*arguments: str, warns: str | None = None) -> list[dict[str, Any]]:
    """The manifests that were printed, which servers of two versions would take.

    Args:
        warns: a part of what is said on stderr; None: nothing is.
    """
    outcome = kubetpl(*arguments)
    assert outcome.code == 0, outcome.err
    if warns is None:
        assert outcome.err == ""
    else:
        assert warns in outcome.err
    found = documents(outcome.out)
    for document in found:
        valid(document)
    return found


def printed(*arguments: str) -> str:
    """The text of what was printed, not looked at."""
    outcome = kubetpl(*arguments)
    assert (outcome.code, outcome.err) == (0, ""), outcome.err
    return outcome.out


def valid(document: dict[str, Any]) -> None:
    """Fields' names and types are those of the API.

    (An empty mapping would pass, hence kind and name.)
    """
    assert isinstance(document["kind"], str)
    assert document["metadata"]["name"]
    _valid(json.dumps(document))


@functools.cache
def _valid(text: str) -> None:
    with mock.patch.object(kubernetes_validate.utils, "schema_contents", read_once):
        for version in VERSIONS:
            assert kubernetes_validate.validate(json.loads(text), version, strict=True) == version


def one(*arguments: str, warns: str | None = None) -> dict[str, Any]:
    """The one manifest that was printed."""
    (found,) = rendered(*arguments, warns=warns)
    return found


def refused(*arguments: str) -> str:
    """What is said of a command line that cannot be: one line; nothing is printed."""
    outcome = kubetpl(*arguments)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("kubetpl: ")
    assert "unexpected" not in lines[0]
    return lines[0].removeprefix("kubetpl: ")


def at(document: Any, path: str) -> Any:
    """The value at the end of steps with blanks between them; MISSING if there is none."""
    for step in path.split():
        if isinstance(document, list) and int(step) < len(document):
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return MISSING
    return document


def env_of(document: dict[str, Any]) -> dict[str, Any]:
    """The variables of the main container that have plain values."""
    return {each["name"]: each["value"] for each in at(document, f"{MAIN} env") if "value" in each}


def without(document: Any, *paths: str) -> Any:
    """A copy without some fields."""
    import copy

    document = copy.deepcopy(document)
    for path in paths:
        parent, _, key = path.rpartition(" ")
        holder = at(document, parent) if parent else document
        holder.pop(int(key) if isinstance(holder, list) else key, None)
    return document


def alone(folder: Path, monkeypatch: Any) -> Path:
    """From here on nothing is known but what the test says: an empty folder, no configuration."""
    for name in list(os.environ):
        if name.startswith("KUBETPL") or name == "XDG_CONFIG_HOME":
            monkeypatch.delenv(name)
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.chdir(folder / "work")
    return folder / "work"
