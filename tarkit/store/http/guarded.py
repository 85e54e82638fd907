"""Requests for URLs that are not trusted: bounded, and only to addresses of the public internet.

aiohttp makes the requests. What it leaves to its callers is here: a connection is made to the
address that was checked, so that a second look-up of the name cannot lead elsewhere; bodies are
bounded in size, also after decompression; and an opt-out of the site is respected.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import StreamError, TarkitError
from tarkit.extras import library
from tarkit.names.url import http_parts, split_query
from tarkit.store.compression import DecompressingReader, compression_for_name
from tarkit.store.faults import is_permanent, is_temporary_status
from tarkit.store.foreign import without_secrets
from tarkit.store.http.answer import content_range, encoding_of, retry_after, status_text
from tarkit.store.http.connection import CONNECT_SECONDS
from tarkit.store.http.robots import opts_out

AGENT = "tarkit"
_PLAIN = re.compile(r"https?://[a-z0-9.-]+(:[1-5]?[0-9]{1,4})?/[A-Za-z0-9/._~=&?,+-]*")
_SAFE = "!#$%&'()*+,/:;=?@[]~"
# Metadata services: most clouds, Azure, Oracle, Alibaba, and those of AWS and Google by IPv6.
_METADATA = [
    ipaddress.ip_network(net)
    for net in (
        "169.254.0.0/16", "168.63.129.16/32", "192.0.0.0/24", "100.100.100.200/32", "fd00:ec2::254/128",
        "fd20:ce::254/128",
    )
]  # fmt: skip
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All public addresses of IPv6 are there; old forms of private ones are elsewhere, and not all of
# them are private to the module ipaddress.
_UNICAST = ipaddress.ip_network("2000::/3")
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?")
_DNS_SECONDS = 300
_IDLE_SECONDS = 3.0


class FailedFetch(Exception):
    """The failure of a request. Never leaves the package.

    Args:
        reason: a word for the table of failed rows, such as ``dns`` or ``http-404``.
        detail: a phrase without secrets.
        again: True if a retry may help.
        retry_after: seconds that the server asked to wait.
        answered: False if no server answered.
    """

    def __init__(
        self, reason: str, detail: str, *, again: bool = False, retry_after: float | None = None, answered: bool = True
    ) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.again = again
        self.retry_after = retry_after
        self.answered = answered


@dataclass
class Begun:
    """A body of which some bytes may have arrived in an earlier attempt.

    Attributes:
        most: size in bytes above which the body is refused.
        room: called with the size in bytes that the body needs; its exception ends the request.
        cut: True to take the first ``most`` bytes of a larger body.
        pieces: its bytes so far.
        size: their number.
        etag: strong ETag of their object, by which the rest is requested; "" if there is none.
    """

    most: int
    room: Callable[[int], object] = lambda size: None
    cut: bool = False
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    etag: str = ""

    def add(self, piece: bytes) -> None:
        """Add some bytes."""
        self.pieces.append(piece)
        self.size += len(piece)
        self.check(self.size)

    def check(self, size: int) -> None:
        """Raise an error if a body of this size is refused, or does not have the memory."""
        if size > self.most and not self.cut:
            raise FailedFetch("too-large", f"it has more than {self.most} bytes")
        self.room(size)

    def clear(self) -> None:
        """Begin anew."""
        self.pieces, self.size, self.etag = [], 0, ""


class Reply(NamedTuple):
    """A successful answer: the content, or the target of a redirect."""

    content: bytes
    target: str | None


def requested_url(url: str) -> str:
    """Return a URL as it is requested, with blanks and other characters percent-encoded.

    Raises:
        FailedFetch: the URL is not one of http or https.
    """
    if _PLAIN.fullmatch(url):
        return url
    try:
        parts = urllib.parse.urlsplit(url.strip())
        user, at, _ = parts.netloc.rpartition("@")
        host = (parts.hostname or "").encode("idna").decode("ascii")
        port = f":{parts.port}" if parts.port is not None else ""
        netloc = f"{user}{at}[{host}]{port}" if ":" in host else f"{user}{at}{host}{port}"
        clean = urllib.parse.urlunsplit(parts._replace(netloc=netloc, path=parts.path or "/", fragment=""))
        clean = re.sub("%(?![0-9A-Fa-f]{2})", "%25", clean)
        clean = urllib.parse.quote(clean, safe=_SAFE, errors="surrogateescape")
        http_parts(clean)
        return clean
    except ValueError as error:
        raise FailedFetch("url", without_secrets(str(error), url)) from None


def is_allowed(address: str, allow_private: bool) -> bool:
    """Return True if an IP address is one of the public internet, and not of a metadata service.

    Args:
        allow_private: True for all addresses but those of metadata services.

    Raises:
        ValueError: it is not an address.
    """
    ip: Any = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6:
        inner = ip.ipv4_mapped or ip.sixtofour or (ipaddress.ip_address(ip.packed[-4:]) if ip in _NAT64 else None)
        if inner is None and ip not in _UNICAST and not allow_private:
            return False
        ip = inner or ip
    is_metadata = any(ip.version == net.version and ip in net for net in _METADATA)
    return not is_metadata and (allow_private or (ip.is_global and not ip.is_multicast))


class _Resolver:
    """The look-up of host names for aiohttp, which connects to the addresses that it returns."""

    def __init__(self, resolver: Any, is_allowed: Callable[[str, str], bool]) -> None:
        self._resolver = resolver
        self._is_allowed = is_allowed

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[Any]:
        found = await self._resolver.resolve(host, port, family)
        allowed = [each for each in found if self._is_allowed(host, each["host"])]
        if not allowed:
            raise _refused(found[0]["host"])
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _check_host(host: str, allow_private: bool) -> None:
    """Refuse a URL's address that is not allowed; names are checked when they are looked up."""
    with suppress(ValueError):
        if not is_allowed(host, allow_private):
            raise _refused(host)
        return
    if _NUMBER.fullmatch(host):
        raise FailedFetch("url", "its host is a number, not an address")


