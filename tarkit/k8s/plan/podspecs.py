"""Shard specs as a pod can read them: what a pod has not, such as standard input, is refused; or written out."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tarkit.errors import UsageError, quoted
from tarkit.store.url import scheme_of


def refuse_streams(specs: Sequence[str]) -> None:
    """Refuse what only this process could read.

    Raises:
        UsageError: standard input, a command, or nothing at all.
    """
    if not specs:
        raise UsageError("no shards are named: --shards 's3://bucket/raw-{000000..001281}.tar'")
    for spec in specs:
        if spec in ("-", "@-"):
            raise UsageError(f"--shards {spec}: a pod has no standard input; name paths, URLs, patterns or @LIST")
        if spec.startswith("pipe:"):
            raise UsageError(f"--shards {quoted(spec)}: a command has no shards that could be shared out; name URLs")


def absolute(spec: str) -> str:
    """A local name or pattern, as it is found from whatever folder tarproc will run in.

    Raises:
        UsageError: the name of the current folder would be taken for a pattern.
    """
    mark = "@" if spec.startswith("@") else ""
    name = spec.removeprefix(mark)
    if scheme_of(name) or name.startswith("/") or name in ("", "-"):
        return spec
    folder = os.getcwd()
    if set(folder) & set("{}*?[]\\"):
        raise UsageError(
            f"{quoted(spec)}: the name of the current folder has braces or wildcards; name shards by absolute paths"
        )
    return f"{mark}{folder}/{name}"


def refuse_relative(names: Sequence[str]) -> None:
    """Refuse names that are relative to the current folder.

    Raises:
        UsageError: one of them is.
    """
    for name in names:
        if not scheme_of(name) and not name.startswith("/"):
            raise UsageError(
                f"{quoted(name)} is in a folder of this machine, which a pod cannot see; name shards by URL, or by "
                "the absolute path of a volume that the pods mount"
            )
