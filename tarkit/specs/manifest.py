"""The manifest of a data set: one JSON file that lists its shards, with samples, bytes and MD5 of
each.

It is the text that ``widsindex create`` writes and ``wids`` reads (PyPI ``wids`` 0.1.11,
``wids_index.py`` and ``wids_specs.py``), ``wids_version`` 1. ``docs/formats/manifest.md`` is the
specification.
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
    """A shard of a data set.

    Attributes:
        url: path or URL.
        nsamples: its samples.
        filesize: its bytes.
        md5sum: of these, in hex.
    """

    url: str
    nsamples: int
    filesize: int | None = None
    md5sum: str | None = None


def is_manifest(url: str) -> bool:
    """Whether a path or URL is that of a manifest: its name ends in ``.json``."""
    return not is_stream(url) and split_query(url)[0].endswith(_SUFFIX)


def read_manifest(url: str) -> list[ManifestShard]:
    """The shards that a manifest lists, in its order; relative names are joined to its own folder.

    Raises:
        DataError: it is not a manifest, lists no shard or one twice, or has an entry that is not
            valid; which one.
        MissingInputError, StreamError, TemporaryStreamError: it cannot be read.
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
    """An entry.

    Raises:
        ValueError: it is not valid; why.
    """
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    url, samples, size, md5sum = (entry.get(name) for name in ManifestShard._fields)
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
    """The path or URL of a shard by its name in a manifest.

    Raises:
        ValueError: it cannot be one.
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
    """Raises:
    UsageError: no manifest can be written there.
    """
    if not is_manifest(url):
        raise UsageError(f"{display_name(url)}: the name of a manifest ends in .json")
    check_target(url)


def write_manifest(url: str, shards: Iterable[ManifestShard]) -> None:
    """Write a manifest, whole or not at all.

    Shards below its folder are named from there, others by the whole path or URL.

    Raises:
        UsageError: a shard is listed twice, its name cannot be in a manifest, or has a secret; or
            the manifest's name does not end in ``.json``.
        StreamError, TemporaryStreamError: it cannot be written.
    """
    import json

    check_manifest_name(url)
    entries, seen = [], set[str]()
    for shard in shards:
        name = _name_in(url, shard.url)
        if name in seen:
            raise UsageError(f"{display_name(shard.url)} is listed twice, so it would be read twice")
        seen.add(name)
        # The order of keys is that of widsindex.
        entry = {"url": name, "md5sum": shard.md5sum, "nsamples": shard.nsamples, "filesize": shard.filesize}
        entries.append({key: value for key, value in entry.items() if value is not None})
    found = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": entries}
    with open_publish(url, compression=None) as stream:
        stream.write(json.dumps(found, indent=2).encode() + b"\n")


def _name_in(manifest: str, url: str) -> str:
    """The name of a shard in a manifest."""
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
    """Remove a manifest, if there is one."""
    with suppress(MissingInputError):
        remove(url)


def compare_manifest(url: str, shards: Iterable[ManifestShard]) -> None:
    """Hold a manifest against what was found of all its shards.

    Raises:
        DataError: they differ; in which shard, and how.
        UsageError: as :func:`write_manifest`. What :func:`read_manifest` raises.
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
