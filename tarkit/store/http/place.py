"""Read http(s) with the standard library: one GET for each opening, resumed by Range.

A part is requested by a Range that has an end, and the first answer to it identifies the object; if
a server does not answer so, the whole object is requested.

Some faults cannot be detected here: an error page of status 200 as the first answer, and a server
that announces a wrong length and then closes normally. The format above detects them: the end mark
of a tar, the trailer of a compressed stream.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from typing import NoReturn

from tarkit.errors import MissingInputError, StreamError, UsageError, printable
from tarkit.names.url import base_name, display_name, http_parts, server_of, split_query
from tarkit.store import waits
from tarkit.store.checksums import from_headers
from tarkit.store.compression import DecompressingReader, compression_for_name
from tarkit.store.faults import is_permanent, is_temporary_status
from tarkit.store.foreign import without_secrets
from tarkit.store.http.answer import Marks, content_range, encoding_of, follow, marks_of, retry_after, status_text
from tarkit.store.http.connection import HttpBody, new_request, opener
from tarkit.store.http.kept import HttpRanges, open_http_ranges
from tarkit.store.place import Entry, Identity, RawReader
from tarkit.store.resume import Body, Origin, ResumingReader, check_size, read_part, read_up_to
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Retry

_log = logging.getLogger(__name__)
_SKIP = 1024 * 1024
_WARNED: set[str] = set()
"""Servers of which a warning was logged."""


class _Decoded:
    """An object without the Content-Encoding in which it is sent."""

    size = None

    def __init__(self, encoded: RawReader, codec: str, name: str) -> None:
        self.read = DecompressingReader(encoded.read, codec, name).read
        self.close = encoded.close


class _NotInParts(Exception):
    """The first answer to a Range does not identify the object of its bytes."""


def open_read(url: str, name: str, retry: Retry) -> RawReader:
    """Open the object of a URL to read.

    ``user:password@`` becomes basic authentication. A Content-Encoding is decoded, unless the URL's
    name also has the ending of that compression: servers label stored .tgz files like that.

    Raises:
        MissingInputError: the answer is 404 or 410.
        StreamError: the answer is another error, which a retry does not change.
        TemporaryStreamError: all attempts failed.
        UsageError: the URL is not valid.
    """
    return open_origin(HttpOrigin(url, name, retry), retry)


def open_origin(origin: HttpOrigin, retry: Retry) -> RawReader:
    """Open the object of an origin, like :func:`open_read`."""
    reader = ResumingReader(origin, retry)
    return reader if origin.codec is None else _Decoded(reader, origin.codec, origin.name)


def identify(url: str, retry: Retry = DEFAULT_RETRY) -> Identity:
    """Return the size in bytes, and the marks that identify the content (ETag, version, date).

    The request is GET, of one byte if the server supports parts: a signed URL is valid for GET
    only.
    """
    name = display_name(url)
    origin = HttpOrigin(url, name, retry, stop=1)
    try:
        open_origin(origin, retry).close()
        return Identity(origin.size, origin.tag)
    except _NotInParts:
        origin = HttpOrigin(url, name, retry)
    reader = open_origin(origin, retry)
    reader.close()
    return Identity(reader.size, origin.tag)


def open_ranges(url: str, name: str) -> HttpRanges | None:
    """Return a reader of ranges by one request each, over connections that stay open.

    None if the server does not answer a Range with only those bytes, which it identifies.
    """
    try:
        http_parts(url)
    except ValueError as error:
        raise UsageError(f"{printable(name)} is not a URL: {error}") from None
    return waits.call(open_http_ranges, url, name)


def serves_parts(url: str, retry: Retry = DEFAULT_RETRY) -> bool:
    """Return True if the server answers a Range with only those bytes, which it identifies."""
    try:
        open_origin(HttpOrigin(url, display_name(url), retry, stop=1), retry).close()
    except _NotInParts:
        return False
    return True


def stat(url: str) -> Entry:
    """Return the entry of an object; servers have no folders that could be recognized."""
    size, tag = identify(url)
    return Entry(url, base_name(display_name(url)), False, size, None, tag)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read a range of an object.

    The object is read from its beginning if nothing identifies it in a second answer, or if its
    bytes come in a Content-Encoding.
    """
    return range_of_origin(lambda end: HttpOrigin(url, name, retry, end), start, stop, size, retry)


