"""Inputs and steps for tests of exchanges on Spark, whose tasks import them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tarkit
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.positions import PlaceOf, ordinal, text_value
from tarkit.exchange.runfile import Row
from tarkit.exchange.step import Step, groups
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import first_dot


def write_shards(folder: Path, *, shards: int, samples: int, size: int = 10, same_keys: bool = False) -> list[str]:
    """Write shards of samples, with keys that differ in all shards, and return their names."""
    urls = []
    for shard in range(shards):
        urls.append(f"{folder}/in-{shard:02d}.tar")
        with tarkit.TarWriter(urls[-1]) as sink:
            for number in range(samples):
                key = f"k{number:04d}" if same_keys else f"k{shard}-{number:04d}"
                group = (7 * shard + number * number) % 11
                sink.write({"__key__": key, "bin": bytes([shard]) * (size + number % 50), "cls": f"{group}"})
    return urls


@dataclass(frozen=True)
class Grouped(Step):
    """Make one sample of all samples with the same class, but keep those of class 5.

    Samples of class 3 have no position.
    """

    name: ClassVar[str] = "grouped"
    in_groups: ClassVar[bool] = True
    field: str = "cls"

    def options(self) -> dict[str, Any]:
        return {"field": self.field}

    def place_of(self, shard: int) -> PlaceOf:
        def place(sample: RawSample, number: int) -> bytes:
            content = sample.content(self.field)
            if content == b"3":
                raise ValueError("it is of class 3")
            assert isinstance(content, bytes)
            return text_value(content) + ordinal(shard, number)

        return place

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        for value, found in groups(rows):
            if value == text_value(b"5"):
                output.copy(found)
                continue
            samples = [row.sample(first_dot) for row in found]
            keys = ",".join(sample["__key__"] for sample in samples)
            output.write({"__key__": samples[0]["__key__"], "txt": keys.encode()})
            output.drop("grouped", len(samples) - 1)


@dataclass(frozen=True)
class KillsOnce(Step):
    """Keep the order; the process of the first task that writes is killed."""

    name: ClassVar[str] = "kills"
    marker: str = ""

    def place_of(self, shard: int) -> PlaceOf:
        return lambda sample, number: ordinal(shard, number)

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        for number, row in enumerate(rows):
            if number == 10:
                try:
                    os.mkdir(self.marker)
                    os.kill(os.getpid(), 9)
                except FileExistsError:
                    pass
            output.copy([row])


@dataclass(frozen=True)
class Raises(Step):
    """Divide by zero."""

    name: ClassVar[str] = "raises"

    def place_of(self, shard: int) -> PlaceOf:
        def place(sample: RawSample, number: int) -> bytes:
            return bytes([1 // (number - 3)])

        return place
