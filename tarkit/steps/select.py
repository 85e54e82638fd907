"""Select samples of many shards: one output for each of them; and count them for an even split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import BinaryIO, NamedTuple, cast

from tarkit.errors import UsageError, printable, quoted
from tarkit.names.keywords import Unpack
from tarkit.names.outputnames import has_index_name, plan_outputs, reject_pattern
from tarkit.names.redaction import redact
from tarkit.names.url import reads_once
from tarkit.samples.index import remove_index
from tarkit.samples.read import ReadOptions
from tarkit.specs.outputcheck import check_pairs, check_tar_output, existing_shards
from tarkit.specs.shardspec import expand
from tarkit.steps.counting import count_shards
from tarkit.steps.join import JoinOptions, concatenate
from tarkit.steps.selection import Selection
from tarkit.steps.shardsoutput import Nowhere, remove_shard
from tarkit.store.entries import exists
from tarkit.store.publish import PublishStream, open_publish

_MOST_WAITING = 100
_NUMBER = re.compile(r"[0-9]+(?=[^0-9/]*\Z)")


class SelectedShards(NamedTuple):
    """Result of :func:`select_one` and :func:`select_shards`.

    Attributes:
        samples: number of samples that were written.
        size: bytes of the shards, before compression.
        read: number of shards that were read.
        shards: names of the shards that were written.
        removed: names of shards of an earlier run that were removed.
    """

    samples: int
    size: int
    read: int
    shards: list[str]
    removed: list[str]


def select_one(
    urls: str | Iterable[str],
    output: str,
    selection: Selection,
    *,
    dry_run: bool = False,
    allow_pipe_in_lists: bool = False,
    parallel: int = 1,
    **options: Unpack[JoinOptions],
) -> SelectedShards:
    """Write the selected samples of all shards as one shard, which is published whole.

    Args:
        urls: paths, URLs or shard specs.
        output: path, URL or ``-``.
        selection: the samples; members of samples that it does not change keep their bytes.
        dry_run: check and count everything, but write nothing.
        allow_pipe_in_lists: True if a list may have ``pipe:`` commands.
        parallel: number of shards that are opened, read and decompressed at once.
        options: ``rule``, ``on_repeated_key``, ``on_damage``, ``tally`` and ``progress`` of
            :func:`tarkit.steps.join.concatenate`.

    Raises:
        UsageError: the output has no name of a tar, or is an input.
        DataError: as for :func:`tarkit.steps.join.concatenate`.
    """
    reject_pattern(output)
    check_tar_output(output)
    with open_publish(cast(BinaryIO, Nowhere()) if dry_run else output) as stream:
        joined = concatenate(
            urls, stream, target=output, selection=selection, parallel=parallel,
            allow_pipe_in_lists=allow_pipe_in_lists, **options,
        )  # fmt: skip
    return SelectedShards(joined.samples, joined.size, joined.shards, [output], [])


def select_shards(
    urls: str | Iterable[str],
    folder: str,
    selection: Selection,
    *,
    force: bool = False,
    dry_run: bool = False,
    allow_pipe_in_lists: bool = False,
    published: Callable[[str], object] = lambda name: None,
    **options: Unpack[JoinOptions],
) -> SelectedShards:
    """Write the selected samples of each shard as a shard of the same name in a folder.

    Each is published whole. As long as an option names a field that no sample had, which is
    probably misspelt, up to 100 shards wait for their publication. Existing shards of these names,
    or of the same names with other numbers, are those of an earlier run: an error, unless they are
    to be replaced or removed.

    Args:
        urls: paths, URLs or shard specs.
        folder: path or URL of the folder.
        selection: the samples; members of samples that it does not change keep their bytes.
        force: replace existing shards, and remove the others of an earlier run at the end.
        dry_run: check and count everything, but write and remove nothing.
        allow_pipe_in_lists: True if a list may have ``pipe:`` commands.
        published: called with each name after it was published.
        options: ``rule``, ``on_repeated_key``, ``on_damage``, ``tally`` and ``progress`` of
            :func:`tarkit.steps.join.concatenate`.

    Raises:
        UsageError: shards of an earlier run exist, two inputs have one name, or an input is an
            output.
        DataError: as for :func:`tarkit.steps.join.concatenate`; shards that were published stay.
    """
    pairs = list(plan_outputs(expand(urls, allow_pipe_in_lists=allow_pipe_in_lists), folder))
    check_pairs(pairs)
    outputs = [output for _, output in pairs]
    earlier = sorted(_existing(outputs))
    if earlier and not force:
        more = f" and {len(earlier) - 1} more are" if len(earlier) > 1 else " is"
        shown = printable(redact(earlier[0]))
        raise UsageError(f"{shown}{more} there from an earlier run; --force replaces or removes such shards")
    samples = size = 0
    if (progress := options.get("progress")) is not None:
        options["progress"] = lambda _: progress(len(pairs))
    waiting: list[tuple[str, PublishStream]] = []

    def publish() -> None:
        while waiting:
            name, stream = waiting.pop(0)
            with stream:
                if not dry_run and has_index_name(name):
                    remove_index(name)
            published(name)

    with ExitStack() as stack:
        stack.callback(lambda: [*map(PublishStream.discard, (stream for _, stream in waiting))])
        for url, output in pairs:
            stream = open_publish(cast(BinaryIO, Nowhere()) if dry_run else output)
            waiting.append((output, stream))
            joined = concatenate([url], stream, selection=selection, last=False, literal=True, **options)
            samples, size = samples + joined.samples, size + joined.size
            if len(waiting) > _MOST_WAITING:
                selection.check()
            if not selection.unseen or len(waiting) > _MOST_WAITING:
                publish()
        selection.check()
        publish()
    removed = sorted({*earlier}.difference(outputs))
    for name in removed if not dry_run else ():
        remove_shard(name)
    return SelectedShards(samples, size, len(pairs), outputs, removed)


def _existing(outputs: Iterable[str]) -> Iterator[str]:
    """Yield the existing shards of these names, and of the same names with other numbers."""
    patterns = set()
    for output in outputs:
        if (number := _NUMBER.search(output)) is None:
            yield from [output] if exists(output) else ()
            continue
        head, end = (part.replace("%", "%%") for part in (output[: number.start()], output[number.end() :]))
        patterns.add(f"{head}%0{len(number[0])}d{end}")
    for pattern in patterns:
        yield from existing_shards(pattern)


def count_selected(names: Iterable[str], selection: Selection, **options: Unpack[ReadOptions]) -> int:
    """Count the samples that a selection takes.

    The numbers come from fresh indexes or headers, and from all of the shards if samples are
    selected.

    Args:
        names: names of the inputs.
        selection: the selection, of which a copy is used.
        options: key rule and policies of :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: an input can be read only once.
        TarkitError: an input cannot be read.
    """
    names = list(names)
    if once := next(filter(reads_once, names), None):
        why = f"{quoted(once)} can be read only once"
        raise UsageError(f"--shards needs the number of samples first, and {why}; use --maxcount or --maxsize")
    total = 0
    for count in count_shards(names, selection=selection.again() if selection.selects else None, **options):
        if count.error is not None:
            raise count.error
        total += count.samples
    return total
