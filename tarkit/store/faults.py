"""Classify errors of HTTP servers, storage libraries and Hadoop as temporary or permanent.

A retry may help after a temporary error. :mod:`tarkit.store.retry` decides how often and how long
to retry.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

_ERRNO = {
    *(errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EPIPE, errno.ETIMEDOUT),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
}
# By library: aiohttp; botocore; requests; httpx; urllib3 and http.client; gcsfs and fsspec; azure.
_CLASSES = {
    *("ClientConnectionError", "ClientPayloadError"),
    *("HTTPClientError", "IncompleteReadError", "ResponseParserError", "ResponseStreamingError"),
    *("ConnectionError", "Timeout", "ChunkedEncodingError"),
    *("NetworkError", "ProxyError", "TimeoutException"),
    *("ProtocolError", "HTTPException"),
    *("ChecksumError", "FlexibleChecksumError", "FSTimeoutError"),
    *("ServiceRequestError", "ServiceResponseError"),
}
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "DefaultCredentialsError",
    "ClientAuthenticationError",
}
_NO_CREDENTIALS_WORDS = ("Anonymous caller", "Must provide either a connection_string or account_name")
# Errors of S3 whose status is misleading: the body was damaged or cut in transfer, or a second
# write to the same name was under way.
_S3_CODES = {
    *("BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InternalError", "OperationAborted"),
    *("RequestTimeout", "ServiceUnavailable", "SlowDown", "XAmzContentSHA256Mismatch"),
}
# A NameNode that starts or waits, blocks whose DataNodes are down.
_JAVA = {
    *("BlockMissingException", "ReplicaNotFoundException", "EOFException"),
    *("ConnectException", "ConnectTimeoutException", "SocketException", "SocketTimeoutException"),
    *("NoRouteToHostException", "NotReplicatedYetException", "ObserverRetryOnActiveException", "RetriableException"),
    *("SafeModeException", "ServerTooBusyException", "StandbyException"),
}
_JAVA_WORDS = (
    "No active nodes contain this block",
    "Failed to find datanode",
    "could only be written to",
    "could only be replicated to",
    "Could not obtain block",
)


def is_temporary_status(status: int) -> bool:
    """Return True if a retry may help: 408, 425, 429, and 5xx except 501 (not implemented)."""
    return status in (408, 425, 429) or (status >= 500 and status != 501)


def is_temporary_java(exception: str, message: str) -> bool:
    """Return True if a retry may help after an exception of Hadoop.

    Args:
        exception: its class without the package.
    """
    return exception in _JAVA or any(words in message for words in _JAVA_WORDS)


def is_temporary(error: BaseException) -> bool:
    """Return True if a retry may help after an error of a storage library.

    The error is then about the network or a busy server. It is classified by the code and status of
    an answer in the error or its cause, by Python's own classes, and by the names of the libraries'
    classes, which are not imported for this. If none of them decides, by errno (s3fs: EBUSY for
    throttling, EIO for faults of the server, and for every answer that it does not know).
    """
    import asyncio

    chain = list(_causes(error))
    if any(map(is_permanent, chain)):
        return False
    for found in chain:
        answer = getattr(found, "response", None)
        if isinstance(answer, dict) and answer.get("Error", {}).get("Code") in _S3_CODES:
            return True
        if status := _status(found):
            return is_temporary_status(status)
        # KeyError: the library reads a field that the answer does not have.
        if isinstance(found, (TimeoutError, asyncio.TimeoutError, ConnectionError, EOFError, KeyError)):
            return True
        if any(kind.__name__ in _CLASSES for kind in type(found).__mro__):
            return True
    return any(isinstance(found, OSError) and found.errno in _ERRNO for found in chain)


def is_permanent(error: BaseException) -> bool:
    """Return True if a retry cannot help, even if a library calls it an error of the connection.

    That is a certificate that is not trusted, or a file of certificates that cannot be read. An
    unknown host is not permanent, because it may be about to start.
    """
    if any(kind.__name__ == "SSLCertVerificationError" for kind in type(error).__mro__):
        return True
    return isinstance(error, (FileNotFoundError, PermissionError, NotImplementedError))


def lacks_credentials(error: BaseException) -> bool:
    """Return True if a storage library found no credentials, or the store requires some."""
    if any(type(found).__name__ in _NO_CREDENTIALS for found in _causes(error)):
        return True
    return any(words in str(error) for words in _NO_CREDENTIALS_WORDS)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the nearest first.

    botocore and aiohttp keep a cause in a field.
    """
    while error is not None:
        yield error
        kept = getattr(error, "kwargs", None)
        within = kept.get("error") if isinstance(kept, dict) else getattr(error, "os_error", None)
        error = error.__cause__ or (within if isinstance(within, BaseException) else None)


def _status(error: BaseException) -> int:
    """Return the status of the answer that a library keeps with an error.

    These are botocore, gcsfs, aiohttp and requests.

    0 if there is none.
    """
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        status: Any = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return int(status) if str(status).isdigit() else 0
    for holder, key in ((error, "status"), (error, "code"), (error, "status_code"), (answer, "status_code")):
        status = getattr(holder, key, None)
        if isinstance(status, (int, str)) and str(status).isdigit() and int(status) >= 100:
            return int(status)
    return 0


def answered_status(error: BaseException) -> int:
    """Return the status of the answer in an error of a storage library, or in its cause.

    0 if there is none.
    """
    return next(filter(None, map(_status, _causes(error))), 0)


def code_of(error: BaseException) -> str:
    """Return the code of S3 in an error or its cause, such as ``ExpiredToken``.

    "" if there is no code, or only a status.
    """
    for found in _causes(error):
        answer = getattr(found, "response", None)
        code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
        if isinstance(code, str) and code and not code.isdigit():
            return code
    return ""


def is_answered(error: BaseException) -> bool:
    """Return True if an error of a storage library has an answer, so that the store exists."""
    return answered_status(error) > 0
