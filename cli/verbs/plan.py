"""``tarkit plan``: which worker of which rank reads what of an epoch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import UsageError, counted

from ..shared.program import standard_options
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.trainers.plan import ConsumerPlan, EpochPlan

_EPILOG = """\b
Examples:
  tarkit plan 'train-{0000..0147}.tar' --batch 256 --world 16 --workers 8 --epoch 3
  tarkit plan 'train-{0000..0147}.tar' --batch 256 --world 16 --workers 8 --lanes 16 --turns 8
  tarkit plan dataset.json --batch 256 --world 4 --begin 20 --rank 0 --ranges
"""


@click.command("plan", epilog=_EPILOG)
@click.argument("specs", metavar="SHARD...", nargs=-1, required=True)
@click.option("--batch", type=click.IntRange(1), required=True, metavar="N", help="Samples of a batch of all ranks.")
@click.option("--world", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Ranks.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="DataLoader workers of a rank; 1 also stands for a rank that reads by itself.",
)  # fmt: skip
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="From 0.")
@click.option("--begin", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The first batch.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the shuffle.")
@click.option("--no-shuffle", is_flag=True, help="The order of the shards.")
@click.option("--lanes", type=click.IntRange(1), metavar="N", help="[default: the greatest of 8, 4, 2, 1 in --batch]")
@click.option("--turns", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option("--run", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@click.option("--block", type=click.IntRange(1), default=10_000, show_default=True, metavar="N")
@click.option("--equalize", type=click.Choice(["drop", "pad", "repeat"]), default="drop", show_default=True)
@click.option("--rank", "only", type=click.IntRange(0), metavar="N", help="Print this rank only.")
@click.option("--ranges", "with_ranges", is_flag=True, help="Print the ranges of each consumer, too.")
@click.option("--json", "as_json", is_flag=True, help="JSON: a line for each consumer, and one with the summary.")
@standard_options
def command(
    specs: tuple[str, ...], world: int, workers: int, epoch: int, begin: int, no_shuffle: bool, only: int | None,
    with_ranges: bool, as_json: bool, verbose: bool, **order: Any,
) -> None:  # fmt: skip
    """Print which worker of which rank of a ShardDataset reads what of an epoch, and how even that is.

    Only the numbers of samples are read, from the indexes or from a manifest. A consumer is a worker of a
    rank. A range is a part of a shard of --run samples at most, from which a consumer reads some or all.
    Bytes are those of samples of mean size.

    --seed, --lanes, --turns, --run, --block and --equalize are the arguments of the ShardDataset, and must be
    those of the training; see docs/order.md. --begin is next_batch of a state.

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tar or @list.txt, or a manifest.
    """
    from tarkit.store.url import display_name
    from tarkit.trainers.plan import EpochPlan, shard_sizes
    from tarkit.trainers.source import BatchSource

    if only is not None and only >= world:
        raise UsageError(f"--rank is {only}, and --world is {world}: ranks are 0 to {world - 1}")
    source = BatchSource(specs, rank=0, world=world, cache=False, shuffle=not no_shuffle, **order)
    plan = EpochPlan(source.order(epoch), world, workers, shard_sizes(source.samples), begin)
    shown = [each for each in plan.consumers if only in (None, each.rank)]
    names = [display_name(url) for url in source.samples.urls]
    with Results() as results:
        for consumer in shown:
            for line in _as_json(plan, consumer, names) if as_json else _as_text(plan, consumer, names, with_ranges):
                results.line(line)
        summary = plan.summary()
        for line in [json.dumps({"summary": summary})] if as_json else _summary(plan, summary):
            results.line(line)


def _as_json(plan: EpochPlan, consumer: ConsumerPlan, names: list[str]) -> Iterable[str]:
    ranges = [(names[each.shard], each.first, each.end, each.samples) for each in plan.ranges(consumer)]
    numbers = {name: getattr(consumer, name) for name in ("rank", "worker", "batches", "samples")}
    yield json.dumps({**numbers, "bytes": plan.size(consumer), "ranges": ranges})


def _as_text(plan: EpochPlan, consumer: ConsumerPlan, names: list[str], with_ranges: bool) -> Iterable[str]:
    size = plan.size(consumer)
    yield (
        f"rank {consumer.rank} worker {consumer.worker}: batches {consumer.batches}, samples {consumer.samples}, "
        f"shards {len(plan.shards(consumer))}, ranges {len(consumer.runs)}, bytes {'-' if size is None else size}"
    )
    for each in plan.ranges(consumer) if with_ranges else ():
        yield f"  {each.samples} of {each.first} to {each.end - 1} of {names[each.shard]}"


def _summary(plan: EpochPlan, summary: dict[str, Any]) -> Iterable[str]:
    order = plan.order
    batches = counted(summary["batches"], "batch", "batches")
    samples = f"{summary['samples']} of {counted(order.samples, 'sample')}"
    yield f"epoch {order.epoch}: {batches} of {order.settings.batch}, {samples}"
    spans = (
        f"{word} {'-' if found is None else '{} to {}'.format(*found)}"
        for word in ("samples", "bytes", "shards", "ranges")
        for found in [summary[f"{word}_of_consumer"]]
    )
    yield f"of a consumer: {', '.join(spans)}"
    least, most = summary["consumers_of_shard"]
    yield f"a shard is read by {least} to {most} of {counted(len(plan.consumers), 'consumer')}, a range by " + (
        f"{summary['reading']} on average; 1.0 is best" + (f": {plan.advice}" if plan.advice else "")
    )
