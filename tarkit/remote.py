"""Bytes over a network, both ways: http(s) by the standard library, everything else by fsspec.

Storage libraries raise all sorts of errors, with URLs in them; here they become those of this
package, and lose their secrets.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, NoReturn

from tarkit.errors import (
    MissingExtraError,
    MissingInputError,
    StreamError,
    TemporaryStreamError,
    UsageError,
    printable,
)
from tarkit.pipes import without_secrets

if TYPE_CHECKING:
    import http.client
    import urllib.request

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "hdfs": "hdfs", "viewfs": "hdfs"}
_TIMEOUT = 60.0
_TEMPORARY_STATUS = (408, 425, 429)


class HttpReader:
    """The body of one response, whose length is verified."""

    def __init__(self, response: http.client.HTTPResponse, url: str, name: str) -> None:
        self._response = response
        self._url = url
        self._name = name
        self._offset = 0
        length = response.headers.get("Content-Length")
        self.size = int(length) if length and length.isdigit() else None

    def read(self, count: int) -> bytes:
        import http.client

        try:
            data = self._response.read(count)
        except (OSError, http.client.HTTPException) as error:
            self._fail(f"the connection broke ({without_secrets(str(error) or type(error).__name__, self._url)})")
        self._offset += len(data)
        if not data and self.size is not None and self._offset < self.size:
            self._fail(f"the connection ended after {self._offset} of {self.size} bytes")
        return data

    def _fail(self, reason: str) -> NoReturn:
        raise TemporaryStreamError(reason, url=self._name, offset=self._offset) from None

    def close(self) -> None:
        self._response.close()


def open_http(url: str, name: str) -> HttpReader:
    """The body of a GET request. ``user:password@`` becomes basic authentication.

    Raises:
        MissingInputError: 404 or 410. TemporaryStreamError: 408, 425, 429, 5xx, no connection.
        StreamError: every other answer that is not success.
    """
    import http.client
    import urllib.error
    import urllib.request

    try:
        response = urllib.request.urlopen(_http_request(url), timeout=_TIMEOUT)
        return HttpReader(response, url, name)
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"the server answers {error.code} {without_secrets(str(error.reason), url)}"
        if error.code in (404, 410):
            raise MissingInputError(reason, url=name) from None
        kind = TemporaryStreamError if error.code in _TEMPORARY_STATUS or error.code >= 500 else StreamError
        raise kind(reason, url=name) from None
    except (http.client.InvalidURL, ValueError) as error:
        raise UsageError(f"{printable(name)} is not a URL: {without_secrets(str(error), url)}") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        kind = StreamError if type(cause).__name__ == "SSLCertVerificationError" else TemporaryStreamError
        raise kind(f"no answer from the server ({without_secrets(str(cause), url)})", url=name) from None


def _http_request(url: str) -> urllib.request.Request:
    import base64
    import urllib.request

    parts = urllib.parse.urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=host)))
    if at:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        # Unredirected: another host that is redirected to must not see the password.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


class FsspecReader:
    """A file of an fsspec filesystem, whose length is verified where it is known."""

    def __init__(self, file: Any, size: int | None, url: str, name: str) -> None:
        self._file = file
        self._url = url
        self._name = name
        self._offset = 0
        self.size = size

    def read(self, count: int) -> bytes:
        try:
            data = self._file.read(count)
        except Exception as error:
            raise_foreign(error, self._url, self._name, self._offset)
        self._offset += len(data)
        if self.size is not None and (self._offset > self.size or (not data and self._offset < self.size)):
            raise TemporaryStreamError(
                f"{self._offset} bytes came, but the object has {self.size}", url=self._name, offset=self._offset
            )
        return bytes(data)

    def close(self) -> None:
        self._file.close()


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
            known = ", ".join(sorted({*fsspec.available_protocols(), "http", "https"}))
            raise UsageError(f"{printable(name)}: protocol {protocol} is not known; known are {known}") from None
        raise_foreign(error, url, name, None)
    return fs, path


def open_fsspec(url: str, name: str) -> FsspecReader:
    """A file of whatever fsspec reaches.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError, UsageError, MissingExtraError.
    """
    fs, path = filesystem(url, name)
    try:
        file = fs.open(path, "rb")
        size = getattr(file, "size", None)
        if size is None:
            size = fs.info(path).get("size")
    except Exception as error:
        if isinstance(error, (FileNotFoundError, IsADirectoryError)) and _is_directory(fs, path):
            raise StreamError("is a directory, not a file", url=name) from None
        raise_foreign(error, url, name, None)
    return FsspecReader(file, size if isinstance(size, int) else None, url, name)


def _is_directory(fs: Any, path: str) -> bool:
    try:
        return bool(fs.isdir(path))
    except Exception:  # Only makes another error's message better.
        return False


def raise_foreign(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """The error of this package for one of a storage library, without the secrets that it may show."""
    import asyncio

    if isinstance(error, FileNotFoundError):
        raise MissingInputError("there is no such file", url=name, offset=offset) from None
    said = without_secrets(str(error), url)
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    temporary = isinstance(error, (TimeoutError, asyncio.TimeoutError, ConnectionError))
    raise (TemporaryStreamError if temporary else StreamError)(reason, url=name, offset=offset) from None
