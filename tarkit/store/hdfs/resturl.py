"""Parse a webhdfs:// URL into NameNodes, user and path."""

from __future__ import annotations

import base64
import os
import urllib.parse
from typing import NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.names.redaction import redact
from tarkit.names.url import http_parts, split_query

_PORTS = {"webhdfs": 9870, "swebhdfs": 9871}
_PREFIX = "/webhdfs/v1"


class Address(NamedTuple):
    """One cluster, as one user.

    Attributes:
        bases: http://HOST:PORT of each NameNode.
        prefix: path below which the interface is.
        identity: parameters that name the user.
        authorization: value of the Authorization header for the NameNodes.
        secrets: URL with all its secrets, by which they are found in foreign texts.
        label: beginning of paths in messages.
    """

    bases: tuple[str, ...]
    prefix: str
    identity: tuple[tuple[str, str], ...]
    authorization: str | None
    secrets: str
    label: str

    def url(self, path: str, op: str, options: dict[str, str]) -> str:
        """Return path and query of a call, without the base."""
        query = urllib.parse.urlencode([("op", op), *options.items(), *self.identity])
        return f"{urllib.parse.quote(self.prefix + path)}?{query}"

    def shown(self, path: str) -> str:
        """Return a path for messages."""
        return self.label + path


def parse_address(url: str) -> tuple[Address, str]:
    """Parse ``webhdfs://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/PATH[?OPTIONS]``.

    The path is taken literally, without %XX. Options: ``delegation`` (a token), ``user.name``,
    ``doas``, ``base`` (in place of /webhdfs/v1, for proxies). Without user and token, the user is
    that of the system. swebhdfs:// is the same over https. Ports: 9870, 9871.

    Returns:
        The cluster, and the path.

    Raises:
        UsageError: there is no host, a port is not valid, a password is sent without https, or a
            token is beside a user.
    """
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    scheme = scheme.lower()
    netloc, slash, path = rest.partition("/")
    user_info, _, hosts = netloc.rpartition("@")
    shown = printable(redact(head))
    bases = tuple(_base(scheme, host, shown) for host in hosts.split(","))
    options = dict(urllib.parse.parse_qsl(query[1:], keep_blank_values=True))
    user, colon, password = (urllib.parse.unquote(part) for part in user_info.partition(":"))
    user = user or options.get("user.name", "")
    authorization = None
    identity: list[tuple[str, str]] = []
    if "delegation" in options:
        if user:
            raise UsageError(f"{shown}: a delegation token names the user; leave out the user of the URL")
        identity.append(("delegation", options["delegation"]))
    elif colon:
        if scheme == "webhdfs" and not all(_is_loopback(base) for base in bases):
            raise UsageError(f"{shown}: a password goes over https only; write swebhdfs://")
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    else:
        identity.append(("user.name", user or _system_user()))
    if "doas" in options:
        identity.append(("doas", options["doas"]))
    prefix = "/" + options.get("base", _PREFIX).strip("/")
    label = f"{scheme}://{hosts}"
    # A user name without a password is not a secret: refusals of servers include it.
    secrets = url if colon or not user_info else url.replace(f"{user_info}@", "", 1)
    return Address(bases, prefix, tuple(identity), authorization, secrets, label), slash + path or "/"


def _base(scheme: str, host: str, shown: str) -> str:
    try:
        parts = http_parts(f"http://{host}")
    except ValueError:
        raise UsageError(f"{shown}: write {scheme}://HOST:PORT/PATH") from None
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{'https' if scheme == 'swebhdfs' else 'http'}://{name}:{parts.port or _PORTS[scheme]}"


def _is_loopback(base: str) -> bool:
    host = urllib.parse.urlsplit(base).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _system_user() -> str:
    # The same as Hadoop's own client without Kerberos.
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
