"""What a reader met while it read: how many members and samples, what was skipped, and what was
lost to damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tarkit.errors import UsageError

DAMAGE_POLICIES = ("error", "skip")
SKIP_DAMAGE = "--on-damage skip (on_damage='skip')"
"""For hints of errors: the option of the programs, and the argument of the library."""
DAMAGED_HINT = f"fetch the file again, or read it with {SKIP_DAMAGE}"
CUT_HINT = f"the file was cut; fetch or write it again, or read it with {SKIP_DAMAGE}"
DEFAULT_MEM = 1 << 30
"""Bytes that a sample or record in memory may have, unless it is said otherwise."""
LARGER_MEM = "a larger --mem (mem=)"
BESIDE_DAMAGE = "sample-beside-damage"
INCOMPLETE = "incomplete-sample"


@dataclass
class Tally:
    """What a reader met: given to it by the caller, filled while samples are drawn.

    Attributes:
        members: how many belong to samples.
        samples: how many were delivered.
        skipped: reason -> number of members that are no part of a sample.
        replaced: fields dropped by the policy for duplicate fields.
        reopened: samples that began with a key seen before, by the policy for repeated keys.
        damage: one (url, first byte, byte after the last, reason) for each stretch that was lost.
        missing_fields: field that was asked for -> number of samples that lack it.
        shards: how many were read to their end.
        part_read: gives how much of the one at hand was read, 0.0 to 1.0.
    """

    members: int = 0
    samples: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    replaced: int = 0
    reopened: int = 0
    damage: list[tuple[str, int, int, str]] = field(default_factory=list)
    missing_fields: dict[str, int] = field(default_factory=dict)
    shards: int = field(default=0, compare=False)
    part_read: Callable[[], float] | None = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"part_read": None}  # of an open stream

    def shards_read(self) -> float:
        """How many shards were read, with the part of the one at hand."""
        return self.shards + (self.part_read() if self.part_read is not None else 0.0)

    def skip(self, reason: str, number: int = 1) -> None:
        """Count skipped members."""
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    @property
    def lost_anything(self) -> bool:
        """Whether something that was read is missing from the samples, as the policies allow."""
        return bool(self.damage or self.replaced or lost_samples(self.skipped))

    def damage_as_dicts(self) -> list[dict[str, str | int]]:
        """The stretches that were lost, as reports and records have them."""
        return [dict(zip(("url", "start", "end", "reason"), each, strict=True)) for each in self.damage]

    @property
    def lost_bytes(self) -> int:
        """Bytes of the stretches that were lost to damage."""
        return sum(end - start for _, start, end, _ in self.damage)


def lost_samples(skipped: Mapping[str, int]) -> bool:
    """Whether counts by reason, such as a tally's, name samples that were dropped."""
    return bool(skipped.get(BESIDE_DAMAGE) or skipped.get(INCOMPLETE))


def check_policy(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the choices."""
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
