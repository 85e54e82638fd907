"""Write samples to a series of shards."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from tarkit.errors import UsageError
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import shard_name
from tarkit.samples.codecs import make_encoder
from tarkit.samples.tarwriter import TarWriter, TarWriterOptions
from tarkit.samples.writtenindex import WrittenIndex
from tarkit.specs.manifest import ManifestShard, check_manifest_name, remove_manifest, write_manifest
from tarkit.store.compression import check_tar_name, write_compression
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import WholeOutput, check_target


class ShardWriter(WholeOutput):
    """A writer of a series of shards, each published whole when it is full.

    A shard replaces one of the same name when it is published: do not write a series over shards
    that you still read.

    ``shards`` are the names of those that are published, ``total`` the samples written.

    >>> with ShardWriter("train-%06d.tar", maxcount=10_000) as writer:  # doctest: +SKIP
    ...     for number, image in enumerate(images):
    ...         writer.write({"__key__": f"{number:08d}", "jpg": image})

    Args:
        pattern: name with one number, as in ``out-%06d.tar``.
        maxcount: samples in a shard at most.
        maxsize: bytes of content in a shard at most, unless one sample alone has more.
        post: called with each shard's name after it was published; its exception ends the writing.
        start_shard: number of the first shard.
        verbose: if positive, one line on stderr for each new shard.
        opener: function from a name to an open binary file; it then decides how the file is
            written.
        manifest: path or URL, which ends in ``.json``, of a manifest (``docs/formats/manifest.md``)
            of the shards that this writer publishes, written at the end. Each shard has an index
            then. An existing manifest is removed before the first shard is published.
        kw: the other arguments of :class:`TarWriter`, by name.

    Attributes:
        shards: names of the published shards.
        total: number of samples written.

    Raises:
        TypeError: an argument does not exist.
        UsageError: an argument is not valid, also one of TarWriter's.
    """

    @keywords_of(TarWriterOptions)
    def __init__(
        self,
        pattern: str,
        maxcount: int = 100000,
        maxsize: float = 3e9,
        post: Callable[[str], object] | None = None,
        start_shard: int = 0,
        verbose: int = 0,
        opener: Callable[[str], BinaryIO] | None = None,
        manifest: str | None = None,
        **kw: Unpack[TarWriterOptions],
    ) -> None:
        for name, limit in (("maxcount", maxcount), ("maxsize", maxsize)):
            if not isinstance(limit, (int, float)) or not limit >= 1:
                raise UsageError(f"{name} is {limit!r}; it must be a number, 1 or more")
        if maxcount != math.inf and maxcount != int(maxcount):
            raise UsageError(f"maxcount is {maxcount!r}; it must be a whole number")
        for name, number in (("verbose", verbose), ("start_shard", start_shard)):
            if not isinstance(number, int) or (name == "start_shard" and isinstance(number, bool)):
                raise UsageError(f"{name} is {number!r}; it must be a whole number, 0 or more")
        for name, function in (("post", post), ("opener", opener)):
            if function is not None and not callable(function):
                raise UsageError(f"{name} is {function!r}; it must be a function")
        first = shard_name(pattern, start_shard)
        if opener is None:
            check_target(first)
            write_compression("auto", first)
            check_tar_name(first)
        self.pattern = pattern
        self.maxcount = maxcount
        self.maxsize = maxsize
        self.post = post
        self.verbose = verbose
        self.opener = opener
        # Encoded here, because the size decides which shard the sample goes to.
        encoder = kw.get("encoder", True)
        self._encode = make_encoder(encoder) if encoder else None
        self.kw: TarWriterOptions = {**kw, "encoder": False}
        self.manifest = manifest
        self._listed: list[ManifestShard] | None = None
        if manifest is not None:
            check_manifest_name(manifest)
            self.kw["index"], self.kw["checksum"] = True, "md5"
            self._listed = []
        # An argument that is not valid raises here, not at the first sample.
        unindexed: TarWriterOptions = {**self.kw, "index": False}
        TarWriter(io.BytesIO(), **unindexed).discard()
        if self.kw.get("index"):
            if self.kw.get("on_repeated_key", "error") != "error":
                raise UsageError("a shard with repeated keys has no index")
            if opener is not None:
                raise UsageError("opener decides how shards are written, so that no index can be written beside them")
            WrittenIndex(first, kw.get("compress") or "auto")
        self.shard = start_shard
        self.total = 0
        self.shards: list[str] = []
        self._name = ""
        self._stream: TarWriter | None = None
        self._file: BinaryIO | None = None

    def write(self, obj: Mapping[str, Any]) -> int:
        """Write one sample, to the next shard if it does not fit into this one.

        Args:
            obj: the sample: ``__key__``, and a value for each field.

        Returns:
            Size of the content in bytes.
        """
        sample = obj if self._encode is None else self._encode(obj)
        stream = self._stream
        if stream is None or self._is_full(stream, sample):
            stream = self.next_stream()
        try:
            size = stream.write(sample)
        except BaseException:
            if not stream.samples:
                # The shard was begun for a sample that was rejected.
                self.discard()
                self.shard -= 1
            raise
        self.total += 1
        return size

    def _is_full(self, stream: TarWriter, sample: Mapping[str, Any]) -> bool:
        if stream.samples >= self.maxcount or stream.bytes_written >= self.maxsize:
            return True
        size = sum(len(value) for value in sample.values() if isinstance(value, (bytes, bytearray, FieldFile)))
        return stream.bytes_written + size > self.maxsize

    def next_stream(self) -> TarWriter:
        """Publish the current shard and begin the next one."""
        self.finish()
        name = shard_name(self.pattern, self.shard)
        if self.verbose > 0:
            sys.stderr.write(f"# writing {name} after {self.total} samples\n")
        self._file = None if self.opener is None else self.opener(name)
        self._stream = TarWriter(name if self._file is None else self._file, **self.kw)
        self._name = name
        self.shard += 1
        return self._stream

    def finish(self) -> None:
        """Publish the current shard, if any, and call ``post``."""
        if self._stream is None:
            return
        if self.manifest is not None and not self.shards:
            remove_manifest(self.manifest)
        stream = self._stream
        stream.close()  # an error comes back with each later call: samples of this shard are lost
        self._stream = None
        self._close_file()
        self.shards.append(self._name)
        if self._listed is not None:
            self._listed.append(ManifestShard(self._name, stream.indexed, *stream.checksum_of_file()))
        if self.post is not None:
            self.post(self._name)

    def close(self) -> None:
        """Publish the last shard, and then the manifest.

        A second call does nothing.
        """
        self.finish()
        if self.manifest is not None and self._listed is not None:
            write_manifest(self.manifest, self._listed)
            self._listed = None

    def discard(self) -> None:
        """Discard the current shard; published shards stay."""
        if self._stream is not None:
            self._stream.discard()
            self._stream = None
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
