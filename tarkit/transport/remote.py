"""What reading and writing through fsspec share: the filesystem of a URL, and what its errors mean.

Storage libraries raise all sorts of errors, with URLs in them; here they become those of this
package, and lose their secrets.
"""

from __future__ import annotations

import errno
from typing import Any, NoReturn

from tarkit.errors import (
    MissingExtraError,
    MissingInputError,
    StreamError,
    TemporaryStreamError,
    UsageError,
    printable,
)
from tarkit.transport.httpanswer import is_temporary_status
from tarkit.transport.pipes import without_secrets

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "hdfs": "hdfs", "viewfs": "hdfs"}
_OWN_SCHEMES = ("file", "http", "https", "hdfs", "viewfs", "webhdfs", "swebhdfs")
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
    "ResponseStreamingError",
    "ConnectionError",  # requests
    "Timeout",
    "ChunkedEncodingError",
    "ProtocolError",  # urllib3
    "HTTPException",  # http.client
)


def filesystem(url: str, name: str) -> tuple[Any, str]:
    """The fsspec filesystem of a URL, and the path in it.

    Raises:
        UsageError: nobody knows the protocol. MissingExtraError: its library is not installed.
    """
    import fsspec

    protocol = url.split(":", 1)[0]
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        if protocol in _EXTRAS:
            raise MissingExtraError(f"{protocol}://", _EXTRAS[protocol]) from None
        raise UsageError(f"{protocol}:// needs a library that is not installed: {error}") from None
    except Exception as error:
        if isinstance(error, ValueError) and "not known" in str(error):
            raise UsageError(f"{printable(name)}: {_unknown(str(error).rpartition(' ')[2])}") from None
        raise_foreign(error, url, name, None)
    return fs, path


def _unknown(scheme: str) -> str:
    import difflib

    import fsspec

    near = difflib.get_close_matches(scheme, sorted({*fsspec.available_protocols(), *_OWN_SCHEMES}), 1, 0.5)
    question = f" did you mean {near[0]}?" if near else ""
    return (
        f"unknown scheme {printable(scheme)!r};{question} a scheme is added by the Python package that registers it "
        "with fsspec"
    )


def is_temporary(error: BaseException) -> bool:
    """Whether an error of a storage library speaks of the network or a busy server, so that trying again may help.

    Told by Python's own classes, by errno (s3fs: EBUSY for throttling, EIO for faults of the server), by a status
    that the error carries, and by the names of the classes of the libraries, which are not imported for this.
    """
    import asyncio

    if isinstance(error, (FileNotFoundError, PermissionError, NotImplementedError)):
        return False
    answer = getattr(error, "response", None)
    for holder, key in ((error, "status"), (error, "code"), (error, "status_code"), (answer, "status_code")):
        status = getattr(holder, key, None)
        if isinstance(status, (int, str)) and str(status).isdigit() and int(status) >= 100:
            return is_temporary_status(int(status))
    if isinstance(error, (TimeoutError, asyncio.TimeoutError, ConnectionError, EOFError)):
        return True
    if isinstance(error, OSError) and error.errno in _TEMPORARY_ERRNO:
        return True
    return any(kind.__name__ in _TEMPORARY_CLASSES for kind in type(error).__mro__)


def raise_foreign(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """The error of this package for one of a storage library, without the secrets that it may show."""
    if isinstance(error, FileNotFoundError):
        raise MissingInputError("there is no such file", url=name, offset=offset) from None
    said = without_secrets(str(error), url)
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    raise (TemporaryStreamError if is_temporary(error) else StreamError)(reason, url=name, offset=offset) from None