def _refused(address: str) -> FailedFetch:
    return FailedFetch("address", f"its host has the address {address}, which is private, or of a metadata service")


class GuardedClient:
    """A client for URLs that are not trusted. It is made, used and closed in one event loop.

    Args:
        timeout: seconds for one request, from the look-up of the host to the end of the body.
        allow_private: also connect to addresses that are not public, but to no metadata service.
        ignore_opt_out: also read what the site excludes by X-Robots-Tag.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """

    def __init__(self, timeout: float, *, allow_private: bool, ignore_opt_out: bool) -> None:
        self._aiohttp = aiohttp = library("aiohttp", "downloading the files of a table", "download")
        self._url = library("yarl", "downloading the files of a table", "download").URL
        self._allow_private = allow_private
        self._ignore_opt_out = ignore_opt_out
        self._proxies = urllib.request.getproxies()
        proxies = {urllib.parse.urlsplit(proxy).hostname for proxy in self._proxies.values()}
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=_IDLE_SECONDS, ttl_dns_cache=_DNS_SECONDS,
            resolver=_Resolver(
                aiohttp.ThreadedResolver(),
                lambda host, address: host in proxies or is_allowed(address, allow_private),
            ),
        )  # fmt: skip
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
            headers={"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS),
        )  # fmt: skip

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(self, url: str, begun: Begun, now: float, *, keep: bool = True, rules: bool = True) -> Reply:
        """Make one request, and follow no redirect.

        Args:
            url: a URL of :func:`requested_url`.
            begun: what an earlier attempt read; it is updated.
            now: seconds since 1970.
            keep: False to close the connection afterwards.
            rules: False to ignore an opt-out.

        Raises:
            FailedFetch: the request failed.
        """
        target = self._url(url, encoded=True)
        _check_host(target.raw_host, self._allow_private)
        headers = {}
        if begun.size and begun.etag:
            headers = {"Range": f"bytes={begun.size}-", "If-Range": begun.etag}
        proxy = self._proxies.get(target.scheme)
        if proxy is not None and urllib.request.proxy_bypass(target.raw_authority):
            proxy = None
        try:
            async with self._session.get(target, headers=headers, allow_redirects=False, proxy=proxy) as response:
                status, location = response.status, response.headers.get("Location", "").strip()
                if 300 <= status < 400 and status != 304 and location:
                    return Reply(b"", urllib.parse.urljoin(url, location))
                if status not in (200, 206):
                    wait = retry_after(response.headers, now)
                    # The rest of a body may not exist any more: the next attempt begins anew.
                    begun.etag, again = "", is_temporary_status(status) or (status == 416 and bool(headers))
                    raise FailedFetch(f"http-{status}", status_text(status), again=again, retry_after=wait)
                if rules and not self._ignore_opt_out and opts_out(response.headers.getall("X-Robots-Tag", ())):
                    raise FailedFetch("opt-out", "the site excludes it from data sets by X-Robots-Tag")
                content = await _content(response, begun, url)
                if not keep:
                    response.close()
                return Reply(content, None)
        except (OSError, ValueError, asyncio.TimeoutError, self._aiohttp.ClientError) as error:
            raise self._failure(error, url) from None

    def _failure(self, error: Exception, url: str) -> FailedFetch:
        aiohttp, cause = self._aiohttp, getattr(error, "os_error", error)
        said = without_secrets(str(cause) or type(cause).__name__, url)
        if isinstance(error, asyncio.TimeoutError):
            # Only the second of the two is about a connection that exists.
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            return FailedFetch("connect" if connecting else "timeout", "not done in time", again=True, answered=False)
        if isinstance(cause, socket.gaierror):
            unknown = cause.errno == socket.EAI_NONAME
            return FailedFetch("dns", said, again=not unknown, answered=False)
        if isinstance(error, (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError)):
            return FailedFetch("tls", said, again=not is_permanent(getattr(error, "certificate_error", cause)))
        if isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError):
            return FailedFetch("protocol", f"its answer is not HTTP: {error.message.partition(':')[0]}", again=True)
        if isinstance(error, aiohttp.ClientPayloadError):
            return FailedFetch("short", "the connection ended before the body did", again=True)
        if isinstance(error, (aiohttp.InvalidURL, ValueError)):
            return FailedFetch("url", said)
        return FailedFetch("connect", said, again=True, answered=False)


