"""Runs of which nothing came out, samples that lack what --require names, and fields that became
empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.runs.counts import Counts
from tarkit.runs.process import EmptyResultError
from tarkit.runs.status import progress_of
from tarkit.runs.work import Work

DROP = "rm sample.*"


@pytest.fixture(autouse=True)
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards of three samples."""
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        with tarkit.TarWriter(f"s{shard}.tar", encoder=False) as writer:
            for number in range(3):
                writer.write({"__key__": f"k{shard}{number}", "cls": b"%d" % number, "dat": b"", "txt": b"x"})


@pytest.mark.parametrize("options", [{"output": "o.tar"}, {"outdir": "out"}])
def test_a_run_of_which_nothing_came_out_ends_with_3_unless_that_is_meant(options: dict[str, str]) -> None:
    place = next(iter(options.values()))
    with pytest.raises(EmptyResultError, match=rf"{place}: 6 samples came in, and none came out; .*--allow-empty") as e:
        tarkit.process("s{0,1}.tar", command=DROP, **options)
    assert (e.value.exit_code, e.value.counts.exit_code, e.value.counts.filtered) == (3, 3, 6)
    assert Path(place).exists(), "it is published all the same"
    assert tarkit.process("s{0,1}.tar", command=DROP, allow_empty=True, **options).exit_code == 0


def test_a_rerun_over_shards_that_were_done_before_is_as_empty_as_the_first_one() -> None:
    for _ in range(2):
        with pytest.raises(EmptyResultError, match="6 samples came in") as caught:
            tarkit.process("s{0,1}.tar", command=DROP, outdir="out")
    assert caught.value.counts.shards_before == 2


def test_one_shard_may_be_empty_and_so_may_the_new_ones_of_a_rerun() -> None:
    rare = "case $(cat __key__) in k0*) ;; *) rm sample.*;; esac"
    assert tarkit.process("s0.tar", command=rare, outdir="out").exit_code == 0
    counts = tarkit.process("s{0,1}.tar", command=rare, outdir="out")
    assert (counts.shards_before, counts.out, counts.empty, counts.exit_code) == (1, 0, False, 0)


def test_a_slice_may_be_empty_and_status_sees_the_sum() -> None:
    for number in range(2):
        counts = tarkit.process("s{0,1}.tar", command=DROP, outdir="out", slice=f"{number}/2")
        assert (counts.filtered, counts.exit_code) == (3, 0)
    assert progress_of("out").empty and progress_of("out").as_dict()["empty"]
    tarkit.process("s0.tar", command="true", outdir="out")
    assert not progress_of("out").empty


def test_shards_that_are_missing_may_still_have_samples() -> None:
    """The first slices of a rare class are empty, and no reason for an alarm while the
    others run.
    """
    tarkit.process("s{0,1}.tar", command=DROP, outdir="out", slice="0/2")
    assert not progress_of("out", of_runs=True).empty and progress_of("out", ["s0.tar"]).empty


@pytest.mark.parametrize("options", [{"count": 0}, {"inputs": "none.tar"}])
def test_where_nothing_came_in_nothing_could_come_out(options: dict[str, Any]) -> None:
    with tarkit.TarWriter("none.tar"):
        pass
    counts = tarkit.process(**{"inputs": "s0.tar", "output": "o.tar", "command": DROP, **options})
    assert (counts.read, counts.exit_code) == (0, 0)


def test_a_run_with_shards_missing_or_failed_is_not_called_empty() -> None:
    """Of those it is not known."""
    from tarkit.runs.process import ShardsFailedError

    with pytest.raises(ShardsFailedError) as caught:
        tarkit.process(["s0.tar", "missing.tar"], command=DROP, outdir="out")
    assert not caught.value.counts.empty


