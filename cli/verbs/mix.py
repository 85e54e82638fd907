"""``tarkit mix``: mix several data sets by weights."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import UsageError, counted, printable
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import names_in, read_options, reader_options, refuse_terminal_input, standard_options
from ..shared.results import Results, met
from ..shared.sections import LongHelp
from ..shared.selection import choosing_options, exit_code_of_selected, selected, selection_of
from ..shared.series import open_shards, shards_options, summarize, write_samples

_NAME = "tarkit mix"
_EPILOG = """\b
Examples:
  tarkit mix 'web-{000..199}.tar' 'books-*.tar' --weights 3,1 -o 'mixed-%06d.tar'
  tarkit mix @web.txt @books.txt --weights 0.9,0.1 --until last --prefixes web-,books- -o mixed.tar
"""


@click.command("mix", cls=LongHelp, epilog=_EPILOG)
@click.argument("inputs", metavar="SET...", nargs=-1)
@click.option(
    "--weights", required=True, callback=names_in, metavar="W,...", help="Share of each SET, such as 3,1 or 0.9,0.1."
)
@click.option("--seed", "draw_seed", type=int, default=0, show_default=True, help="Another seed gives another order.")
@click.option(
    "--until", type=click.Choice(["first", "last"]), default="first", show_default=True,
    help="End with the first SET that is over, or go on with the others until the last.",
)  # fmt: skip
@click.option(
    "--prefixes", callback=names_in, metavar="TEXT,...", help="Text to put before the keys of each SET, such as a-,b-."
)
@shards_options()
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@choosing_options
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], weights: list[str], draw_seed: int, until: str, prefixes: list[str] | None, output: str,
    allow_empty: bool, quiet: bool, allow_pipe: bool, as_json: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Mix data sets by weights, each in its own order; no sample comes twice.

    Each SET is one argument: a path, a URL, a spec such as 'web-{000..199}.tar' or 'web-*.tar' in
    quotes, @list.txt, dataset.json (a manifest), or -. The order is random, by the seed; in each
    part of the output, every set has its share within a sample or two.

    With --until first, the mix ends when a set has no sample for its turn, and the rest of the
    others is left out; the summary says which. With --until last nothing is left out: a set that is
    over drops out, and the others go on by their weights. The weights are those of the samples that
    the options select.

    A key that two sets have is an error, for which all keys are kept in memory, about 150 bytes for
    each. --prefixes makes them different, and needs no memory.
    """
    if len(weights) != len(inputs):
        reason = f"--weights has {counted(len(weights), 'number')} for {counted(len(inputs), 'data set')}"
        raise UsageError(f"{reason}; put patterns into quotes, so that the shell does not expand them")
    if prefixes is not None and len(prefixes) != len(inputs):
        raise UsageError(f"--prefixes has {counted(len(prefixes), 'text')} for {counted(len(inputs), 'data set')}")
    refuse_terminal_input(inputs)
    from tarkit.formats.tally import Tally
    from tarkit.formats.tar.large import KeepInFiles
    from tarkit.samples.read import read_samples
    from tarkit.specs.shardspec import expand
    from tarkit.steps.mixing import MixedSet, mix_samples

    if inputs.count("-") > 1:
        raise UsageError("standard input can be only one of the data sets")
    tally, sets, names = Tally(), list[MixedSet](), list[str]()
    reading = read_options(options, tally)
    with selection_of(options) as selection, Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        for number, spec in enumerate(inputs):
            urls = list(expand([spec], allow_pipe_in_lists=allow_pipe))
            names += urls
            samples = read_samples(urls, literal=True, split=True, large=KeepInFiles(), **reading)
            prefix = prefixes[number] if prefixes else ""
            chosen = selection.select(samples, last=False)
            sets.append(MixedSet(chosen, _weight(weights[number]), redact(spec), prefix))
        mixed = mix_samples(sets, seed=draw_seed, until=until)
        with open_shards(
            _NAME, output, meter, results, lambda _: names,
            rule=reading["rule"], on_repeated_key=reading["on_repeated_key"], **options,
        ) as shards:  # fmt: skip
            write_samples(shards, mixed, meter)
            selection.check()
        code = exit_code_of_selected(selection, tally, allow_empty)
        found = [{"set": each.name, "samples": each.taken, "all": each.is_over} for each in sets]
        parts = (f"{printable(each.name)}: {each.taken}{'' if each.is_over else ', not to its end'}" for each in sets)
        notes = [", ".join(parts), *selected(selection), *met(tally)]
        summarize(_NAME, shards, results, notes=notes, quiet=quiet and not code, sets=found, seed=draw_seed)
    return code


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--weights: {printable(repr(text))} is not a number") from None
