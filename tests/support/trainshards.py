"""Shards to train on, and what the tests of several trainers do with them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarkit.samples.tarwriter import TarWriter

NEEDS_TORCH = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NO torch (tox run -e torch)"),
    pytest.mark.filterwarnings("ignore"),  # torch's own, about torchdata and about forks beside threads
]


def needs_torch(test: Callable[..., None]) -> Callable[..., None]:
    """Mark one test of a module whose others do without."""
    for mark in NEEDS_TORCH:
        test = mark(test)
    return test


def write_shards(
    folder: Path,
    counts: Sequence[int],
    fields: Callable[[int, int], dict[str, Any]] = lambda shard, number: {"cls": number},
    name: str = "s",
    **options: Any,
) -> str:
    """The spec of shards with indexes; sample 3 of shard 1 has the key 1-3."""
    for shard, count in enumerate(counts):
        with TarWriter(str(folder / f"{name}-{shard}.tar"), **{"index": True, **options}) as writer:
            for number in range(count):
                writer.write({"__key__": f"{shard}-{number}", **fields(shard, number)})
    return f"{folder}/{name}-{{0..{len(counts) - 1}}}.tar"


def every_key(counts: Sequence[int]) -> list[str]:
    return [f"{shard}-{number}" for shard, count in enumerate(counts) for number in range(count)]


def copy_shard(shard: str, folder: Path, damage: int | None = None) -> str:
    """Shard and index in another folder, with a wrong byte there."""
    name = Path(shard)
    for suffix in (".tar", ".idx"):
        (folder / name.name).with_suffix(suffix).write_bytes(name.with_suffix(suffix).read_bytes())
    if damage is not None:
        with open(folder / name.name, "r+b") as file:
            file.seek(damage)
            file.write(b"x")
    return str(folder / name.name)


def wait_for_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a shard service, a batch is short only where no shard is left, which the service says
    after a while.

    Without this, it is so, too, where the last shards are handed out and still on their way, as on
    a busy machine.
    """
    from tarkit.service import pendingcalls
    from tarkit.trainers import served

    monkeypatch.setattr(served, "_WAIT", 300.0)
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.1)


def torchrun(program: str, world: int, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder as so many ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += [str(Path(__file__).with_name(program)), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def program_of(page: str, name: str) -> str:
    """A program of a page of the documentation."""
    text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text("utf-8")
    (program,) = re.findall(rf"<!-- program: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    return str(program)


def write_pictures(folder: Path, count: int) -> None:
    """The shards that these programs read: train-0.tar to train-2.tar, of dark and bright
    pictures."""
    import numpy as np

    pictures = [{"png": np.full((8, 8, 3), value, "uint8"), "cls": value // 200} for value in (0, 200)]
    write_shards(folder, [count] * 3, lambda shard, number: pictures[number % 2], "train")
