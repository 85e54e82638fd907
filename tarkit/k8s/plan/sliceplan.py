"""How the shards of a run are cut into slices, one for each index of a Job, and where their list is kept.

Three forms: a pattern, of which each pod computes its part; a ConfigMap beside the Job; a list in a bucket
with the offsets of its slices beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from tarkit.errors import LocatedError, UsageError, quoted
from tarkit.k8s.limits import INDEXES
from tarkit.k8s.plan.bucketlist import content_sha256, place_of, put_list
from tarkit.k8s.plan.estimate import Bytes, bytes_of, sizes_of, spread
from tarkit.k8s.plan.listing import listed_sizes
from tarkit.k8s.plan.podspecs import absolute, refuse_relative, refuse_streams
from tarkit.k8s.plan.shardlist import LIST_SPEC, list_text
from tarkit.k8s.plan.slicecount import slice_count
from tarkit.redaction import redact
from tarkit.specs.braces import Choice, Product
from tarkit.specs.inputslice import FEW, are_distinct, patterns_of
from tarkit.specs.outputnames import plan_outputs
from tarkit.specs.shardspec import expand, fixed_names
from tarkit.specs.slicedlist import check_name, even_counts, open_list, sha256_of, slices_by_bytes
from tarkit.store.url import scheme_of

_MOST_READ_BY_ALL = 200_000
"""Names in a list without planned slices, all of which each pod reads."""

_SAMPLE = 20

Sizes = Literal["none", "sample", "all"]


@dataclass
class ShardPlan:
    """What a run is about.

    specs: as a pod gives them to tarproc. shards: how many. slices: how many, W. source: where the list is.
    entries: the lines of the list that goes into a ConfigMap; None in the other forms. total_bytes: of all shards;
    None: not known. sampled: of how many shards ``total_bytes`` was told from; 0: of all. sha256: of all that decides
    what slice i is. list_sha256: by which a pod knows a list that can change, see ``plan_slice``. notes: what people
    should know, a sentence each.
    """

    specs: list[str]
    shards: int
    slices: int
    source: Literal["pattern", "config map", "bucket list"]
    sha256: str
    entries: list[str] | None = None
    total_bytes: int | None = None
    sampled: int = 0
    list_sha256: str | None = None
    notes: list[str] = field(default_factory=list)
    first_from: Callable[[int], str] = field(default=lambda number: "", repr=False, compare=False)
    """The name of the shard with a number; those of a plan are in the order of its list."""

    def sample(self, count: int) -> list[str]:
        """``count`` shards, evenly spread over all of them."""
        return [self.first_from(number) for number in spread(self.shards, count)]


def plan_shards(
    specs: Sequence[str],
    *,
    parallelism: int,
    slices: int | None = None,
    shard_seconds: float | None = None,
    slice_target: float = 600.0,
    list_url: str | None = None,
    outdir: str | None = None,
    allow_local: bool = False,
    sizes: Sizes = "none",
    publish: bool = True,
) -> ShardPlan:
    """Cut the shards that ``specs`` name into slices.

    Patterns stay patterns, and nothing is opened or listed for them. Globs and local lists are looked up now: what
    they name goes into ``entries`` for a ConfigMap, or with ``list_url`` into a list in a bucket. A list at a
    URL stays where it is; its slices are those that were planned with it, if any were.

    Args:
        shard_seconds: the work in one shard, to cut by ``slice_target`` (seconds).
        list_url: of the list; if it ends with a slash, the list gets a name of its own in this folder.
        outdir: of the run; with it, that no two shards become the same output is checked.
        allow_local: tarproc will run on this machine, so names may be relative to the current folder.
        sizes: whether stores are asked for the sizes of the shards: of none, of a sample of 20, or of all.
        publish: whether the list is really written to ``list_url``.

    Raises:
        UsageError: a spec that a pod cannot read; two shards with one output; too many shards for this form.
        MissingInputError, StreamError, TemporaryStreamError: as ``tarkit.specs.shardspec.expand``.
    """
    specs = [absolute(spec) if allow_local else spec for spec in specs]
    refuse_streams(specs)

    def cut(n: int) -> int:
        work = None if shard_seconds is None else shard_seconds * n
        return slice_count(n, parallelism, work, slice_target, slices=slices)

    patterns = patterns_of(specs)
    if patterns is not None and list_url is None:
        plan = _of_patterns(specs, Choice(tuple(patterns)), cut, outdir)
    elif len(specs) == 1 and specs[0].startswith("@") and scheme_of(specs[0][1:]) and list_url is None:
        plan = _of_remote_list(specs[0], slices, cut, outdir)
    else:
        return _of_listed(specs, cut, list_url, outdir, allow_local, sizes, publish)
    if not allow_local:
        refuse_relative([plan.first_from(0)] if patterns is None else [next(each.items(0, 1)) for each in patterns])
    _add_bytes(plan, plan.shards, sizes)
    return plan


def _of_patterns(specs: list[str], patterns: Choice, cut: Callable[[int], int], outdir: str | None) -> ShardPlan:
    n = patterns.count
    plan = ShardPlan(specs, n, cut(n), "pattern", "")
    plan.first_from = lambda number: next(patterns.items(number, number + 1))
    if outdir is not None and not (n > FEW and are_distinct(specs)):
        for _ in plan_outputs(patterns.items(0, n), outdir):
            pass
        if n > FEW:
            plan.notes.append(
                f"each pod looks at all {n:,} names, since the pattern alone does not show that they differ; "
                "with --list-url they are looked at once"
            )
    plan.sha256 = _digest(plan, None)
    return plan


def _of_remote_list(spec: str, slices: int | None, cut: Callable[[int], int], outdir: str | None) -> ShardPlan:
    url = spec[1:]
    planned = open_list(url)
    if planned is not None:
        if slices is not None and slices != planned.w:
            raise UsageError(
                f"--slices {slices}: {quoted(url)} was planned in {planned.w} slices; leave --slices out, or write "
                "the list anew with --list-url"
            )
        if planned.w > INDEXES:
            raise UsageError(
                f"{quoted(url)} was planned in {planned.w:,} slices, and a Job can have {INDEXES:,}; write it anew "
                "with --list-url"
            )
        plan = ShardPlan([spec], planned.n, planned.w, "bucket list", "")
        if planned.n > _MOST_READ_BY_ALL:
            plan.first_from = planned.near
        else:
            plan.first_from = _Lazily(spec)
        plan.list_sha256 = planned.offsets_sha256
        plan.sha256 = _digest(plan, planned.sha256)
        return plan
    names = list(islice(expand(spec, allow_pipe=False), _MOST_READ_BY_ALL + 1))
    if len(names) > _MOST_READ_BY_ALL:
        raise UsageError(
            f"{quoted(url)} names more than {_MOST_READ_BY_ALL:,} shards, and each pod would read all of it; add "
            "--list-url URL, which writes a list of which a pod reads only its part"
        )
    for _ in plan_outputs(names, outdir) if outdir is not None else ():
        pass
    plan = ShardPlan([spec], len(names), cut(len(names)), "bucket list", "")
    plan.notes.append(f"each pod reads {redact(url)}; it must stay as it is until the run has ended")
    plan.first_from = names.__getitem__
    plan.list_sha256 = sha256_of(names)
    plan.sha256 = _digest(plan, plan.list_sha256)
    return plan


class _Lazily:
    """The names of a list, which is read when the first of them is asked for."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._names: list[str] | None = None

    def __call__(self, number: int) -> str:
        if self._names is None:
            self._names = list(expand(self._spec, allow_pipe=False))
        return self._names[number]


