"""``tarkit mix``: mix several data sets by weights."""

from __future__ import annotations

import click

from tarkit.errors import UsageError, counted, printable
from tarkit.names.redaction import redact

from ..shared.program import names_in
from ..shared.series import shards_options
from ..shared.shardverb import VerbRun, seed_option, shard_verb

_EPILOG = """\b
Examples:
  tarkit mix 'web-{000..199}.tar' 'books-*.tar' --weights 3,1 -o 'mixed-%06d.tar'
  tarkit mix @web.txt @books.txt --weights 0.9,0.1 --until last --prefixes web-,books- -o mixed.tar
"""


@shard_verb("mix", epilog=_EPILOG, is_described=False, inputs="SET...", may_be_empty=False, only_messages=True)
@click.option(
    "--weights", required=True, callback=names_in, metavar="W,...", help="Share of each SET, such as 3,1 or 0.9,0.1."
)
@seed_option
@click.option(
    "--until", type=click.Choice(["first", "last"]), default="first", show_default=True,
    help="End with the first SET that is over, or go on with the others until the last.",
)  # fmt: skip
@click.option(
    "--prefixes", callback=names_in, metavar="TEXT,...", help="Text to put before the keys of each SET, such as a-,b-."
)
@shards_options()
def command(
    run: VerbRun, output: str, weights: list[str], draw_seed: int, until: str, prefixes: list[str] | None
) -> None:
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
    if len(weights) != len(run.inputs):
        reason = f"--weights has {counted(len(weights), 'number')} for {counted(len(run.inputs), 'data set')}"
        raise UsageError(f"{reason}; put patterns into quotes, so that the shell does not expand them")
    if prefixes is not None and len(prefixes) != len(run.inputs):
        raise UsageError(f"--prefixes has {counted(len(prefixes), 'text')} for {counted(len(run.inputs), 'data set')}")
    if run.inputs.count("-") > 1:
        raise UsageError("standard input can be only one of the data sets")
    from tarkit.steps.mixing import MixedSet, mix_samples

    sets, names = list[MixedSet](), list[str]()
    for number, spec in enumerate(run.inputs):
        urls = list(run.shards([spec]))
        names += urls
        samples = run.selection.select(run.samples(urls), last=False)
        prefix = prefixes[number] if prefixes else ""
        sets.append(MixedSet(samples, _weight(weights[number]), redact(spec), prefix))
    run.total = None
    run.write(output, mix_samples(sets, seed=draw_seed, until=until), names)
    taken = (f"{printable(each.name)}: {each.taken}{'' if each.is_over else ', not to its end'}" for each in sets)
    run.notes = [", ".join(taken)]
    found = [{"set": each.name, "samples": each.taken, "all": each.is_over} for each in sets]
    run.found |= {"sets": found, "seed": draw_seed}


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--weights: {printable(repr(text))} is not a number") from None
