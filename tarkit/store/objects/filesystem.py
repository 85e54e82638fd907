"""Get the fsspec file system of a URL, call it, and convert its errors.

Storage libraries raise many kinds of errors, with URLs in them; here they become those of this
package, and lose their secrets. The libraries' own retries are switched off: one
:class:`~tarkit.store.retry.Patience` retries for all of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tarkit.errors import MissingInputError, StreamError, TarkitError, TemporaryStreamError, UsageError, printable
from tarkit.extras import MissingExtraError
from tarkit.names.url import is_chain
from tarkit.store import waits
from tarkit.store.faults import code_of, is_answered, is_temporary, lacks_credentials
from tarkit.store.foreign import without_secrets
from tarkit.store.registry import PLACES, module_of
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry

T = TypeVar("T")
# Does not match the @ in a URL of Azure, CONTAINER@ACCOUNT, nor the colons of an ARN.
_CREDENTIALS = re.compile(
    r"(?:^|::)(?:(?=s3a?:|gc?s:)|(?=az:|abfss?:)(?=\w+://[^/@]*:))(\w+)://(?!arn:)[^/]*[@:]", re.I
)


_UNQUOTED = re.compile(r"[\w+.-]+://(?!arn:)[^/?#@]*:(?!\d*[/?#])[^/?#@]*[/?#].*@", re.DOTALL)


def filesystem(url: str, name: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it.

    Raises:
        UsageError: the protocol is not known.
        MissingExtraError: its library is not installed.
    """
    import fsspec

    place = module_of(url)
    protocol = url.split(":", 1)[0]
    if found := _CREDENTIALS.search(url):
        raise UsageError(
            f"{printable(name)}: {found[1].lower()}:// takes no user or password in its URL; they come from the "
            "store's own configuration or environment"
        )
    if _UNQUOTED.match(url):
        # Libraries would quote a part of the password in their error about the port.
        raise UsageError(f"{printable(name)} is not a URL: write / ? # in a user or password as %2F %3F %23")
    try:
        if is_chain(url):
            # Chains (simplecache::s3://…) keep the retries of their libraries.
            fs, path = fsspec.core.url_to_fs(url, **_link_settings(url, fsspec.config.conf))
        else:
            fs, path = _without_retries(place, fsspec.get_filesystem_class(protocol), url)
        return fs, path
    except ImportError as error:
        if hasattr(place, "EXTRA"):
            raise MissingExtraError(f"{protocol}://", place.EXTRA) from None
        # The message of fsspec has the package, in quotes, or written like the missing module.
        sentence, module = str(error).rstrip("."), str(getattr(error.__cause__, "name", None))
        package = re.search(r'"([\w.-]+)"', sentence) or re.search(re.sub("[_-]", "[_-]", module), sentence, re.I)
        how = f"; pip install {package[package.re.groups]}" if package else ""
        raise UsageError(f"{protocol}:// needs a library that is not installed: {sentence}{how}") from None
    except Exception as error:
        if isinstance(error, ValueError) and "not known" in str(error):
            raise UsageError(f"{printable(name)}: {_unknown_scheme(str(error).rpartition(' ')[2])}") from None
        raise_foreign(error, url, name, None)


def _link_settings(url: str, configured: dict[str, Any]) -> dict[str, Any]:
    """Return settings that keep the libraries of a chain's links from following redirects.

    Only some libraries have such settings.
    """
    settings = {}
    for link in url.split("::"):
        scheme = link.partition("://")[0]
        if "://" in link and hasattr(place := module_of(link), "without_redirects"):
            settings[scheme] = place.without_redirects(configured.get(scheme, {}))
    return settings


def _without_retries(place: Any, kind: Any, url: str) -> tuple[Any, str]:
    settings = kind._get_kwargs_from_urls(url)
    once, path = _kind_without_retries(place, kind), str(kind._strip_protocol(url))
    if once is kind:
        return kind(**settings), path
    # The credentials may come over a network.
    fs, theirs = waits.call(lambda: (once(**settings), kind(**settings)))
    # Outputs published here must be in the listings of other users of the file system.
    fs.dircache = theirs.dircache
    return fs, path


@functools.cache
def _kind_without_retries(place: Any, kind: Any) -> Any:
    """Return a class of file system without its own retries, if its place can make one.

    It is a separate class, because fsspec shares file systems with all other code of this process.
    """
    return place.without_retries(kind) if hasattr(place, "without_retries") else kind


def ask(
    function: Callable[..., T], *arguments: Any, url: str, name: str, retry: Retry = DEFAULT_RETRY, seconds: float = 0.0
) -> T:
    """Call a storage library, with retries; see :meth:`tarkit.store.retry.Patience.call`.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the store refused the call.
        GivenUpError: all attempts failed.
    """
    return Patience(retry, name).call(lambda: translated(url, name, function, *arguments), seconds=seconds)


def translated(url: str, name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a storage library once, and convert its errors.

    Raises:
        Dropped: a retry may help.
        MissingInputError: the file does not exist.
        StreamError: the store refused the call.
    """
    try:
        return function(*arguments)
    except (TarkitError, Dropped):
        raise
    except Exception as error:
        raise_dropped(error, url, name, None)


def raise_dropped(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """Raise Dropped, if a retry may help, or else the error of this package."""
    if isinstance(error, Dropped):
        raise error
    if is_temporary(error):
        raise Dropped(_message(error, url), answered=is_answered(error)) from None
    raise_foreign(error, url, name, offset)


def _unknown_scheme(scheme: str) -> str:
    import difflib

    import fsspec

    near = difflib.get_close_matches(scheme, sorted({*fsspec.available_protocols(), *PLACES} - {"", "pipe"}), 1, 0.5)
    question = f" did you mean {near[0]}?" if near else ""
    return (
        f"unknown scheme {printable(scheme)!r};{question} a scheme is added by the Python package that registers it "
        "with fsspec"
    )


def _message(error: Exception, url: str) -> str:
    said = without_secrets(str(error), url)
    if isinstance(error, KeyError):
        return f"the store's answer has no {said}"
    if code := printable(code_of(error)):
        # The number was invented by s3fs.
        said = re.sub(r"^\[Errno \d+\] ", "", said)
        return said if code in said else f"{code}: {said}"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def raise_foreign(error: Exception, url: str, name: str, offset: int | None) -> NoReturn:
    """Raise the error of this package for one of a storage library, without its secrets."""
    if isinstance(error, FileNotFoundError):
        code = printable(code_of(error))
        reason = f"no such file ({code})" if code not in ("", "NoSuchKey") else "no such file"
        raise MissingInputError(reason, url=name, offset=offset) from None
    advice = getattr(module_of(url), "CREDENTIALS", "") if lacks_credentials(error) else ""
    kind = TemporaryStreamError if is_temporary(error) else StreamError
    raise kind(_message(error, url) + advice, url=name, offset=offset) from None
