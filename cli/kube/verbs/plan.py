"""``kubetpl plan``: how many shards, slices and waves, how long, and for how much; prints no manifest."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from functools import partial
from typing import Any, Literal

import click

from tarkit.errors import EXIT_OK, UsageError
from tarkit.k8s.apiobject import Object, part_of, spec_of
from tarkit.k8s.durations import seconds
from tarkit.k8s.generate import Asked
from tarkit.k8s.generators.indexed import PARALLELISM, plan_of
from tarkit.k8s.plan.estimate import Measured, Price, estimate, measure, plan_lines
from tarkit.k8s.podfields import main_container, substitute
from tarkit.k8s.quantity import parse_quantity

from ...shared.program import say, standard_options
from ...shared.results import Results
from ...shared.sections import LongHelp
from ..generator import asked
from ..settingoptions import setting_options, switch_options

_EPILOG = """\b
Example:
  kubetpl plan -I IMAGE -c 'convert sample.jpg sample.png' --measure 3 \\
      --shards 's3://bucket/raw-{000000..001281}.tar' -O s3://bucket/grey
"""


@click.command("plan", cls=LongHelp, epilog=_EPILOG)
@click.argument("words", metavar="[-- TARPROC OPTIONS]", nargs=-1, type=click.UNPROCESSED)
@setting_options("indexed")
@switch_options
@click.option(
    "--measure", type=click.IntRange(1, 1000), metavar="N", help="Run N shards here, to know how long one takes."
)
@click.option(
    "--sizes",
    type=click.Choice(["none", "sample", "all"]),
    help="Ask for the sizes of the shards: of all, or of a sample of 20.  [default: sample with --measure, else none]",
)
@standard_options
def command(
    words: tuple[str, ...], measure: int | None, sizes: Literal["none", "sample", "all"] | None, verbose: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Show how the shards of kubetpl indexed are cut into slices, how long that takes, and what it costs.

    Options are those of kubetpl indexed. Nothing is written but temporary files; a list for --list-url is
    not published. Prices come from the configuration: price: {cpu_hour, gib_hour, spot_factor}.
    """
    request = asked("indexed", list(words), **options)
    settings = request.configuration.settings
    price = Price.of(request.configuration.price)
    plan = plan_of(settings, sizes=sizes or ("none" if measure is None else "sample"), publish=False)
    if measure is not None and settings.command is None and not words:
        raise UsageError("--measure runs the command over shards: name it with --command")
    shards = plan.sample(measure or 1)
    container = _container(request, shards)
    asks = part_of(container, "resources", "requests")
    cpus, memory = (float(parse_quantity(str(asks.get(name, 0)))) for name in ("cpu", "memory"))
    measured = None if measure is None else _measured(container, cpus, shards)
    given = None if settings.shard_seconds is None else seconds(settings.shard_seconds, "--shard-seconds")
    parallelism, spot = settings.parallelism or PARALLELISM, settings.spot is not None
    made = estimate(
        plan.shards, plan.total_bytes, plan.slices, min(parallelism, plan.slices),
        seconds_per_shard=given if measured is None else measured.per_shard.median,
        seconds_per_byte=None if measured is None or measured.per_byte is None else measured.per_byte.median,
        cpus=cpus, memory_gib=memory / 2**30, price=price, spot=spot,
    )  # fmt: skip
    with Results() as results:
        for line in plan_lines(plan, parallelism, made, measured=measured, shard_seconds=given, spot=spot):
            results.line(line)
    return EXIT_OK


def _measured(container: Object, cpus: float, shards: list[str]) -> Measured:
    env = {**os.environ, "TARKIT_CPUS": str(max(1, math.ceil(cpus)))}
    for each in container.get("env", ()):
        # Those of the manifest are folders of the pod.
        if "value" in each and each["name"] not in ("TMPDIR", "HOME"):
            env[each["name"]] = substitute(each["value"], env)
    return measure(container, shards, env, (sys.executable, "-m", "tarkit.cli.tarproc"))


def _container(request: Asked, shards: list[str]) -> Object:
    """The container of the Job that ``kubetpl indexed`` would print for these shards."""
    configuration = request.configuration
    settings = configuration.settings
    alone = dataclasses.replace(
        settings,
        shards=shards,
        slices=None,
        list_url=None,
        # A plan is worth having before these are decided.
        command="true" if settings.command is None and not request.words else settings.command,
        outdir=settings.outdir if settings.raw or settings.outdir is not None else "out",
    )
    asks = dataclasses.replace(request, configuration=dataclasses.replace(configuration, settings=alone))
    for document in asks.documents(partial(say, "kubetpl"), here=True):
        if document["kind"] == "Job":
            return main_container(part_of(spec_of(document), "template", "spec"))
    raise UsageError("--template: there is no Job in it")
