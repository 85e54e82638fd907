"""Read and list files of the Hugging Face Hub at one commit.

A URL is ``hf://[datasets/|spaces/]OWNER/NAME[@REVISION]/PATH``. A branch or tag stands for a
commit, and may soon stand for another one: it is looked up once in a process, and from then on
every URL names the commit. Endpoint, token and listings are those of huggingface_hub. Bytes are
requested from the Hub by plain HTTP; for large files it redirects to a store
(https://huggingface.co/docs/hub/api).
"""

from __future__ import annotations

import functools
import http.client
import re
import urllib.parse
from collections.abc import Iterator
from email.message import Message
from typing import Any, NoReturn

from tarkit.errors import MissingInputError, StreamError, UsageError, quoted
from tarkit.extras import library
from tarkit.names.url import display_name
from tarkit.store.checksums import Checksum
from tarkit.store.http.answer import status_text
from tarkit.store.http.connection import HttpBody
from tarkit.store.http.place import HttpOrigin, open_origin, range_of_origin
from tarkit.store.objects import place
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.place import Entry, Identity, RawReader
from tarkit.store.retry import Retry

EXTRA = "hf"
CREDENTIALS = "; a private or gated repository needs HF_TOKEN, a token that may read it, or hf auth login"
_URL = re.compile(
    r"hf://(?:(datasets|spaces|models)/)?(?!(?:datasets|spaces|models|buckets|kernels)/)([^/@]+/[^/@]+)"
    r"(?:@(refs/(?:pr|convert)/[^/]+|[^/]+))?(?=/|\Z)/?(.*)",
    re.DOTALL,
)
_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile('"([0-9a-f]{64})"')
_SECONDS = 10.0


def without_retries(kind: Any) -> Any:
    """Return a class of HfFileSystem that keeps its listings, for all threads.

    A commit does not change, so its listings do not. The original has an instance for each thread,
    with a copy of all listings. Its retries of a listing stay.
    """
    kept: dict[tuple[str, str], Any] = {}

    def shared(name: str) -> property:
        return property(lambda fs: kept.setdefault((name, fs.endpoint), {}), lambda fs, value: None)

    caches = {name: shared(name) for name in ("dircache", "_repo_and_revision_exists_cache")}
    never = {"invalidate_cache": lambda fs, path=None: None, "_get_instance_state": lambda fs: {}}
    return type(kind.__name__, (kind,), {**caches, **never})


def pinned(url: str) -> str:
    """Add the commit of the revision to a URL or pattern; it is looked up once in a process.

    Raises:
        UsageError: the URL names no repository.
        MissingInputError: the repository or revision does not exist.
    """
    _, _, revision, path = _parts(url)
    if _COMMIT.fullmatch(revision):
        return url
    head = url.removesuffix(path).rstrip("/")
    return f"{head.partition('@')[0]}@{_commit(head, _endpoint(head))}/{path}"


def _parts(url: str) -> tuple[str, str, str, str]:
    """Split a URL into kind, OWNER/NAME, revision ("" for none) and path."""
    found = _URL.fullmatch(url)
    if found is None:
        raise UsageError(
            f"{quoted(url)} is not a file of a repository (buckets have no commits, and are not read); "
            "write hf://datasets/OWNER/NAME/PATH"
        )
    kind, repository, revision, path = (part or "" for part in found.groups())
    if re.search(r"[{}*?\[]", repository + revision):
        raise UsageError(f"{quoted(url)}: a pattern stands for files of one repository; name each repository")
    if {".", ".."} & {*repository.split("/"), *urllib.parse.unquote(revision).split("/"), *path.split("/")}:
        # HTTP clients and servers resolve them: "@.." would be the default branch.
        raise UsageError(f"{quoted(url)}: . and .. cannot be part of a revision or path; write the path without them")
    return kind, repository, revision, path


def _endpoint(url: str) -> str:
    return str(filesystem(url, display_name(url))[0].endpoint).rstrip("/")


