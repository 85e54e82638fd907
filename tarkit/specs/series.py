"""Shards of a numbered series that are there already: of an earlier run, or of the part before this one."""

from __future__ import annotations

from tarkit.errors import MissingInputError
from tarkit.specs.shardspec import shard_name, split_pattern
from tarkit.store.entries import entries, stat
from tarkit.store.url import split_query


def existing_shards(pattern: str, start: int = 0) -> list[str]:
    """Names of the shards of a pattern such as ``out-%06d.tar`` that are there, numbered ``start`` or more, in order.

    Raises:
        UsageError: it has not exactly one place for a number. StreamError, TemporaryStreamError: its folder cannot
        be listed.
    """
    path, query = split_query(pattern)
    before, after = split_pattern(path)
    folder, slash, prefix = before.rpartition("/")
    suffix, _, below = after.partition("/")
    try:
        listed = [entry.name for entry in entries(f"{folder}{slash}{query}" or ".")]
    except MissingInputError:
        return []
    found = []
    for name in listed:
        digits = name[len(prefix) : len(name) - len(suffix)]
        if name != f"{prefix}{digits}{suffix}" or not digits.isdecimal() or int(digits) < start:
            continue
        # With %06d, x-7.tar and x-0000007.tar are not of the series.
        if shard_name(path, int(digits)) == f"{before}{digits}{after}":
            found.append(int(digits))
    names = (shard_name(pattern, number) for number in sorted(found))
    return [name for name in names if not below or _is_there(name)]


def _is_there(url: str) -> bool:
    try:
        stat(url)
    except MissingInputError:
        return False
    return True
