"""``tarkit count``: count the samples of shards, and the bytes of each field."""

from __future__ import annotations

import itertools
import json
from typing import Any

import click

from tarkit.errors import counted, exit_code_of_all

from ..shared.completion import format_values
from ..shared.meter import Meter
from ..shared.program import json_option, read_options, reader_options, refuse_terminal_input, say, standard_options
from ..shared.results import Results, counted_names, exit_code_of, met
from ..shared.selection import selected, selection_of, selection_options

_NAME = "tarkit count"
_EPILOG = """\b
Examples:
  tarkit count 'train-{000000..000099}.tar' -p 8
  tarkit count --json s3://bucket/train-000000.tar | jq .fields
"""


@click.command("count", epilog=_EPILOG)
@click.argument("inputs", metavar="[SHARD]...", nargs=-1)
@click.option(
    "-p", "--parallel", type=click.IntRange(1), default=4, show_default=True, help="Number of shards to count at once."
)
@click.option(
    "--from", "source_format", metavar="FORMAT", shell_complete=format_values,
    help="Format of SHARD.  [default: by its name, else by its first bytes]",
)  # fmt: skip
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no skipped members.")
@selection_options
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], parallel: int, source_format: str | None, as_json: bool, quiet: bool, allow_pipe: bool,
    verbose: bool, **options: Any,
) -> int:  # fmt: skip
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
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    from tarkit.formats.registry import input_files
    from tarkit.formats.tally import Tally
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps.counting import ShardCount, count_shards

    tally, total, codes, stale, done = Tally(), ShardCount("total"), list[int](), list[str](), 0
    reading = read_options(options, tally)
    with Results() as results, Meter(_NAME, quiet=quiet) as meter, selection_of(options) as selection:
        shards, number = counted_shards(urls, allow_pipe_in_lists=allow_pipe)
        files = input_files(shards, tally)
        first = list(itertools.islice(files, 2))
        files = itertools.chain(first, files)
        chosen = selection if selection.selects else None
        counts = count_shards(files, parallel=parallel, source_format=source_format, selection=chosen, **reading)
        for count in counts:
            if count.error is not None and len(first) == 1:
                raise count.error
            if not done and not as_json:
                results.line(f"{'samples':>10} {'bytes':>15}  shard")
            done += 1
            tally.add(count.tally)
            total.merge(count)
            stale += [count.stale] if count.stale else []
            if count.error is not None:
                codes.append(count.error.exit_code)
                meter.say(str(count.error))
            found = {"url": count.url, "from": count.source, **count.as_dict()}
            mark = " (bad; counted up to the error)" if count.error else ""
            row = f"{count.samples:>10} {count.sizes.total():>15}  {count.url}{mark}"
            with meter.hidden():
                results.line(json.dumps({**found, "error": str(count.error)} if mark else found) if as_json else row)
            if meter.is_due():
                so_far = f"{counted(done, 'shard')}, {counted(total.samples, 'sample')} so far"
                meter.show(so_far, done / number if number else None)
        if as_json:
            results.line(json.dumps({"shards": done, **total.as_dict()}))
        else:
            bad = f" ({len(codes)} of {done} shards bad)" if codes else ""
            results.line(f"{total.samples:>10} {total.sizes.total():>15}  total{bad}")
            for name in sorted(total.members):
                results.line(f"{total.members[name]:>10} {total.sizes[name]:>15}    .{name}")
    notes = [*selected(selection), *met(tally)] if exit_code_of(tally) or not quiet else []
    notes += counted_names("stale indexes that were not used", stale)
    if notes:
        say(_NAME, "; ".join(notes))
    return exit_code_of_all(codes) or exit_code_of(tally)
