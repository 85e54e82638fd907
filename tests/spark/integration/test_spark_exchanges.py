"""Exchanges on Spark itself (tox run -e spark), compared with those on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exchangesteps
import pytest
import sparkcluster
from exchangesteps import Grouped, KillsOnce, Raises, write_shards

import tarkit.spark
from tarkit.errors import RepeatedKeyError
from tarkit.exchange.exchange import Exchange, Result
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.step import Step
from tarkit.spark.tasks import TaskError

pytestmark = pytest.mark.spark
pyspark = pytest.importorskip("pyspark", reason="NO pyspark, EXCHANGES ON SPARK ARE NOT TESTED")

SHARDS, SAMPLES = 7, 100


@pytest.fixture(scope="module", params=["local", "cluster"])
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of two local tasks, and of a standalone cluster of two workers."""
    # The tasks get the steps of the tests as they get those of a notebook.
    pyspark.cloudpickle.register_pickle_by_value(exchangesteps)
    if request.param == "local":
        with sparkcluster.context("local[2]") as found:
            yield found
    else:
        with sparkcluster.cluster(tmp_path_factory.mktemp("spark")) as master, sparkcluster.context(master) as found:
            yield found


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return write_shards(tmp_path, shards=SHARDS, samples=SAMPLES)


def contents(folder: Path) -> dict[str, bytes]:
    """Shards, indexes and done records, but not the record of the run, which has the time."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("shard-")}


def on_spark(context: Any, step: Step, urls: list[str], folder: Path, **options: Any) -> Result:
    force = options.pop("force", False)
    settings = ExchangeSettings(**options)
    return tarkit.spark.exchange(step, urls, str(folder), settings=settings, force=force, context=context)


def here(step: Step, urls: list[str], folder: Path, **options: Any) -> Result:
    return Exchange(step, urls, str(folder), ExchangeSettings(**options)).run()


@pytest.mark.parametrize("step", [Shuffle(3), Grouped()], ids=lambda step: step.name)
@pytest.mark.parametrize("cuts", [{"shards": 20}, {"maxsize": 60_000}], ids=["shards", "maxsize"])
def test_the_bytes_are_those_of_a_run_on_this_machine(
    context: Any, urls: list[str], tmp_path: Path, step: Step, cuts: dict[str, int]
) -> None:
    made = on_spark(context, step, urls, tmp_path / "spark", **cuts)
    expected = here(step, urls, tmp_path / "here", **cuts)
    found = contents(tmp_path / "spark")
    assert found == contents(tmp_path / "here")
    assert len([name for name in found if name.endswith(".done.json")]) == made.outputs > 10
    assert len([name for name in found if name.endswith(".idx")]) == made.outputs
    assert made.counts.read == SHARDS * SAMPLES
    assert made.counts.failed == (
        0 if step.name == "shuffle" else expected.counts.failed > 0 and expected.counts.failed
    )
    # A speculative attempt finds an output that another one has made, and returns its record.
    assert (made.counts, made.dropped, made.size) == (expected.counts, expected.dropped, expected.size)


def test_equal_keys(context: Any, tmp_path: Path) -> None:
    urls = write_shards(tmp_path, shards=3, samples=20, same_keys=True)
    with pytest.raises(RepeatedKeyError, match=r"in-\d\d.tar.*'k00\d\d'.*the key is in .*in-00.tar too.*--rekey"):
        on_spark(context, Shuffle(1), urls, tmp_path / "out", shards=4)
    assert not [*tmp_path.glob("out/shard-*")]
    on_spark(context, Shuffle(1), urls, tmp_path / "spark", shards=4, rekey=True)
    here(Shuffle(1), urls, tmp_path / "here", shards=4, rekey=True)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")


def test_a_run_whose_outputs_are_partly_there(context: Any, urls: list[str], tmp_path: Path) -> None:
    here(Shuffle(1), urls, tmp_path / "here", shards=9)
    on_spark(context, Shuffle(1), urls, tmp_path / "out", shards=9)
    for number in (0, 4, 8):
        (tmp_path / "out" / f"shard-00000{number}.tar.done.json").unlink()
    result = on_spark(context, Shuffle(1), urls, tmp_path / "out", shards=9, force=True)
    assert (result.done, result.done_before) == (3, 6)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_large_samples(context: Any, tmp_path: Path) -> None:
    with tarkit.TarWriter(f"{tmp_path}/in.tar") as sink:
        for number in range(4):
            sink.write({"__key__": f"k{number}", "bin": os.urandom(1 << 20) * (40 if number == 2 else 2)})
    on_spark(context, Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "spark", shards=2)
    here(Shuffle(1), [f"{tmp_path}/in.tar"], tmp_path / "here", shards=2)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")


def test_a_task_that_is_killed(context: Any, urls: list[str], tmp_path: Path) -> None:
    if context.master.startswith("local"):
        # There, Spark runs a task once.
        (tmp_path / "marker").mkdir()
    step = KillsOnce(str(tmp_path / "marker"))
    result = on_spark(context, step, urls, tmp_path / "spark", shards=4)
    assert (tmp_path / "marker").is_dir() and result.counts.out == SHARDS * SAMPLES
    here(step, urls, tmp_path / "here", shards=4)
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")


def test_errors_are_one_line(context: Any, urls: list[str], tmp_path: Path) -> None:
    Path(urls[3]).write_bytes(Path(urls[3]).read_bytes()[:20_000])
    with pytest.raises(TaskError, match=r"in-03.tar") as caught:
        on_spark(context, Shuffle(1), urls, tmp_path / "out", shards=3)
    assert caught.value.exit_code == 65 and "\n" not in str(caught.value)


def test_a_step_that_raises_is_one_line(context: Any, urls: list[str], tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"a task failed on the Spark cluster: ZeroDivisionError") as caught:
        on_spark(context, Raises(), urls, tmp_path / "out", shards=3)
    assert "\n" not in str(caught.value)
