"""History of a training from the logs of its processes: where they began, and their batches."""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from tarkit.errors import DataError, MissingInputError, printable
from tarkit.trainers.auditlog import SUFFIX, damaged_line, difference, read_lines
from tarkit.trainers.checkedstate import check_state
from tarkit.trainers.mixture import parsed_streams
from tarkit.trainers.order import ORDER_VERSION

_MOST = 1 << 62
"""All numbers of a line are below it."""
_SAMPLE = r"\d{1,18}\.\d{1,18}[-*]?"
_SAMPLES = re.compile(f"{_SAMPLE}(?: {_SAMPLE})*", re.ASCII)


class AuditPoint(NamedTuple):
    """A point of a training: before this batch of this epoch."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class AuditBegin:
    """The start of a loop, from the beginning or from a state.

    Attributes:
        state: state of the training.
        path, offset: place of the line.
    """

    point: AuditPoint
    at: float
    rank: int
    world: int
    state: dict[str, Any]
    path: str
    offset: int

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
    """Read the logs of a folder: the begins, by their points, and the batches of all processes.

    Raises:
        MissingInputError: there are none.
        DataError: a line is damaged, or they are of several trainings.
    """
    begins: list[AuditBegin] = []
    given: list[GivenBatch] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"*{SUFFIX}"))):
        before: frozenset[tuple[AuditPoint, int]] = frozenset()
        pending: GivenBatch | None = None
        begun: AuditBegin | None = None
        for offset, line in _checked_lines(path):
            if pending is not None:
                pending.used, pending = True, None
            kind = next(iter(line))
            if kind == "audit":
                rank, world = line["rank"], line["world"]
            elif kind == "begin":
                state = line["begin"]
                point = AuditPoint(state["epoch"], state["next_batch"])
                begun = AuditBegin(point, line["at"], rank, world, state, path, offset)
                begins.append(begun)
                before |= {begun.launch}
            elif kind == "batch":
                point = AuditPoint(*line["batch"])
                if begun is None or point < begun.point or point.epoch != begun.point.epoch:
                    raise damaged_line(path, offset, "its batch does not come after a line that begins its epoch")
                pending = GivenBatch(point, line["at"], line["worker"], begun, before, path, offset)
                given.append(pending)
    if not begins:
        raise MissingInputError("no audit of a training is in this folder", url=folder)
    begins.sort(key=lambda each: (each.point, each.at))
    for each in begins:
        if what := difference(each.state, begins[0].state):
            reason = f"this is of another training than {os.path.basename(begins[0].path)}: {what}"
            hint = "one folder is for one training: take the files of the other one out"
            raise DataError(reason, url=each.path, offset=each.offset, hint=hint)
    return begins, given


def _checked_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of a file, each with its offset; names and values are those of the format.

    Raises:
        CorruptRecordError: a line is damaged.
        DataError: the audit is of another version.
    """
    for offset, line in read_lines(path):
        state = line.get("begin")
        version = state.get("version") if isinstance(state, dict) else ORDER_VERSION
        if isinstance(version, int) and version != ORDER_VERSION:
            reason = f"this audit is of version {version} of the order, and here it is {ORDER_VERSION}"
            raise DataError(reason, url=path, offset=offset, hint="use the version of tarkit that wrote it")
        try:
            _check(line, is_first=not offset)
        except (ValueError, RecursionError) as error:
            raise damaged_line(path, offset, str(error)) from None
        yield offset, line


def _check(line: Mapping[str, Any], *, is_first: bool) -> None:
    """Check the values of a line.

    Raises:
        ValueError: a value cannot be; the message says which.
    """
    kind = next(iter(line), "")
    if kind not in _RULES or is_first != (kind == "audit"):
        raise ValueError(f"it begins with the name {printable(kind)!r}")
    _check_values(line, _RULES[kind])
    if kind == "audit" and line["rank"] >= line["world"]:
        raise ValueError(f"rank is {line['rank']}, and world is {line['world']}")
    if kind == "batch" and len(line["keys"]) != 8 * (1 + line["samples"].count(" ")):
        raise ValueError("samples and keys are of different numbers of samples")
    if kind == "begin":
        state = line["begin"]
        _check_values({"subset": "0" * 16, **state}, _OF_STATE)
        check_state(state)
        for name in parsed_streams(state["streams"]) if "streams" in state else ():
            name.encode("utf-8", "surrogateescape")  # as for its order


def _check_values(values: Mapping[str, Any], rules: _Rules) -> None:
    for name, (is_valid, must) in rules.items():
        if not is_valid(values.get(name)):
            raise ValueError(f"{name} is {printable(repr(values.get(name)))}; it must be {must}")


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_time(value: object) -> bool:
    return isinstance(value, float | int) and 0 <= value < _MOST


def _is_point(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_Rules = Mapping[str, tuple[Callable[[object], bool], str]]
_NUMBER = _is_number, "a whole number from 0 on"
_AT = {"at": (_is_time, "a number of seconds")}
_POINT = _is_point, "the numbers of an epoch and a batch"
_RULES: Mapping[str, _Rules] = {
    "audit": {"rank": _NUMBER, "world": _NUMBER},
    "begin": {"begin": (lambda value: isinstance(value, dict), "a state"), **_AT},
    "batch": {
        "batch": _POINT,
        "worker": _NUMBER,
        "samples": (_matches(_SAMPLES), "a list such as '5.0 0.12- 1.3*'"),
        "keys": (_matches(re.compile("(?:[0-9a-f]{8})+")), "8 hexadecimal digits for each sample"),
        **_AT,
    },
    "used": {"used": _POINT, **_AT},
}
"""For each first name of a line, a check of its values, and what they must be."""
_DIGEST = _matches(re.compile("[0-9a-f]{16}")), "16 hexadecimal digits"
_OF_STATE: _Rules = {"version": _NUMBER, "shards": _DIGEST, "subset": _DIGEST}


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
