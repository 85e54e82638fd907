"""``tarkit sample``: draw samples at random."""

from __future__ import annotations

import click

from tarkit.errors import UsageError, counted

from ..shared.results import counted_names
from ..shared.series import shards_options
from ..shared.shardverb import VerbRun, seed_option, shard_verb

_EPILOG = """\b
Examples:
  tarkit sample 'train-*.tar' --number 1000 -o some.tar
  tarkit sample 'train-*.tar' --fraction 0.01 --seed 7 -o 'small-%06d.tar'
  zcat big.tgz | tarkit sample - --number 100 -o - | tarkit show -
"""


@shard_verb(
    "sample", epilog=_EPILOG, may_be_empty=False, only_messages=True,
    parallel=(4, "Number of shards to look into, or of reads of a remote shard, at once."),
)  # fmt: skip
@click.option("--number", "sample_count", type=click.IntRange(1), metavar="K", help="Draw exactly K samples.")
@click.option("--fraction", type=float, metavar="F", help="Draw about this share of the samples, such as 0.01.")
@seed_option
@shards_options()
def command(
    run: VerbRun, output: str, sample_count: int | None, fraction: float | None, draw_seed: int, parallel: int
) -> None:
    """Draw samples at random, each with the same probability, and keep their order.

    The same seed draws the same samples from the same input, with or without indexes.

    --number K draws exactly K samples; fewer are an error. The shards are counted first, as by
    tarkit count, and then only those with a drawn sample are read: with a fresh index a range for
    each drawn sample, if they are few. Standard input and pipes are read once, as is all input with
    a policy or with options that select the samples to draw from: the samples drawn so far are
    kept, up to 64 MiB in memory and the rest in $TMPDIR, in all K * (1 + ln(N / K)) of N.

    --fraction F draws the samples for which the hash of seed and key, as a number from 0 to 1, is
    below F: so it does not matter into which shards they are cut, more samples may be added, and a
    smaller F draws some of the same samples. A key that several shards have is drawn from all of
    them or from none. The input is read once, in flat memory; up to F = 0.1, of a shard with a
    fresh index only the drawn samples are read.
    """
    if (sample_count is None) == (fraction is None):
        raise UsageError("say how many samples to draw, with --number K or --fraction F")
    from tarkit.steps.drawing import draw_fraction, draw_number

    stale, names = list[str](), list(run.shards())
    if sample_count is not None:
        select = run.selection.select if run.chosen else None
        drawn = draw_number(
            names, sample_count, seed=draw_seed, select=select, parallel=parallel, stale=stale, **run.reading
        )
    else:
        drawn = draw_fraction(names, fraction or 0, seed=draw_seed, parallel=parallel, stale=stale, **run.reading)
        drawn = run.selection.select(drawn)
    run.write(output, drawn, names, count=sample_count)
    run.notes = [f"of {counted(run.tally.samples, 'sample')}"]
    run.notes += counted_names("stale indexes that were not used", stale)
    run.found |= {"read": run.tally.samples, "seed": draw_seed}
