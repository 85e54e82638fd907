"""Exchanges on Spark's stand-in, compared with those on this machine.

Spark itself is in test_spark_exchanges.py.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from exchangesteps import Grouped, write_shards
from sparkcontext import Pieces, ShufflingContext

import tarkit.spark
from tarkit.errors import MissingInputError, RepeatedKeyError, StreamError, UsageError
from tarkit.exchange.exchange import Exchange, Result, TooManyFailedError
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.placing import Placement
from tarkit.exchange.positions import PlaceOf, ordinal
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.step import Step
from tarkit.runs.status import progress_of
from tarkit.samples.rawsamples import RawSample
from tarkit.spark import exchanges, exchangetasks
from tarkit.spark.tasks import TaskError


@pytest.fixture(autouse=True)
def _pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "library", Mock())


def contents(folder: Path) -> dict[str, bytes]:
    """The shards, their indexes and their done records; the record of a run has the time."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".tarkit")}
    return {name: content for name, content in found.items() if "run" not in name}


def on_spark(step: Step, urls: list[str], folder: Path, **options: Any) -> Result:
    context = options.pop("context", None) or ShufflingContext()
    force = options.pop("force", False)
    found = tarkit.spark.exchange(
        step, urls, str(folder), settings=ExchangeSettings(**options), force=force, context=context
    )
    assert context.kept == 0
    return found


def here(step: Step, urls: list[str], folder: Path, **options: Any) -> Result:
    return Exchange(step, urls, str(folder), ExchangeSettings(**options)).run()


STEPS = [Shuffle(4), Grouped()]
CUTS = [{"shards": 20}, {"maxcount": 7}, {"maxsize": 20_000}, {"shards": 1}]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: next(iter(cuts)))
def test_the_outputs_are_those_of_a_run_on_this_machine(step: Step, cuts: dict[str, int], tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=4, samples=40)
    made, expected = on_spark(step, urls, tmp_path / "spark", **cuts), here(step, urls, tmp_path / "here", **cuts)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")
    assert made == expected and made.outputs == made.done > 0
    assert progress_of(str(tmp_path / "spark"), of_runs=True).unfinished == 0


def test_settings_are_kept(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20, same_keys=True)
    for number, options in enumerate([{"rekey": True}, {"on_repeated_key": "allow"}, {"rekey": True, "index": False}]):
        on_spark(Shuffle(1), urls, tmp_path / f"spark{number}", shards=4, **options)
        here(Shuffle(1), urls, tmp_path / f"here{number}", shards=4, **options)
        assert contents(tmp_path / f"spark{number}") == contents(tmp_path / f"here{number}")


def test_records_do_not_depend_on_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchangetasks, "_BATCH", 1)
    urls = write_shards(tmp_path, shards=4, samples=40)
    on_spark(Grouped(), urls, tmp_path / "spark", shards=3)
    here(Grouped(), urls, tmp_path / "here", shards=3)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")


def test_outputs_that_a_table_names(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20)
    names = ("train", "val", "test", "last")
    rows = [f"k{shard}-{number:04d},{names[number % 3]}" for shard in range(3) for number in range(15)]
    (tmp_path / "to.csv").write_text("\n".join(["key,output", *rows, "nosuch,zero", ""]))
    step = Shuffle(to=Placement(f"{tmp_path}/to.csv", "skip"), seed=3)
    made = tarkit.spark.exchange(step, urls, str(tmp_path / "spark"), context=ShufflingContext())
    assert made == here(step, urls, tmp_path / "here")
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")
    assert (made.counts.out, made.counts.filtered, made.outputs) == (45, 15, 4)


def test_members_of_no_sample_are_counted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        for name in ("a.txt", "nodot", "b.txt", "__x__"):
            tar.addfile(tarfile.TarInfo(name))
    made = on_spark(Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "spark", shards=2)
    assert made == here(Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "here", shards=2)
    assert sum(made.counts.met.skipped.values()) == 2


@pytest.mark.parametrize("again", [1, 100])
def test_tasks_that_run_twice_change_nothing(tmp_path: Path, again: int) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20)
    result = on_spark(Shuffle(1), urls, tmp_path / "spark", shards=5, context=ShufflingContext(again))
    here(Shuffle(1), urls, tmp_path / "here", shards=5)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")
    assert result.counts.out == 60


