"""What an HTTP answer says: where to ask instead, which object it is about, which bytes come, when
to come back.

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
"""After which the answer is an error."""
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.IGNORECASE)
_NO_MORE = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})\b", re.ASCII)
_VERSIONS = ("x-goog-generation", "x-amz-version-id")
_ENCODINGS = {"identity": None, "gzip": "gz", "x-gzip": "gz", "zstd": "zst"}


def status_text(status: int) -> str:
    """``the server answers 503 Service Unavailable``.

    The server's own words may repeat secrets.
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
    """Seconds that the server asks to wait: a number, or a date set against the server's own clock
    if it shows one; or the rest of the window in which it takes no more requests
    (draft-ietf-httpapi-ratelimit-headers).
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
    """First byte, byte after the last, total length.

    None for what is not given, or without such a header.
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
    """What distinguishes an object from another under the same URL.

    Attributes:
        values: header -> value of the first answer.
        condition: the header that asks the server for just this object. Without marks nothing but
            its bytes can tell.
    """

    values: dict[str, str]
    condition: tuple[str, str] | None

    def check(self, headers: Message) -> None:
        """Whether an answer is about the same object.

        Raises:
            StreamError: it is another one (without a place).
            Dropped: it does not say.
        """
        for header, value in self.values.items():
            found = headers.get(header)
            if found is None:
                raise Dropped(f"the server's answer to a resumed read has no {header}, so it may not be the object")
            if found.strip() != value:
                raise StreamError(f"the object was changed while it was read: its {header} is another")


def marks_of(headers: Message) -> Marks:
    """Of a first answer: the ETag.

    Or Last-Modified, if it is more than a second older than the answer. A younger one could belong
    to two objects (RFC 9110, 8.8.2.2). A weak ETag counts, but with Last-Modified, and cannot be
    asked for (If-Match compares strongly).
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
    """The codec of the Content-Encoding, which some servers apply although identity was asked for.

    None for none.

    Raises:
        StreamError: one that tarkit cannot undo.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower() or "identity"
    if encoding not in _ENCODINGS:
        raise StreamError("the server sends it in a Content-Encoding of its own, although identity was asked for")
    return _ENCODINGS[encoding]


def redirect_target(response: http.client.HTTPResponse, url: str, name: str) -> str | None:
    """Where the answer from ``url`` redirects to, or None if it is the answer itself.

    Proxies also use 300.

    Raises:
        StreamError: to nothing that can be asked.
    """
    location = response.headers.get("Location", "").strip()
    if not 300 <= response.status < 400 or response.status == 304 or not location:
        return None
    response.close()
    try:
        # Headers are decoded as Latin-1; servers put bytes into them that should be
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
    """The answer at the end of all redirects, and the URL that gave it.

    Args:
        ask: gives both for a URL.

    Raises:
        StreamError: a redirect to nothing that can be asked, or too many of them.
    """
    for _ in range(MOST_REDIRECTS + 1):
        response, asked = ask(url)
        target = redirect_target(response, asked, name)
        if target is None:
            return response, asked
        url = target
    raise StreamError(f"the server redirected {MOST_REDIRECTS} times in a row", url=name)
