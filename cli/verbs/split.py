"""``tarkit split``: write samples to a numbered series of shards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tarkit.errors import UsageError

from ..shared.program import reject_options
from ..shared.series import shard_count_option, shards_options
from ..shared.shardverb import VerbRun, shard_verb

if TYPE_CHECKING:
    from tarkit.samples.sample import Sample
    from tarkit.steps.shardsoutput import ShardsOutput

_EPILOG = """\b
Examples:
  tarkit split big.tar -o 'part-%06d.tar.gz' --maxcount 1000
  tarkit split 'raw-*.tar' -o 'train-%03d.tar' --shards 16 --drop-fields txt
  tarkit split - -o 's3://bucket/part-%06d.tar' --maxsize 1G
"""


@shard_verb("split", epilog=_EPILOG, may_be_empty=False, only_messages=True)
@shards_options(output="Shards to write, such as out-%06d.tar.", metavar="PATTERN")
@shard_count_option
def command(run: VerbRun, output: str, shard_count: int | None) -> None:
    """Cut shards into a numbered series of shards.

    Samples stay whole and in order. A shard is full when the next sample would exceed --maxcount or
    --maxsize; a sample that is larger than --maxsize gets a shard of its own. The names of the
    shards are printed, one a line, as they are published. Members get new headers, as tarproc
    writes them.

    With --shards, the samples are counted first, and the lengths of the shards differ by at most
    one; it is not for standard input. Samples, fields and keys can be selected as with tarkit
    select.

    Fields above 32 MiB are kept in $TMPDIR until their sample is complete, except those of local
    shards that are not compressed.

    Existing shards of the same pattern, numbered from --start on, are an error, since those of a
    longer run would remain. --force replaces them, and removes the remaining ones at the end; no
    SHARD may be one of them. Only SHARD is protected: --force may
    replace a shard that another program in the pipeline is reading.
    """
    from tarkit.names.outputnames import shard_name
    from tarkit.specs.shardspec import fixed_names
    from tarkit.steps.select import count_selected

    if output == "-" or output.startswith("pipe:"):
        raise UsageError(
            "-o takes a name with a number, such as out-%06d.tar; a series of shards does not go into a pipe"
        )
    shard_name(output, 0)
    if shard_count is not None:
        reject_options(["maxcount", "maxsize"], "and --shards exclude each other")
        run.series["maxcount"] = run.series["maxsize"] = sys.maxsize
    found = run.shards()
    # Looked up before the first shard is written, which a glob might match, and with --force
    # replace; or to be read twice.
    is_listed = run.series["force"] or shard_count or None in map(fixed_names, run.inputs)
    known = list(found) if is_listed else []

    def samples(shards: ShardsOutput) -> Iterator[Sample]:
        if shard_count is not None:
            counting = run.reading | {"tally": None}
            shards.cut_evenly(count_selected(known, run.selection, **counting), shard_count)
        return run.selection.select(run.samples(known or found, in_place=True))

    run.write(output, samples, known)
