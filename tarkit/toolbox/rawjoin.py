"""Joins tar shards without taking them apart: headers, extended headers and content byte for byte.

Everything is read through :class:`tarkit.formats.tar.walk.Archive` all the same, so that what is damaged,
cut or no tar is found, and samples that would run into each other are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tarkit.errors import DuplicateFieldError, RepeatedKeyError, UsageError, printable
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import END_OF_ARCHIVE, RECORD
from tarkit.formats.tar.raw import FarReachingError, RawArchive, copied_members, raw_members_beside_damage, write_raw
from tarkit.redaction import redact
from tarkit.samples.sample import (
    DAMAGE_POLICIES,
    REPEATED_KEY_POLICIES,
    KeyRule,
    first_dot,
    group_by_keys,
    in_sample,
    key_rule,
)
from tarkit.specs.shardspec import expand
from tarkit.store.publish import PublishStream
from tarkit.store.read import open_read


@dataclass
class Joined:
    """What :func:`concatenate` has written. size: bytes before compression."""

    shards: int = 0
    samples: int = 0
    size: int = 0


def concatenate(
    urls: str | Iterable[str],
    output: PublishStream,
    *,
    rule: str | KeyRule = first_dot,
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    allow_pipe_in_lists: bool = False,
) -> Joined:
    """Write all members of several shards as one shard; the caller commits ``output``.

    Members keep their bytes and their order, also folders, links and files that are no part of a
    sample; only with ``on_damage="skip"`` these are left out. End-of-archive marks are dropped, but
    for one at the end, padded to 10,240 bytes. All is written as it comes; with ``on_damage="skip"``
    one sample is held, large content in files. Keys are held in memory.

    Args:
        urls: shard specs, as for :func:`tarkit.specs.shardspec.expand`.
        rule: key rule by which members are samples.
        on_repeated_key: error, or allow a key that comes back, in one shard or in another; but not
            right after itself, since without the mark in between the two samples would become one.
        on_damage: error, or skip what is damaged and the samples beside it; ``tally`` has the account.
        tally: is filled; its ``skipped`` counts the members that are no part of a sample.
        allow_pipe_in_lists: whether an ``@LIST`` may name ``pipe:`` commands.

    Raises:
        DataError: damage; a repeated key or field; a global extended header that would apply to the
            members of the archives after its own.
    """
    split_name = key_rule(rule)
    if on_damage not in DAMAGE_POLICIES or on_repeated_key not in REPEATED_KEY_POLICIES:
        raise UsageError(
            f"on_damage {on_damage!r} is error or skip, on_repeated_key {on_repeated_key!r} error or allow"
        )
    tally = Tally() if tally is None else tally
    joined = Joined()
    last_key: str | None = None
    seen: dict[str, str] = {}
    globals_seen: list[FarReachingError] = []
    for url in expand(urls, allow_pipe_in_lists=allow_pipe_in_lists):
        joined.shards += 1
        with open_read(url) as stream:
            write = output.write if on_damage == "error" else None
            archive = RawArchive(stream.read, redact(stream.name), in_sample(split_name), tally, globals_seen, write)
            samples = group_by_keys(
                raw_members_beside_damage(archive) if write is None else copied_members(archive),
                url=stream.name,
                rule=split_name,
                on_repeated_key=on_repeated_key,
                tally=tally,
                sample_limit=archive.large.sample_limit,
                spill=archive.large.spill,
            )
            try:
                for sample in samples:
                    key = sample.pop("__key__")
                    sample.pop("__url__")
                    if on_repeated_key == "error":
                        check_key(key, stream.name, seen)
                    elif key == last_key:
                        raise would_merge(key, stream.name)
                    last_key = key
                    joined.samples += 1
                    for raw in sample.values():
                        write_raw(raw, output.write)
            except DuplicateFieldError as error:
                error.hint = "tarproc --on-duplicate-field first or last keeps one of them"
                raise
    output.write(END_OF_ARCHIVE)
    output.write(bytes(-output.bytes_written % RECORD))
    joined.size = output.bytes_written
    return joined


def check_key(key: str, url: str, seen: dict[str, str]) -> None:
    """Refuse a key that another shard has; seen: the keys so far, each with its shard."""
    if key in seen:
        raise RepeatedKeyError(
            f"the key is in {printable(redact(seen[key]))} too, and the result would be one shard",
            url=url,
            key=key,
            hint="--on-repeated-key allow accepts that, if these are different samples",
        )
    seen[key] = url


def would_merge(key: str, url: str) -> RepeatedKeyError:
    """The error for two samples of one key, next to each other."""
    return RepeatedKeyError(
        "the sample before it has the same key, and in one shard the two would be read as one",
        url=url,
        key=key,
        hint="pass the shards in another order, or keep them apart",
    )
