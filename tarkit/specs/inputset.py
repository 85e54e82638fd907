"""The inputs of a run in a form for run records: short, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tarkit.errors import DataError, UsageError
from tarkit.names.braces import Product, expand_braces, parse_braces
from tarkit.names.redaction import redact
from tarkit.specs.slicedlist import SlicedList, changed, open_list

_MOST_TEXT = 32 * 1024 * 1024
"""Largest number of characters of names in a record; a million names have more."""

_BRACES = re.compile(r"([\\{}])")


@dataclass(frozen=True)
class InputSet:
    """The inputs of a run.

    Attributes:
        count: number of inputs.
        patterns: URLs without secrets: the patterns as given if they have only braces, or else one
            name for each input; None if that is too long.
        list_url: URL of a list in slices, instead of patterns; None without one.
        list_sha256: SHA-256 of its ``LIST.offsets``, in hex, which determines its contents.
    """

    count: int
    patterns: tuple[str, ...] | None = None
    list_url: str | None = None
    list_sha256: str | None = None

    @classmethod
    def of_names(cls, names: Sequence[str]) -> InputSet:
        """Make the set of all names."""
        patterns = tuple(_escaped(redact(name)) for name in names)
        return cls(len(names), patterns if sum(map(len, patterns)) <= _MOST_TEXT else None)

    @classmethod
    def of_patterns(cls, specs: Sequence[str], patterns: Sequence[Product]) -> InputSet:
        """Make the set of specs whose only patterns are braces, and of their parsed patterns."""
        pairs = zip(map(redact, specs), patterns, strict=True)
        # If the spec is the name of an existing file, the braces are a part of the name.
        texts = (text if parse_braces(text).count == names.count else _escaped(text) for text, names in pairs)
        return cls(sum(names.count for names in patterns), tuple(texts))

    @classmethod
    def of_list(cls, planned: SlicedList) -> InputSet:
        """Make the set of a list that was cut into slices."""
        return cls(planned.n, None, redact(planned.url), planned.offsets_sha256)

    def urls(self) -> Iterator[str] | None:
        """Return all URLs without secrets; None if only their number is known.

        Raises:
            DataError: the list has changed.
            MissingInputError: the list does not exist.
            StreamError: the list cannot be read.
            TemporaryStreamError: the list cannot be read now.
        """
        if self.list_url is not None:
            found = open_list(self.list_url)
            if found is None or found.offsets_sha256 != self.list_sha256:
                raise changed(self.list_url)
            return chain.from_iterable(map(found.shards, range(found.w)))
        return None if self.patterns is None else chain.from_iterable(map(expand_braces, self.patterns))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a record."""
        known = {"count": self.count, "inputs": self.patterns and [*self.patterns]}
        return {**known, "list": self.list_url, "list_sha256": self.list_sha256}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputSet:
        """Restore a set from the values that as_dict() returned.

        Raises:
            DataError: the values are not valid.
        """
        count, patterns = values.get("count"), values.get("inputs")
        url, sha256 = values.get("list"), values.get("list_sha256")
        is_list = patterns is None or (isinstance(patterns, list) and all(isinstance(each, str) for each in patterns))
        if type(count) is not int or not is_list:
            raise DataError("it does not list the inputs")
        if not isinstance(url, (str, type(None))) or not isinstance(sha256, (str, type(None))):
            raise DataError("it does not name the list of the inputs")
        try:
            for pattern in patterns or ():
                expand_braces(pattern)
        except UsageError as error:
            raise DataError(str(error)) from None
        return cls(count, None if patterns is None else tuple(patterns), url, sha256)


def _escaped(text: str) -> str:
    # Without braces, a backslash stands for itself.
    return _BRACES.sub(r"\\\1", text) if set(text) & set("{}") else text
