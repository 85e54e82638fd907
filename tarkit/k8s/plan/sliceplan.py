"""Slices of a run's shards, one for each index of a Job, and the place of their list.

There are three forms: a pattern, of which each pod computes its part; a ConfigMap beside the Job; a
list in a bucket with the offsets of its slices beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tarkit.errors import UsageError, counted, quoted
from tarkit.k8s.indexset import INDEXES
from tarkit.k8s.plan.shardlist import LIST_SPEC, content_sha256, listed_sizes, place_of, put_list
from tarkit.names.braces import Choice
from tarkit.names.outputnames import FEW, are_distinct, plan_outputs
from tarkit.names.redaction import redact
from tarkit.names.url import scheme_of
from tarkit.specs.shardspec import expand, fixed_names, patterns_of
from tarkit.specs.slicedlist import check_name, even_counts, open_list, sha256_of, slices_by_bytes
from tarkit.store.entries import pinned

USUAL_MOST = 10_000
"""Largest number of slices, unless the user sets it."""

_MOST_READ_BY_ALL = 200_000
"""Largest number of names in a list without planned slices, since each pod reads all of them."""


@dataclass
class ShardPlan:
    """The shards of a run, and their slices.

    Attributes:
        specs: shard specs that a pod passes to tarproc.
        shards: number of shards.
        slices: number of slices, W.
        entries: lines of the list for a ConfigMap; None in the other forms.
        list_sha256: checksum by which a pod recognizes a list that can change, see ``plan_slice``.
        notes: notes for the user, a sentence each.
    """

    specs: list[str]
    shards: int
    slices: int
    entries: list[str] | None = None
    list_sha256: str | None = None
    notes: list[str] = field(default_factory=list)


def slice_count(n: int, slices: int | None = None, most: int = USUAL_MOST) -> int:
    """Return the number of slices for ``n`` shards.

    It is ``slices`` if that is given, else one for each shard, at most ``most``; never more than
    there are shards.
    """
    if n < 1:
        raise UsageError("there are no shards to cut into slices")
    # With more completions a Job cannot have maxFailedIndexes as we set it.
    if slices is not None and not 1 <= slices <= INDEXES:
        raise UsageError(f"--slices {slices}: a Job can have 1 to {INDEXES:,} of them")
    return min(n, most if slices is None else slices)


def plan_shards(
    specs: Sequence[str],
    *,
    slices: int | None = None,
    most: int = USUAL_MOST,
    list_url: str | None = None,
    outdir: str | None = None,
    allow_local: bool = False,
) -> ShardPlan:
    """Cut the shards that ``specs`` name into slices.

    Patterns stay patterns, and nothing is opened or listed for them. Globs and local lists are
    expanded now: their shards go into ``entries`` for a ConfigMap, or with ``list_url`` into a list
    in a bucket. A list at a URL stays where it is; its slices are those that were planned with it,
    if any.

    Args:
        most: largest number of slices, unless ``slices`` is given, or the list was planned with
            more.
        list_url: URL of the list; if it ends with a slash, the name in this folder is derived from
            the list.
        outdir: output folder of the run; with it, it is checked that no two shards become the same
            output.
        allow_local: tarproc will run on this machine, so names may be relative to the current
            folder.
    """
    specs = [_absolute(spec) if allow_local else spec for spec in specs]
    _refuse_streams(specs)
    specs = [*map(pinned, specs)]
    patterns = patterns_of(specs) if list_url is None else None
    if patterns is not None:
        firsts = [next(each.items(0, 1)) for each in patterns]
        _refuse_relative(firsts, allow_local)
        return _of_patterns(specs, Choice(tuple(patterns)), firsts, slices, most, outdir)
    if len(specs) == 1 and specs[0].startswith("@") and scheme_of(specs[0][1:]) and list_url is None:
        return _of_remote_list(specs[0], slices, most, outdir)
    entries, names, known = _looked_up(specs, allow_local)
    _refuse_relative(names, allow_local)
    w = slice_count(len(names), slices, most)
    if list_url is None:
        _check_outputs(names, outdir)
        return ShardPlan([LIST_SPEC], len(names), w, entries, sha256_of(names))
    return _in_bucket(list_url, names, known, w, outdir)


def _of_patterns(
    specs: list[str], patterns: Choice, firsts: list[str], slices: int | None, most: int, outdir: str | None
) -> ShardPlan:
    n = patterns.count
    plan = ShardPlan(specs, n, slice_count(n, slices, most))
    # All inputs of a pattern are in one folder then: the first of them shows whether it is that of
    # the outputs.
    is_plain = outdir is None or are_distinct(specs)
    _check_outputs(firsts if is_plain else patterns.items(0, n), outdir)
    if not is_plain and n > FEW:
        plan.notes.append(
            f"each pod looks at all {n:,} names, since the pattern alone does not show that they differ; "
            "with --list-url they are looked at once"
        )
    return plan


def _of_remote_list(spec: str, slices: int | None, most: int, outdir: str | None) -> ShardPlan:
    url = spec[1:]
    planned = open_list(url)
    if planned is not None:
        if slices is not None and slices != planned.w:
            raise UsageError(
                f"{counted(slices, 'slice')} of {quoted(url)}, which was planned in {planned.w}: leave the number out, "
                "or write the list anew with kubetpl indexed --list-url"
            )
        return ShardPlan([spec], planned.n, planned.w, list_sha256=planned.offsets_sha256)
    names = list(islice(expand(spec, allow_pipe=False), _MOST_READ_BY_ALL + 1))
    if len(names) > _MOST_READ_BY_ALL:
        raise UsageError(
            f"{quoted(url)} names more than {_MOST_READ_BY_ALL:,} shards, and each pod would read all of it; add "
            "--list-url URL, which writes a list of which a pod reads only its part"
        )
    _check_outputs(names, outdir)
    plan = ShardPlan([spec], len(names), slice_count(len(names), slices, most), list_sha256=sha256_of(names))
    plan.notes.append(f"each pod reads {redact(url)}; it must stay as it is until the run has ended")
    return plan


def _looked_up(specs: list[str], allow_local: bool) -> tuple[list[str], list[str], dict[str, int]]:
    """Return the lines of a list, the names that they stand for, and the sizes that are known.

    Patterns stay in the lines.
    """
    entries: list[str] = []
    names: list[str] = []
    known: dict[str, int] = {}
    for spec in specs:
        pattern = fixed_names(spec)
        if pattern is not None:
            entries.append(spec)
            names += pattern.items(0, pattern.count)
            continue
        found = [_absolute(name) if allow_local else name for name in expand(spec, allow_pipe=False)]
        known.update(listed_sizes(spec))
        entries += [check_name(name, "") for name in found]
        names += found
    return entries, names, known


def _in_bucket(list_url: str, names: list[str], known: dict[str, int], w: int, outdir: str | None) -> ShardPlan:
    """Write a list to a bucket, in slices of about equal bytes if all sizes are known."""
    if not scheme_of(list_url) and not list_url.startswith("/"):
        raise UsageError(
            f"--list-url {quoted(list_url)}: name a URL that the pods can read, such as s3://bucket/lists/"
        )
    counts = even_counts(len(names), w)
    sizes = [known[name] for name in names if name in known]
    if len(sizes) == len(names) and sum(sizes) > 0:
        groups = slices_by_bytes(sizes, w)
        names, counts = [names[number] for group in groups for number in group], [len(each) for each in groups]
    url = place_of(list_url, content_sha256(names, counts))
    written = put_list(url, names, counts, outdir)
    return ShardPlan([f"@{url}"], len(names), w, list_sha256=written.offsets_sha256)


def _check_outputs(names: Iterable[str], outdir: str | None) -> None:
    for _ in plan_outputs(names, outdir) if outdir is not None else ():
        pass


def _refuse_streams(specs: Sequence[str]) -> None:
    """Refuse standard input and commands, which a pod cannot read."""
    if not specs:
        raise UsageError("no shards are named: --shards 's3://bucket/raw-{000000..001281}.tar'")
    for spec in specs:
        if spec in ("-", "@-"):
            raise UsageError(f"--shards {spec}: a pod has no standard input; name paths, URLs, patterns or @LIST")
        if spec.startswith("pipe:"):
            raise UsageError(f"--shards {quoted(spec)}: a command has no shards that could be shared out; name URLs")


def _absolute(spec: str) -> str:
    """Return a local name or pattern as an absolute path; tarproc may run in any folder."""
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


def _refuse_relative(names: Sequence[str], allow_local: bool) -> None:
    for name in names if not allow_local else ():
        if not scheme_of(name) and not name.startswith("/"):
            raise UsageError(
                f"{quoted(name)} is in a folder of this machine, which a pod cannot see; name shards by URL, or by "
                "the absolute path of a volume that the pods mount"
            )
