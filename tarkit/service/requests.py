"""What callers ask of a service, within which limits, and why it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarkit.errors import TarkitError


@dataclass(frozen=True)
class Limits:
    """What callers may ask for. datasets: number of data sets. held: calls held at once. shards: leases of a call.
    reports: of a call. tokens: of a call, held or given back, and ranges of its reports. indices: numbers of shuffled
    records, of a call, as they take time. message: bytes. worker: bytes of a worker's name. workers: how many are
    remembered."""

    datasets: int = 1000
    held: int = 20_000
    shards: int = 1000
    reports: int = 100_000
    tokens: int = 1_000_000
    indices: int = 1_000_000
    message: int = 256 << 20
    worker: int = 1024
    workers: int = 100_000


class NoSuchDataSetError(TarkitError):
    """A data set that was not declared."""


class OtherDataSetError(TarkitError):
    """A data set of that name is there, and is another one."""


@dataclass(frozen=True)
class Report:
    """Of a lease. ranges: those of its records that are done; None: all. error: why it failed; "": it did not."""

    token: int
    ranges: Sequence[tuple[int, int]] | None = None
    error: str = ""


@dataclass(frozen=True)
class ShardRequest:
    """What a worker asks for. want: shards at most. wait: seconds after which the answer is WAIT; None: it is never.

    bound: the worker is its connection: when a call of it breaks, it is lost. drains: it knows the answer DRAIN; for
    one that does not, DRAIN would be the end, so it is answered so in the last epoch only.
    """

    want: int
    wait: float | None = None
    bound: bool = False
    drains: bool = True


class TooManyError(TarkitError):
    """A limit of the service was reached."""


class StoppingError(TarkitError):
    """The service stops; another one may go on with its state."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; ask again")
