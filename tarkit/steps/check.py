"""Check shards: structure, keys, fields, contents, and whether indexes and manifest are current.

The check resumes behind damage, and reports each finding with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from tarkit.errors import DataError, TarkitError, UsageError, escaped, printable
from tarkit.names.url import display_name, one_name
from tarkit.runs.engine import required_fields
from tarkit.samples.sample import KeyRule, first_dot, key_rule
from tarkit.specs.manifest import ManifestShard, read_manifest
from tarkit.specs.outputcheck import check_other_than
from tarkit.steps.findings import CheckReport, Finding, kind_of
from tarkit.steps.repeats import Repeats
from tarkit.steps.shardcheck import CheckPlan, DecodeBatch, ShardCheck, as_findings
from tarkit.store.entries import identify
from tarkit.store.publish import open_publish

_WINDOW = 1 << 28
_LONGEST = 600.0  # seconds, for the contents of one sample
_UNLISTABLE = frozenset("\n\r\0")
"""Characters of a key that cannot be in a list of keys."""


def check_shards(
    urls: Iterable[str],
    *,
    rule: str | KeyRule = first_dot,
    require: str | None = None,
    decode: bool = False,
    repeated_contents: bool = False,
    manifest: str | None = None,
    bad_keys: str | None = None,
    parallel: int = 1,
    report: CheckReport | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Generator[Finding, None, None]:
    """Yield what is wrong with shards, in their order; keys that repeat in other shards come last.

    >>> for finding in check_shards(["train-000000.tar"], require="jpg|png,cls"):  # doctest: +SKIP
    ...     print(finding.key, finding.kind, finding.message)

    Args:
        urls: paths or URLs of the shards.
        rule: key rule: ``first-dot``, ``last-dot`` or a regular expression of two groups.
        require: fields that each sample must have, such as ``"jpg|png,cls"``.
        decode: decode the contents.
        repeated_contents: compare the largest field of each sample over all shards.
        manifest: path or URL of a manifest that must list these shards.
        bad_keys: path or URL of a list to write, of the keys of samples with an error.
        parallel: number of processes that decode.
        report: filled with counts.
        progress: called while shards are read.

    Raises:
        UsageError: an argument is not valid.
        StreamError: the list of keys cannot be written.
    """
    report = CheckReport() if report is None else report
    wanted = CheckPlan(
        key_rule(rule), required_fields(require), decode, repeated_contents, report, lambda _: progress()
    )
    if bad_keys is not None and manifest is not None:
        check_other_than([bad_keys], [manifest])
    items = _DataSet(wanted, manifest).items(urls)
    with nullcontext() if bad_keys is None else open_publish(bad_keys, compression=None) as listed:
        last = None
        for finding in _decoded(items, parallel, report) if decode else items:
            report.count(finding)
            for key in () if finding.is_warning else finding.keys:
                if _UNLISTABLE & set(key):
                    report.unlisted_keys += 1
                elif listed is not None and key != last:
                    report.bad_keys += 1
                    listed.write(key.encode("utf-8", "surrogateescape") + b"\n")
                    last = key
            yield finding


def _decoded(items: Iterator[Any], parallel: int, report: CheckReport) -> Iterator[Finding]:
    """Decode the batches among the findings, in order, in processes of their own."""
    from tarkit.mapping.parallel import ordered_map
    from tarkit.mapping.pythonpool import PythonPool
    from tarkit.mapping.scratch import Scratch

    function = "tarkit.steps.decoding:sample_problems"
    with Scratch() as scratch, PythonPool(function, scratch.path, slots=parallel, timeout=_LONGEST) as pool:
        for item in ordered_map(items, pool, window=_WINDOW):
            if isinstance(item, Finding):
                yield item
                continue
            batch, outcome = item
            if not isinstance(batch, DecodeBatch):
                continue
            outcome.printed.discard()
            if outcome.failure is not None:
                # A batch has one sample, so that no other one is lost.
                name = next(reversed(batch[0]))
                member, offset = batch.places[name]
                yield Finding(batch.shard, "crash", outcome.failure.message, batch.key, name, member, offset)
            for made in outcome.made[0] if outcome.made else ():
                for name, *problem in json.loads(made["problems"]):
                    yield from as_findings(batch.shard, batch.key, name, batch.places[name], [problem], report)


class _DataSet:
    """The checks over all shards of a data set.

    Args:
        manifest: path or URL of a manifest, or None.
    """

    def __init__(self, wanted: CheckPlan, manifest: str | None) -> None:
        self._wanted, self._manifest = wanted, manifest
        self._shards: list[str] = []
        self._keys, self._contents = Repeats(), Repeats()

    def items(self, urls: Iterable[str]) -> Iterator[Any]:
        """Yield the findings of all shards, and batches to decode."""
        listed: dict[str, ManifestShard] = {}
        if self._manifest is not None:
            try:
                listed = {one_name(shard.url): shard for shard in read_manifest(self._manifest)}
            except TarkitError as error:
                yield self._unreadable(display_name(self._manifest), error, "stale-manifest")
        absent, seen = listed.copy(), set[str]()
        for url in urls:
            name, shard = one_name(url), display_name(url)
            if name in seen:
                yield Finding(shard, "repeated-shard", "it is named twice, and checked once")
                continue
            seen.add(name)
            self._shards.append(shard)
            yield from self._checked(url, absent.pop(name, None))
            if listed and name not in listed:
                yield self._stale(shard, "does not list this shard")
        for one in absent.values():
            yield self._stale(display_name(one.url), "lists this shard, which was not named")
        yield from self._repeated()

    def _checked(self, url: str, listed: ManifestShard | None) -> Iterator[Any]:
        check, tally = (
            ShardCheck(self._wanted, url, listed is not None and bool(listed.md5sum)),
            self._wanted.report.tally,
        )
        try:
            yield from check.items()
            if listed is not None:
                yield from self._compared(check, listed)
        except UsageError:
            raise
        except TarkitError as error:
            yield self._unreadable(check.shard, error)
        tally.samples, tally.shards = tally.samples + check.samples, tally.shards + 1
        self._keys.add(len(self._shards) - 1, check.seen)
        self._contents.add(len(self._shards) - 1, check.contents)

    def _compared(self, check: ShardCheck, listed: ManifestShard) -> Iterator[Finding]:
        samples = check.samples if check.is_regular else listed.nsamples
        now = ManifestShard(listed.url, samples, identify(check.url).size, check.md5)
        names = {"nsamples": "samples", "filesize": "bytes", "md5sum": "as MD5"}
        differences = [
            f"says {was} {names[name]}, and the shard has {getattr(now, name)}"
            for name, was in listed._asdict().items()
            if was not in (None, getattr(now, name))
        ]
        if differences:
            yield self._stale(check.shard, "; ".join(differences))

    def _stale(self, shard: str, reason: str) -> Finding:
        return Finding(shard, "stale-manifest", f"the manifest {display_name(self._manifest or '')} {reason}")

    def _unreadable(self, shard: str, error: TarkitError, of_data: str | None = None) -> Finding:
        if isinstance(error, DataError):
            return Finding(shard, of_data or kind_of(error), error.reason, offset=error.offset)
        self._wanted.report.codes.add(error.exit_code)
        return Finding(shard, "unreadable", getattr(error, "reason", str(error)))

    def _repeated(self) -> Iterator[Finding]:
        for kind, repeats in (("repeated-key", self._keys), ("repeated-content", self._contents)):
            for first, other in repeats:
                reason = (
                    f"also in {escaped(self._shards[first.shard])}: key {printable(first.key)}, offset {first.offset}"
                )
                yield Finding(self._shards[other.shard], kind, reason, other.key, offset=other.offset)
