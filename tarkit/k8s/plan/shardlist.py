"""The list of a run's shards: in a ConfigMap beside its Job if it is short, else in a bucket."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarkit.errors import LocatedError, UsageError, quoted
from tarkit.k8s.podfields import main_container, mount, part
from tarkit.k8s.wellknown import INPUTS, LIST, MANAGED_BY, SHARDS, SLICES
from tarkit.specs.slicedlist import SlicedList, open_list, sha256_of, write_list
from tarkit.store.entries import entries

MOUNT_PATH = "/etc/tarkit"
"""Folder where the Job mounts the ConfigMap."""

FILE_NAME = "shards.gz"

LIST_SPEC = f"@{MOUNT_PATH}/{FILE_NAME}"
"""Shard spec that a pod passes to tarproc."""

_NO_SPEC = ("#", "@", "pipe:", "\ufeff")
MOST_BYTES = 200 * 1024
"""Largest size of the ConfigMap as JSON. ``kubectl apply`` keeps a copy of a manifest in an
annotation; all annotations together are limited to 256 KiB.
"""


def list_text(specs: Iterable[str]) -> bytes:
    """Return the content of the list before compression: one spec a line."""
    lines = []
    for spec in specs:
        if not spec or spec != spec.strip() or set(spec) & set("\n\r") or spec.startswith(_NO_SPEC):
            raise UsageError(f"{quoted(spec)} cannot stand in a list of shards; give it another name")
        lines.append(spec.encode("utf-8", "surrogateescape") + b"\n")
    return b"".join(lines)


def name_end(text: bytes) -> str:
    """Return the end of the name of a ConfigMap with this list: a checksum of its content."""
    return f"-shards-{hashlib.sha256(text).hexdigest()[:8]}"


def list_config_map(
    name: str, specs: Iterable[str], namespace: str | None, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return an immutable ConfigMap with the list, named after the run and the list's content.

    The same specs give the same manifest: the compressed list has no time and no name in it.
    """
    text = list_text(specs)
    # 31: a gzip header, with time 0, and trailer.
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compressor.compress(text) + compressor.flush()
    metadata: dict[str, Any] = {"name": name + name_end(text)}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    content = {FILE_NAME: base64.b64encode(packed).decode("ascii")}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "binaryData": content}
    count = text.count(b"\n")
    size = len(json.dumps(made, separators=(",", ":")))
    if size > MOST_BYTES:
        raise UsageError(
            f"the list of {count} shards takes {size} bytes of a ConfigMap, and kubectl apply takes "
            f"{MOST_BYTES}; put it into a bucket with --list-url s3://BUCKET/FOLDER/, or name the shards by a pattern"
        )
    return made


def give_inputs(
    job: dict[str, Any], shards: int, slices: int, specs: Sequence[str], lines: Iterable[str] | None,
    labels: Mapping[str, str],
) -> list[dict[str, Any]]:  # fmt: skip
    """Record a Job's inputs in its annotations, so that the shards of an index are known later.

    Args:
        lines: lines of a list that the Job mounts; the ConfigMap with this list and these labels is
            returned. None if the Job has no such list.
    """
    metadata, pod = part(job, "metadata"), part(job, "spec", "template", "spec")
    notes = part(metadata, "annotations")
    notes[SHARDS], notes[SLICES], notes[INPUTS] = str(shards), str(slices), json.dumps(specs, ensure_ascii=False)
    if lines is None:
        return []
    every = {MANAGED_BY: "kubetpl", **labels}
    made = list_config_map(str(metadata.get("name")), lines, metadata.get("namespace"), every)
    notes[LIST] = made["metadata"]["name"]
    mount(pod, main_container(pod), "shards", {"configMap": {"name": notes[LIST]}}, MOUNT_PATH)
    return [made]


def content_sha256(names: Sequence[str], counts: Sequence[int]) -> str:
    """Return the SHA-256 of a list and its slices, in hex.

    Args:
        counts: number of shards in each slice.
    """
    return sha256_of([*names, *map(str, counts)])


def place_of(list_url: str, content: str) -> str:
    """Return ``list_url``; if it ends with a slash, a name in that folder from the content."""
    return f"{list_url}shards-{content[:12]}.list" if list_url.endswith("/") else list_url


def put_list(url: str, names: Sequence[str], counts: Sequence[int], outdir: str | None) -> SlicedList:
    """Write a list and its slices; refuse to replace a different one."""
    there = open_list(url)
    if there is not None and (there.sha256, there.n, there.w) != (sha256_of(names), len(names), len(counts)):
        raise UsageError(
            f"--list-url {quoted(url)}: another list is there, which pods of another run may be reading; name "
            "another one, or end the URL with a slash, and the list is named after its content"
        )
    return write_list(url, names, counts, outdir=outdir)


def listed_sizes(spec: str) -> dict[str, int]:
    """Return the sizes of a glob's files, such as ``s3://bucket/raw/*.tar``, from one listing.

    The result is empty for every other spec, and if the folder cannot be listed.
    """
    folder, _, last = spec.rpartition("/")
    if not re.search(r"[*?\[]", last) or not folder or re.search(r"[*?\[{}]", folder):
        return {}
    if spec.lower().startswith(("@", "http://", "https://")):
        return {}
    try:
        # A listing may write the folder in another way; what counts is how the shards are named.
        return {f"{folder}/{entry.name}": entry.size for entry in entries(folder) if entry.size is not None}
    except (LocatedError, UsageError):
        return {}
