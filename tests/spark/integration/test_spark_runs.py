"""Runs over shards on Spark's stand-in: the commands are real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sparkcontext import Context

import tarkit
from tarkit.runs.counts import Counts
from tarkit.runs.process import EmptyResultError, ShardsFailedError
from tarkit.runs.status import progress_of
from tarkit.runs.work import Work
from tarkit.spark import process


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for shard in range(5):
        with tarkit.TarWriter(f"{tmp_path}/in-{shard}.tar") as sink:
            for number in range(4):
                sink.write({"__key__": f"k{shard}{number}", "txt": f"{number}"})
    return tmp_path


def work(shards: Path, **options: Any) -> Work:
    return Work(outdir=f"{shards}/out", **({"command": "echo more >> sample.txt"} | options))


def test_a_work_over_shards_is_that_of_tarproc(shards: Path) -> None:
    counts = process(work(shards), f"{shards}/in-{{0..4}}.tar", context=Context())
    assert (counts.shards_done, counts.read, counts.out) == (5, 20, 20)
    assert counts.exit_code == 0
    here = tarkit.process(f"{shards}/in-{{0..4}}.tar", outdir=f"{shards}/here", command="echo more >> sample.txt")
    assert here.as_dict() == counts.as_dict()
    for shard in range(5):
        assert (shards / f"out/in-{shard}.tar").read_bytes() == (shards / f"here/in-{shard}.tar").read_bytes()
    # Done records of the one are those of the other.
    resumed = tarkit.process(f"{shards}/in-{{0..4}}.tar", outdir=f"{shards}/out", command="echo more >> sample.txt")
    assert (resumed.shards_before, resumed.shards_done) == (5, 0)


def test_the_driver_writes_what_the_run_is_to_make(shards: Path) -> None:
    """Before the first task: what tasks that are lost have not made is missing."""
    with pytest.raises(ZeroDivisionError):
        process(work(shards), f"{shards}/in-{{0..4}}.tar", context=Lost())
    names = [f"in-{shard}.tar" for shard in range(5)]
    assert progress_of(f"{shards}/out", of_runs=True).missing == names
    process(work(shards), f"{shards}/in-{{0..4}}.tar", context=Context())
    found = progress_of(f"{shards}/out", of_runs=True)
    assert found.done == names and not found.unfinished and len(found.runs) == 1
    process(work(shards, command=None, function=len_of_text), f"{shards}/in-*.tar", context=Context())
    found = progress_of(f"{shards}/out", of_runs=True)
    assert not found.unfinished and len(found.runs) == 2, "a function without a name has no fingerprint to compare"


class Lost(Context):
    """A cluster that is gone."""

    def parallelize(self, items: list[Any], number: int) -> Context:
        raise ZeroDivisionError


def test_a_work_is_resumed_by_done_records(shards: Path) -> None:
    command = "echo more >> sample.txt; : > sample.new"
    assert process(work(shards, command=command), f"{shards}/in-{{1..2}}.tar", context=Context()).shards_done == 2
    context = Context(again=1)
    counts = process(work(shards, command=command, inputs=(f"{shards}/in-*.tar",)), context=context, partitions=2)
    assert context.tasks == 2
    # The second attempt of the first task finds what the first one did.
    assert counts.shards_before + counts.shards_done == 5 and counts.shards_before > 2


def test_a_run_of_which_nothing_came_out_is_an_error_unless_that_is_meant(shards: Path) -> None:
    drop = work(shards, command="rm sample.*")
    for _ in range(2):
        with pytest.raises(EmptyResultError, match="out: 20 samples came in, and none came out"):
            process(drop, f"{shards}/in-{{0..4}}.tar", context=Context(), partitions=2)
    assert process(replace(drop, allow_empty=True), f"{shards}/in-*.tar", context=Context()).shards_before == 5
    rare = work(shards, command="case $(cat __key__) in k0*) ;; *) rm sample.*;; esac")
    counts = process(rare, f"{shards}/in-{{0..4}}.tar", context=Context())
    assert (counts.out, counts.exit_code) == (4, 0), "a task may be empty"


def test_a_callable_is_sent_under_one_name(shards: Path) -> None:
    counts = process(work(shards, command=None, function=len_of_text), f"{shards}/in-*.tar", context=Context(again=5))
    assert (counts.shards_before + counts.shards_done, counts.shards_failed) == (5, 0)
    assert next(tarkit.read_samples(f"{shards}/out/in-0.tar"))["len"] == b"1"


def len_of_text(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "len": str(len(sample["txt"])).encode()}


def test_shards_that_fail_are_counted_and_the_others_are_published(shards: Path) -> None:
    (shards / "in-1.tar").write_bytes((shards / "in-1.tar").read_bytes()[:1500])
    with pytest.raises(ShardsFailedError, match=r"1 shards failed .*1 inputs are missing, for example .*in-9.tar; 4"):
        process(work(shards), [f"{shards}/in-{{0..4}}.tar", f"{shards}/in-9.tar"], context=Context(), partitions=3)
    names = sorted(path.name for path in (shards / "out").iterdir() if path.suffix == ".tar")
    assert names == ["in-0.tar", "in-2.tar", "in-3.tar", "in-4.tar"]
    try:
        process(work(shards), f"{shards}/in-1.tar", context=Context())
    except ShardsFailedError as error:
        assert isinstance(error.counts, Counts) and error.exit_code == 65
