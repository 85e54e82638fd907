"""``tarkit sample``: draw samples at random."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import UsageError, counted

from ..shared.meter import Meter
from ..shared.program import read_options, reader_options, refuse_terminal_input, standard_options
from ..shared.results import Results, counted_names, met
from ..shared.sections import LongHelp
from ..shared.selection import choosing_options, exit_code_of_selected, selected, selection_of
from ..shared.series import open_shards, shards_options, summarize, write_samples

_NAME = "tarkit sample"
_EPILOG = """\b
Examples:
  tarkit sample 'train-*.tar' --number 1000 -o some.tar
  tarkit sample 'train-*.tar' --fraction 0.01 --seed 7 -o 'small-%06d.tar'
  zcat big.tgz | tarkit sample - --number 100 -o - | tarkit show -
"""


@click.command("sample", cls=LongHelp, epilog=_EPILOG)
@click.argument("inputs", metavar="[SHARD]...", nargs=-1)
@click.option("--number", "draw_number", type=click.IntRange(1), metavar="K", help="Draw exactly K samples.")
@click.option("--fraction", type=float, metavar="F", help="Draw about this share of the samples, such as 0.01.")
@click.option("--seed", "draw_seed", type=int, default=0, show_default=True, help="Another seed draws other samples.")
@shards_options()
@click.option(
    "-p", "--parallel", type=click.IntRange(1), default=4, show_default=True,
    help="Number of shards to count, or of reads of a remote shard, at once.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@choosing_options
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], draw_number: int | None, fraction: float | None, draw_seed: int, output: str,
    parallel: int, allow_empty: bool, quiet: bool, allow_pipe: bool, as_json: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
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

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    urls = list(inputs) or ["-"]
    if (draw_number is None) == (fraction is None):
        raise UsageError("say how many samples to draw, with --number K or --fraction F")
    refuse_terminal_input(urls)
    from tarkit.formats.tally import Tally
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps import drawing

    tally, stale = Tally(), list[str]()
    reading = read_options(options, tally)
    with selection_of(options) as selection, Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        found, total = counted_shards(urls, allow_pipe_in_lists=allow_pipe)
        names = list(found)
        if draw_number is not None:
            select = selection.select if selection.selects else None
            drawn = drawing.draw_number(
                names, draw_number, seed=draw_seed, select=select, parallel=parallel, stale=stale, **reading
            )
        else:
            drawn = drawing.draw_fraction(
                names, fraction or 0, seed=draw_seed, parallel=parallel, stale=stale, **reading
            )
            drawn = selection.select(drawn)
        with open_shards(
            _NAME, output, meter, results, lambda _: names,
            rule=reading["rule"], on_repeated_key=reading["on_repeated_key"], **options,
        ) as shards:  # fmt: skip

            def part() -> float | None:
                if draw_number is not None:
                    return shards.total / draw_number
                return tally.shards_read() / total if total else None

            write_samples(shards, drawn, meter, part)
        code = exit_code_of_selected(selection, tally, allow_empty)
        notes = [f"of {counted(tally.samples, 'sample')}", *selected(selection), *met(tally)]
        notes += counted_names("stale indexes that were not used", stale)
        summarize(_NAME, shards, results, notes=notes, quiet=quiet and not code, read=tally.samples, seed=draw_seed)
    return code
