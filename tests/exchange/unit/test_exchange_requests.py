"""Requests to the store: few ranges of each run file, each with one request."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from exchangeruns import numbered_inputs
from fsspec.implementations.memory import MemoryFileSystem

from tarkit.exchange.exchange import Exchange
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.slices import ExchangeSlice


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """(request, name) -> number of requests to fsspec's memory."""
    counted: Counter[tuple[str, str]] = Counter()
    MemoryFileSystem.store.clear()
    for request in ("info", "_open", "cat_file", "ls"):
        real = getattr(MemoryFileSystem, request)

        def call(self: Any, path: str, *given: Any, request: str = request, real: Any = real, **named: Any) -> Any:
            counted[request, os.path.basename(path)] += 1
            return real(self, path, *given, **named)

        monkeypatch.setattr(MemoryFileSystem, request, call)
    return counted


def test_a_gather_reads_each_run_file_with_one_request(tmp_path: Path, store: Counter[tuple[str, str]]) -> None:
    urls = numbered_inputs(tmp_path / "in", [40] * 4)
    settings = ExchangeSettings(shards=8)
    run = ExchangeSlice(Shuffle(0), urls, "memory://out", settings, work="memory://work", mem=1 << 26)
    for number in range(4):
        run.scatter(number, 4)
    for number in range(4):
        store.clear()
        result = run.gather(number, 4)
        assert result.done == 2 and result.counts.read == 40
        # The table of blocks, a part of the digests of keys, and the samples of both outputs.
        names = [f"run-{each:06d}.tar" for each in range(4)]
        assert max(store["cat_file", name] for name in names) <= 4
        assert not any(store["_open", name] for name in names)


def test_memory_of_a_store_is_that_of_a_disk(tmp_path: Path, store: Counter[tuple[str, str]]) -> None:
    urls = numbered_inputs(tmp_path / "in", [5, 4])
    Exchange(Shuffle(1), urls, "memory://out", ExchangeSettings(shards=2)).run()
    Exchange(Shuffle(1), urls, str(tmp_path / "out"), ExchangeSettings(shards=2)).run()
    for number in range(2):
        name = f"shard-{number:06d}.tar"
        assert MemoryFileSystem().cat_file(f"/out/{name}") == (tmp_path / "out" / name).read_bytes()
