"""Parts of a data set, such as train and val: each sample belongs to one, by the hash of a text.

The hash is BLAKE2b, so that a sample stays in its part when others are added, on every machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from tarkit.errors import DataError, UsageError, quoted
from tarkit.names.url import is_stream
from tarkit.samples.sample import Sample

SPLIT_BY = "__split__"
"""Entry of a sample: the text whose hash decides on its part, if that is not the key."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def hash_share(salt: str, text: str) -> float:
    """Return a number from 0 up to, not including, 1 for a text; it is uniform over texts.

    The same salt and text give the same number everywhere; different salts are independent.
    """
    data = f"{salt}\0{text}".encode("utf-8", "surrogateescape")
    # 53 bits: more would be rounded up to 1.0.
    return (int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 11) / (1 << 53)


class Parts:
    """The parts of a data set, with their shares.

    Args:
        shares: name -> share; the shares add up to 1.
        by: regular expression; samples whose keys have the same match, or the same first group, are
            in one part. None: the whole key decides.

    Raises:
        UsageError: a name or share is not valid, or ``by`` is not a regular expression.
    """

    def __init__(self, shares: Mapping[str, float], by: str | None = None) -> None:
        self.shares = shares
        for name, share in shares.items():
            if (name and not _NAME.fullmatch(name)) or not 0 < share <= 1:
                raise UsageError(f"split {name}={share:g}: a part is NAME=SHARE, with a share above 0 and at most 1")
        total = sum(shares.values())
        if abs(total - 1) > 1e-6:
            raise UsageError(f"split: the shares add up to {total:g}, not to 1")
        self._only = next(iter(shares)) if len(shares) == 1 else None
        self._ends = list(itertools.accumulate(self.shares.values()))
        try:
            self._by = None if by is None else re.compile(by)
        except re.error as error:
            raise UsageError(f"split by {by!r}: this is not a column or a regular expression: {error}") from None

    def part_of(self, key: str) -> str:
        """Return the name of the part of a key.

        Raises:
            DataError: the key does not match.
        """
        if self._only is not None:
            return self._only
        if self._by is not None:
            match = self._by.search(key)
            if match is None:
                raise DataError(f"does not match {quoted(self._by.pattern)}, by which samples are split", key=key)
            key = match[1] if self._by.groups else match[0]
        return self.part_of_value(key)

    def part_of_value(self, value: str) -> str:
        """Return the name of the part that a text belongs to."""
        place = hash_share("", value)
        for name, end in zip(self.shares, self._ends, strict=True):
            if place < end:
                return name
        return name

    def part_of_sample(self, sample: Sample) -> str:
        """Return the name of the part of a sample, by the text that a table gave it or its key."""
        value = sample.pop(SPLIT_BY, None)
        return self.part_of(sample["__key__"]) if value is None else self.part_of_value(value)


def part_names(pattern: str, parts: Iterable[str] | None) -> dict[str, str]:
    """Return part -> name of its output: the pattern with the part in place of ``%s``.

    Args:
        pattern: name of an output.
        parts: names of the parts; None: one part, which is called ``""``.

    Raises:
        UsageError: there is not exactly one ``%s`` for several parts, or there is one for none.
    """
    places = pattern.count("%s")
    if parts is None:
        if places and not is_stream(pattern):
            raise UsageError(f"{quoted(pattern)}: %s is the name of a part, with --split")
        return {"": pattern}
    if places != 1:
        raise UsageError(f"{quoted(pattern)} needs one %s for the name of the part, as in '%s-%06d.tar'")
    return {name: pattern.replace("%s", name) for name in parts}


def parse_shares(text: str) -> dict[str, float]:
    """Parse shares such as ``train=0.9,val=0.1``.

    Raises:
        UsageError: the text is not NAME=SHARE, separated by commas, with distinct names.
    """
    pairs = [each.strip().partition("=") for each in text.split(",")]
    try:
        shares = {name: float(share) for name, _, share in pairs}
    except ValueError:
        shares = {}
    if len(shares) < len(pairs) or "" in shares:
        raise UsageError(f"split {quoted(text)} is not NAME=SHARE,... with distinct names, as train=0.9,val=0.1")
    return shares
