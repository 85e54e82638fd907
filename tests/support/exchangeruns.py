"""Inputs of exchanges, exchanges with a chosen number of slices, and what they have written."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import warmprogram

from tarkit.exchange.exchange import Exchange
from tarkit.exchange.plan import make_plan
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.step import Step

Fields = Mapping[str, bytes]


def tar_of(files: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar with these members, written by Python's tarfile."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def write_shard(path: Path, samples: Iterable[tuple[str, Fields]], format: int = tarfile.USTAR_FORMAT) -> str:
    """A shard with these samples, written by Python's tarfile."""
    files = [(f"{key}.{field}", content) for key, fields in samples for field, content in fields.items()]
    path.write_bytes(tar_of(files, format))
    return str(path)


def numbered_inputs(folder: Path, counts: Sequence[int], *, most: int = 600, seed: int = 0) -> list[str]:
    """Shards of so many samples each, with contents of random sizes; the keys are s00/n0000, …"""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_shard(
            folder / f"in-{shard:03d}.tar",
            [
                (f"s{shard:02d}/n{number:04d}", {"bin": draw.randbytes(draw.randrange(most)), "cls": b"%d" % number})
                for number in range(count)
            ],
        )
        for shard, count in enumerate(counts)
    ]


def samples_of_tar(data: bytes | Path) -> list[tuple[str, dict[str, bytes]]]:
    """(key, fields) of adjacent members with one key, read by Python's tarfile."""
    found: list[tuple[str, dict[str, bytes]]] = []
    file = io.BytesIO(data if isinstance(data, bytes) else data.read_bytes())
    with tarfile.open(fileobj=file, ignore_zeros=True) as archive:
        for member in archive:
            folder, slash, base = member.name.rpartition("/")
            name, _, field = base.partition(".")
            if not found or found[-1][0] != folder + slash + name:
                found.append((folder + slash + name, {}))
            content = archive.extractfile(member)
            assert content is not None and field not in found[-1][1]
            found[-1][1][field] = content.read()
    return found


def shards_of(folder: Path) -> list[Path]:
    """The outputs in a folder, by number."""
    return sorted(path for path in folder.glob("shard-*.tar") if not path.name.endswith(".failed.tar"))


def gathered(folder: Path) -> list[list[tuple[str, dict[str, bytes]]]]:
    """The samples of each output."""
    return [samples_of_tar(path) for path in shards_of(folder)]


def keys_of(folder: Path) -> list[str]:
    """The keys of all outputs, in order."""
    return [key for shard in gathered(folder) for key, _ in shard]


def files_of(folder: Path) -> dict[str, bytes]:
    """Names and bytes of all files below a folder, but for the records of runs."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".tarkit-run-")
    }


def left_in(*folders: Path) -> list[str]:
    """Temporary files and work folders that an exchange should have removed."""
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.name == "_exchange" or (path.name.startswith(".") and not path.name.startswith(".tarkit-run-"))
    ]


def exchange(
    urls: Sequence[str],
    out: Path,
    step: Step | None = None,
    *,
    slices: int | None = None,
    block_size: int | None = None,
    parallel: int = 1,
    mem: int = 1 << 26,
    force: bool = False,
    work: Path | None = None,
    **settings: Any,
) -> Exchange:
    """An exchange, with a plan of so many slices and of this size of blocks, if they are given."""
    step = Shuffle(0) if step is None else step
    if not {"shards", "maxcount", "maxsize"} & settings.keys():
        settings["shards"] = 3
    found = ExchangeSettings(**settings)
    folder = out / "_exchange" if work is None else work
    if slices is not None or block_size is not None:
        request = {"step": step.name, **found.request(), **step.options()}
        plan = make_plan(request, list(urls), slices=slices, mem=mem)
        if block_size is not None:
            object.__setattr__(plan, "block_size", block_size)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(plan.encode())
    return Exchange(
        step, urls, str(out), found, work=str(folder), parallel=parallel, mem=mem, force=force,
    )  # fmt: skip


def tarkit(*words: str | Path, folder: Path, **variables: str) -> tuple[int, str, str]:
    """Run ``tarkit`` in a process of its own; return its code, stdout and stderr."""
    done = warmprogram.run(["tarkit", *map(str, words)], folder, {**os.environ, **variables}, None)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
