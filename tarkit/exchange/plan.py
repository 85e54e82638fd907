"""The plan of an exchange: its inputs, the request, and how the inputs are cut into slices.

It is a file in the work folder. The first process of a run makes it; all others read it, so that
all of them have the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tarkit.errors import (
    AlreadyPublishedError,
    DataError,
    MissingInputError,
    TemporaryStreamError,
    UsageError,
    counted,
    printable,
)
from tarkit.names.redaction import redact
from tarkit.names.url import display_name, join, reads_once
from tarkit.specs.shardspec import take_slice
from tarkit.store.entries import Identity, identify
from tarkit.store.publish import open_publish
from tarkit.store.read import read_whole
from tarkit.store.waits import Workers

WORK = "_exchange"
"""Name of the work folder in the folder of the outputs."""
PLAN = "plan.json"
PLAN_FORMAT = "tarkit-exchange-"
"""Beginning of the format of plans of all versions."""
_FORMAT = f"{PLAN_FORMAT}1"
"""Change it when the positions of samples, or the bytes of outputs, change."""
_AT_ONCE = 16
_LEAST_SLICE, _LEAST_PART = 32 << 20, 256 << 10
_LEAST_BLOCK, _MOST_BLOCK = 32 << 10, 4 << 20
_PARTS = 4
"""Number of blocks of a run file that a gather reads at once, at least."""
_BLOCKS = 128
"""Number of blocks of a run file, unless they would be smaller or larger than the limits."""
AGAIN = "run the same command again; with --stage, slice 0 of the scatter first"
"""What to do after an input was replaced."""
REMOVE = "--force, which removes them (with --stage, remove them by hand)"
"""What to do about files of another run."""


@dataclass(frozen=True)
class Plan:
    """The plan of an exchange.

    Attributes:
        request: what is to be done: step and options that change the output.
        inputs: URL without secrets, size in bytes and tag of each input.
        slices: number of slices of the inputs, each of which becomes one run file.
        block_size: bytes of samples in a block of a run file.
    """

    request: Mapping[str, Any]
    inputs: Sequence[tuple[str, int | None, str | None]]
    slices: int
    block_size: int

    @cached_property
    def id(self) -> str:
        """Digest of everything that decides the bytes of the outputs, in hex: not of the slices."""
        return self._digest(self.inputs)

    def file_id(self, number: int | None) -> str:
        """Return the digest of everything that decides the bytes of a file of a stage, in hex.

        Args:
            number: number of the slice with its inputs; None: it depends on all inputs.
        """
        if number is None:
            return self._digest(self.id, self.slices, self.block_size)
        shards = self.shards(number)
        return self._digest(shards.start, self.inputs[shards.start : shards.stop], self.slices, self.block_size)

    def _digest(self, *known: object) -> str:
        content = json.dumps([_FORMAT, self.request, *known], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def shards(self, number: int) -> range:
        """Return the numbers of the inputs of a slice."""
        return take_slice(len(self.inputs), number, self.slices)

    def check_identity(self, shard: int, url: str) -> None:
        """Check that an input is still the one of the plan.

        Raises:
            TemporaryStreamError: it is not.
        """
        now = identify(url)
        if (now.size, now.tag) != tuple(self.inputs[shard][1:]):
            raise TemporaryStreamError("the input was changed after the exchange had begun", url=url, hint=AGAIN)

    def encode(self) -> bytes:
        """Return the text of the plan."""
        known = {"slices": self.slices, "block_size": self.block_size, "inputs": self.inputs}
        return json.dumps({"format": _FORMAT, "request": self.request, **known}, indent=1).encode() + b"\n"

    def publish(self, folder: str, *, if_absent: bool = False) -> None:
        """Write the plan into a work folder.

        Raises:
            AlreadyPublishedError: there is one, and it is not to be replaced.
            StreamError, TemporaryStreamError: it cannot be written.
        """
        with open_publish(join(folder, PLAN), compression=None, if_absent=if_absent) as stream:
            stream.write(self.encode())


def make_plan(request: Mapping[str, Any], urls: Sequence[str], *, slices: int | None, mem: int) -> Plan:
    """Make the plan for inputs as they are now.

    Args:
        request: see :class:`Plan`.
        urls: the inputs.
        slices: number of slices; None: as many as suit their size.
        mem: bytes of memory that a gather has for samples.

    Raises:
        UsageError: an input can be read only once.
        MissingInputError: an input does not exist.
        StreamError, TemporaryStreamError: its identity cannot be read.
    """
    for url in urls:
        if reads_once(url):
            raise UsageError(f"{display_name(url)} can be read only once; an exchange needs files or objects")
    with Workers(_AT_ONCE, "plan") as workers:
        found: list[Identity] = [*workers.ahead(identify, urls, 2 * _AT_ONCE)]
    inputs = [(redact(url), each.size, each.tag) for url, each in zip(urls, found, strict=True)]
    size = sum(each.size or 0 for each in found)
    if slices is None:
        # A slice that fits into memory is sorted there. Larger ones make fewer and larger parts.
        least = max(_LEAST_SLICE, size * _LEAST_PART // max(1, mem))
        slices = max(1, min(len(urls), -(-size // least)))
    slices = max(1, min(slices, len(urls)))
    # A gather that begins in the middle reads up to two blocks of each run file for nothing.
    block_size = min(max(_LEAST_BLOCK, min(mem // slices // _PARTS, size // slices // _BLOCKS)), _MOST_BLOCK)
    return Plan(request, inputs, slices, block_size)


def read_plan(folder: str) -> Plan | None:
    """Read the plan of a work folder, or return None if there is none.

    Raises:
        DataError: the file is not a plan, or of another version.
        StreamError, TemporaryStreamError: it cannot be read.
    """
    url = join(folder, PLAN)
    try:
        content = read_whole(url, compression=None)
    except MissingInputError:
        return None
    try:
        document = json.loads(content)
        if document["format"] != _FORMAT:
            raise ValueError
        inputs = [(str(each[0]), each[1], each[2]) for each in document["inputs"]]
        return Plan(dict(document["request"]), inputs, int(document["slices"]), int(document["block_size"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        hint = "use --work for another folder, or remove it with the run files beside it"
        raise DataError("this is not the plan of an exchange of this version", url=url, hint=hint) from None


def agreed_plan(folder: str, request: Mapping[str, Any], urls: Sequence[str], fresh: Plan) -> Plan:
    """Return the plan of a work folder, and write it if there is none.

    Of several processes that do this at once, one writes its own, and all get that one.

    Args:
        folder: path or URL of the work folder.
        request: request that the plan must have.
        urls: inputs that the plan must have.
        fresh: the plan to write.

    Raises:
        UsageError: the folder has the plan of another run.
    """
    plan = read_plan(folder)
    if plan is None:
        with suppress(AlreadyPublishedError):  # by another process at the same time
            fresh.publish(folder, if_absent=True)
        plan = read_plan(folder)
    if plan is None:
        raise TemporaryStreamError("the plan that was just written is gone", url=join(folder, PLAN))
    check_plan(plan, folder, request, urls)
    return plan


def check_plan(plan: Plan, folder: str, request: Mapping[str, Any], urls: Sequence[str]) -> None:
    """Check that a plan is that of a request for some inputs.

    Raises:
        UsageError: it is not.
    """
    shown = printable(redact(folder))
    if plan.request != request:
        raise UsageError(
            f"{shown} has the run files of another exchange ({_difference(plan.request, request)}); "
            f"finish that one, use --work for another folder, or {REMOVE}"
        )
    if len(urls) != len(plan.inputs) or any(
        redact(url) != each[0] for url, each in zip(urls, plan.inputs, strict=True)
    ):
        raise UsageError(
            f"{shown} has the run files of {counted(len(plan.inputs), 'other input')}; "
            f"use --work for another folder, or {REMOVE}"
        )


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first option in which two requests differ, with both values."""
    name = next(name for name in {**then, **now} if then.get(name) != now.get(name))
    if isinstance(then.get(name), dict) and isinstance(now.get(name), dict):
        return _difference(then[name], now[name])
    return f"{name}: {then.get(name)!r}, now {now.get(name)!r}"
