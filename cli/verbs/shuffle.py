"""``tarkit shuffle``: write all samples in a random order."""

from __future__ import annotations

import click

from ..shared.exchangeverb import ExchangeVerb, exchange_verb, placement_of, placing_options
from ..shared.program import reject_options
from ..shared.shardverb import seed_option

_EPILOG = """\b
Examples:
  tarkit shuffle 'train-{000..147}.tar' -O shuffled/ --shards 148 --seed 1
  tarkit shuffle 'shuffled/shard-*.tar' -O again/ --block --seed 2
  tarkit shuffle @list.txt -O s3://bucket/shuffled --maxsize 1G --work /scratch/shuffle
  tarkit shuffle @list.txt -O parts/ --to parts.parquet:key:split --unlisted skip
"""


@exchange_verb("shuffle", epilog=_EPILOG)
@seed_option
@click.option("--block", is_flag=True, help="Shuffle the order of the shards, and samples in a buffer, in one pass.")
@click.option("--buffer", type=click.IntRange(1), metavar="N", help="With --block: samples held.  [default: 10000]")
@placing_options
def command(
    exchange: ExchangeVerb, draw_seed: int, block: bool, buffer: int | None, to_map: str | None, unlisted: str
) -> int | None:
    """Write all samples in a random order: all orders have the same probability.

    The order depends on --seed and the inputs alone. Samples keep the bytes of their members. With
    --shards, the numbers of samples of two shards differ by at most one; with --maxsize, a shard
    has at most that many bytes, unless samples have more than half of it. With --to, the samples of
    each shard are in a random order; the keys of MAP are those after --rekey.

    --block is for shards that were shuffled once, and costs one pass: the shards come in a random
    order, and of --buffer N samples a random one is written, then the next one is read. The buffer
    takes at most --mem, on which the order depends then. The order is not uniform: samples move by
    about N places, so shards that are sorted by class stay mostly sorted. Equal keys are found
    within an output only. A run that was interrupted does not resume: --force begins anew.
    """
    if block:
        reject_options(["to_map", "unlisted"], "does not go with --block")
        from tarkit.exchange.blockshuffle import BUFFER, Blocks, BlockShuffle

        step = Blocks(draw_seed, BUFFER if buffer is None else buffer)
        exchange.run.notes.append(f"not a uniform shuffle: --block moves samples within a buffer of {step.buffer}")
        return exchange.do_once(BlockShuffle, step, exchange.names(exchange.run.inputs), "--block")
    reject_options(["buffer"], "goes with --block")
    from tarkit.exchange.shuffle import Shuffle

    return exchange.do(Shuffle(draw_seed, to=placement_of(to_map, unlisted)), exchange.names(exchange.run.inputs))
