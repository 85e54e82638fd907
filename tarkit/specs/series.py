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
    folder, slash, _ = before.rpartition("/")
    _, slash_below, below = after.partition("/")
    try:
        listed = [entry.name for entry in entries(f"{folder}{slash}{query}" or ".")]
    except MissingInputError:
        return []
    named = (f"{folder}{slash}{name}{slash_below}{below}" for name in listed)
    found = sorted(number for name in named if (number := _number(name, path, before, after)) is not None)
    names = (shard_name(pattern, number) for number in found if number >= start)
    return [name for name in names if not below or _is_there(name)]


def number_of_shard(pattern: str, url: str) -> int | None:
    """The number in a name that a pattern stands for; None if the name is another one."""
    path, _ = split_query(pattern)
    return _number(split_query(url)[0], path, *split_pattern(path))


def _number(name: str, path: str, before: str, after: str) -> int | None:
    digits = name[len(before) : len(name) - len(after)]
    if name != f"{before}{digits}{after}" or not digits.isdecimal():
        return None
    # With %06d, x-7.tar and x-0000007.tar are not of the series.
    return int(digits) if shard_name(path, int(digits)) == name else None


def _is_there(url: str) -> bool:
    try:
        stat(url)
    except MissingInputError:
        return False
    return True