def _of_listed(
    specs: list[str],
    cut: Callable[[int], int],
    list_url: str | None,
    outdir: str | None,
    allow_local: bool,
    sizes: Sizes,
    publish: bool,
) -> ShardPlan:
    """Look up what is not a pattern, and plan a list of it: in a ConfigMap, or with ``list_url`` in a bucket."""
    entries: list[str] = []
    found: list[Product] = []
    known: dict[str, int] = {}
    for spec in specs:
        pattern = fixed_names(spec)
        if pattern is None:
            names = list(expand(spec, allow_pipe=False))
            if allow_local:
                names = [absolute(name) for name in names]
            known.update(listed_sizes(spec))
            pattern = Product((Choice(tuple(names)),))
            entries += [check_name(name, "") for name in names]
        else:
            names = [next(pattern.items(0, 1))]
            entries.append(spec)
        if not allow_local:
            refuse_relative(names)
        found.append(pattern)
    together = Choice(tuple(found))
    n = together.count
    plan = ShardPlan([LIST_SPEC], n, cut(n), "config map", "", entries)
    if list_url is not None:
        names = list(together.items(0, n))
        all_sizes = _sizes_of(names, known, sizes)
        _put_into_bucket(plan, names, all_sizes, list_url, outdir, publish)
        if all_sizes is not None:
            plan.total_bytes = sum(all_sizes)
            return plan
    else:
        if outdir is not None:
            for _ in plan_outputs(together.items(0, n), outdir):
                pass
        plan.first_from = lambda number: next(together.items(number, number + 1))
        plan.sha256 = _digest(plan, hashlib.sha256(list_text(entries)).hexdigest())
        if n <= _MOST_READ_BY_ALL:
            plan.list_sha256 = sha256_of(together.items(0, n))
    if len(known) >= n and (each := _sizes_of(list(together.items(0, n)), known, "none")) is not None:
        plan.total_bytes = sum(each)
    else:
        _add_bytes(plan, n, sizes)
    return plan


