"""``tarkit salvage``: save the whole samples of damaged shards."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, UsageError

from ..shared.program import refuse_mixed_output
from ..shared.series import counts_of, phrase_of, shards_options
from ..shared.shardverb import VerbRun, outdir_option, shard_verb

if TYPE_CHECKING:
    from tarkit.steps.salvage import Lost

_EPILOG = """\b
Examples:
  tarkit salvage damaged.tar -o good.tar
  tarkit salvage 'train-{0000..0147}.tar' -O good/

\b
Exit codes: 0 nothing was lost; 3 something was lost, and the rest is written.
"""


@shard_verb(
    "salvage", epilog=_EPILOG, selects=False, only_messages=True,
    reader=("key_rule", "on_duplicate_field", "on_repeated_key", "allow_pipe"),
)  # fmt: skip
@shards_options(required=False)
@outdir_option
def command(run: VerbRun, output: str | None, outdir: str | None) -> int:
    """Copy the whole samples of damaged shards, and report what was lost.

    Reading resumes at the next valid header behind damage. The samples on both sides of a lost
    stretch are dropped, since they may not be whole; where a member is cut, only its own sample. So
    is a sample with a member whose content is not in the shard, such as a hard link. All other
    samples are written unchanged, with new headers.

    Each loss is a line: the shard, the offsets of the stretch in the uncompressed shard, the keys
    of the samples before and behind it that were saved, and the reason. With --json it is {"shard",
    "start", "end", "reason", "samples", "after", "before"}; "samples" is the number of dropped
    samples that are known. With -o -, the lines are on standard error.

    Where no whole sample is found, nothing is written.
    """
    if (output is None) == (outdir is None):
        raise UsageError("name an output: -o OUT for one shard or a series, or -O DIR for one shard for each SHARD")
    refuse_mixed_output(output or "", run.as_json)
    from tarkit.names.outputnames import plan_outputs
    from tarkit.steps.salvage import salvaged_samples

    # Looked up before the first shard is written, which a glob might match.
    known = list(run.shards(outputs=[output] if output else [], must_exist=True))
    lost = 0

    def report(loss: Lost) -> None:
        nonlocal lost
        lost += 1
        if output == "-":
            run.meter.say(str(loss))
        else:
            run.results.line(json.dumps(loss._asdict()) if run.as_json else str(loss))

    planned = [([url], name) for url, name in plan_outputs(known, outdir)] if outdir else [(known, str(output))]
    for shards, name in planned:
        samples = salvaged_samples(shards, report, **run.reading)
        if (first := next(samples, None)) is not None:
            run.write(name, itertools.chain([first], samples), known)
    if not run.found:
        run.found, run.notes = counts_of(), [phrase_of()]
    return EXIT_SET_ASIDE if lost else EXIT_OK