def range_of_origin(
    origin_of: Callable[[int | None], HttpOrigin], start: int, stop: int, size: int, retry: Retry
) -> bytes:
    """Read a range of an object, like :func:`read_range`.

    Args:
        origin_of: function from the end of a part, or None for the whole object, to an origin.
        start: first byte.
        stop: byte after the last one.
        size: expected size of the object in bytes.
    """
    with suppress(_NotInParts):
        return read_part(origin_of(stop), start, stop, size, retry)
    origin = origin_of(None)
    _warn_of_whole_files(server_of(origin.name))
    # The first answer identifies the object; its body is not waited for.
    whole = open_origin(origin, retry)
    try:
        check_size(whole.size, size, origin.name)
        if origin.tag is None or origin.codec is not None or whole.size is None:
            while start > 0 and (data := whole.read(min(start, _SKIP))):
                start, stop = start - len(data), stop - len(data)
            return read_up_to(whole, stop - start)
    finally:
        whole.close()
    return read_part(origin, start, stop, size, retry)


def _warn_of_whole_files(server: str) -> None:
    """Log a warning once for a server that does not answer ranges."""
    if server not in _WARNED:
        _WARNED.add(server)
        _log.warning(
            "%s does not send parts of files (Range, with ETag or Last-Modified), so each part is read from the "
            "beginning of its file, which is slow",
            server,
        )