async def _content(response: Any, begun: Begun, url: str) -> bytes:
    """Read a body to its end, and decompress it."""
    try:
        codec = encoding_of(response.headers)
    except StreamError as error:
        raise FailedFetch("encoding", error.reason) from None
    etag = response.headers.get("ETag", "")
    total = None
    if response.status == 206:
        start, _, total = content_range(response.headers) or (None, None, None)
        if start != begun.size or total is None or etag != begun.etag:
            begun.clear()
            raise FailedFetch("short", "the server answers with other bytes than requested", again=True)
    else:
        begun.clear()
    begun.etag = "" if etag.startswith("W/") else etag
    begun.check(begun.size + (response.content_length or 0))
    while piece := await response.content.readany():
        begun.add(piece)
        if begun.cut and begun.size >= begun.most:
            break
    if total not in (None, begun.size):
        raise FailedFetch("short", f"the server sent {begun.size} of {total} bytes", again=True)
    content = b"".join(begun.pieces)
    if codec is None or codec == compression_for_name(split_query(url)[0]):
        return content
    begun.clear()
    plain = Begun(begun.most, begun.room, begun.cut)
    reader = DecompressingReader(io.BytesIO(content).read, codec, url)
    try:
        while piece := reader.read(1 << 16):
            plain.add(piece)
    except TarkitError:
        raise FailedFetch("encoding", "its Content-Encoding is damaged", again=True) from None
    return b"".join(plain.pieces)
