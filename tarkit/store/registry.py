"""Select the module of a URL's place: one line for each scheme."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tarkit.errors import UsageError
from tarkit.names.url import display_name, is_chain, is_stream, scheme_of

PLACES = {
    **dict.fromkeys(("", "file", "local"), "local"),
    "pipe": "pipe",
    **dict.fromkeys(("http", "https"), "http.place"),
    **dict.fromkeys(("hdfs", "viewfs", "webhdfs", "swebhdfs"), "hdfs.place"),
    **dict.fromkeys(("s3", "s3a"), "objects.s3"),
    **dict.fromkeys(("gs", "gcs"), "objects.gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "objects.azure"),
    "hf": "hub",
}
"""Scheme -> module below ``tarkit.store``; "" is a path."""

ANY_OTHER = "objects.place"
"""The module for chains, and all other URLs of fsspec."""

FUNCTIONS = {
    "open_read": "read",
    "open_sink": "written to",
    "stat": "looked up",
    "entries": "listed",
    "identify": "looked up",
    "remove": "removed",
    "read_range": "read in parts",
    "glob": "listed",
}
"""Function that a place may have -> words for it in the error if it has not."""


def module_of(url: str) -> Any:
    """Return the module of the place of a URL."""
    if "://" not in url:
        return _module("pipe" if is_stream(url) else "local")
    return _module(ANY_OTHER if is_chain(url) else PLACES.get(scheme_of(url), ANY_OTHER))


def offered(url: str, function: str) -> Callable[..., Any] | None:
    """Return a function of the place of a URL, or None.

    The stores of fsspec share the functions that they do not have themselves.
    """
    module = module_of(url)
    found = getattr(module, function, None)
    if found is None and module.__name__.startswith(f"{__package__}.objects."):
        found = getattr(_module(ANY_OTHER), function, None)
    return found


@functools.cache
def _module(name: str) -> Any:
    return importlib.import_module(f"tarkit.store.{name}")


def function_of(url: str, function: str) -> Callable[..., Any]:
    """Return one of FUNCTIONS of the place of a URL.

    Raises:
        UsageError: the place does not have the function.
    """
    found = offered(url, function)
    if found is None:
        kind = f"{scheme_of(url)}://" if "://" in url else "a stream"
        raise UsageError(
            f"{display_name(url)}: {kind} cannot be {FUNCTIONS[function]}; a path, s3://, gs:// and hdfs:// can"
        )
    return found
