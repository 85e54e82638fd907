"""A shard that was handed out and is not done: all that a ledger and its journal hold one by one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outstanding:
    """A shard that was handed out and is not done.

    epoch: from 1. position: in the epoch's order, from 0. token: of its lease; 0: it is not leased. worker: who holds
    it, or "". granted: when the lease began, in seconds of the ledger's clock; None: before the ledger's state was
    taken from elsewhere. lost: the tokens of leases that ended because the worker was lost, and when they began: such a
    worker may still be at work. errors: how often a trainer reported it as failed. losses: how often its worker was
    lost. ranges: what is done of it, as [first, end) in the order of its records, sorted, not adjacent. ended: why it
    is not tried any more; "": it is.
    """

    epoch: int
    position: int
    token: int = 0
    worker: str = ""
    granted: float | None = None
    lost: dict[int, float | None] = field(default_factory=dict)
    errors: int = 0
    losses: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ended: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """Epoch and position."""
        return self.epoch, self.position

    @property
    def state(self) -> str:
        """``todo``: it came back; ``leased``; or ``dead``: it is not tried any more."""
        return "dead" if self.ended else "leased" if self.token else "todo"