@pytest.mark.parametrize("output", [{"output": "o.tar"}, {"outdir": "out"}])
def test_a_retry_counts_what_was_done_before_it_in_a_folder_only(output: dict[str, str]) -> None:
    tarkit.process("s0.tar", command="[ $(cat sample.cls) != 1 ]", **output)
    if "outdir" in output:
        # Two of the three are in the shard.
        assert tarkit.process(retry_failed="out", command=DROP, **output).exit_code == 0
    else:
        with pytest.raises(EmptyResultError, match="1 sample came in"):
            tarkit.process(retry_failed="o.tar.failed.tar", command=DROP, output="more.tar")


def test_a_mapper_without_return_is_named() -> None:
    with pytest.raises(EmptyResultError, match="a function that returns None drops its sample"):
        tarkit.process("s0.tar", function=lambda sample: sample.update(new=b"1"), output="o.tar")


def test_nothing_came_out_is_about_all_that_was_counted() -> None:
    assert Counts(read=1, filtered=1).nothing_came_out and Counts(recorded_in=1).nothing_came_out
    assert not Counts().nothing_came_out and not Counts(read=1, recorded_in=2, recorded_out=1).nothing_came_out
    total = Counts(empty=True)
    total.add(Counts(empty=True, recorded_in=2))
    assert total.empty is True and total.recorded_in == 2


def test_a_sample_that_lacks_a_required_field_fails() -> None:
    command = "case $(cat sample.cls) in 0) rm sample.txt;; 1) mv sample.txt sample.png;; *) rm sample.*;; esac"
    counts = tarkit.process("s0.tar", output="o.tar", command=command, require="txt|png, cls")
    assert (counts.out, counts.filtered, counts.failures, counts.exit_code) == (1, 1, {"incomplete": 1}, 3)
    (failed,) = tarkit.read_samples("o.tar.failed.tar")
    reason = b"the sample came out without txt or png (--require); it has cls, dat\n"
    assert failed["__error__.txt"] == reason and failed["txt"] == b"x"


def test_of_several_samples_each_has_the_required_fields() -> None:
    def two(sample: dict[str, Any]) -> list[dict[str, Any]]:
        return [sample, {"__key__": f"{sample['__key__']}-b", "cls": b"1"}]

    counts = tarkit.process("s0.tar", output="o.tar", function=two, require="cls", count=2)
    assert (counts.out, counts.failed) == (4, 0)
    counts = tarkit.process(
        "s{0,1}.tar", output="o.tar", function=lambda s: two(s) if s["cls"] == b"1" else s, require="txt"
    )
    (failed, _) = tarkit.read_samples("o.tar.failed.tar")
    assert (counts.out, counts.failed) == (4, 2) and b"the sample k01-b came out without txt" in failed["__error__.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"require": "jpg|", "output": "o.tar"}, r"--require: 'jpg\|' must be a field"),
        ({"require": " ,", "output": "o.tar"}, "--require ' ,' names no field"),
        ({"require": "jpg"}, "--require goes with -o or -O"),
        ({"allow_empty": True}, "--allow-empty goes with -o or -O"),
    ],
)
def test_what_cannot_be_required_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tarkit.process("s0.tar", command="true", **options)


def test_shards_that_were_done_before_there_was_require_stay_done() -> None:
    before = "0a77b7f3d6fc38f756a2b8bc14f72fd784ac6f46e607fef040bdf07376db16a2"
    assert Work(command="true").fingerprint() == Work(command="true", allow_empty=True).fingerprint() == before
    assert Work(command="true", require="jpg").fingerprint() != before


def test_fields_that_became_empty_are_counted() -> None:
    """dat was empty before, txt was not, and new was not there."""
    counts = tarkit.process("s0.tar", output="o.tar", command=": > sample.txt; : > sample.new", add_log="log.txt")
    assert (counts.out, counts.emptied, counts.exit_code) == (3, 6, 0)
    counts = tarkit.process("s0.tar", outdir="out", command=": > sample.txt")
    assert counts.emptied == 3
