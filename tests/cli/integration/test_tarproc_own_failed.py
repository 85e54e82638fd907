"""The shard of failed samples is an output too, and must not be what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tarproc_support import Bench, numbered, one_line


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_failed_samples_of_the_output_are_no_input(bench: Bench) -> None:
    bench.shard(numbered(3), "out.tar.failed.tar")
    bench.shard(numbered(5), "out.tar")
    before = {name: (bench.path / name).read_bytes() for name in ("out.tar", "out.tar.failed.tar")}
    done = bench.run("-c", "true", "./out.tar.failed.tar", "-o", "out.tar")
    assert done.returncode == 2
    assert "out.tar.failed.tar is where failed samples of -o out.tar go" in one_line(done.stderr)
    assert {name: (bench.path / name).read_bytes() for name in before} == before
