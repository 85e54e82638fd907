"""Join tar shards, byte for byte.

All bytes are still read through :class:`tarkit.formats.tar.walk.Archive`, so that damage, cuts and
files that are not tars are found, and samples that would be merged are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO, TypedDict, cast

from tarkit.errors import RepeatedKeyError, printable
from tarkit.formats.tally import DAMAGE_POLICIES, Tally, check_policy
from tarkit.formats.tar.headers import END_OF_ARCHIVE, RECORD
from tarkit.formats.tar.raw import FarReachingError, RawArchive, RawMember, contents, copied_members, raw_members
from tarkit.names.outputnames import reject_pattern
from tarkit.names.redaction import redact
from tarkit.samples.sample import KeyRule, Sample, first_dot, group_by_keys, in_sample
from tarkit.samples.tarwriter import TarWriter, TarWriterOptions
from tarkit.specs.outputcheck import check_folder, other_than
from tarkit.specs.shardspec import counted_shards, expand, spec_texts
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.read import open_in_order, open_read

if TYPE_CHECKING:
    from tarkit.steps.selection import Selection

_OTHER_KEYS = "tarproc -c 'echo \"NAME-$(cat __key__)\" > __key__' SHARD -o OTHER"
"""Puts a name before each key. (What --on-repeated-key allow joins, no program reads without that
option.)
"""
_PIECE = 1 << 20


class JoinOptions(TypedDict, total=False):
    """Keyword arguments of :func:`concatenate`, which describes them."""

    rule: KeyRule
    on_repeated_key: str
    on_damage: str
    tally: Tally | None
    progress: Callable[[int | None], object]


class Joined:
    """Numbers of shards and samples that were joined so far.

    Attributes:
        size: bytes written, before compression.
    """

    def __init__(self, on_repeated_key: str) -> None:
        self.shards = self.samples = self.size = 0
        self._seen: dict[str, str] | None = {} if on_repeated_key == "error" else None
        self._last: str | None = None

    def add(self, sample: Sample) -> None:
        """Count a sample, and check that it does not merge with another one."""
        key, url = sample["__key__"], sample["__url__"]
        if self._seen is not None:
            if key in self._seen:
                reason = f"the key is in {printable(redact(self._seen[key]))} too, and the result would be one shard"
                hint = f"keep the shards apart, or give other keys: {_OTHER_KEYS}"
                raise RepeatedKeyError(reason, url=url, key=key, hint=hint)
            self._seen[key] = url
        elif key == self._last:
            reason = "the sample before it has the same key, and in one shard the two would be read as one"
            hint = "pass the shards in another order, or keep them apart"
            raise RepeatedKeyError(reason, url=url, key=key, hint=hint)
        self._last = key
        self.samples += 1


def concatenate(
    urls: str | Iterable[str],
    output: PublishStream,
    *,
    rule: KeyRule = first_dot,
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    allow_pipe_in_lists: bool = False,
    target: str = "-",
    selection: Selection | None = None,
    last: bool = True,
    parallel: int = 1,
    literal: bool = False,
    progress: Callable[[int | None], object] = lambda shards: None,
) -> Joined:
    """Write all members of several shards as one shard; the caller commits ``output``.

    Members keep their bytes and their order, including folders, links and files that are not part
    of a sample; only ``on_damage="skip"`` and a selection leave these out. End-of-archive marks are
    dropped, except for one at the end, padded to 10,240 bytes. Bytes are written as they arrive;
    with ``on_damage="skip"`` or a selection one sample is held, large content in files. Content of
    plain local files is copied by the kernel where it can do that. Keys are held in memory. A
    repeated key may be allowed, in one shard or in several, but not for two adjacent samples:
    without the mark between them they would become one. ``tally.skipped`` counts the members that
    are not part of a sample.

    Args:
        selection: samples to write; None: all. If it changes samples, members get new headers.
        last: False if the selection is used for more shards, in a later call.
        parallel: number of shards that are opened, read and decompressed at once.
        literal: ``urls`` are names of shards as they are.
        progress: called after each sample with the number of shards, or None; ``tally`` has that of
            the samples and shards that were read.

    Raises:
        DataError: a shard is damaged, a key or field is repeated, a global extended header would
            apply to the members of later archives, or the selection does not fit the samples.
        UsageError: a shard is the output itself.
    """
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    tally = Tally() if tally is None else tally
    joined = Joined(on_repeated_key)
    globals_seen: list[FarReachingError] = []
    if selection is not None and not selection.selects:
        selection = None
    specs, count = spec_texts(urls), None
    if literal:
        names = other_than([target], specs)
    else:
        names, count = counted_shards(specs, allow_pipe_in_lists=allow_pipe_in_lists, outputs=[target])
    write = output.write if on_damage == "error" and selection is None else None
    changes = selection is not None and selection.changes
    options: TarWriterOptions = {"encoder": False, "rule": rule, "on_repeated_key": on_repeated_key}
    with TarWriter(cast(BinaryIO, output), **options) if changes else nullcontext() as writer:
        for stream in open_in_order(names, parallel):
            joined.shards += 1
            with stream:
                tally.part_read = stream.part_read
                archive = RawArchive(
                    stream.read, redact(stream.name), in_sample(rule), tally, globals_seen, write, stream.in_place()
                )
                samples = group_by_keys(
                    raw_members(archive, on_damage) if write is None else copied_members(archive),
                    url=stream.name,
                    rule=rule,
                    on_repeated_key=on_repeated_key,
                    tally=tally,
                    sample_limit=archive.large.sample_limit,
                    spill=archive.large.spill,
                )
                for sample in samples:
                    progress(count)
                    if write is not None:
                        joined.add(sample)
                        continue
                    plain = contents(sample)
                    found = plain if selection is None else selection.apply(plain)
                    if found is not None:
                        joined.add(found)
                        _write_raw(sample, output) if writer is None else writer.write(found)
                tally.part_read = None
                tally.shards += 1
        if selection is not None and last:
            selection.check()
    if writer is None:
        output.write(END_OF_ARCHIVE)
        output.write(bytes(-output.bytes_written % RECORD))
    joined.size = output.bytes_written
    return joined


def _write_raw(sample: Sample, output: PublishStream) -> None:
    for raw in sample.values():
        if isinstance(raw, RawMember):
            for part in raw:
                output.write(part)


def join_files(urls: Iterable[str], output: str, *, allow_pipe_in_lists: bool = False) -> tuple[int, int]:
    """Write the bytes of any files as one file, which is published whole.

    They are neither decompressed nor checked; the name of the output says how they are compressed
    already.

    Args:
        urls: paths, URLs or specs.
        output: path, URL or ``-``.
        allow_pipe_in_lists: True if a list may have ``pipe:`` commands.

    Returns:
        The numbers of files and of bytes.

    Raises:
        UsageError: the output is an input, or a pattern.
        MissingInputError, StreamError, TemporaryStreamError: a file cannot be read to its end.
    """
    reject_pattern(output)
    check_folder(output)
    count = 0
    with open_publish(output, compression=None) as sink:
        for url in other_than([output], expand(urls, allow_pipe_in_lists=allow_pipe_in_lists, outputs=[output])):
            count += 1
            with open_read(url, compression=None) as stream:
                while data := stream.read(_PIECE):
                    sink.write(data)
    return count, sink.bytes_written
