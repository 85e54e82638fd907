"""Reject redirects of object stores.

The target of a redirect would receive the credentials, and send its own bytes. aiohttp follows
redirects by default, with all headers and, for 307 and 308, with the body. The one redirect that is
part of a store's protocol, that of S3 to another region, is made by botocore, which signs a new
request for an endpoint of its own list.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import printable
from tarkit.names.url import server_of
from tarkit.store.retry import Dropped


def refuse_redirect(status: int, location: str | None) -> None:
    """Reject an answer of a store that is a redirect.

    Raises:
        Dropped: the answer is a redirect.
    """
    if not 300 <= status < 400 or not location:
        return
    try:
        where = printable(server_of(location)) or "another path"
    except ValueError:
        where = "an address that is not a URL"
    raise Dropped(
        f"the store answers with a redirect ({status}) to {where}, which is not followed, because it would receive the "
        "credentials; if that is the store, set it as the endpoint"
    )


class DirectSession:
    """A session of aiohttp whose requests end at the first answer, even if it is a redirect."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request of ``aiohttp.ClientSession`` that ends at the first answer."""
        return self._session.request(*arguments, **{**options, "allow_redirects": False})
