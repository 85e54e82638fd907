"""``tarkit feed-test``: measure how fast a machine reads a data set, without a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_OK, counted

from ..shared.completion import values_in
from ..shared.program import Seconds, is_default, json_option, reject_options, standard_options
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.trainers.feedtest import FeedReport

_EPILOG = """\b
Examples:
  tarkit feed-test 'train-{0000..0147}.tar' --workers 4 --fields 'jpg cls' --decode rgb8
  tarkit feed-test s3://bucket/dataset.json --workers 8 --step 250 --cache /tmp/empty
"""
_MORE = "more workers help while processors are free"
_ADVICE = {
    "loop": "batches are there before it asks for them",
    "network": "more workers fetch more at a time",
    "reading": _MORE,
    "decoding": f"{_MORE}; smaller pictures take less time",
    "ordering": _MORE,
    "collating": _MORE,
    "pipe": "it takes the workers' batches to the loop, and is faster with fewer bytes, such as rgb8 for rgb",
}


@click.command("feed-test", epilog=_EPILOG)
@click.argument("specs", metavar="SHARD...", nargs=-1, required=True)
@click.option(
    "--workers", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Number of processes that read, as num_workers of a DataLoader, which needs PyTorch; 0: this process reads.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(1), default=64, show_default=True, metavar="N", help="Number of samples of a batch."
)
@click.option("--fields", metavar="NAMES", help="Make batches of these fields, such as 'jpg;png cls'.")
@click.option(
    "--decode", metavar="WORD", shell_complete=values_in("tarkit.samples.images", "IMAGE_SPECS"),
    help="Decode images to this form, such as rgb8, and other fields by their extension.  [default: no decoding]",
)  # fmt: skip
@click.option(
    "--seconds", type=Seconds(min_open=True), default=10, show_default=True, metavar="S",
    help="Time to read after the first batch.",
)  # fmt: skip
@click.option("--batches", type=click.IntRange(1), metavar="N", help="Read N batches, whatever time they take.")
@click.option(
    "--step", type=Seconds(), default=0, show_default=True, metavar="MS",
    help="Milliseconds that a model would work on each batch; the loop sleeps so long.",
)  # fmt: skip
@click.option(
    "--cache", metavar="DIR",
    help="Folder for parts of remote shards; an empty one shows the speed of the network.  [default: as in a training]",
)  # fmt: skip
@json_option
@standard_options
def command(
    specs: tuple[str, ...], workers: int, batch: int, fields: str | None, decode: str | None, seconds: float,
    batches: int | None, step: float, cache: str | None, as_json: bool, verbose: bool,
) -> int:  # fmt: skip
    """Measure how fast a machine reads a data set, without a model, and what limits it.

    The samples come in the order of a training, epoch after epoch, as batches of ShardDataset. The
    limit is the network, reading, decoding, the pipe from the workers to the loop, or, with --step,
    the loop itself. A local shard that was read before comes from memory, and not from the disk.

    For each stage, the report has its share of the workers' time, and the speed at which they would
    read if they did nothing else. Each SHARD needs an index (tarkit index). With --json, the keys
    are those of tarkit.trainers.feedtest.FeedReport.
    """
    if batches is not None and not is_default("seconds"):
        reject_options(("seconds",), "is not for --batches, which says how long the test is")
    from tarkit.trainers.feedtest import feed_test

    report = feed_test(
        specs, workers=workers, batch=batch, fields=fields, decode=decode, seconds=seconds, batches=batches,
        step=step / 1000, cache=True if cache is None else cache,
    )  # fmt: skip
    with Results() as results:
        if as_json:
            results.line(json.dumps(asdict(report)))
            return EXIT_OK
        for line in _lines(report):
            results.line(line)
    return EXIT_OK


def _lines(report: FeedReport) -> Iterator[str]:
    from tarkit.trainers.loopnumbers import SHOWN

    workers = "this process" if not report.workers else counted(report.workers, "worker")
    given = f"{counted(report.batches, 'batch', 'batches')}, {counted(report.samples, 'sample')}"
    first = "the first batch after" if report.epochs == 1 else f"the first batches of {report.epochs} epochs took"
    yield f"{workers}: {given}; {first} {report.first_batch_seconds:.2f} s"
    if report.samples_per_second is None or report.megabytes_per_second is None or report.waits is None:
        more = "more --batches or --seconds" if report.epochs == 1 else "a smaller --batch"
        yield f"too short to measure the speed: no second batch came in an epoch; take {more}"
        return
    speed = f"{report.samples_per_second:,.0f} samples/s, {report.megabytes_per_second:,.1f} MB/s"
    yield f"then {speed} for {report.seconds:.1f} s; the loop waits {100 * report.waits:.0f} % of this time"
    yield ""
    yield f"{'stage':<10}  {'time of the workers':>19}  {'samples/s of it alone':>21}"
    for name, stage in report.stages.items():
        alone = "" if stage.samples_per_second is None else f"{stage.samples_per_second:,.0f}"
        yield f"{name:<10}  {100 * stage.share:>17.1f} %  {alone:>21}".rstrip()
    yield ""
    if report.processors is None or report.processors_wanted is None:
        yield f"processors: {report.machine_processors}; epochs are too short to see how many were used"
    else:
        wanted = f"the workers had work for {report.processors_wanted:.1f}"
        yield f"processors: {report.processors:.1f} of {report.machine_processors} used; {wanted}"
    if report.limit is None:
        yield "limit: not known, as the workers made no batch in this time; take more --batches or --seconds"
    else:
        yield f"limit: {SHOWN[report.limit]}; {_ADVICE[report.limit]}"
