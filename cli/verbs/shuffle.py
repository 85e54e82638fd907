"""``tarkit shuffle``: write all samples in a random order."""

from __future__ import annotations

from ..shared.exchangeverb import ExchangeVerb, exchange_verb, placement_of, placing_options
from ..shared.shardverb import seed_option

_EPILOG = """\b
Examples:
  tarkit shuffle 'train-{000..147}.tar' -O shuffled/ --shards 148 --seed 1
  tarkit shuffle @list.txt -O s3://bucket/shuffled --maxsize 1G --work /scratch/shuffle
  tarkit shuffle @list.txt -O parts/ --to parts.parquet:key:split --unlisted skip
"""


@exchange_verb("shuffle", epilog=_EPILOG)
@seed_option
@placing_options
def command(exchange: ExchangeVerb, draw_seed: int, to_map: str | None, unlisted: str) -> int | None:
    """Write all samples in a random order: all orders have the same probability.

    The order depends on --seed and the inputs alone. Samples keep the bytes of their members. With
    --shards, the numbers of samples of two shards differ by at most one; with --maxsize, a shard
    has at most that many bytes, unless samples have more than half of it. With --to, the samples of
    each shard are in a random order; the keys of MAP are those after --rekey.
    """
    from tarkit.exchange.shuffle import Shuffle

    return exchange.do(Shuffle(draw_seed, to=placement_of(to_map, unlisted)), exchange.names(exchange.run.inputs))
