"""The shards of an audited training: from the lists in its folder, and as given by the user."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

from tarkit.errors import DataError, UsageError, counted, printable
from tarkit.names.url import display_name, name_of_shard
from tarkit.samples.sample import KeyRule
from tarkit.trainers.audithistory import AuditBegin
from tarkit.trainers.auditlog import key_digest, list_name
from tarkit.trainers.shardlist import digest_of_shards
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.subset import digest_of_texts


class ShardList(NamedTuple):
    """The shards of a state.

    Attributes:
        shards: name and number of samples of each.
        streams: each stream's number of shards.
        chosen: in a subset, the numbers of the chosen samples of each shard as text.
    """

    shards: list[tuple[str, int]]
    streams: dict[str, int]
    chosen: list[str] | None

    def parts(self) -> Iterator[tuple[str, tuple[list[tuple[str, int]], list[str] | None]]]:
        """Yield the name of each stream, and its shards and their chosen samples.

        A data set without streams is one without a name.
        """
        first = 0
        for name, size in (self.streams or {"": len(self.shards)}).items():
            part = slice(first, first + size)
            yield name, (self.shards[part], None if self.chosen is None else self.chosen[part])
            first += size


class AuditedShards:
    """The shards of a training, and the uses of their samples.

    Args:
        folder: the ``audit`` folder.
        begins: all begins, by their points.
        urls: all shards that any epoch has read; none: keys are not compared.
        rule: key rule of the shards.

    Raises:
        UsageError: the shards are not those of the training.
        DataError: a list of shards is damaged, or a stream has several.
    """

    def __init__(self, folder: str, begins: list[AuditBegin], urls: list[str], rule: str | KeyRule) -> None:
        self._lists: dict[tuple[object, object], ShardList] = {}
        self._parts: dict[str, tuple[list[tuple[str, int]], list[str] | None]] = {}
        """For each stream its shards, and their chosen samples."""
        for each in begins:
            key = each.state["shards"], each.state.get("subset")
            if key not in self._lists:
                self._lists[key] = found = read_shard_list(folder, each.state)
                for name, part in found.parts():
                    if part[0] and self._parts.setdefault(name, part) != part:
                        reason = f"the shards of stream {printable(name)!r}, or the samples chosen of them, are others"
                        raise DataError(reason, url=each.path, offset=each.offset)
        self._samples = ShardMap(urls, rule=rule) if urls else None
        self._given = {} if self._samples is None else self._find(self._samples)
        """For each stream, the numbers of its shards among the given ones."""
        self.digests = None if self._samples is None else cache(partial(_digests_of, self._samples))
        """Digests of the keys of a given shard."""
        self.passes: dict[tuple[str, int], bytearray] = {}
        """For each stream and pass, which samples were used."""

    def of_state(self, state: Mapping[str, Any]) -> ShardList:
        """Return the shards of a state."""
        return self._lists[state["shards"], state.get("subset")]

    def given(self, found: ShardList) -> list[int]:
        """Return the numbers of shards among the given ones; none without those."""
        return [at for name, (shards, _) in found.parts() if shards for at in self._given.get(name, ())]

    def _find(self, samples: ShardMap) -> dict[str, list[int]]:
        """Find the shards of each stream among the given ones, by their names without folder."""
        found: dict[str, list[int]] = {}
        left: dict[str, list[int]] = defaultdict(list)
        for at, url in enumerate(samples.urls):
            left[name_of_shard(url)].append(at)
        counts, chosen = [0] * len(samples.urls), [""] * len(samples.urls)
        for name, (shards, texts) in self._parts.items():
            found[name] = []
            for number, (shard, count) in enumerate(shards):
                if not left[shard]:
                    raise _others(f"{printable(shard)} is not among them")
                found[name].append(at := left[shard].pop(0))
                counts[at], chosen[at] = count, texts[number] if texts else f"0-{count - 1}" if count else ""
        for at in chain.from_iterable(left.values()):
            raise _others(f"no epoch has read {display_name(samples.urls[at])}")
        if any(texts is not None for _, texts in self._parts.values()):
            samples.choose(chosen)
        for url, count, right in zip(samples.urls, samples.counts, counts, strict=True):
            if count != right:
                raise _others(f"{display_name(url)} has {counted(count, 'sample')}, and had {right}")
        return found

    def named(self, shard: int) -> str:
        """Return the name of a given shard for people."""
        return "" if self._samples is None else display_name(self._samples.urls[shard])


def _others(what: str) -> UsageError:
    return UsageError(f"these are not the shards of the training: {what}")


def _digests_of(samples: ShardMap, shard: int) -> list[str]:
    """Return the digests of a shard's keys, from its index."""
    return list(map(partial(key_digest, samples.urls[shard]), samples.keys_of(shard)))


def read_shard_list(folder: str, state: Mapping[str, Any]) -> ShardList:
    """Return the shards of a state.

    Raises:
        DataError: the list is missing or damaged.
    """
    path = os.path.join(folder, list_name(state))
    try:
        with open(path, "rb") as file:
            found = json.load(file)
        shards = [(str(name), int(count)) for name, count in found["shards"]]
        streams = {str(name): int(count) for name, count in found.get("streams", {}).items()}
        chosen = list(map(str, found["chosen"])) if "subset" in state else None
        names, counts = [name for name, _ in shards], [count for _, count in shards]
        if chosen is None:
            digest, right = digest_of_shards(names, counts, streams), state["shards"]
        else:  # the digest of shards is that of all their samples, which the list does not have
            digest, right = digest_of_texts(chosen), state["subset"]
        if digest != right:
            raise ValueError("it is not the one of which its name is a digest")
        lengths = {len(shards), len(shards if chosen is None else chosen), sum(streams.values()) or len(shards)}
        if len(lengths) > 1 or min([*streams.values(), *counts]) < 0:
            raise ValueError("its parts do not fit together")
        return ShardList(shards, streams, chosen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"the list of shards cannot be read: {error}", url=path) from None
