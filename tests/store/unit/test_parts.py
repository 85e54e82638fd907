"""Part sizes, what is temporary, and the pauses between tries."""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.store.faults import is_temporary
from tarkit.store.objects.sink import MOST_PARTS, part_size, parts_in_flight

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


def test_10000_parts_hold_the_largest_object_of_s3() -> None:
    sizes = [part_size(number) for number in range(1, MOST_PARTS + 1)]
    assert sizes[0] == 8 * MIB
    assert sizes == sorted(sizes)
    assert all(5 * MIB <= size <= 5 * GIB and size % (256 << 10) == 0 for size in sizes)
    assert sum(sizes) >= 5 * TIB


@given(st.integers(1, 5 * TIB))
def test_any_object_fits_and_its_parts_are_in_proportion(size: int) -> None:
    totals = itertools.accumulate(part_size(number) for number in range(1, MOST_PARTS + 1))
    needed = next(number for number, total in enumerate(totals, 1) if total >= size)
    assert needed <= MOST_PARTS
    # Memory: what is in flight and what is being filled, against the size of the object.
    largest = part_size(needed)
    memory = largest * (parts_in_flight(largest) + 1)
    assert memory <= 128 * MIB + largest or memory == 2 * largest
    if size <= 90 * GIB:
        assert memory <= 192 * MIB


@given(st.integers(1, 5 * GIB))
def test_parts_in_flight_are_bounded(size: int) -> None:
    count = parts_in_flight(size)
    assert 1 <= count <= 4
    assert count == 1 or count * size <= 128 * MIB


class Answered(Exception):
    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(f"{status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


class Coded(Exception):
    def __init__(self, code: object) -> None:
        super().__init__(code)
        self.code = code


class ClientPayloadError(Exception):
    def __init__(self, *_: object) -> None:
        super().__init__("Response payload is not completed")


class HTTPClientError(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__("An HTTP Client raised an unhandled exception")
        self.kwargs = {"error": error}


def caused(by: Exception, number: int | None = None, kind: type[Exception] = OSError) -> Exception:
    error = kind("translated") if number is None else kind(number, "translated")
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), True),
        (asyncio.TimeoutError(), True),
        (ConnectionResetError(), True),
        (caused(Answered(500)), True),
        (caused(Answered(503, "SlowDown")), True),
        (caused(Answered(429)), True),
        (caused(Answered(409, "ConditionalRequestConflict")), True),
        (caused(Answered(400, "BadDigest")), True),
        (Coded(503), True),
        (Coded("502"), True),
        (Answered(501), False),
        (Coded(403), False),
        (Coded("teapot"), False),
        (caused(Answered(412, "PreconditionFailed")), False),
        # As s3fs raises what it has no class for.
        (caused(Answered(403, "QuotaExceeded"), errno.EIO), False),
        (caused(Answered(507, "InsufficientStorage"), errno.EIO), True),
        (caused(ValueError("no answer"), errno.EIO), True),
        # As aiohttp raises that an answer was cut: the number is that of a request that it would
        # refuse.
        (caused(Coded(400), kind=ClientPayloadError), True),
        # As botocore and aiohttp keep what went wrong with a connection.
        (HTTPClientError(error=FileNotFoundError(2, "no such certificates")), False),
        (HTTPClientError(error=socket.gaierror(socket.EAI_NONAME, "Name or service not known")), True),
        (HTTPClientError(error=ConnectionResetError()), True),
        (PermissionError("no"), False),
        (FileNotFoundError(), False),
        (ValueError("500"), False),
    ],
    ids=repr,
)
def test_what_is_temporary(error: Exception, expected: bool) -> None:
    assert is_temporary(error) is expected
