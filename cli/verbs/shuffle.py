"""``tarkit shuffle``: write all samples in a random order."""

from __future__ import annotations

from ..shared.exchangeverb import ExchangeVerb, exchange_verb
from ..shared.shardverb import seed_option

_EPILOG = """\b
Examples:
  tarkit shuffle 'train-{000..147}.tar' -O shuffled/ --shards 148 --seed 1
  tarkit shuffle @list.txt -O s3://bucket/shuffled --maxsize 1G --work /scratch/shuffle
"""


@exchange_verb("shuffle", epilog=_EPILOG)
@seed_option
def command(exchange: ExchangeVerb, draw_seed: int) -> int | None:
    """Write all samples in a random order: all orders have the same probability.

    The order depends on --seed and the inputs alone. Samples keep the bytes of their members. With
    --shards, the numbers of samples of two shards differ by at most one; with --maxsize, a shard
    has at most that many bytes, unless samples have more than half of it.
    """
    from tarkit.exchange.shuffle import Shuffle

    return exchange.do(Shuffle(draw_seed), exchange.names(exchange.run.inputs))