def _sizes_of(names: Sequence[str], known: dict[str, int], sizes: Sizes) -> list[int] | None:
    """The size of each shard; None if there is one whose size is not known, or not asked for."""
    unknown = [name for name in names if name not in known]
    if unknown and sizes != "all":
        return None
    for name, size in zip(unknown, sizes_of(unknown), strict=True):
        if size is None:
            return None
        known[name] = size
    return [known[name] for name in names]


def _put_into_bucket(
    plan: ShardPlan,
    names: list[str],
    sizes: list[int] | None,
    list_url: str,
    outdir: str | None,
    publish: bool,
) -> None:
    """The list, with slices of about the same number of bytes if the sizes are known."""
    if not scheme_of(list_url) and not list_url.startswith("/"):
        raise UsageError(
            f"--list-url {quoted(list_url)}: name a URL that the pods can read, such as s3://bucket/lists/"
        )
    if sizes is not None and sum(sizes) > 0:
        groups = slices_by_bytes(sizes, plan.slices)
        names = [names[number] for group in groups for number in group]
        counts = [len(group) for group in groups]
    else:
        counts = even_counts(len(names), plan.slices)
    content = content_sha256(names, counts)
    url = place_of(list_url, content)
    if publish:
        plan.list_sha256 = put_list(url, names, counts, outdir).offsets_sha256
    else:
        for name in names:
            check_name(name, url)
        for _ in plan_outputs(names, outdir) if outdir is not None else ():
            pass
    plan.specs, plan.source, plan.entries = [f"@{url}"], "bucket list", None
    plan.first_from = names.__getitem__
    plan.sha256 = _digest(plan, content)


def _add_bytes(plan: ShardPlan, n: int, sizes: Sizes) -> None:
    if sizes == "none":
        return
    # Of a list so long that names are found by their place in it, all cannot be had one by one.
    wanted = n if sizes == "all" and (plan.source == "pattern" or n <= _MOST_READ_BY_ALL) else min(n, _SAMPLE)
    try:
        found = bytes_of(plan.sample(wanted), of=n)
    except LocatedError as error:
        plan.notes.append(f"the sizes are not known: {error}")
        found = Bytes(None)
    plan.total_bytes, plan.sampled = found.total, found.sampled


def _digest(plan: ShardPlan, list_sha256: str | None) -> str:
    """Of what decides which shards slice i has."""
    decisive = {"format": 1, "specs": plan.specs, "shards": plan.shards, "slices": plan.slices, "list": list_sha256}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
