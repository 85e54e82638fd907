"""Counts of a reader: members, samples, skipped members, and bytes lost to damage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tarkit.errors import UsageError, counted, printable

DAMAGE_POLICIES = ("error", "skip")
SKIP_DAMAGE = "--on-damage skip (on_damage='skip')"
"""Option of the programs, and argument of the library, for hints of errors."""
DAMAGED_HINT = f"fetch the file again, or read it with {SKIP_DAMAGE}"
CUT_HINT = f"the file was cut; fetch or write it again, or read it with {SKIP_DAMAGE}"
DEFAULT_MEM = 1 << 30
"""Default of the largest size of a sample or record in memory, 1 GiB."""
LARGER_MEM = "a larger --mem (mem=)"
BESIDE_DAMAGE = "sample-beside-damage"
INCOMPLETE = "incomplete-sample"


@dataclass
class Tally:
    """Counts of a reader, which the caller passes to it and which it fills while it reads.

    Attributes:
        members: number of members that belong to samples.
        samples: number of samples delivered.
        skipped: reason -> number of members that are not part of a sample.
        replaced: number of fields dropped by the policy for duplicate fields.
        reopened: number of samples with a key that came before, by the policy for repeated keys.
        damage: one (url, first byte, byte after the last, reason) for each stretch that was lost.
        missing_fields: requested field -> number of samples that lack it.
        shards: number of shards that were read to their end.
        part_read: function that returns how much of the current shard was read, 0.0 to 1.0.
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
        """Return the number of shards that were read, with the part of the current one."""
        return self.shards + (self.part_read() if self.part_read is not None else 0.0)

    def skip(self, reason: str, number: int = 1) -> None:
        """Count skipped members."""
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    def add(self, other: Tally) -> None:
        """Add the counts of another reader."""
        self.members += other.members
        self.samples += other.samples
        for reason, number in other.skipped.items():
            self.skip(reason, number)
        self.replaced += other.replaced
        self.reopened += other.reopened
        self.damage += other.damage
        for name, number in other.missing_fields.items():
            self.missing_fields[name] = self.missing_fields.get(name, 0) + number
        self.shards += other.shards

    @property
    def lost_anything(self) -> bool:
        """True if samples lack something that was read, as the policies allow."""
        return bool(self.damage or self.replaced or lost_samples(self.skipped))

    def damage_as_dicts(self) -> list[dict[str, str | int]]:
        """List the stretches that were lost, in the form for reports and records."""
        return [dict(zip(("url", "start", "end", "reason"), each, strict=True)) for each in self.damage]

    def phrases(self, *, skipped: str = "skipped members") -> list[str]:
        """Return phrases on the damaged, skipped or replaced members.

        Args:
            skipped: noun for the skipped members.
        """
        parts = []
        # Folders are in most archives and are not reported.
        if kinds := ", ".join(f"{why} {number}" for why, number in sorted(self.skipped.items()) if why != "folder"):
            parts.append(f"{skipped}: {kinds}")
        if lacking := ", ".join(f"{printable(name)} {number}" for name, number in sorted(self.missing_fields.items())):
            parts.append(f"samples without a field of --fields: {lacking}")
        if self.replaced:
            parts.append(f"duplicate fields dropped: {self.replaced}")
        if self.damage:
            url, start, end, reason = self.damage[0]
            parts.append(
                f"damage: {counted(len(self.damage), 'stretch', 'stretches')}, {self.lost_bytes} bytes lost, "
                f"the first in {printable(url)} at {start} to {end} ({reason})"
            )
        return parts

    def as_dict(self) -> dict[str, object]:
        """Return the counts of what was skipped, replaced or lost, in the form for reports."""
        return {
            "skipped_members": self.skipped,
            "missing_fields": self.missing_fields,
            "duplicate_fields_dropped": self.replaced,
            "repeated_keys": self.reopened,
            "damage": self.damage_as_dicts(),
        }

    @property
    def lost_bytes(self) -> int:
        """Number of bytes lost to damage."""
        return sum(end - start for _, start, end, _ in self.damage)


def lost_samples(skipped: Mapping[str, int]) -> bool:
    """Return True if counts by reason, such as a tally's, include dropped samples."""
    return bool(skipped.get(BESIDE_DAMAGE) or skipped.get(INCOMPLETE))


def check_policy(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that a value is one of the choices.

    Raises:
        UsageError: the value is not one of them.
    """
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
