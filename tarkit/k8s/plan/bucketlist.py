"""Where in a bucket the list of a run is put, so that it does not take the place of another run's."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import UsageError, quoted
from tarkit.specs.slicedlist import SlicedList, open_list, sha256_of, write_list


def content_sha256(names: Sequence[str], counts: Sequence[int]) -> str:
    """Of the list and of how it is cut, in hex. counts: how many shards each slice has."""
    return sha256_of([*names, *map(str, counts)])


def place_of(list_url: str, content: str) -> str:
    """``list_url``; if it ends with a slash, a name in this folder that is of the content alone."""
    return f"{list_url}shards-{content[:12]}.list" if list_url.endswith("/") else list_url


def put_list(url: str, names: Sequence[str], counts: Sequence[int], outdir: str | None) -> SlicedList:
    """Write a list and its slices, as ``write_list``, unless another one is there.

    Raises:
        UsageError: one is there, which pods of another run may be reading. As ``write_list``.
    """
    there = open_list(url)
    if there is not None and (there.sha256, there.n, there.w) != (sha256_of(names), len(names), len(counts)):
        raise UsageError(
            f"--list-url {quoted(url)}: another list is there, which pods of another run may be reading; name "
            "another one, or end the URL with a slash, and the list is named after its content"
        )
    return write_list(url, names, counts, outdir=outdir)
