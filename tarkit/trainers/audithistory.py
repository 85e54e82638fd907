"""History of a training from the logs of its processes: where they began, and their batches."""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from tarkit.errors import DataError, MissingInputError
from tarkit.trainers.auditlog import SUFFIX, read_lines
from tarkit.trainers.order import ORDER_VERSION

_ORDER = ("shards", "subset", "seed", "run", "block", "equalize")
"""Fields of a state that are equal in all processes of a training; of streams, from the seed on."""


class AuditPoint(NamedTuple):
    """A point of a training: before this batch of this epoch."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class AuditBegin:
    """The start of a loop, from the beginning or from a state.

    Attributes:
        state: state of the training.
    """

    point: AuditPoint
    at: float
    rank: int
    world: int
    state: dict[str, Any]

    @property
    def launch(self) -> tuple[AuditPoint, int]:
        """Point and world: processes that begin at one point with one world belong together."""
        return self.point, self.world


@dataclass
class GivenBatch:
    """A batch that a process was given.

    Attributes:
        before: the launches to which the process belonged at that time.
        used: True if the process then wrote another line.
    """

    point: AuditPoint
    at: float
    worker: int
    begin: AuditBegin
    before: frozenset[tuple[AuditPoint, int]]
    path: str
    offset: int
    used: bool = False

    def __str__(self) -> str:
        who = f"rank {self.begin.rank} of {self.begin.world}, worker {self.worker}"
        return f"batch {self.point.batch} of {who} ({os.path.basename(self.path)}, offset {self.offset})"


def read_history(folder: str) -> tuple[list[AuditBegin], list[GivenBatch]]:
    """Read the logs of a folder: the begins and the batches of all processes."""
    begins: list[AuditBegin] = []
    given: list[GivenBatch] = []
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), f"*{SUFFIX}")))
    for path in paths:
        header: dict[str, Any] = {}
        before: frozenset[tuple[AuditPoint, int]] = frozenset()
        pending: GivenBatch | None = None
        begun: AuditBegin | None = None
        for offset, line in read_lines(path):
            header = header or line
            if pending is not None:
                pending.used, pending = True, None
            if "begin" in line:
                state = line["begin"]
                point = AuditPoint(state["epoch"], state["next_batch"])
                begun = AuditBegin(point, line["at"], header["rank"], header["world"], state)
                begins.append(begun)
                before |= {begun.launch}
                if state["version"] != ORDER_VERSION:
                    reason = f"this audit is of version {state['version']} of the order, and here it is {ORDER_VERSION}"
                    hint = "use the version of tarkit that wrote it"
                    raise DataError(reason, url=path, offset=offset, hint=hint)
                first, is_mixed = begins[0].state, "streams" in state
                fields = _ORDER[2:] if is_mixed else _ORDER
                if is_mixed != ("streams" in first) or any(state.get(name) != first.get(name) for name in fields):
                    hint = "one folder is for one training"
                    raise DataError(
                        "this is the audit of another data set or order", url=path, offset=offset, hint=hint
                    )
            elif "batch" in line:
                point = AuditPoint(*line["batch"])
                if begun is None:
                    raise DataError("a batch comes before the line that begins an epoch", url=path, offset=offset)
                made = GivenBatch(point, line["at"], line["worker"], begun, before, path, offset)
                given.append(made)
                pending = made
    if not begins:
        raise MissingInputError("no audit of a training is in this folder", url=folder)
    return begins, given


def launches_of(begins: Iterable[AuditBegin]) -> dict[tuple[AuditPoint, int], dict[int, float]]:
    """Return the last begin of each rank, for each launch."""
    found: dict[tuple[AuditPoint, int], dict[int, float]] = defaultdict(dict)
    for each in begins:
        ranks = found[each.launch]
        ranks[each.rank] = max(each.at, ranks.get(each.rank, each.at))
    return found


def is_undone(
    point: AuditPoint, at: float, rank: int, own: Set[tuple[AuditPoint, int]],
    launches: dict[tuple[AuditPoint, int], dict[int, float]],
) -> bool:  # fmt: skip
    """Return True if the training resumed, after ``at``, from a point not after ``point``.

    Other ranks of the same launch may begin later; they undo nothing.
    """
    return any(
        (ranks.get(rank, at) if launch in own else max(ranks.values())) > at
        for launch, ranks in launches.items()
        if launch[0] <= point
    )