def test_a_sample_goes_through_the_shuffle_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchangetasks, "LARGE", 300_000)
    with tarkit.TarWriter(f"{tmp_path}/in.tar") as sink:
        for number, size in enumerate((0, 63_000, 64 << 10, 200_000, 1_000_000)):
            sink.write({"__key__": f"k{number}", "bin": os.urandom(size), "txt": b"x"})
    context = ShufflingContext()
    on_spark(Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "spark", shards=2, context=context)
    here(Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "here", shards=2)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")
    # Positions twice, digests of keys of up to 5 buckets, and 1 + 1 + 2 + 4 + 16 pieces.
    assert 10 + 24 < context.sorted <= 10 + 5 + 24


def test_equal_keys_are_an_error_that_names_both_inputs(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=4)
    with tarkit.TarWriter(urls[2]) as sink:
        sink.write({"__key__": "other", "txt": "1"})
        sink.write({"__key__": "k1-0002", "txt": "1"})
    with pytest.raises(RepeatedKeyError, match=r"in-02.tar.*k1-0002.*the key is in .*in-01.tar too.*--rekey"):
        on_spark(Shuffle(1), urls, tmp_path / "spark", shards=4)
    assert not [*tmp_path.glob("spark/shard*")]


@pytest.mark.parametrize("run", [on_spark, here])
def test_equal_keys_of_failed_samples(tmp_path: Path, run: Callable[..., Result]) -> None:
    for shard in range(3):
        with tarkit.TarWriter(f"{tmp_path}/in-{shard}.tar") as sink:
            sink.write({"__key__": "k" if shard else "other", "cls": "3" if shard == 1 else "2"})
    with pytest.raises(RepeatedKeyError, match=r"in-2.tar, key 'k': the key is in .*in-1.tar too"):
        run(Grouped(), [f"{tmp_path}/in-{shard}.tar" for shard in range(3)], tmp_path / "out", shards=1)


def test_failed_samples(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=40)
    result = on_spark(Grouped(), urls, tmp_path / "spark", shards=5)
    assert result.counts.failed > 0 and [*tmp_path.glob("spark/*.failed.tar")]
    message = "failed, the first: key 'k0-0005': it is of class 3; --max-errors is 2; nothing was gathered"
    with pytest.raises(TooManyFailedError, match=message):
        on_spark(Grouped(), urls, tmp_path / "few", shards=5, max_errors="2")
    assert not [*tmp_path.glob("few/shard*")]


class Lost(ShufflingContext):
    """A cluster that is gone after some outputs were made."""

    def parallelize(self, items: Any, number: int) -> Pieces:
        found = super().parallelize(items, number)
        write = GatheredOutput.publish
        made: list[int] = []

        def publish(output: GatheredOutput) -> Any:
            if len(made) == 2:
                raise ZeroDivisionError
            made.append(1)
            return write(output)

        self.patch.setattr(GatheredOutput, "publish", publish)
        return found

    patch: pytest.MonkeyPatch


@pytest.mark.parametrize("then", ["spark", "here"])
def test_a_run_that_was_killed_is_resumed(tmp_path: Path, then: str) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20)
    lost = Lost()
    with pytest.MonkeyPatch.context() as lost.patch, pytest.raises(ZeroDivisionError):
        on_spark(Shuffle(1), urls, tmp_path / "out", shards=5, context=lost)
    assert len([*tmp_path.glob("out/shard*.tar")]) == 2
    with pytest.raises(UsageError, match="another exchange"):
        on_spark(Shuffle(2), urls, tmp_path / "out", shards=5)
    context = ShufflingContext()
    if then == "spark":
        result = on_spark(Shuffle(1), urls, tmp_path / "out", shards=5, context=context)
        # Positions and keys of all, payload of the missing ones.
        assert context.sorted < 60 * 2 + 60 + 60
    else:
        result = here(Shuffle(1), urls, tmp_path / "out", shards=5)
    assert (result.done, result.done_before, result.counts.out) == (3, 2, 60)
    here(Shuffle(1), urls, tmp_path / "here", shards=5)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert not (tmp_path / "out" / "_exchange").exists()


