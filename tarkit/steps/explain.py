"""Key and field of a file's name, by the rules of tarkit and of other readers of shards.

The rules of the others are restated from their sources: ``base_plus_ext`` and ``tar_file_iterator``
of webdataset 1.0, the WebDataset builder and ``ArchiveIterable`` of Hugging Face's datasets, and
``wds2idx.py`` of NVIDIA DALI.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from typing import NamedTuple

from tarkit.samples.sample import KEY_RULES, KeyRule, key_rule, skip_reason

_FOLDER = "the name of a folder"
_REASONS = {
    "metadata": "metadata: its first part is of the form __name__",
    "macos-sidecar": "macos-sidecar: its base name begins with ._",
    "hidden": "hidden: its base name begins with a dot, and the rule finds no field",
    "no-extension": "no-extension: the rule finds no key and field",
    "reserved-field": "reserved-field: its field is of the form __name__",
}
"""Reason under which tarkit counts a skipped member -> its meaning."""
_WEBDATASET_META = re.compile(r"__[^/]*__($|/)")
_WEBDATASET = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")

_Split = tuple[str, str] | str
"""Key and field, or the reason for which the name has none."""


class NameReading(NamedTuple):
    """Result of one reader for a name.

    Attributes:
        reader: the program, and its rule if it has several.
        rule: the rule in words.
        key, field: None if the name is skipped.
        skipped: reason for which the reader skips the name, or fails; None if it does neither.
    """

    reader: str
    rule: str
    key: str | None
    field: str | None
    skipped: str | None


def explain(name: str, rule: str | KeyRule = "first-dot") -> list[NameReading]:
    """Return the key and field of a member's name in tarkit and in other readers.

    >>> [(each.reader, each.key, each.field) for each in explain("a/b.c.JPG")][1:3]
    [('tarkit last-dot', 'a/b.c', 'JPG'), ('WebDataset', 'a/b', 'c.jpg')]

    Args:
        name: name of a regular file in a shard, with its folder.
        rule: one more key rule of tarkit: a regular expression.

    Raises:
        UsageError: the rule is not a key rule.
    """
    rules = [_of_tarkit(each) for each in dict.fromkeys((*KEY_RULES, rule))]
    found = []
    for reader, words, split in (*rules, *_OTHERS):
        result = _FOLDER if name.endswith("/") else split(name)
        key, field, skipped = (None, None, result) if isinstance(result, str) else (*result, None)
        found.append(NameReading(reader, words, key, field, skipped))
    return found


def _of_tarkit(rule: str | KeyRule) -> tuple[str, str, Callable[[str], _Split]]:
    split = key_rule(rule)
    word, _, dot = rule.partition("-") if rule in KEY_RULES and isinstance(rule, str) else ("", "", "")
    words = f"{word} {dot} of the base name" if dot else "the two groups of the expression"

    def read(name: str) -> _Split:
        why = skip_reason(name, split)
        return _REASONS[why] if why is not None else split(name) or _REASONS["no-extension"]

    return f"tarkit {rule}", words, read


def _webdataset(name: str) -> _Split:
    if ("/" not in name and name.startswith("__") and name.endswith("__")) or _WEBDATASET_META.match(name):
        return "metadata: its first part is of the form __name__"
    match = _WEBDATASET.match(name)
    if match is None:
        return "its base name has no dot, or nothing before the first one"
    field = match[2].lower()
    if field in ("__key__", "__url__"):
        return f"an error: each sample has {field} already"
    return match[1], field


def _hugging_face(name: str) -> _Split:
    if os.path.basename(name).startswith((".", "__")):
        return "hidden: its base name begins with a dot, or with __"
    match = _WEBDATASET.match(name)
    return "its base name has no dot" if match is None else (match[1], match[2])


def _dali(name: str) -> _Split:
    dot = name.find(".", name.rfind("/") + 1)
    # Without a dot it is -1, which leaves out the last character of the key: so does wds2idx.
    key, field = name[:dot], name[dot + 1 :]
    return "hidden: its base name begins with a dot" if not key or key.endswith("/") else (key, field)


_OTHERS: tuple[tuple[str, str, Callable[[str], _Split]], ...] = (
    ("WebDataset", "first dot after the last slash, field in lower case", _webdataset),
    ("HF datasets", "first dot after the last slash", _hugging_face),
    ("DALI", "first dot of the base name, field by exact case", _dali),
)
