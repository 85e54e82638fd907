"""Which tests are fast (``pytest -m fast``): those whose code reaches no server, no process and no signal, and that
are not marked as slow or exhaustive."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SERVERS = {"s3_endpoint", "gcs_endpoint", "azure_endpoint", "hdfs", "cluster", "s3", "webhdfs"}
"""Fixtures, or parameters that name them: a server that runs for the whole session."""
SLOW_MARKERS = ("slow", "exhaustive", "cluster", "spark")
SLOW_NAMES = {
    "fork", "kill", "killpg", "measure", "signal", "subprocess", "PythonPool", "ShellPool", "run_documents",
    "serving", "socket", "HTTPServer", "ThreadingHTTPServer", "warmprogram",
}  # fmt: skip
"""Names (modules, functions, classes, attributes) that a fast test does not use."""


def wants_server(item: pytest.Item) -> bool:
    """Whether it names a server, as a fixture or as a parameter."""
    names = {*getattr(item, "fixturenames", ()), *(each for each in _parameters(item) if isinstance(each, str))}
    return bool(SERVERS & names)


def is_slow(item: pytest.Item) -> bool:
    """Whether a marker says so."""
    return any(item.get_closest_marker(name) for name in SLOW_MARKERS)


def is_fast(item: pytest.Item) -> bool:
    """Whether neither it nor what it uses of the tests' own code has one of the SLOW_NAMES or a server."""
    if not isinstance(item, pytest.Function) or wants_server(item) or is_slow(item):
        return False
    if item.path.parent.name != "unit":
        return False
    fixtures = (each.func for found in item._fixtureinfo.name2fixturedefs.values() for each in found)
    used = (each for each in (item.function, *fixtures, *_parameters(item)) if isinstance(each, (FunctionType, type)))
    return not any(_reaches_slow(each) for each in used)


def _parameters(item: pytest.Item) -> Iterator[Any]:
    yield from getattr(getattr(item, "callspec", None), "params", {}).values()


@functools.cache
def _reaches_slow(found: FunctionType | type) -> bool:
    return _is_slow(found, set())


@functools.cache
def _folder(module: str) -> Path | None:
    """Where a module of the tests is; None for any other."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "/")
    return file.parent if HERE in file.parents else None


def _is_slow(found: Any, seen: set[Any]) -> bool:
    """The same of a function or class of the tests; what comes from elsewhere is not looked into."""
    found = getattr(found, "__wrapped__", found)
    if not isinstance(found, (FunctionType, type)) or found in seen:
        return False
    seen.add(found)
    if _folder(found.__module__) is None:
        return False
    if isinstance(found, type):
        return any(_is_slow(each, seen) for each in (*found.__bases__, *vars(found).values()))
    names = set(_names(found.__code__))
    return bool(SLOW_NAMES & names) or any(_is_slow(found.__globals__.get(name), seen) for name in names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
