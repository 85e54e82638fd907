"""Runs of a dedup, their inputs, and what a plain computation keeps of these."""

from __future__ import annotations

import dataclasses
import io
import random
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from webdataset import tariterators

from tarkit.exchange.dedup import Dedup
from tarkit.exchange.digests import Digests
from tarkit.exchange.plan import make_plan

Sample = tuple[str, dict[str, bytes]]


def write_tar(path: Path, samples: Iterable[Sample], mtime: int = 0) -> str:
    """A shard by Python's tarfile; suffixes .gz and so on compress it."""
    with tarfile.open(path, f"w:{'gz' if path.suffix == '.gz' else ''}", format=tarfile.USTAR_FORMAT) as archive:
        for key, fields in samples:
            for field, content in fields.items():
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size, info.mtime = len(content), mtime
                archive.addfile(info, io.BytesIO(content))
    return str(path)


def repeating_inputs(folder: Path) -> list[str]:
    """Five shards of 0 to 90 samples, half of which have the content of an earlier one."""
    draw = random.Random(5)
    return [
        write_tar(
            folder / f"in-{shard}.tar",
            [
                (f"s{shard}/n{number:03d}", {"bin": b"%d" % draw.randrange(120), "cls": b"%d" % draw.randrange(2)})
                for number in range(count)
            ],
            mtime=shard,
        )
        for shard, count in enumerate((90, 0, 60, 7, 80))
    ]


def of_webdataset(path: str | Path) -> list[Sample]:
    with open(path, "rb") as file:
        members = ({**member, "__url__": ""} for member in tariterators.tar_file_iterator(file))
        found = list(tariterators.group_by_keys(members))
    return [(each["__key__"], {name: each[name] for name in each if name[0] != "_"}) for each in found]


def first_of_each(urls: Sequence[str], content: Callable[[dict[str, bytes]], object]) -> list[list[Sample]]:
    """What stays of each shard, computed with a set."""
    seen: set[object] = set()
    kept = []
    for url in urls:
        kept.append([])
        for key, fields in of_webdataset(url):
            if content(fields) not in seen:
                seen.add(content(fields))
                kept[-1].append((key, fields))
    return kept


def dedup(urls: Sequence[str], out: Path, *by: str, slices: int | None = None, **options: Any) -> Dedup:
    """A dedup, with a plan of so many slices, and of the smallest blocks, if they are given."""
    step = Digests(by, options.pop("perceptual", None), options.pop("missing", "error"))
    made = Dedup(step, urls, str(out), **{"mem": 1 << 26, **options})
    if slices is not None:
        plan = dataclasses.replace(make_plan(made.request, urls, slices=slices, mem=1 << 20), block_size=3000)
        Path(made.work).mkdir(parents=True)
        Path(made.work, "plan.json").write_bytes(plan.encode())
    return made


def files_of(folder: Path) -> dict[str, bytes]:
    """All files but for the records of runs, which have times and slices."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if not path.name.startswith(".tarkit")}


def outputs_of(urls: Sequence[str], out: Path) -> list[list[Sample]]:
    return [of_webdataset(out / Path(url).name) for url in urls]
