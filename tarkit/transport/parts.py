"""Uploads in parts: how large a part is, how many travel at once, and which errors another try may mend."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

MOST_PARTS = 10_000
_FIRST_SIZE = 8 << 20
_SAME_SIZE = 800
_LARGEST_SIZE = 1 << 30
_MOST_IN_FLIGHT = 4
_BYTES_IN_FLIGHT = 128 << 20
_SECONDS = 60.0
_SLOWEST = 128 << 10

_TEMPORARY_STATUS = (408, 425, 429)
# Errors of S3 with a status that says otherwise: the body was damaged or cut on its way, or
# another write to the same name was under way.
_TEMPORARY_CODES = (
    "BadDigest",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "XAmzContentSHA256Mismatch",
)
# By name, so that none of these libraries need be loaded.
_TEMPORARY_CLASSES = (
    "aiohttp.client_exceptions.ClientError",
    "asyncio.exceptions.TimeoutError",
    "botocore.exceptions.ConnectionError",
    "botocore.exceptions.HTTPClientError",
    "botocore.parsers.ResponseParserError",
    "gcsfs.retry.ChecksumError",
    "requests.exceptions.RequestException",
)


def part_size(number: int) -> int:
    """Bytes of part ``number``, counted from 1; only the last part of an object is smaller.

    S3 takes at most 10,000 parts of at least 5 MiB and at most 5 GiB
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html), and how much will come is not
    known at the start. So parts begin at 8 MiB and double every 800 parts up to 1 GiB: an object of
    93 GiB is made of parts up to 64 MiB, and 10,000 parts are a little more than 5 TiB.
    """
    return min(_FIRST_SIZE << min((number - 1) // _SAME_SIZE, 20), _LARGEST_SIZE)


def parts_in_flight(size: int) -> int:
    """How many parts of ``size`` bytes may travel at once: up to 4, together at most 128 MiB, at least one."""
    return max(1, min(_MOST_IN_FLIGHT, _BYTES_IN_FLIGHT // size))


def is_temporary(error: BaseException) -> bool:
    """Whether another try may mend an error of a storage library: 5xx, 408, 425, 429, no or a broken connection."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, (TimeoutError, ConnectionError)):
            return True
        if any(f"{kind.__module__}.{kind.__name__}" in _TEMPORARY_CLASSES for kind in type(found).__mro__):
            return True
        status, code = _answer(found)
        if status >= 500 or status in _TEMPORARY_STATUS or code in _TEMPORARY_CODES:
            return status != 501
        found = found.__cause__
    return False


def _answer(error: BaseException) -> tuple[int, str]:
    """Status and error code of the server's answer that botocore and gcsfs keep with their errors."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return int(status or 0), str(response.get("Error", {}).get("Code", ""))
    status = str(getattr(error, "code", None) or getattr(error, "status", ""))
    return (int(status) if status.isdigit() else 0), ""


@dataclass(frozen=True)
class Backoff:
    """How often something is tried, and how long to wait in between.

    attempts: tries in all. first, longest: seconds before the second try, doubled for each
    further one. sleep: an awaitable pause, asyncio.sleep if None. draw: 0.0 to 1.0, the jitter.
    """

    attempts: int = 4
    first: float = 0.5
    longest: float = 20.0
    sleep: Callable[[float], Awaitable[None]] | None = None
    draw: Callable[[], float] = random.random

    async def wait(self, failures: int) -> None:
        """Wait after the ``failures``-th failure."""
        import asyncio

        pause = min(self.longest, self.first * 2 ** (failures - 1))
        await (self.sleep or asyncio.sleep)(pause * (0.5 + self.draw() / 2))

    async def run(self, call: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """What ``call`` returns, tried again after temporary errors. size: bytes it moves.

        A try that takes longer than a minute and what a slow line would need is given up.
        """
        import asyncio

        seconds = _SECONDS + size / _SLOWEST
        for failures in range(1, self.attempts):
            try:
                return await asyncio.wait_for(call(), seconds)
            except Exception as error:
                if not is_temporary(error):
                    raise
            await self.wait(failures)
        return await asyncio.wait_for(call(), seconds)
