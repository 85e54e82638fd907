"""The numbered series of shards that ``tarkit split`` and ``tarkit create`` write."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError, counted, printable
from tarkit.names.redaction import redact

from .program import option_group, reject_options, say, size

if TYPE_CHECKING:
    from pathlib import PurePath

    from tarkit.samples.shardwriter import ShardWriter

_OPTIONS: dict[str, dict[str, Any]] = {
    "maxcount": {"type": click.IntRange(1), "default": 100000, "help": "Most samples in a shard."},
    "maxsize": {"type": size, "default": "3G", "help": "Most bytes of content in a shard."},
    "start": {"type": click.IntRange(0), "default": 0, "help": "Number of the first shard."},
    "manifest": {
        "metavar": "FILE.json",
        "help": "Also list this run's shards in this file, with samples, bytes and MD5 of each; implies --index.",
    },
    "force": {
        "is_flag": True,
        "help": "Replace existing shards of this pattern; remove the remaining ones at the end.",
    },
}


series_options = option_group(
    *(click.option(f"--{name}", show_default="default" in option, **option) for name, option in _OPTIONS.items())
)
"""Options --maxcount, --maxsize, --start, --manifest, --force."""


def reject_series_options() -> None:
    """Raise a usage error if an option for a series is given and the output is one shard."""
    reject_options(_OPTIONS, "goes with a series of shards, such as -o out-%06d.tar")


@dataclass(frozen=True)
class Series:
    """The series of shards that the options ask for.

    The other attributes are those of ``ShardWriter``.

    Attributes:
        program: name of the program, for messages.
    """

    program: str
    pattern: str
    maxcount: int
    maxsize: int
    start: int
    manifest: str | None
    force: bool

    def earlier(self) -> list[str]:
        """List the existing shards of the series; without --force, they are an error.

        With --force, the list is empty if the shards cannot be listed.
        """
        from tarkit.specs.outputcheck import check_tar_output, existing_shards

        check_tar_output(self.pattern)
        try:
            found = existing_shards(self.pattern, self.start)
        except StreamError as error:
            if isinstance(error, TemporaryStreamError):
                raise
            if not self.force:
                error.hint = "--force writes the series without a look at what is there"
                raise
            reason = "shards of an earlier run are replaced, but none is removed, since they cannot be listed"
            say(self.program, f"{reason}: {error}")
            return []
        if found and not self.force:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            first = f"{printable(redact(found[0]))}{more} of this pattern {'are' if more else 'is'} there"
            raise UsageError(
                f"{first} from an earlier run; --force replaces or removes them, --start N continues after them"
            )
        self._reject_earlier_manifest()
        return found

    def _reject_earlier_manifest(self) -> None:
        """Reject an existing manifest, which may list shards that this run does not write."""
        from tarkit.specs.manifest import check_manifest_name
        from tarkit.store.entries import stat

        if self.manifest is None:
            return
        check_manifest_name(self.manifest)
        with suppress(MissingInputError):
            stat(self.manifest)
            if not self.force:
                shown = printable(redact(self.manifest))
                raise UsageError(
                    f"{shown} is there from an earlier run; --force replaces it. "
                    f"To list shards of several runs: tarkit index --manifest {shown} SHARD..."
                )

    def _reject_own_inputs(self, inputs: Collection[str | PurePath], earlier: list[str]) -> None:
        """Refuse an input that the series would replace or remove, perhaps before it is read."""
        from tarkit.names.outputnames import number_of_shard
        from tarkit.names.url import one_name
        from tarkit.specs.outputcheck import check_other_than

        outputs = {one_name(os.fspath(name)) for name in earlier}
        # Without --force, nothing of the series is there.
        for name in inputs if self.force else ():
            number = number_of_shard(self.pattern, str(name))
            if one_name(os.fspath(name)) in outputs or (number is not None and number >= self.start):
                raise UsageError(
                    f"{printable(redact(str(name)))} is an input, and one of the shards that --force replaces or "
                    "removes; write the series under another name or into another folder"
                )
        check_other_than(earlier, inputs)

    @contextmanager
    def open(
        self, inputs: Collection[str | PurePath], earlier: list[str], post: Callable[[str], object],
        *, key_rule: str, mtime: float | None, format: str, on_repeated_key: str = "error", index: bool = False,
    ) -> Iterator[ShardWriter]:  # fmt: skip
        """Open a writer of the series.

        When the context ends without an error, shards of an earlier run that were not replaced are
        removed.
        """
        from tarkit.names.outputnames import has_index_name
        from tarkit.samples.index import remove_index
        from tarkit.store.entries import remove
        from tarkit.writer import ShardWriter

        self._reject_own_inputs(inputs, earlier)
        with ShardWriter(
            self.pattern, self.maxcount, self.maxsize, post, self.start, encoder=False,
            rule=key_rule, mtime=mtime, format=format, on_repeated_key=on_repeated_key, index=index,
            manifest=self.manifest,
        ) as writer:  # fmt: skip
            yield writer
        stale = sorted(set(earlier) - set(writer.shards))
        for name in stale:
            # The index first: killed in between, a shard is left, which the next run finds.
            if has_index_name(name):
                remove_index(name)
            with suppress(MissingInputError):
                remove(name)
        if stale:
            first = printable(redact(stale[0]))
            say(self.program, f"removed {counted(len(stale), 'shard')} of an earlier run, from {first} on")
