"""What reading and writing through fsspec share: the filesystem of a URL, calls of it, and what its errors mean.

Storage libraries raise all sorts of errors, with URLs in them; here they become those of this
package, and lose their secrets. Libraries that try again by themselves are kept from it: one
:class:`~tarkit.store.retry.Patience` does that for all of them.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from tarkit.errors import (
    MissingExtraError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
    printable,
)
from tarkit.store import waits
from tarkit.store.foreign import without_secrets
from tarkit.store.http.answer import is_temporary_status
from tarkit.store.registry import PLACES, place_of
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry
from tarkit.store.url import is_chain

T = TypeVar("T")
_TEMPORARY_ERRNO = (
    errno.EAGAIN,
    errno.EBUSY,
    errno.EIO,
    errno.EPIPE,
    errno.ETIMEDOUT,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
)
_TEMPORARY_CLASSES = (
    "ClientConnectionError",  # aiohttp
    "ClientPayloadError",
    "HTTPClientError",  # botocore: no connection, time-outs
    "IncompleteReadError",
    "ResponseParserError",
    "ResponseStreamingError",
    "ConnectionError",  # requests
    "Timeout",
    "ChunkedEncodingError",
    "ProtocolError",  # urllib3
    "HTTPException",  # http.client
    "ChecksumError",  # gcsfs
    "FSTimeoutError",  # fsspec
    "ServiceRequestError",  # azure: no connection
    "ServiceResponseError",
)
# Errors of S3 with a status that says otherwise: the body was damaged or cut on its way, or another write to the
# same name was under way.
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


def filesystem(url: str, name: str) -> tuple[Any, str]:
    """The fsspec filesystem of a URL, and the path in it.

    Raises:
        UsageError: the protocol is not known. MissingExtraError: its library is not installed.
    """
    import fsspec

    place = place_of(url)
    protocol = url.split(":", 1)[0]
    try:
        if is_chain(url):
            # Chains (simplecache::s3://…) keep the retries of their libraries.
            fs, path = fsspec.core.url_to_fs(url)
        else:
            fs, path = _without_retries(place, fsspec.get_filesystem_class(protocol), url)
        return fs, path
    except ImportError as error:
        if hasattr(place, "EXTRA"):
            raise MissingExtraError(f"{protocol}://", place.EXTRA) from None
        # The package and its module mostly have the same name; where not, fsspec's sentence has that of the package.
        module = str(getattr(error.__cause__, "name", None))
        how = f"; pip install {module}" if module in str(error) else ""
        raise UsageError(f"{protocol}:// needs a library that is not installed: {error}{how}") from None
    except Exception as error:
        if isinstance(error, ValueError) and "not known" in str(error):
            raise UsageError(f"{printable(name)}: {_unknown(str(error).rpartition(' ')[2])}") from None
        raise_foreign(error, url, name, None)


def _without_retries(place: Any, kind: Any, url: str) -> tuple[Any, str]:
    settings = kind._get_kwargs_from_urls(url)
    once, path = _kind_without_retries(place, kind), str(kind._strip_protocol(url))
    if once is kind:
        return kind(**settings), path
    # The credentials may come over a network.
    fs, theirs = waits.call(lambda: (once(**settings), kind(**settings)))
    # What is published here is to be seen in listings there.
    fs.dircache = theirs.dircache
    return fs, path


@functools.cache
def _kind_without_retries(place: Any, kind: Any) -> Any:
    """A filesystem without retries of its own, if its place can make such; else as it is.

    Classes of their own, since fsspec shares filesystems with whatever else in this process uses them.
    """
    return place.without_retries(kind) if hasattr(place, "without_retries") else kind


def ask(
    function: Callable[..., T],
    *arguments: Any,
    url: str,
    name: str,
    retry: Retry = DEFAULT_RETRY,
    seconds: float = 0.0,
) -> T:
    """What a call of a storage library returns in the end; see :meth:`tarkit.store.retry.Patience.call`.

    Raises:
        MissingInputError, StreamError, GivenUpError.
    """
    return Patience(retry, name).call(lambda: translated(url, name, function, *arguments), seconds=seconds)


def translated(url: str, name: str, function: Callable[..., T], *arguments: Any) -> T:
    """What a call of a storage library returns.

    Raises:
        Dropped: another attempt may help. MissingInputError, StreamError.
    """
    try:
        return function(*arguments)
    except (TarkitError, Dropped):
        raise
    except Exception as error:
        raise_dropped(error, url, name, None)


def raise_dropped(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """Dropped, if another attempt may help; else the error of this package."""
    if is_temporary(error):
        raise Dropped(_said(error, url), answered=_answered(error)) from None
    raise_foreign(error, url, name, offset)


def _unknown(scheme: str) -> str:
    import difflib

    import fsspec

    near = difflib.get_close_matches(scheme, sorted({*fsspec.available_protocols(), *PLACES} - {"", "pipe"}), 1, 0.5)
    question = f" did you mean {near[0]}?" if near else ""
    return (
        f"unknown scheme {printable(scheme)!r};{question} a scheme is added by the Python package that registers it "
        "with fsspec"
    )


def is_temporary(error: BaseException) -> bool:
    """Whether an error of a storage library speaks of the network or a busy server, so that trying again may help.

    Judged by the code and status of an answer that it or its cause carries, by Python's own classes, and by the names
    of the libraries' classes, which are not imported for this. If none of them says anything, by errno (s3fs: EBUSY for
    throttling, EIO for faults of the server, and for every answer that it does not know).
    """
    import asyncio

    chain = list(_causes(error))
    for found in chain:
        if isinstance(found, (FileNotFoundError, PermissionError, NotImplementedError)):
            return False
        if _code(found) in _TEMPORARY_CODES:
            return True
        if status := _status(found):
            return is_temporary_status(status)
        # KeyError: the library looks for a field that the answer does not have.
        if isinstance(found, (TimeoutError, asyncio.TimeoutError, ConnectionError, EOFError, KeyError)):
            return True
        if any(kind.__name__ in _TEMPORARY_CLASSES for kind in type(found).__mro__):
            return True
    return any(isinstance(found, OSError) and found.errno in _TEMPORARY_ERRNO for found in chain)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised from, the nearest first."""
    while error is not None:
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int:
    """Of the answer that botocore, gcsfs, aiohttp and requests keep with an error; 0 if there is none."""
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        status: Any = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return int(status) if str(status).isdigit() else 0
    for holder, key in ((error, "status"), (error, "code"), (error, "status_code"), (answer, "status_code")):
        status = getattr(holder, key, None)
        if isinstance(status, (int, str)) and str(status).isdigit() and int(status) >= 100:
            return int(status)
    return 0


def _answered(error: BaseException) -> bool:
    return any(map(_status, _causes(error)))


def _code(error: BaseException) -> str:
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _said(error: Exception, url: str) -> str:
    said = without_secrets(str(error), url)
    if isinstance(error, KeyError):
        return f"the store's answer has no {said}"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def raise_foreign(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """The error of this package for one of a storage library, without the secrets that it may show."""
    if isinstance(error, FileNotFoundError):
        raise MissingInputError("there is no such file", url=name, offset=offset) from None
    kind = TemporaryStreamError if is_temporary(error) else StreamError
    raise kind(_said(error, url), url=name, offset=offset) from None
