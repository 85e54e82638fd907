"""``tarkit index``: write a text file beside each shard, with the place of each sample."""

from __future__ import annotations

import json
from itertools import chain, islice

import click

from tarkit.errors import UsageError, counted, exit_code_of_all

from ..shared.program import dry_run_option
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit index 'train-{0000..0147}.tar' -p 4
  tarkit index s3://bucket/train-0000.tar --force
  tarkit index 'train-*.tar' --check
  tarkit index 'train-*.tar' --manifest dataset.json
  tarkit index --check --manifest dataset.json
"""
_LISTED = 10_000
"""Largest number of shards that are listed before the first is read, to know the total."""
_ERRORS = 100
"""Largest number of errors that are shown."""


@shard_verb(
    "index", epilog=_EPILOG, is_described=False, default=(), selects=False, reader=("key_rule",), only_messages=True,
    parallel=(4, "Number of shards to read at once."),
)  # fmt: skip
@click.option("-f", "--force", is_flag=True, help="Replace fresh indexes, too.")
@click.option("--check", is_flag=True, help="Compare each index with its shard, which is read; write nothing.")
@click.option(
    "--manifest", metavar="FILE.json", help="Also list the shards in this manifest; with --check, compare it."
)
@dry_run_option
@click.option("-q", "--quiet", is_flag=True, help="Print only failures: no progress, no summary.")
def command(run: VerbRun, force: bool, check: bool, manifest: str | None, dry_run: bool, parallel: int) -> int:
    """Write an index beside each shard: NAME.idx for NAME.tar.

    With an index, readers fetch only the samples they need, and count samples without reading the
    shard. Its format is that of NVIDIA DALI's wds2idx, version v1.2. A shard without a current
    index is read once and checked: damage is an error, and it gets no index. Of a shard with a
    current index, only the end is checked; --check compares everything.

    An existing index is kept if it fits its shard and is not older; a stale one is replaced. A
    shard that fails does not stop the others.

    --manifest FILE.json lists all shards in one file, in the format that wids reads: path or URL,
    number of samples, bytes and MD5; every shard is read for it. Shards below its folder have
    relative names. If a shard fails, the manifest is not written. --check compares it with its
    shards, which need not be named then.

    NAME.tar.zst and NAME.tar.gz have the index NAME.tar.zst.idx and NAME.tar.gz.idx, with the
    offsets of the unpacked tar. They are read by number through the seek table of a zst in the
    seekable format (which tarkit writes with --index), or through NAME.tar.zst.seek and
    NAME.tar.gz.seek, which is written too: the places where decompression can begin. A zst of one
    large frame, or of frames without sizes, is refused.

    If a member's name has a blank, the index has the version tarkit-v1 instead, which DALI cannot
    read.

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tar, @list.txt or dataset.json (a
    manifest).
    """
    from tarkit.names.url import display_name
    from tarkit.samples.indexing import FRESH, MADE, RENEWED, index_all
    from tarkit.specs.manifest import check_manifest_name, compare_manifest, read_manifest, write_manifest
    from tarkit.specs.shardspec import expand

    numbers = {MADE: 0, RENEWED: 0, FRESH: 0, "failed": 0}
    if manifest is not None:
        check_manifest_name(manifest)
    if not run.inputs and not (check and manifest is not None):
        raise UsageError("name the shards; with --check and --manifest, they are those of the manifest")
    if check and force:
        raise UsageError("--force makes indexes anew, and --check writes none: leave one of them out")
    if check and dry_run:
        raise UsageError("--check writes nothing: leave --dry-run out")
    codes, samples, listed = set[int](), 0, []
    urls = expand(run.inputs, allow_pipe=False)
    if not run.inputs and manifest is not None:
        urls = iter([shard.url for shard in read_manifest(manifest)])
    first = list(islice(urls, _LISTED + 1))
    total = len(first) if len(first) <= _LISTED else None
    for outcome in index_all(
        chain(first, urls), parallel=parallel, force=force, check=check, dry_run=dry_run,
        listed=manifest is not None, rule=run.reading["rule"],
    ):  # fmt: skip
        state = "failed" if outcome.error is not None else outcome.state
        numbers[state] += 1
        if run.as_json:
            error = None if outcome.error is None else str(outcome.error)
            found = {"url": display_name(outcome.url), "state": state, "samples": outcome.samples, "error": error}
            run.results.line(json.dumps(found))
        samples += outcome.samples
        listed += [] if outcome.listed is None else [outcome.listed]
        for reason, number in outcome.tally.skipped.items():
            run.tally.skip(reason, number)
        if outcome.error is not None:
            codes.add(outcome.error.exit_code)
            if numbers["failed"] <= _ERRORS or run.is_verbose:
                run.meter.say(str(outcome.error))
            elif numbers["failed"] == _ERRORS + 1:
                run.meter.say(f"more than {_ERRORS} shards failed; the others are counted, and -v shows their errors")
        if run.meter.is_due():
            done = sum(numbers.values())
            run.meter.show(f"{done} of {total or 'many'} shards so far", done / total if total else None)
    shown = [f"{word} {number}" for word, number in numbers.items() if number or not (check or word == "failed")]
    what = counted(sum(numbers.values()), "shard") + (", nothing written" if dry_run else "")
    run.notes = [f"{what}: {', '.join(shown)}", counted(samples, "sample")]
    if manifest is not None and codes:
        run.meter.say(f"{display_name(manifest)} is not {'compared' if check else 'written'}: a shard failed")
    elif manifest is not None and not dry_run:
        (compare_manifest if check else write_manifest)(manifest, listed)
    return exit_code_of_all(codes)
