"""Parse HTTP answers: redirects, identity of the object, range of bytes, time to wait.

RFC 9110: validators (8.8), Content-Range (14.4), Retry-After (10.2.3).
"""

from __future__ import annotations

import email.utils
import http.client
import re
import string
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus

from tarkit.errors import StreamError
from tarkit.names.url import http_parts
from tarkit.store.retry import Dropped

MOST_REDIRECTS = 10
"""Number of redirects after which a request fails."""
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.IGNORECASE)
_NO_MORE = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})\b", re.ASCII)
_VERSIONS = ("x-goog-generation", "x-amz-version-id")
_ENCODINGS = {"identity": None, "gzip": "gz", "x-gzip": "gz", "zstd": "zst"}


def status_text(status: int) -> str:
    """Return ``the server answers 503 Service Unavailable``.

    The server's own text is not used, because it may repeat secrets.
    """
    try:
        return f"the server answers {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server answers {status}"


def _seconds(date: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, IndexError, OverflowError):
        return None


def retry_after(headers: Message, now: float) -> float | None:
    """Return the seconds that the server asks to wait.

    It is a number, or a date compared with the server's own clock if it sends that; or the rest of
    the window in which it accepts no more requests (draft-ietf-httpapi-ratelimit-headers).
    """
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        return float(text)
    if not text and (limit := _NO_MORE.search(headers.get("RateLimit", ""))):
        return float(limit[1])
    due = _seconds(text)
    if due is None:
        return None
    here = _seconds(headers.get("Date"))
    return max(0.0, due - (now if here is None else here))


def content_range(headers: Message) -> tuple[int | None, int | None, int | None] | None:
    """Return first byte, byte after the last, and total length in Content-Range.

    A value that is not given is None; the result is None without such a header.
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    first, last, total = match.groups()
    start = int(first) if first is not None else None
    end = int(last) + 1 if last is not None else None
    return start, end, int(total) if total != "*" else None


@dataclass(frozen=True)
class Marks:
    """Headers that distinguish an object from another under the same URL.

    Attributes:
        values: header -> value in the first answer.
        condition: header that asks the server for exactly this object. Without values and condition
            only the bytes can show a change.
    """

    values: dict[str, str]
    condition: tuple[str, str] | None

    @property
    def tag(self) -> str | None:
        """Text of the values; None if there are none."""
        return ", ".join(f"{header}: {value}" for header, value in sorted(self.values.items())) or None

    def check(self, headers: Message) -> None:
        """Check that an answer is about the same object.

        Raises:
            StreamError: the answer is about another object (the error has no URL).
            Dropped: the answer does not identify the object.
        """
        for header, value in self.values.items():
            found = headers.get(header)
            if found is None:
                raise Dropped(f"the server's answer to a resumed read has no {header}, so it may not be the object")
            if found.strip() != value:
                raise StreamError(f"the object was changed while it was read: its {header} is different")


def marks_of(headers: Message) -> Marks:
    """Return the marks in a first answer: the ETag, or Last-Modified.

    Last-Modified is used if it is more than a second older than the answer. A younger date could
    belong to two objects (RFC 9110, 8.8.2.2). A weak ETag is compared, together with Last-Modified,
    but cannot be a condition (If-Match compares strongly).
    """
    values = {name: headers[name].strip() for name in _VERSIONS if name in headers}
    condition = None
    etag = headers.get("ETag", "").strip()
    modified = headers.get("Last-Modified", "").strip()
    changed, now = _seconds(modified), _seconds(headers.get("Date"))
    settled = changed is not None and now is not None and now - changed >= 1
    if etag:
        values["ETag"] = etag
        if not etag.startswith("W/"):
            condition = ("If-Match", etag)
    if settled and condition is None:
        values["Last-Modified"] = modified
        condition = ("If-Unmodified-Since", modified)
    return Marks(values, condition)


def encoding_of(headers: Message) -> str | None:
    """Return the codec of the Content-Encoding; None for no encoding.

    Some servers apply one although identity was requested.

    Raises:
        StreamError: tarkit does not know the encoding.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower() or "identity"
    if encoding not in _ENCODINGS:
        raise StreamError("the server sends it in a Content-Encoding of its own, although identity was requested")
    return _ENCODINGS[encoding]


def redirect_target(response: http.client.HTTPResponse, url: str, name: str) -> str | None:
    """Return the target of a redirect in the answer from ``url``, or None if it is not one.

    Proxies also use 300.

    Raises:
        StreamError: the target is not a valid URL.
    """
    location = response.headers.get("Location", "").strip()
    if not 300 <= response.status < 400 or response.status == 304 or not location:
        return None
    response.close()
    try:
        # Headers are decoded as Latin-1; some servers send bytes in them that should be
        # percent-encoded.
        quoted = urllib.parse.quote(location, safe=string.punctuation, encoding="iso-8859-1")
        target = urllib.parse.urljoin(url, quoted)
        http_parts(target)
    except ValueError:
        raise StreamError("redirected to an address that is not a URL of http or https", url=name) from None
    return target


def follow(
    ask: Callable[[str], tuple[http.client.HTTPResponse, str]], url: str, name: str
) -> tuple[http.client.HTTPResponse, str]:
    """Follow redirects; return the last answer, and the URL that gave it.

    Args:
        ask: function from a URL to an answer and its URL.
        url: first URL.
        name: URL for messages.

    Raises:
        StreamError: a redirect has no valid target, or there are too many.
    """
    for _ in range(MOST_REDIRECTS + 1):
        response, asked = ask(url)
        target = redirect_target(response, asked, name)
        if target is None:
            return response, asked
        url = target
    raise StreamError(f"the server redirected {MOST_REDIRECTS} times", url=name)