def test_outputs_of_an_earlier_run(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20)
    here(Shuffle(1), urls, tmp_path / "out", shards=5)
    result = on_spark(Shuffle(1), urls, tmp_path / "out", shards=5)
    assert (result.done, result.done_before) == (0, 5)
    with pytest.raises(UsageError, match=r"has 5 shards of another run, such as shard-00000\d.tar; .*--force"):
        on_spark(Shuffle(2), urls, tmp_path / "out", shards=3)
    assert on_spark(Shuffle(2), urls, tmp_path / "out", shards=3, force=True).done == 3
    here(Shuffle(2), urls, tmp_path / "here", shards=3)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_forced_outputs_keep_nothing_of_earlier_ones(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20)
    here(Grouped(), urls, tmp_path / "out", shards=3)
    assert [*tmp_path.glob("out/*.failed.tar")]
    on_spark(Shuffle(2), urls, tmp_path / "out", shards=3, index=False, force=True)
    here(Shuffle(2), urls, tmp_path / "here", shards=3, index=False)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_inputs_without_samples(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=2, samples=0)
    assert on_spark(Shuffle(1), urls, tmp_path / "spark", maxcount=5).outputs == 0
    (tmp_path / "more").mkdir()
    urls += write_shards(tmp_path / "more", shards=2, samples=3)
    for step in STEPS:
        on_spark(step, urls, tmp_path / step.name, shards=3)
        here(step, urls, tmp_path / "here" / step.name, shards=3)
        assert contents(tmp_path / step.name) == contents(tmp_path / "here" / step.name)


def test_errors_of_tasks(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=4)
    Path(urls[1]).write_bytes(Path(urls[1]).read_bytes()[:3000])
    with pytest.raises(TaskError, match=r"in-01\.tar") as caught:
        on_spark(Shuffle(1), urls, tmp_path / "out", shards=2)
    assert caught.value.exit_code == 65
    with pytest.raises(MissingInputError):
        on_spark(Shuffle(1), [*urls, f"{tmp_path}/gone.tar"], tmp_path / "out2", shards=2)
    with pytest.raises(UsageError, match="name the input shards"):
        on_spark(Shuffle(1), [], tmp_path / "out3", shards=2)
    with pytest.raises(UsageError, match="12 samples cannot fill 13 shards"):
        on_spark(Shuffle(1), write_shards(tmp_path, shards=3, samples=4), tmp_path / "out4", shards=13)


@dataclass(frozen=True)
class Fickle(Step):
    """Give a sample another position each time."""

    name: ClassVar[str] = "fickle"
    folder: str = ""

    def place_of(self, shard: int) -> PlaceOf:
        def place(sample: RawSample, number: int) -> bytes:
            try:
                os.mkdir(f"{self.folder}/{sample.key}")
            except FileExistsError:
                return b"\0" + ordinal(shard, number)
            return b"\1" + ordinal(shard, number)

        return place


@dataclass(frozen=True)
class Incomplete(Step):
    """Write only the first sample."""

    name: ClassVar[str] = "incomplete"

    def place_of(self, shard: int) -> PlaceOf:
        return lambda sample, number: ordinal(shard, number)

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        output.copy([next(rows)])


def test_steps_that_lose_samples_are_found(tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=2, samples=4)
    (tmp_path / "seen").mkdir()
    steps = [
        (Fickle(str(tmp_path / "seen")), "8 samples came in, not 4; fickle must give a sample the same position"),
        (Incomplete(), "the counts do not add up, please report this: in 4 = out 1 "),
    ]
    for step, message in steps:
        with pytest.raises(TaskError, match=message):
            on_spark(step, urls, tmp_path / step.name, shards=2)
        assert not [*tmp_path.glob(f"{step.name}/shard*.tar")]


def test_a_folder_that_is_not_shared_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = write_shards(tmp_path, shards=2, samples=4)
    monkeypatch.setattr(exchanges, "entries", lambda folder: iter(()))
    with pytest.raises(StreamError, match=r"shard-000000.tar was written on another machine .*2 files.*machines share"):
        on_spark(Shuffle(1), urls, tmp_path / "out", shards=2)


def test_relative_names_make_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path, shards=2, samples=4)
    monkeypatch.chdir(tmp_path)
    on_spark(Shuffle(1), ["in-{00..01}.tar"], Path("spark"), shards=2)
    here(Shuffle(1), ["in-00.tar", "in-01.tar"], Path("here"), shards=2)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")


def test_without_pyspark_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"an exchange on Spark needs .* pip install pyspark .*extra 'spark'"):
        tarkit.spark.exchange(Shuffle(1), f"{tmp_path}/in.tar", str(tmp_path / "out"))


def test_bounds_of_ranges() -> None:
    sampled = [[b"%02d" % (each * 10 + number) for number in range(10)] for each in range(2)]
    slices = [exchangetasks.SliceSummary(0, 0, 0, 0, 0, "", {}, {}, 1 + each, sampled[each]) for each in range(2)]
    assert exchangetasks.range_bounds(slices, 3, in_groups=False) == [b"09", b"14"]
    assert exchangetasks.range_bounds(slices, 1, in_groups=False) == []
    assert exchangetasks.range_bounds([], 4, in_groups=False) == []