class HttpOrigin(Origin):
    """The object of the first answer.

    Args:
        name: URL for messages.
        stop: offset where the wanted part ends; _NotInParts is raised if the first answer is not
            about a part. None: all of it.
    """

    def __init__(self, url: str, name: str, retry: Retry, stop: int | None = None) -> None:
        try:
            http_parts(url)
        except ValueError as error:
            raise UsageError(f"{printable(name)} is not a URL: {error}") from None
        super().__init__(name)
        self._url = url
        self._retry = retry
        self._stop = stop
        self._marks: Marks | None = None
        self._encoding: str | None = None
        # Used only if nothing but the bytes can show that an object is unchanged.
        self._prefix = hashlib.sha256()
        self._seen_end: int | None = None

    @property
    def tag(self) -> str | None:
        """Validators of the object; None before the first answer, or if it had none."""
        return None if self._marks is None else self._marks.tag

    @property
    def codec(self) -> str | None:
        """Compression of the answer in addition to that in the name of the object."""
        return None if self._encoding == compression_for_name(split_query(self._url)[0]) else self._encoding

    def open(self, offset: int) -> Body:
        known = self._marks
        headers = {"Accept-Encoding": "identity"}
        if self._stop is not None:
            headers["Range"] = f"bytes={offset}-{self._stop - 1}"
        elif known is not None and offset and known.values:
            headers["Range"] = f"bytes={offset}-"
        if known is not None and known.condition is not None:
            headers.update([known.condition])
        response = self._get(headers, offset)
        if response is None:
            return Body()
        try:
            return self._body(response, offset)
        except BaseException as error:
            response.close()
            if isinstance(error, StreamError):
                error.url, error.offset = self.name, offset if known else None
            raise

    def _body(self, response: http.client.HTTPResponse, offset: int) -> HttpBody:
        headers, status = response.headers, response.status
        encoding = encoding_of(headers)
        if self._marks is None and self._stop is not None:
            self._encoding = encoding
            marks, total = marks_of(headers), (content_range(headers) or (None, None, None))[2]
            if status != 206 or self.codec is not None or not marks.values or total is None:
                raise _NotInParts
            self._marks, self.size = marks, total
            return self._part(response, offset)
        if self._marks is None:
            if status != 200:
                raise StreamError(f"{status_text(status)} to a plain GET; expected 200")
            self.size = response.length
            self._marks = marks_of(headers)
            self._encoding = encoding
            self.checksum = from_headers(headers, server_of(response.geturl()))
            return HttpBody(response, self._url, 0, self.size, True)
        self._marks.check(headers)
        if encoding != self._encoding:
            raise Dropped("the server changed the Content-Encoding of a resumed read")
        if status == 206:
            return self._part(response, offset)
        if status != 200:
            raise Dropped(f"{status_text(status)} to a resumed read; expected 206")
        self._same_size(response.length)
        body = HttpBody(response, self._url, 0, self.size, True)
        try:
            self._skip(body, offset)
        except BaseException:
            body.close()
            raise
        return body

    def _part(self, response: http.client.HTTPResponse, offset: int) -> HttpBody:
        """Return the body of an answer 206, if it is the requested part."""
        start, end, total = content_range(response.headers) or (None, None, None)
        if start != offset or end is None or end <= offset:
            raise Dropped("the server answers a resumed read with other bytes than requested")
        if total is not None:
            self._same_size(total)
        if response.length not in (None, end - offset) or (self.size is not None and end > self.size):
            raise Dropped("the lengths in the server's answer to a resumed read contradict each other")
        return HttpBody(response, self._url, offset, end, False)

    def _same_size(self, size: int | None) -> None:
        if size == self.size:
            return
        if self.size is None:
            self.size = size
            return
        found = "an unknown number of" if size is None else size
        if self._marks is not None and self._marks.values and size is not None:
            raise StreamError(
                f"the object was changed while it was read: it has {found} bytes now, and had {self.size}"
            )
        raise Dropped(f"the server answers with {found} bytes, but the object had {self.size}")

    def _skip(self, body: HttpBody, offset: int) -> None:
        """Skip the bytes that were delivered already; without marks, they must be the same."""
        check = None if self._marks and self._marks.values else hashlib.sha256()
        left = offset
        while left:
            data = body.read(min(left, _SKIP))
            if not data:
                raise Dropped(f"the connection ended after {offset - left} bytes, before the place to resume")
            left -= len(data)
            if check is not None:
                check.update(data)
        if check is not None and check.digest() != self._prefix.digest():
            raise StreamError("the object was changed while it was read: its first bytes are different")

    def delivered(self, data: bytes) -> None:
        super().delivered(data)
        if self._marks is not None and not self._marks.values:
            self._prefix.update(data)

    def at_end(self, body: Body, offset: int) -> bool:
        end = body.end if isinstance(body, HttpBody) else None
        if end is not None and offset < end:
            raise Dropped(f"the connection ended after {offset} of {self.size or end} bytes")
        if self.size is not None and offset < self.size:
            return False
        if self.size is None and isinstance(body, HttpBody) and not body.final and self._seen_end != offset:
            # The end of the connection may be a cut: it is the end if a second answer ends there,
            # too.
            self._seen_end = offset
            return False
        surplus = isinstance(body, HttpBody) and (body.final or self.size is not None) and body.has_surplus()
        self.check_sum(f"the server sends more than the {offset} bytes that it announced" if surplus else None, offset)
        return True

    def _get(self, headers: dict[str, str], offset: int) -> http.client.HTTPResponse | None:
        """Return the answer; None if the server reports that the object ends at ``offset``."""
        response, url = follow(lambda target: (self._ask(target, headers), target), self._url, self.name)
        if 200 <= response.status < 300:
            return response
        response.close()
        if response.status == 416 and self._marks is None and self._stop is not None:
            raise _NotInParts
        total = (content_range(response.headers) or (None, None, None))[2]
        if response.status == 416 and self.size in (None, offset) and total == offset:
            self.size = offset
            return None
        self._raise_for_status(response.status, response.headers, offset, self._redirect_prefix(url))

    def _ask(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        try:
            response: http.client.HTTPResponse = opener().open(new_request(url, headers), timeout=self._retry.timeout)
            return response
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            said = without_secrets(str(cause) or type(cause).__name__, url)
            reason = f"{self._redirect_prefix(url)}no answer from the server ({said})"
            if is_permanent(cause):
                raise StreamError(reason, url=self.name) from None
            raise Dropped(reason, answered=False) from None

    def _redirect_prefix(self, url: str) -> str:
        """Return the beginning of a reason that is about an answer from ``url``."""
        return "" if url == self._url else f"redirected to {server_of(url)}: "

    def _raise_for_status(self, status: int, headers: Message, offset: int, via: str) -> NoReturn:
        reason = via + status_text(status)
        if is_temporary_status(status):
            raise Dropped(reason, retry_after(headers, self._retry.now()))
        if self._marks is None:
            kind = MissingInputError if status in (404, 410) else StreamError
            raise kind(reason, url=self.name)
        if status in (404, 410, 412, 416):
            reason = f"the object was changed or removed while it was read: {reason}"
        raise StreamError(reason, url=self.name, offset=offset)
