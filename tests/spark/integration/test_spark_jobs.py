"""Jobs on Spark itself (tox run -e spark): the command line, and a cluster whose tasks and
executors are killed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sparkcluster
from sparkcontext import Context

import tarkit
from tarkit.errors import MissingInputError
from tarkit.formats.example import decode_example
from tarkit.formats.recordio import read_records
from tarkit.runs.work import Work
from tarkit.spark import process
from tarkit.spark.records import generate_records
from tarkit.spark.tasks import TaskError

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="NO pyspark, JOBS ON SPARK ARE NOT TESTED")

PROGRAM = Path(tarkit.__file__).parent / "spark" / "recordio_gen.py"
FILES = 60

MODEL = """
import json, os, time

def first_time():
    try:
        os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    with open({marker!r}, "w") as file:
        json.dump(os.listdir({out!r}), file)
    return True

def executor():
    # The parent of this process is pyspark's daemon, and its parent is the JVM.
    with open(f"/proc/{{os.getppid()}}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

def prepare_data_for_a_single_file(file, name):
    if {when} and first_time():
        {deed}
    return file.read()
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a standalone cluster."""
    with sparkcluster.cluster(tmp_path_factory.mktemp("spark")) as master, sparkcluster.context(master) as found:
        yield found


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that do not compress, as a folder and as tars."""
    folder = tmp_path_factory.mktemp("raw")
    data = random.Random(7)
    for number in range(FILES):
        path = folder / "raw" / str(number % 4) / f"f{number:02d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.randbytes(data.randrange(200_000)))
    for name, mode in (("raw.tar", "w"), ("raw.tar.gz", "w:gz")):
        with tarfile.open(folder / name, mode) as tar:  # type: ignore[call-overload]
            tar.add(folder / "raw", "raw")
    (folder / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    return file.read()\n")
    return folder / "raw"


def generate(context: Any, source: Path, out: Path, **options: Any) -> None:
    """A job with small chunks; what it returns is what is in the folder."""
    settings = {"model_file": str(source.parent / "model.py"), "records_per_file": 7, "workers": 4, **options}
    written = generate_records(str(source), str(out), is_tar="tar" in source.name, context=context, **settings)
    assert [file.name for file in written] == sorted(os.listdir(out))


def records(folder: Path) -> Counter[bytes]:
    return Counter(record for path in folder.iterdir() for record in read_records(path))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["raw", "raw.tar", "raw.tar.gz"])
def test_a_cluster_writes_the_same_bytes_each_time(context: Any, raw: Path, tmp_path: Path, name: str) -> None:
    for out in ("one", "two"):
        generate(context, raw.parent / name, tmp_path / out)
    generate(Context(), raw.parent / name, tmp_path / "three")
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "three")
    assert records(tmp_path / "one") == Counter(path.read_bytes() for path in raw.rglob("f*"))
    assert len(contents(tmp_path / "one")) == 12


@pytest.mark.parametrize(
    "deed",
    ["os.kill(os.getpid(), 9)", "os.kill(executor(), 9); time.sleep(600)", "time.sleep(600)"],
    ids=["task killed", "executor killed", "task too slow"],
)
def test_a_task_that_is_lost_while_it_writes(context: Any, raw: Path, tmp_path: Path, deed: str) -> None:
    """The third one sleeps until a speculative attempt of it has ended, and Spark kills it."""
    out, marker = tmp_path / "out", tmp_path / "marker"
    text = MODEL.format(marker=str(marker), out=str(out), when="name.endswith('f34')", deed=deed)
    (tmp_path / "model.py").write_text(text)
    begin = time.monotonic()
    generate(context, raw, out, model_file=str(tmp_path / "model.py"))
    assert time.monotonic() - begin < 600, "Spark waited for the task that sleeps"
    assert any(name.startswith(".data-") for name in json.loads(marker.read_text())), "it was not writing"
    assert records(out) == Counter(path.read_bytes() for path in raw.rglob("f*"))
    generate(Context(), raw, tmp_path / "expected")
    assert contents(out) == contents(tmp_path / "expected")


