"""A seeded order of n things, computed for each of them: nothing is stored, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

_ROUNDS = 6
_WORD = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
_LEAST_BITS = 3  # of half a number: fewer do not mix


class Permutation:
    """A one-to-one map of ``range(n)``: a Feistel network over the next even number of bits, walked until it is inside.

    Its keys are blake2b of ``"seed epoch purpose round"``; a round is a multiplication and a shift of 64-bit numbers,
    so the order is the same on each machine and in each release. Source of the construction: Black and Rogaway,
    "Ciphers with arbitrary finite domains", 2002.

    >>> order = Permutation(5, 7, 0, "shards")
    >>> [order[place] for place in range(5)], order.place(order[3])
    ([1, 4, 3, 0, 2], 3)
    """

    def __init__(self, n: int, *names: object) -> None:
        self._n = n
        self._half = max(_LEAST_BITS, ((n - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        words = (" ".join(map(str, (*names, number))) for number in range(_ROUNDS))
        self._keys = [int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") | 1 for word in words]

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, place: int) -> int:
        """The thing at a place. IndexError: the place is not in ``range(n)``."""
        return self._walk(place, self._forward)

    def place(self, thing: int) -> int:
        """The place of a thing. IndexError: the thing is not in ``range(n)``."""
        return self._walk(thing, self._backward)

    def _walk(self, number: int, step: Callable[[int], int]) -> int:
        if not 0 <= number < self._n:
            raise IndexError(number)
        number = step(number)
        while number >= self._n:
            number = step(number)
        return number

    def _forward(self, number: int) -> int:
        left, right = number >> self._half, number & self._mask
        for key in self._keys:
            left, right = right, left ^ self._mixed(right, key)
        return left << self._half | right

    def _backward(self, number: int) -> int:
        left, right = number >> self._half, number & self._mask
        for key in reversed(self._keys):
            left, right = right ^ self._mixed(left, key), left
        return left << self._half | right

    def _mixed(self, number: int, key: int) -> int:
        mixed = ((number + key) * _ODD) & _WORD
        return (((mixed ^ (mixed >> 29)) * key) & _WORD) >> (64 - self._half)
