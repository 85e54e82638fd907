"""Settings that all steps have: how outputs are cut, and what happens to repeated keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from tarkit.errors import UsageError, counted
from tarkit.formats.tally import check_policy
from tarkit.formats.tar.headers import END_OF_ARCHIVE, RECORD
from tarkit.samples.sample import REPEATED_KEY_POLICIES, key_rule
from tarkit.samples.tarwriter import default_mtime
from tarkit.specs.inputset import InputSet

OUTPUT_NAME = "shard-{:06d}.tar"
OUTPUT_PATTERN = "shard-{{000000..{:06d}}}.tar"


@dataclass(frozen=True)
class ExchangeSettings:
    """Settings of an exchange.

    Attributes:
        shards: number of outputs; the numbers of their samples differ by at most one.
        maxcount: samples of an output; the last one may have fewer.
        maxsize: bytes of tar of an output at most, unless samples have more than half of that.
        outputs: names of the outputs, for a step that names them.
        key_rule: first-dot, last-dot or a regular expression of two groups.
        on_repeated_key: error, or allow: samples of different inputs may have the same key.
        rekey: put the number of its input before each key, as in ``000012/key``.
        index: write the index of each output beside it.
        mtime: time of the members of samples that a step makes, in seconds since 1970; None: 0, or
            that of SOURCE_DATE_EPOCH.
        format: tar format of such members.
        max_errors: limit of failed samples: a number, or a percentage such as ``1%``.

    Raises:
        UsageError: a setting is not valid.
    """

    shards: int | None = None
    maxcount: int | None = None
    maxsize: int | None = None
    outputs: tuple[str, ...] = ()
    key_rule: str = "first-dot"
    on_repeated_key: str = "error"
    rekey: bool = False
    index: bool = True
    mtime: float | None = None
    format: str = "pax"
    max_errors: str = "100"

    def __post_init__(self) -> None:
        self._check_one_cut()
        key_rule(self.key_rule)
        check_policy("on_repeated_key", self.on_repeated_key, REPEATED_KEY_POLICIES)
        if self.rekey and self.on_repeated_key != "error":
            raise UsageError("with rekey no key is repeated, so on_repeated_key does not go with it")

    def _check_one_cut(self) -> None:
        given = [name for name in ("shards", "maxcount", "maxsize") if getattr(self, name) is not None]
        if self.outputs:
            if given:
                raise UsageError(f"{given[0]} does not go with outputs that are named")
            return
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise UsageError(f"give one of shards, maxcount and maxsize, which cut the outputs; given: {found}")
        number = getattr(self, given[0])
        if not isinstance(number, int) or number < 1:
            raise UsageError(f"{given[0]} is {number!r}; it must be a whole number, 1 or more")

    def request(self) -> dict[str, Any]:
        """Return what decides the bytes of the outputs, by the names of options."""
        found = asdict(self)
        # The step has the names.
        del found["max_errors"], found["outputs"]
        found["mtime"] = default_mtime() if self.mtime is None else int(self.mtime)
        return found

    def name(self, number: int) -> str:
        """Return the file name of an output."""
        return self.outputs[number] if self.outputs else OUTPUT_NAME.format(number)

    def names(self, count: int) -> InputSet:
        """Return the file names of all outputs, for a run record."""
        return InputSet.of_names(self.outputs) if self.outputs else InputSet(count, (OUTPUT_PATTERN.format(count - 1),))

    def cuts(self, samples: int, size: int, largest: int, placed: Mapping[int, int] | None = None) -> Cuts:
        """Return where the outputs begin.

        Args:
            samples: number of all samples.
            size: bytes of their members.
            largest: bytes of the largest sample.
            placed: number of a named output -> number of its samples.

        Raises:
            UsageError: there are fewer samples than outputs.
        """
        if self.outputs:
            numbers = ((placed or {}).get(number, 0) for number in range(len(self.outputs)))
            begins = [*accumulate(numbers, initial=0)]
            return Cuts(len(self.outputs), False, begins.__getitem__)
        if self.shards is not None:
            if samples < self.shards:
                raise UsageError(f"{counted(samples, 'sample')} cannot fill {counted(self.shards, 'shard')}")
            count = self.shards
            return Cuts(count, False, lambda number: -(-samples * number // count))
        if self.maxcount is not None:
            most = self.maxcount
            return Cuts(-(-samples // most), False, lambda number: most * number)
        # Of the bytes before a sample, its share decides; so an output has its share, and a part of
        # one sample more.
        limit = (self.maxsize or 1) // RECORD * RECORD - len(END_OF_ARCHIVE)
        number_of = min(-(-size // max(limit - largest, limit // 2, 1)), samples)
        return Cuts(number_of, True, lambda number: -(-size * number // number_of))


@dataclass(frozen=True)
class Cuts:
    """Where the outputs begin among the sorted samples.

    Attributes:
        count: number of outputs.
        of_size: beginnings are numbers of bytes of the samples before; False: of samples.
        begin: function from the number of an output to its beginning.
    """

    count: int
    of_size: bool
    begin: Callable[[int], int]
