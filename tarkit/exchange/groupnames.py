"""Names of groups: what a user names, and its text for a sample, which is the key of the group."""

from __future__ import annotations

import re
from collections.abc import Callable

from tarkit.errors import UsageError, printable, quoted
from tarkit.exchange.values import By, text_of_plain, value_of_samples
from tarkit.samples.rawsamples import RawSample

GroupOf = Callable[[RawSample], str]
"""Function from a sample to the name of its group.

It raises :class:`ValueError` with the reason if the sample has none.
"""
_OF_KEY = "key:"


def groups_of_samples(by: By) -> GroupOf:
    """Return the function that gives samples the names of their groups.

    Args:
        by: ``folder``, that of the key; ``key:REGEX``, the part of the key that the group of a
            regular expression matches; or a value by which samples can be sorted, as text. A
            newline at its end does not count.

    Raises:
        UsageError: the text is not one of those, or the function cannot be loaded.
    """
    if by == "folder":
        return _folder
    if isinstance(by, str) and by.startswith(_OF_KEY):
        return _of_key(by, by.removeprefix(_OF_KEY))
    value = value_of_samples(by)
    return lambda sample: text_of_plain(value(sample)).removesuffix("\n")


def _folder(sample: RawSample) -> str:
    folder, slash, _ = sample.key.rpartition("/")
    if not slash:
        raise ValueError(f"its key {printable(sample.key)!r} has no folder")
    return folder


def _of_key(by: str, text: str) -> GroupOf:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--by {quoted(by)} is not a regular expression after {_OF_KEY}: {error}") from None
    if pattern.groups != 1:
        raise UsageError(
            f"--by {quoted(by)} must have one group in parentheses, which is the name of the group of samples; it has "
            f"{pattern.groups}"
        )

    def group(sample: RawSample) -> str:
        match = pattern.search(sample.key)
        if match is None or match[1] is None:
            raise ValueError(f"its key {printable(sample.key)!r} does not match {text!r}")
        return match[1]

    return group
