"""Join tar shards, byte for byte.

All bytes are still read through :class:`tarkit.formats.tar.walk.Archive`, so that damage, cuts and
files that are not tars are found, and samples that would be merged are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarkit.errors import RepeatedKeyError, printable
from tarkit.formats.tally import DAMAGE_POLICIES, Tally, check_policy
from tarkit.formats.tar.headers import END_OF_ARCHIVE, RECORD
from tarkit.formats.tar.raw import FarReachingError, RawArchive, copied_members, raw_members_beside_damage, write_raw
from tarkit.names.redaction import redact
from tarkit.samples.sample import KeyRule, Sample, first_dot, group_by_keys, in_sample
from tarkit.specs.outputcheck import other_than
from tarkit.specs.shardspec import expand
from tarkit.store.publish import PublishStream
from tarkit.store.read import open_read

_OTHER_KEYS = "tarproc -c 'echo \"NAME-$(cat __key__)\" > __key__' SHARD -o OTHER"
"""Puts a name before each key. (What --on-repeated-key allow joins, no program reads without that
option.)
"""


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
) -> Joined:
    """Write all members of several shards as one shard; the caller commits ``output``.

    Members keep their bytes and their order, including folders, links and files that are not part
    of a sample; only ``on_damage="skip"`` leaves these out. End-of-archive marks are dropped,
    except for one at the end, padded to 10,240 bytes. Bytes are written as they arrive; with
    ``on_damage="skip"`` one sample is held, large content in files. Keys are held in memory. A
    repeated key may be allowed, in one shard or in several, but not for two adjacent samples:
    without the mark between them they would become one. ``tally.skipped`` counts the members that
    are not part of a sample.

    Raises:
        DataError: a shard is damaged, a key or field is repeated, or a global extended header would
            apply to the members of later archives.
        UsageError: a shard is the output itself.
    """
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    tally = Tally() if tally is None else tally
    joined = Joined(on_repeated_key)
    globals_seen: list[FarReachingError] = []
    for url in other_than([target], expand(urls, allow_pipe_in_lists=allow_pipe_in_lists, outputs=[target])):
        joined.shards += 1
        with open_read(url) as stream:
            write = output.write if on_damage == "error" else None
            archive = RawArchive(stream.read, redact(stream.name), in_sample(rule), tally, globals_seen, write)
            samples = group_by_keys(
                raw_members_beside_damage(archive) if write is None else copied_members(archive),
                url=stream.name,
                rule=rule,
                on_repeated_key=on_repeated_key,
                tally=tally,
                sample_limit=archive.large.sample_limit,
                spill=archive.large.spill,
            )
            for sample in samples:
                joined.add(sample)
                del sample["__key__"], sample["__url__"]
                for raw in sample.values():
                    write_raw(raw, output.write)
    output.write(END_OF_ARCHIVE)
    output.write(bytes(-output.bytes_written % RECORD))
    joined.size = output.bytes_written
    return joined
