"""Read and write the manifest of a data set, a JSON file that lists its shards.

For each shard it has the number of samples, the size in bytes and the MD5. The text is what
``widsindex create`` writes and ``wids`` reads (PyPI ``wids`` 0.1.11, ``wids_index.py`` and
``wids_specs.py``), ``wids_version`` 1. ``docs/formats/manifest.md`` is the specification.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeGuard

from tarkit.errors import DataError, MissingInputError, UsageError, counted, printable, shortened
from tarkit.names.redaction import secrets_in
from tarkit.names.url import display_name, is_stream, is_url, local_path, split_query
from tarkit.store.entries import remove
from tarkit.store.publish import check_target, open_publish
from tarkit.store.read import read_whole

_SUFFIX = ".json"
_MD5 = re.compile(r"[0-9a-f]{32}")
_AGAIN = "tarkit index --manifest writes it from the shards"


class ManifestShard(NamedTuple):
    """One shard of a data set, as its manifest lists it.

    Attributes:
        url: path or URL.
        nsamples: number of samples.
        filesize: size in bytes; None if it is not known.
        md5sum: MD5 of the file in hex; None if it is not known.
    """

    url: str
    nsamples: int
    filesize: int | None = None
    md5sum: str | None = None


def is_manifest(url: str) -> bool:
    """Return True if a path or URL has the name of a manifest: it ends in ``.json``."""
    return not is_stream(url) and split_query(url)[0].endswith(_SUFFIX)


def read_manifest(url: str) -> list[ManifestShard]:
    """Read the shards that a manifest lists, in its order.

    Relative names are joined to the folder of the manifest.

    Args:
        url: path or URL of the manifest.

    Raises:
        DataError: the file is not a manifest, lists no shard, lists a shard twice, or has an entry
            that is not valid, which the message names.
        MissingInputError: the manifest does not exist.
        StreamError: the manifest cannot be read.
        TemporaryStreamError: the manifest cannot be read now.
    """
    import json

    shown = display_name(url)
    try:
        found = json.loads(read_whole(url, compression=None))
    except (ValueError, RecursionError) as error:
        raise DataError(f"it is not JSON: {shortened(str(error))}", url=shown, hint=_AGAIN) from None
    if not isinstance(found, dict) or type(found.get("wids_version")) is not int or found["wids_version"] != 1:
        raise DataError("it is not an object with wids_version 1, as a data set's manifest is", url=shown, hint=_AGAIN)
    if found.get("datasets"):
        hint = "read the manifest of each, or make one of all shards: tarkit index --manifest"
        raise DataError("it has other data sets (datasets), which are not read", url=shown, hint=hint)
    entries = found.get("shardlist")
    if not isinstance(entries, list) or not entries:
        raise DataError("its shardlist is not a list of shards, or is empty", url=shown, hint=_AGAIN)
    shards, seen = [], set[str]()
    for number, entry in enumerate(entries):
        try:
            shard = _shard(url, entry)
            path = local_path(shard.url)
            one = shard.url if path is None else os.path.normpath(path)
            if one in seen:
                raise ValueError("the shard is in it already")
        except ValueError as error:
            raise DataError(f"entry {number} of its shardlist: {error}", url=shown, hint=_AGAIN) from None
        seen.add(one)
        shards.append(shard)
    return shards


def _shard(manifest: str, entry: Any) -> ManifestShard:
    """Check and return an entry of a manifest.

    Raises:
        ValueError: the entry is not valid; the message says why.
    """
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    url, samples, size, md5sum = map(entry.get, ManifestShard._fields)
    if not isinstance(url, str) or not url:
        raise ValueError("url is not a text")
    if not _is_number(samples):
        raise ValueError(f"nsamples is {_shown(samples)}, which is not a number of samples")
    if size is not None and not _is_number(size):
        raise ValueError(f"filesize is {_shown(size)}, which is not a number of bytes")
    if md5sum is not None and not (isinstance(md5sum, str) and _MD5.fullmatch(md5sum)):
        raise ValueError(f"md5sum is {_shown(md5sum)}, which is not an MD5 in hex")
    return ManifestShard(_joined(manifest, url), samples, size, md5sum)


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _shown(value: Any) -> str:
    return printable(repr(value))


def _joined(manifest: str, name: str) -> str:
    """Return the path or URL of a shard from its name in a manifest.

    Raises:
        ValueError: the name is not valid.
    """
    if is_stream(name) or "\0" in name:
        raise ValueError(f"{printable(display_name(name))!r} is not the name of a shard")
    if is_url(name):
        return name
    path = local_path(manifest)
    if path is not None:
        return os.path.join(os.path.dirname(path), name.removeprefix("./"))
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{printable(name)!r} is not below the folder of the manifest; it must be a whole URL")
    head, query = split_query(manifest)
    return f"{head.rpartition('/')[0]}/{name.removeprefix('./')}{query}"


def check_manifest_name(url: str) -> None:
    """Check that a manifest can be written under a name.

    Raises:
        UsageError: the name does not end in ``.json``, or nothing can be published there.
    """
    if not is_manifest(url):
        raise UsageError(f"{display_name(url)}: the name of a manifest ends in .json")
    check_target(url)


def write_manifest(url: str, shards: Iterable[ManifestShard]) -> None:
    """Write a manifest, whole or not at all.

    Shards below its folder are named from there, all others by the whole path or URL.

    Args:
        url: path or URL of the manifest.
        shards: the shards of the data set, in order.

    Raises:
        UsageError: a shard is listed twice, its name cannot be in a manifest, or has a secret; or
            the manifest's name does not end in ``.json``.
        StreamError: the manifest cannot be written.
        TemporaryStreamError: the manifest cannot be written now.
    """
    import json

    check_manifest_name(url)
    entries, seen = [], set[str]()
    for shard in shards:
        name = _name_in(url, shard.url)
        if name in seen:
            raise UsageError(f"{display_name(shard.url)} is listed twice, so it would be read twice")
        seen.add(name)
        # widsindex writes the keys in this order.
        entry = {"url": name, "md5sum": shard.md5sum, "nsamples": shard.nsamples, "filesize": shard.filesize}
        entries.append({key: value for key, value in entry.items() if value is not None})
    found = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": entries}
    with open_publish(url, compression=None) as stream:
        stream.write(json.dumps(found, indent=2).encode() + b"\n")


def _name_in(manifest: str, url: str) -> str:
    """Return the name of a shard in a manifest."""
    path, base = local_path(url), local_path(manifest)
    if is_stream(url) or (path is not None and base is None):
        raise UsageError(f"{display_name(url)} cannot be found from {display_name(manifest)}; write that beside it")
    if path is not None and base is not None:
        name, folder = os.path.abspath(path), os.path.dirname(os.path.abspath(base))
    else:
        (name, query), (head, common) = split_query(url), split_query(manifest)
        folder = head.rpartition("/")[0]
        if query != common:
            name += query
    below = f"{folder.rstrip('/')}/"
    if name.startswith(below):
        name = name.removeprefix(below)
        # Before a colon, readers of URLs take a name for a scheme.
        name = f"./{name}" if ":" in name.partition("/")[0] else name
    elif path is None:
        name = url
    if secrets_in(name):
        reason = "its URL has a user, password or query, which a manifest must not hold"
        raise UsageError(f"{display_name(url)}: {reason}; write the manifest into the folder of its shards")
    return name


def remove_manifest(url: str) -> None:
    """Remove a manifest, if it exists."""
    with suppress(MissingInputError):
        remove(url)


def compare_manifest(url: str, shards: Iterable[ManifestShard]) -> None:
    """Compare a manifest with all shards of the data set as they are now.

    Args:
        url: path or URL of the manifest.
        shards: the shards as they were found.

    Raises:
        DataError: they differ (the message says in which shard and how), or the manifest is not
            valid.
        UsageError: a shard is listed twice, or its name cannot be in a manifest.
        MissingInputError: the manifest does not exist.
        StreamError: the manifest cannot be read.
        TemporaryStreamError: the manifest cannot be read now.
    """
    listed = {_name_in(url, shard.url): shard for shard in read_manifest(url)}
    found = {_name_in(url, shard.url): shard for shard in shards}
    for names, what in ((found.keys() - listed, "it does not list"), (listed.keys() - found, "it also lists")):
        if names:
            first = display_name(min(names))
            raise DataError(f"{what} {counted(len(names), 'shard')}: {first}", url=display_name(url), hint=_AGAIN)
    for name, shard in listed.items():
        for field, is_now in found[name]._asdict().items():
            was = getattr(shard, field)
            if field != "url" and was not in (None, is_now):
                raise DataError(
                    f"{field} of {display_name(name)} is {was}, and it has {is_now}", url=display_name(url), hint=_AGAIN
                )
