"""``tarkit count``: count the samples of shards, and the bytes of each field."""

from __future__ import annotations

import itertools
import json

from tarkit.errors import counted, exit_code_of_all

from ..shared.program import source_format_option
from ..shared.results import counted_names
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit count 'train-{000000..000099}.tar' -p 8
  tarkit count --json s3://bucket/train-000000.tar | jq .fields
"""


@shard_verb("count", epilog=_EPILOG, is_described=False, parallel=(4, "Number of shards to read at once."))
@source_format_option
def command(run: VerbRun, source_format: str | None, parallel: int) -> int:
    """Count samples, and bytes of content by field.

    A shard with a fresh index is counted from that. Without one, its headers are read, and large
    content is skipped: locally by seeking, from a store by a small request for each header behind
    256 KiB of content or more. Shards of smaller members, compressed shards and streams are read
    whole. A stale index is reported, and not used. With an option that selects samples or fields,
    shards are read whole, one after the other, and what it selects is counted.

    A bad shard does not stop the others: it is counted up to the error and marked, and the exit
    code is that of the error. Damage inside of skipped content is not found. With
    --json, each line is {"url", "from", "samples", "bytes", "fields": {FIELD: {"samples",
    "bytes"}}}; "from" is index, headers or whole, and a bad shard has "error". The last line has
    the total, and the number of "shards" in place of "url" and "from".

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), a folder, which stands for its files that are not hidden, or - (the default). A file
    of another format is counted by its records, which have no fields.
    """
    from tarkit.formats.registry import input_files
    from tarkit.steps.counting import ShardCount, count_shards

    total, codes, stale, done = ShardCount("total"), list[int](), list[str](), 0
    files = input_files(run.shards(), run.tally)
    first = list(itertools.islice(files, 2))
    for count in count_shards(
        itertools.chain(first, files), parallel=parallel, source_format=source_format, selection=run.chosen,
        **run.reading,
    ):  # fmt: skip
        if count.error is not None and len(first) == 1:
            raise count.error
        if not done and not run.as_json:
            run.results.line(f"{'samples':>10} {'bytes':>15}  shard")
        done += 1
        run.tally.add(count.tally)
        total.merge(count)
        stale += [count.stale] if count.stale else []
        if count.error is not None:
            codes.append(count.error.exit_code)
            run.meter.say(str(count.error))
        found = {"url": count.url, "from": count.source, **count.as_dict()}
        mark = " (bad; counted up to the error)" if count.error else ""
        row = f"{count.samples:>10} {count.sizes.total():>15}  {count.url}{mark}"
        with run.meter.hidden():
            run.results.line(
                json.dumps({**found, "error": str(count.error)} if mark else found) if run.as_json else row
            )
        if run.meter.is_due():
            so_far = f"{counted(done, 'shard')}, {counted(total.samples, 'sample')} so far"
            run.meter.show(so_far, done / run.total if run.total else None)
    if run.as_json:
        run.results.line(json.dumps({"shards": done, **total.as_dict()}))
    else:
        bad = f" ({len(codes)} of {done} shards bad)" if codes else ""
        run.results.line(f"{total.samples:>10} {total.sizes.total():>15}  total{bad}")
        for name in sorted(total.members):
            run.results.line(f"{total.members[name]:>10} {total.sizes[name]:>15}    .{name}")
    run.notes = counted_names("stale indexes that were not used", stale)
    return exit_code_of_all(codes)