def test_a_task_that_is_always_lost_is_one_line(context: Any, raw: Path, tmp_path: Path) -> None:
    text = MODEL.format(marker="/dev/null", out="/", when="name.endswith('f34')", deed="pass")
    (tmp_path / "model.py").write_text(text.replace("return file.read()", "os._exit(1)"))
    with pytest.raises(TaskError, match="Python worker exited unexpectedly") as caught:
        generate(context, raw, tmp_path / "out", model_file=str(tmp_path / "model.py"))
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    assert not list(tmp_path.glob("out/.*"))
    with pytest.raises(MissingInputError):
        generate(context, raw, tmp_path / "out", model_file=str(tmp_path / "gone.py"))


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for shard in range(6):
        with tarkit.TarWriter(f"{tmp_path}/in-{shard}.tar") as sink:
            for number in range(5):
                sink.write({"__key__": f"k{shard}{number}", "txt": f"{number}"})
    return f"{tmp_path}/in-{{0..5}}.tar"


def test_a_work_whose_task_is_killed(context: Any, shards: str, tmp_path: Path) -> None:
    command = f"mkdir {tmp_path}/marker 2>/dev/null && kill -9 $PPID; echo more >> sample.txt"
    counts = process(Work(outdir=f"{tmp_path}/out", command=command), shards, context=context)
    assert (tmp_path / "marker").is_dir()
    assert counts.shards_done + counts.shards_before == 6
    again = tarkit.process(shards, outdir=f"{tmp_path}/out", command=command)
    assert (again.shards_done, again.shards_before) == (0, 6)
    tarkit.process(shards, outdir=f"{tmp_path}/here", command=command)
    for number in range(6):
        name = f"in-{number}.tar"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    left = [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    assert len(left) == 12


def test_a_lambda_is_sent(context: Any, shards: str, tmp_path: Path) -> None:
    work = Work(outdir=f"{tmp_path}/out", function=lambda sample: {**sample, "len": str(len(sample["txt"])).encode()})
    counts = process(work, shards, context=context, partitions=2)
    # A speculative attempt of a task finds shards that the first attempt has made.
    assert counts.shards_done + counts.shards_before == 6
    made = [sample["len"] for sample in tarkit.read_samples(f"{tmp_path}/out/in-{{0..5}}.tar")]
    assert made == [b"1"] * 30


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


MNIST = """
import numpy
from PIL import Image
from types import SimpleNamespace

def prepare_data_for_a_single_file(file, name):
    return numpy.array(Image.open(file), "float32"), numpy.array(int(name.split("/")[-2]))

def feature_columns():
    return [SimpleNamespace(key="image")]

def label_columns():
    return [SimpleNamespace(key="label")]
"""


def test_the_command_line_of_2019(tmp_path: Path) -> None:
    """Pictures like MNIST's as jpg, a model file that spark-submit sends, and folders that end with
    a slash.
    """
    numpy, pillow = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    for number in range(410):
        path = tmp_path / "training_data" / str(number % 10) / f"img_{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(numpy.full((28, 28), number % 256, "uint8")).save(path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mnist_functional_api.py").write_text(MNIST)
    done = run(
        sparkcluster.home() / "bin" / "spark-submit", "--master", "local[2]",
        "--files", "models/mnist_functional_api.py", PROGRAM,
        f"--training_data_dir={tmp_path}/training_data/", f"--output_dir={tmp_path}/sample_recordio_output/",
        "--model_file=mnist_functional_api.py", "--records_per_file=200", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = ["data-0-0000", "data-0-0001", "data-1-0000", "data-1-0001"]
    out = tmp_path / "sample_recordio_output"
    assert sorted(path.name for path in out.iterdir()) == names
    # spark-submit sends both streams of a Python program to standard output.
    lines = done.stdout.splitlines()[-5:]
    assert lines == [*(f"{out}/{name}" for name in names), "recordio_gen: 410 records in 4 files"]
    found = [decode_example(record) for name in names for record in read_records(out / name)]
    assert [next(iter(example["label"] or ())) for example in found] == sorted(number % 10 for number in range(410))
    assert {len(example["image"] or ()) for example in found} == {784}


def test_an_error_of_a_task_is_the_last_line_and_the_exit_code(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    raise ValueError(name)\n")
    done = run(
        sys.executable, "-m", "tarkit.spark.recordio_gen", "--training_data_tar_file", f"{raw}.tar.gz",
        "--output_dir=out", "--model_file=model.py", "--num-workers=1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 65
    assert done.stderr.splitlines()[-1].endswith(
        f"recordio_gen: {raw}.tar.gz, member 'raw/0/f00': prepare_data_for_a_single_file raised ValueError: raw/0/f00"
    )
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()
