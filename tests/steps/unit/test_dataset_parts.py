"""Parts of a data set by the hash of a key."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from tarkit.errors import UsageError
from tarkit.steps.parts import Parts, hash_share, parse_shares


def test_the_hash_is_the_documented_one() -> None:
    for salt, text in (("", "a"), ("shuffle 1", "ä/b"), ("", "\udcff")):
        data = salt.encode() + b"\0" + text.encode("utf-8", "surrogateescape")
        number = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
        assert hash_share(salt, text) == (number >> 11) / 2**53


def test_shares_hold_in_all_and_in_each_stretch_of_numbers() -> None:
    parts = Parts(parse_shares("train=0.8, val=0.1,test=0.1"))
    found = [parts.part_of(f"{number:06d}") for number in range(10_000)]
    counts = Counter(found)
    assert all(abs(counts[name] / 10_000 - share) < 0.01 for name, share in parts.shares.items())
    assert all(70 < found[begin : begin + 1000].count("val") < 130 for begin in range(0, 10_000, 1000))


def test_a_changed_share_moves_only_keys_next_to_the_boundary() -> None:
    before, after = Parts({"a": 0.8, "b": 0.2}), Parts({"a": 0.79, "b": 0.21})
    moved = [key for key in map(str, range(5000)) if before.part_of(key) != after.part_of(key)]
    assert all(0.79 <= hash_share("", key) < 0.8 for key in moved) and 20 < len(moved) < 90


def test_shares_that_add_up_to_one_but_for_rounding() -> None:
    thirds = Parts(parse_shares("a=0.333333333,b=0.333333333,c=0.333333333"))
    assert {thirds.part_of(str(number)) for number in range(100)} == {"a", "b", "c"}
    with pytest.raises(UsageError, match=r"add up to 0\.99, not to 1"):
        Parts({"a": 0.33, "b": 0.33, "c": 0.33})
