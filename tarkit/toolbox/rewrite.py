"""Joins tar shards like :mod:`tarkit.toolbox.rawjoin`, with new headers in the format that was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, first_dot
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import expand
from tarkit.toolbox.rawjoin import Joined, check_key, would_merge


def rewrite(
    urls: str | Iterable[str],
    output: str | os.PathLike[str] | BinaryIO,
    *,
    format: str,
    rule: str | KeyRule = first_dot,
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    allow_pipe_in_lists: bool = False,
) -> Joined:
    """Write the samples of several shards as one shard, each member with a new header.

    Members come as :class:`tarkit.samples.tarwriter.TarWriter` writes them. Those that are not part of a sample are
    left out, and counted in ``tally``.

    Args:
        format: as for TarWriter. The others: as for :func:`tarkit.toolbox.rawjoin.concatenate`.
    """
    joined = Joined()
    last_key: str | None = None
    seen: dict[str, str] = {}
    # Keys are checked here, since the message names both shards.
    with TarWriter(output, encoder=False, format=format, rule=rule, on_repeated_key="allow") as writer:
        for url in expand(urls, allow_pipe_in_lists=allow_pipe_in_lists):
            joined.shards += 1
            for sample in read_samples(
                [url],
                literal=True,
                rule=rule,
                on_repeated_key=on_repeated_key,
                on_damage=on_damage,
                tally=tally,
                large=KeepInFiles(),
            ):
                key = sample["__key__"]
                if on_repeated_key == "error":
                    check_key(key, sample["__url__"], seen)
                elif key == last_key:
                    raise would_merge(key, sample["__url__"])
                last_key = key
                writer.write(sample)
                joined.samples += 1
    joined.size = writer.archive_size
    return joined
