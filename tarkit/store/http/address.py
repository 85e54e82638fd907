"""Where a request goes: a URL, the target of a redirect and a proxy are checked here, before a library sees them.

The libraries cut a URL into pieces of which not all are checked, and quote them in their errors, secrets included.
"""

from __future__ import annotations

import re
import string
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING

from tarkit.errors import StreamError

if TYPE_CHECKING:
    import http.client

MOST_REDIRECTS = 10
"""After which the answer is an error."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def parsed(url: str) -> urllib.parse.SplitResult:
    """The parts of an http or https URL for which a request can be made. Raises: ValueError: it is not one; why,
    without any of its text."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        parts.port  # noqa: B018 (parsed when it is asked for)
    except ValueError:
        raise ValueError("its host or port is not valid") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("it begins with neither http:// nor https://")
    if not host or b" " in host:
        raise ValueError("it has no valid host")
    if _CONTROL.search(url) or not re.fullmatch("[!-~]*", parts.path + parts.query):
        raise ValueError("it has characters that must be percent-encoded")
    return parts


def server_of(url: str) -> str:
    """Host and port, as they are in the URL."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def redirect_target(response: http.client.HTTPResponse, url: str, name: str) -> str | None:
    """Where the answer from ``url`` redirects to, or None if it is the answer itself. Proxies also use 300. Raises:
    StreamError: to nothing that can be asked."""
    location = response.headers.get("Location", "").strip()
    if not 300 <= response.status < 400 or response.status == 304 or not location:
        return None
    response.close()
    try:
        # Headers are decoded as Latin-1; servers put bytes into them that should be percent-encoded.
        quoted = urllib.parse.quote(location, safe=string.punctuation, encoding="iso-8859-1")
        target = urllib.parse.urljoin(url, quoted)
        parsed(target)
    except ValueError:
        raise StreamError("redirected to an address that is not a URL of http or https", url=name) from None
    return target


def follow(
    ask: Callable[[str], tuple[http.client.HTTPResponse, str]], url: str, name: str
) -> tuple[http.client.HTTPResponse, str]:
    """The answer at the end of all redirects, and the URL that gave it. ask: gives both for a URL. Raises: StreamError:
    a redirect to nothing that can be asked, or too many of them."""
    for _ in range(MOST_REDIRECTS + 1):
        response, asked = ask(url)
        target = redirect_target(response, asked, name)
        if target is None:
            return response, asked
        url = target
    raise StreamError(f"the server redirected {MOST_REDIRECTS} times in a row", url=name)