@functools.cache
def _commit(url: str, endpoint: str) -> str:
    """Return the commit of a repository's URL, which has no path.

    Args:
        endpoint: URL of the Hub; it makes the cache separate for each Hub.
    """
    name = display_name(url)
    fs, _ = filesystem(url, name)
    kind, repository, revision, _ = _parts(url)

    hub = _library()
    api, errors = hub.HfApi(endpoint=endpoint, token=fs.token), hub.errors
    wanted = {"revision": urllib.parse.unquote(revision) or None, "repo_type": (kind or "models").removesuffix("s")}

    def look() -> str:
        try:
            return str(api.repo_info(repository, timeout=_SECONDS, **wanted).sha)
        except errors.RevisionNotFoundError:
            raise MissingInputError(f"the repository has no revision {quoted(revision)}", url=name) from None
        except errors.HfHubHTTPError as error:
            is_gated = isinstance(error, errors.GatedRepoError)
            is_missing = isinstance(error, errors.RepositoryNotFoundError) and not is_gated
            if is_missing or error.response.status_code in (401, 403):
                _raise_denied(is_missing, error.response.status_code, name)
            raise

    return ask(look, url=url, name=name)


def _library() -> Any:
    """Import and return huggingface_hub.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        StreamError: huggingface_hub is configured to make no requests.
    """
    hub = library("huggingface_hub", "hf://", EXTRA)
    if hub.constants.HF_HUB_OFFLINE:
        raise StreamError("hf:// cannot be read, because HF_HUB_OFFLINE is set")
    return hub


def _raise_denied(is_missing: bool, status: int, name: str) -> NoReturn:
    if is_missing:
        raise MissingInputError(f"no such repository{CREDENTIALS}", url=name) from None
    raise StreamError(f"{status_text(status)}{CREDENTIALS}", url=name) from None


def _pin_visible(url: str) -> str:
    """Pin the URL of a repository, and check that the user may see the repository.

    huggingface_hub takes a repository that the user may not see for an empty one.
    """
    url = pinned(url)
    head = url.removesuffix(_parts(url)[3]).rstrip("/")
    _commit(head, _endpoint(head))
    return url


def open_read(url: str, name: str, retry: Retry) -> RawReader:
    """Open a file to read."""
    return open_origin(HubOrigin(pinned(url), retry), retry)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read a range of a file."""
    url = pinned(url)
    return range_of_origin(lambda end: HubOrigin(url, retry, end), start, stop, size, retry)


def stat(url: str) -> Entry:
    """Return the entry of a file or folder."""
    return place.stat(_pin_visible(url))


def identify(url: str) -> Identity:
    """Return the size of a file, and a digest of its number in git, which its content determines.

    For a folder, a listing has the digests of its files.
    """
    return place.identify(_pin_visible(url))


def entries(url: str, recursive: bool) -> Iterator[Entry]:
    """Yield the entries of a folder."""
    return place.entries(_pin_visible(url), recursive)


def glob(url: str) -> list[str]:
    """Return the URLs of the files that a pattern matches, sorted."""
    return place.glob(_pin_visible(url))


class HubOrigin(HttpOrigin):
    """A file of one commit.

    Only the Hub receives the token; for a large file it sends the SHA-256 with the redirect.
    """

    def __init__(self, url: str, retry: Retry, stop: int | None = None) -> None:
        name = display_name(url)
        fs, _ = filesystem(url, name)
        self._hub = f"{_endpoint(url)}/"
        kind, repository, commit, path = _parts(url)
        prefix = f"{kind}/" if kind in ("datasets", "spaces") else ""
        super().__init__(
            f"{self._hub}{prefix}{repository}/resolve/{commit}/{urllib.parse.quote(path)}", name, retry, stop
        )
        self._own = ask(_authorization, fs.token, url=url, name=name, retry=retry)
        self._sha256: str | None = None

    def _ask(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        if not url.startswith(self._hub):
            return super()._ask(url, headers)
        response = super()._ask(url, {**headers, **self._own})
        if found := _SHA256.fullmatch(response.headers.get("X-Linked-ETag", "")):
            self._sha256 = found[1]
        return response

    def _body(self, response: http.client.HTTPResponse, offset: int) -> HttpBody:
        is_first = self._marks is None
        body = super()._body(response, offset)
        if is_first and self._sha256 is not None and self._encoding is None:
            self.checksum = Checksum("sha256", bytes.fromhex(self._sha256))
        return body

    def _raise_for_status(self, status: int, headers: Message, offset: int, via: str) -> NoReturn:
        is_missing = headers.get("X-Error-Code") == "RepoNotFound"
        if not via and (is_missing or status in (401, 403)):
            _raise_denied(is_missing, status, self.name)
        super()._raise_for_status(status, headers, offset, via)


def _authorization(token: Any) -> dict[str, str]:
    headers = _library().utils.build_hf_headers(token=token)
    return {"Authorization": headers["authorization"]} if "authorization" in headers else {}
