"""A seeded order of n things, computed for each of them: nothing is stored, however many there are."""

from __future__ import annotations

import struct
from hashlib import blake2b
from math import isqrt

_PAIRS = 3
"""Of rounds."""
_LEAST = 8
"""Rows and columns: in a smaller table the rounds do not reach all orders equally often."""
_WORD = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


class Permutation:
    """A one-to-one map of ``range(n)``, n from 1 to 2**62.

    A generalized Feistel network: a number is a row and a column of a table of about √n rows, which
    has room for n or a little more. In each round a hash of the column is added to the row, or the
    reverse. A result that is not below n is mapped again. The keys are blake2b of the names, a
    space between them; a hash is two multiplications of 64-bit numbers. So the order is the same on
    each machine and in each release. Source: Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002.

    >>> order = Permutation(5, 7, 1, "shards")
    >>> [order[position] for position in range(5)]
    [4, 1, 3, 0, 2]

    Args:
        names: what the order depends on, such as a seed and an epoch.
    """

    __slots__ = ("_columns", "_keys", "_n", "_rows")

    def __init__(self, n: int, *names: int | str) -> None:
        self._n = n
        self._rows = max(_LEAST, isqrt(n - 1) + 1)
        self._columns = max(_LEAST, -(-n // self._rows))
        digest = blake2b(" ".join(map(str, names)).encode(), digest_size=16 * _PAIRS).digest()
        self._keys = [(first | 1, second | 1) for first, second in struct.iter_unpack(">QQ", digest)]

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, position: int) -> int:
        """The number at a position.

        Raises:
            IndexError: the position is not in ``range(n)``.
        """
        n, rows, columns, number = self._n, self._rows, self._columns, position
        if not 0 <= number < n:
            raise IndexError(number)
        while True:
            row, column = divmod(number, columns)
            for first, second in self._keys:
                mixed = (column + first) * _ODD & _WORD
                row = (row + ((mixed ^ mixed >> 32) * first & _WORD) // 65536) % rows
                mixed = (row + second) * _ODD & _WORD
                column = (column + ((mixed ^ mixed >> 32) * second & _WORD) // 65536) % columns
            number = row * columns + column
            if number < n:
                return number
