"""Make the index of a shard while the shard is written, so that it need not be read again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from tarkit.errors import UsageError
from tarkit.names.outputnames import written_index_url
from tarkit.names.url import display_name, split_query
from tarkit.samples.index import IndexedMember, ShardIndex, publish_index, remove_index
from tarkit.samples.sample import is_reserved
from tarkit.store.compression import SEEKABLE, compression_for_name, write_compression


class WrittenIndex:
    """The index of a shard that is being written.

    Args:
        target: path or URL of the shard.
        compression: compression argument of its writer.

    Attributes:
        compression: codec by which the shard is written: SEEKABLE or None.

    Raises:
        UsageError: shards of this kind have no index.
    """

    def __init__(self, target: Any, compression: str | bool | None) -> None:
        if not isinstance(target, (str, os.PathLike)):
            raise UsageError("an index is written beside a shard, so the shard must have a name, not be a file object")
        self._url = os.fspath(target)
        written_index_url(self._url)
        codec, named = write_compression(compression, self._url), compression_for_name(split_query(self._url)[0])
        if codec != named and (codec, named) != (SEEKABLE, "zst"):
            kind = "not to be compressed" if codec is None else f"to be compressed ({codec})"
            raise UsageError(f"{display_name(self._url)} is {kind}; with an index, its name must say that")
        self.compression = None if codec is None else SEEKABLE
        self._index = ShardIndex()
        self._at = 0

    def __len__(self) -> int:
        return len(self._index)

    def add(self, key: str, plan: Iterable[tuple[str, bytes]], pieces: Sequence[Any]) -> None:
        """Add one sample.

        Args:
            plan: its fields, each with the end of its member name.
            pieces: header, content and padding of each field in turn.
        """
        members = []
        for number, (field, _) in enumerate(plan):
            header, content, padding = (len(piece) for piece in pieces[3 * number : 3 * number + 3])
            if not is_reserved(field):
                members.append(IndexedMember(field, self._at + header, content, f"{key}.{field}"))
            self._at += header + content + padding
        if members:
            self._index.add(members)

    def add_raw(self, words: bytes, size: int) -> None:
        """Add one sample whose members are copied.

        Args:
            words: place and name of each member, see :class:`tarkit.samples.rawsamples.RawSample`.
            size: bytes of the sample in the shard.
        """
        self._index.add_words(words, self._at)
        self._at += size

    def pass_over(self, size: int) -> None:
        """Count bytes of the shard that belong to no sample."""
        self._at += size

    def remove_earlier(self) -> None:
        """Remove the index of the replaced shard, before the new shard is published."""
        remove_index(self._url)

    def publish(self) -> None:
        """Write the index, after the shard was published."""
        publish_index(self._index, self._url)
