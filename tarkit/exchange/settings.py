"""Settings that all steps have: how outputs are cut, what happens to repeated keys, and so on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tarkit.errors import UsageError
from tarkit.formats.tally import check_policy
from tarkit.samples.sample import REPEATED_KEY_POLICIES, key_rule
from tarkit.samples.tarwriter import default_mtime

CUTS = "shards", "maxcount", "maxsize"
"""Settings of which one says how outputs are cut."""


@dataclass(frozen=True)
class ExchangeSettings:
    """Settings of an exchange.

    Attributes:
        shards: number of outputs; the numbers of their samples differ by at most one.
        maxcount: samples of an output; the last one may have fewer.
        maxsize: bytes of tar of an output at most, unless samples have more than half of that.
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
    key_rule: str = "first-dot"
    on_repeated_key: str = "error"
    rekey: bool = False
    index: bool = True
    mtime: float | None = None
    format: str = "pax"
    max_errors: str = "100"

    def __post_init__(self) -> None:
        for name in CUTS:
            if (number := getattr(self, name)) is not None and (not isinstance(number, int) or number < 1):
                raise UsageError(f"{name} is {number!r}; it must be a whole number, 1 or more")
        key_rule(self.key_rule)
        check_policy("on_repeated_key", self.on_repeated_key, REPEATED_KEY_POLICIES)
        if self.rekey and self.on_repeated_key != "error":
            raise UsageError("with rekey no key is repeated, so on_repeated_key does not go with it")

    def request(self) -> dict[str, Any]:
        """Return what decides the bytes of the outputs, by the names of options."""
        found = asdict(self)
        del found["max_errors"]
        found["mtime"] = default_mtime() if self.mtime is None else int(self.mtime)
        return found
