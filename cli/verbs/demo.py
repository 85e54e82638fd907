"""``tarkit demo``: write small shards for trying out commands."""

from __future__ import annotations

from pathlib import Path

import click

from tarkit.errors import UsageError

from ..shared.program import standard_options
from ..shared.results import Results

_SHARDS, _PER_SHARD = 3, 20


@click.command("demo")
@click.argument("folder", default="tarkit-demo")
@click.option("--force", is_flag=True, help="Accept a folder that is not empty; files of the same names are replaced.")
@standard_options
def command(folder: str, force: bool, verbose: bool) -> None:
    """Make three small shards to try commands on.

    FOLDER is a new or empty folder, ./tarkit-demo by default. The shards have 60 generated pictures
    of three classes.
    """
    from tarkit.steps.demodata import demo_samples
    from tarkit.writer import ShardWriter

    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder} is not a folder")
    if place.exists() and any(place.iterdir()) and not force:
        raise UsageError(f"{folder} is not empty; name another folder, or pass --force")
    place.mkdir(parents=True, exist_ok=True)
    with ShardWriter(folder.replace("%", "%%") + "/shard-%06d.tar", _PER_SHARD, encoder=False) as writer:
        for sample in demo_samples(_SHARDS * _PER_SHARD):
            writer.write(sample)
    with Results(only_messages=True) as results:
        results.line(f"{_SHARDS * _PER_SHARD} samples in {_SHARDS} shards are in {folder}; try there:")
        results.line("  tarkit show shard-000000.tar -n 3")
        results.line("  tarproc -p 2 -c 'cksum < sample.ppm > sample.sum' 'shard-{000000..000002}.tar' -o sums.tar")
