"""The numbers of docs/exchange-at-scale.md are those of the code."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tarkit.exchange.plan as plans
from tarkit.exchange.exchange import _SHARE
from tarkit.exchange.merge import Merge
from tarkit.exchange.plan import Plan, make_plan
from tarkit.exchange.positions import shuffled
from tarkit.exchange.runfile import Block, Row, RunWriter
from tarkit.names.braces import expand_braces
from tarkit.store.entries import Identity
from tarkit.store.objects.sink import part_size
from tarkit.store.publish import open_publish

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "exchange-at-scale.md").read_text("utf-8")
GB, TB = 10**9, 10**12
POSITION = len(shuffled(0, 0)(None, 0))  # type: ignore[arg-type]


def cells(after: str) -> dict[str, list[str]]:
    """The rows of the first table behind a mark, by their first cells."""
    lines = PAGE[PAGE.index(after) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return found
        name, *values = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = values
    raise AssertionError("the table has no end")


def number(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def planned(monkeypatch: pytest.MonkeyPatch, size: int, slices: int, mem: int) -> Plan:
    """The plan of so many bytes; the number of inputs does not change it."""
    count = 2 * slices
    monkeypatch.setattr(plans, "identify", lambda _: Identity(size // count, "tag"))
    return make_plan({}, [f"in-{number}" for number in range(count)], slices=slices, mem=mem)


@pytest.mark.parametrize("column", [0, 1])
def test_the_table_of_exchanges(monkeypatch: pytest.MonkeyPatch, column: int) -> None:
    found = {name: values[column] for name, values in cells("table: exchange").items()}
    size, slices = int(number(found["inputs"])) * GB, int(number(found["pods = slices W"]))
    mem = int(int(found["`--mem`"].rstrip("G")) * (1 << 30) * _SHARE) // 2
    block = planned(monkeypatch, size, slices, 2 * mem).block_size
    filling = mem - slices * block / 2
    assert found == {
        **{name: found[name] for name in ("inputs", "pods = slices W", "`--mem`")},
        "slice, and disk for it": f"{size // slices // GB:,} GB",
        "block": f"{block / 2**20:.1f} MiB",
        "table of blocks": f"{size / block * 52 / 1e6:,.0f} MB",
        "memory for the tables in a pod of gather": f"{size / block * 340 * 3 / GB:.1f} GB",
        "filling of a process": f"{filling / GB:.2f} GB",
        "a ranged GET": f"{filling / slices / 1e6:.1f} MB",
        "ranged GETs": f"{slices * size / filling / 1e6:.{2 - column}f} M",
    }


def test_the_blocks_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for mem in (64 << 20, 1 << 30, 8 << 30, 64 << 30):
        expected = min(max(32 << 10, mem // (4 * 100)), 4 << 20)
        assert planned(monkeypatch, 10 * TB, 100, mem).block_size == expected
    assert "below `--mem` = 6.7 × W × 4 MiB" in PAGE and round(4 / _SHARE, 1) == 6.7


def test_the_table_of_blocks(tmp_path: Path) -> None:
    rows = [Row(each.to_bytes(POSITION, "big"), (bytes(512),), 512, b"") for each in range(300)]
    with open_publish(f"{tmp_path}/run.tar") as output:
        writer = RunWriter(output, 1)
        writer.write(rows)
        _, size, _ = writer.end()
    assert len(writer.blocks) == 300 and size / 300 == 52 and "D / b × 52 bytes" in PAGE


def test_the_memory_of_a_block_in_a_table() -> None:
    block = Block(bytes(POSITION), 1 << 40, 9000, 4 << 20, 4000, 1 << 31)
    # With the pair and the two lists in which a merge holds it.
    size = sum(map(sys.getsizeof, (block, *block, (block, 0)))) + 2 * 8
    assert size == pytest.approx(340, rel=0.15) and "D / b × 340 bytes" in PAGE


class CountedRun:
    """A run file in memory that counts the reads."""

    def __init__(self, positions: Sequence[bytes], of_block: int, size: int) -> None:
        self._rows = [Row(position, (b"",), size, b"") for position in sorted(positions)]
        self._of_block, self.reads = of_block, 0
        firsts = self._rows[::of_block]
        sizes = [min(of_block, len(self._rows) - of_block * each) for each in range(len(firsts))]
        self.blocks = [
            Block(row.position, each, 0, size * sizes[each], sizes[each], 0) for each, row in enumerate(firsts)
        ]

    def rows(self, blocks: Sequence[Block]) -> Iterator[Row]:
        self.reads += 1
        for block in blocks:
            yield from self._rows[block.offset * self._of_block :][: self._of_block]


def test_a_gather_makes_as_many_requests_as_the_page_says() -> None:
    slices, of_slice, size, of_block = 20, 2000, 100_000, 10
    draw = random.Random(7)
    runs: list[Any] = [CountedRun([draw.randbytes(16) for _ in range(of_slice)], of_block, size) for _ in range(slices)]
    block = of_block * size
    mem = 4 * slices * block
    assert sum(1 for _ in Merge(runs, mem).rows()) == slices * of_slice
    expected = slices * (slices * of_slice * size) / (mem - slices * block / 2)
    assert 0.9 < sum(run.reads for run in runs) / expected < 1.1


def parts(size: int) -> int:
    count = 0
    while size > 0:
        count += 1
        size -= part_size(count)
    return count


def test_requests_time_and_cost() -> None:
    gets = int(10 * TB / (int(4 * (1 << 30) * _SHARE) // 2 - 100 * (4 << 20) / 2) * 100)
    run_parts, output_parts = parts(100 * GB), parts(GB)
    numbers = {
        "inputs": (4 * 10_000, 0.0004),
        "ranged GETs": (gets, 0.0004),
        "other GET and HEAD": (4 * 100 * 100 + 10_000 + 3 * 10_000 + 2 * 100, 0.0004),
        "PUT of run files": (100 * (run_parts + 3), 0.005),
        "PUT of outputs": (10_000 * (output_parts + 4), 0.005),
    }
    stated = cells("table: requests")
    assert [*stated] == [*numbers]
    for name, (count, price) in numbers.items():
        assert stated[name][0].split(" = ")[-1] == f"{count:,}", name
        assert stated[name][1] == f"{count / 1000 * price:.2f}", name
    assert f"× ({run_parts:,} + 3)" in PAGE and f"× ({output_parts:,} + 4)" in PAGE
    requests = sum(count / 1000 * price for count, price in numbers.values())
    scatter, gather = 100_000 / 100 + 100_000 / 400, 100_000 / 2 / 100 + 100_000 / 400
    seconds = scatter + gather
    pods = 100 * seconds * (2 * 0.03 + 8 * 0.004) / 3600
    assert (f"= {scatter:,.0f} s", f"= {gather:>5,.0f} s") == ("= 1,250 s", "=   750 s")
    for text in (
        f"= {scatter:,.0f} s", f"= {gather:>5,.0f} s", f"100 × {seconds:,.0f} s", f"= {pods:.2f}",
        f"Together {requests:.2f}.", f"take {seconds // 60:.0f} min, ", f" and {requests + pods:.2f}, which",
        f"{(requests + pods) / 10:.2f} a TB", f"{10_000 * 0.023:.0f} a month", f"{10_000 * 0.023 / 720:.2f} an hour",
        f"200 × {requests:.2f} = {200 * round(requests, 2):,.0f}", f"200 × {pods:.2f} = {200 * round(pods, 2):,.0f}",
        f"× 33 min = {20 * seconds / 3600:.0f} h", f"are 1 PB: {1_000_000 * 0.023 / 720:.0f} an hour",
    ):  # fmt: skip
        assert text in PAGE, text


def test_two_runs_take_each_shard_once() -> None:
    block = re.search(r"<!-- command: groups -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    first, second = re.findall(r"shuffle '(.*?)' -O \S+ --shards (\d+)", block[1])
    inputs = [*expand_braces(first[0])]
    assert len(inputs) == len(set(inputs)) == int(first[1]) == 10_000
    for part in (0, 7, 99):
        taken = [*expand_braces(second[0].replace("-0007", f"-00{part:02d}"))]
        numbers = range(100 * part, 100 * part + 100)
        expected = [f"s3://bucket/groups/{group:02d}/shard-{each:06d}.tar" for group in range(100) for each in numbers]
        assert sorted(taken) == sorted(expected) and len(taken) == int(second[1])
