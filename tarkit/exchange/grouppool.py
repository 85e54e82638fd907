"""Run a shell command over groups of samples, each of which lies in one folder."""

from __future__ import annotations

import os

from tarkit.exchange.groupsamples import GroupSamples
from tarkit.mapping.parallel import Batch
from tarkit.mapping.scratch import FieldNameError, extract, write_file
from tarkit.mapping.shellpool import ShellPool
from tarkit.samples.sample import Sample

_GROUP = "__group__"
_MOST = 1_000_000
_WAITING = 4
"""Groups for each shell that are laid out, run, or wait for the result of an earlier one."""


def batch_of(key: str, group: GroupSamples) -> Batch:
    """Return the batch of a group for :class:`GroupPool`.

    Its samples in memory are behind the first entry, so that they count for the window of the pool.
    """
    return [{"__key__": key, _GROUP: group}, *group.held]


def group_of(batch: Batch) -> GroupSamples:
    """Return the group of a batch."""
    group: GroupSamples = batch[0][_GROUP]
    return group


class GroupPool(ShellPool):
    """A pool of shells that run a command once for each group, in the group's folder.

    The folder holds a folder for each sample, ``000000/``, ``000001/`` and so on, and ``__key__``.
    The files ``sample.*`` in it become the new sample.

    Attributes:
        released: number of batches whose outcomes were used. Groups wait in files until then, so
            that only a few batches for each shell are taken before.
    """

    released = 0
    _taken = 0

    def has_room(self) -> bool:
        """True if a slot is free, and not too many groups wait."""
        return super().has_room() and self._taken - self.released < _WAITING * len(self._workers)

    def submit(self, ticket: int, batch: Batch) -> None:
        """Lay out the folder of a group, and start the command if a slot is free."""
        self._taken += 1
        super().submit(ticket, batch)

    def _extract(self, batch: Batch, folder: str) -> None:
        os.mkdir(folder, 0o700)
        write_file(f"{folder}/__key__", batch[0]["__key__"].encode("utf-8", "surrogateescape"))
        for number, sample in enumerate(group_of(batch).samples()):
            if number == _MOST:
                # The order of longer names, as in *, would be another one.
                raise FieldNameError(f"the group has {group_of(batch).count} samples, above {_MOST}; use --map")
            extract(sample, f"{folder}/{number:06d}", self._base)

    def _gather(self, batch: Batch, folder: str) -> tuple[list[list[Sample]], list[str]]:
        made, stray = super()._gather(batch, folder)
        inputs = {f"{number:06d}/ (a folder)" for number in range(group_of(batch).count)}
        return made, [name for name in stray if name not in inputs]
