"""Notebooks have no outputs in the repository, and every cell of them runs: tox
run -e notebooks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hdfs import Hdfs

FOLDER = Path(__file__).resolve().parents[3] / "notebooks"
NOTEBOOKS = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
IDS = list(NOTEBOOKS)
SECONDS = 900
"""For one cell, on a busy machine."""

needs_jupyter = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel")),
    reason="NO nbclient AND ipykernel, NO NOTEBOOK IS EXECUTED (tox run -e notebooks)",
)


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_the_notebooks_are_there() -> None:
    assert IDS == [
        "custom-data-source",
        "elastic-training",
        "etl-mapreduce",
        "openpai-hdfs",
        "recordio",
        "train-images",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=IDS)
def test_nothing_of_a_run_is_in_the_file(path: Path) -> None:
    text = path.read_text("utf-8")
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}, f"{cell['id']}: a tag could skip a cell or permit its failure"
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), f"{cell['id']} has outputs"
            assert "no-raise-error" not in source(cell)
            assert not source(cell).startswith("%%") or source(cell).startswith("%%bash -euo pipefail\n")
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=IDS)
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", "".join(map(source, json.loads(path.read_text("utf-8"))["cells"])))
    assert links
    assert [link for link in links if not (path.parent / link.partition("#")[0]).is_file()] == []


def test_every_cell_of_the_talk_is_there() -> None:
    cells = [cell["id"] for cell in json.loads(NOTEBOOKS["etl-mapreduce"].read_text("utf-8"))["cells"]]
    # The talk has no cell 1 and no cell 5.
    of_the_talk = [number for number in range(28) if number not in (1, 5)]
    assert [each for each in cells if re.fullmatch(r"in-\d+", each)] == [f"in-{number}" for number in of_the_talk]


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in cluster, which KUBECONFIG and kubectl on the PATH lead to."""
    if importlib.util.find_spec("kubernetes_validate") is None or shutil.which("kubectl") is None:
        pytest.skip("NO kubectl OR NO kubernetes-validate, THE NOTEBOOK HAS NO CLUSTER")
    from kubestandin import running_cluster

    (tmp_path / "pods").mkdir()
    with running_cluster(tmp_path / "pods") as started:
        monkeypatch.setenv("KUBECONFIG", str(started.kubeconfig))
        yield


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function: all cells of a notebook, executed; id -> what it printed."""
    folders = ("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    for name in folders:
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", os.environ["PATH"]]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    def run(path: Path) -> dict[str, str]:
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "a cell was not executed"
        if path.stem in ("custom-data-source", "etl-mapreduce", "recordio"):
            # Notebooks show it in red, as a failure.
            red = [cell.id for cell in code for output in cell.outputs if output.get("name") == "stderr"]
            assert red == [], "these cells print on standard error"
        return {cell.id: "".join(_text(output) for output in cell.outputs) for cell in code}

    return run


def _text(output: Any) -> str:
    return output.text if output.output_type == "stream" else output.data["text/plain"]


def unexpected(printed: dict[str, str], expected: dict[str, str]) -> dict[str, str]:
    """What cells printed that is not what is expected."""
    return {cell: printed[cell] for cell, pattern in expected.items() if not re.fullmatch(pattern, printed[cell])}


def lines(pattern: str, count: int) -> str:
    """A regular expression of so many lines."""
    return rf"(?:{pattern}\n){{{count}}}"


# In this order, and behind the one with a server, the notebooks take two workers of pytest-xdist
# about as long.

FIGURE = r"<Figure size .*>"
IMAGES = {
    "images": "1797 images\n",
    "create": r"(?s).*tarkit create: 1797 samples in 6 shards.*",
    "process": r"(?s).*in 1797 = out 1797 \+ filtered 0 \+ failed 0\n.*",
    "look": FIGURE,
    # On a busy machine the training goes on for a while before the notebook has seen that it is
    # time.
    "kill": r"killed after epoch [2-4] batch \d+\nsaved state: epoch [2-4] next batch \d+\n\d\d\d bytes of state\n",
    "resume": "",
    "proof": r"each of 1500 images once in each of 5 epochs; \d+ batches were done again\n",
    "audit": r"(?:epoch \d: complete: 1500 of 1500 samples used(?:, \d+ undone by a later start.*)?\n){5}",
    "loss": FIGURE,
    "who": FIGURE,
    "accuracy": r"297 images, accuracy (?:0\.9\d|1\.00)\n",
}


@needs_jupyter
@pytest.mark.notebooks
def test_train_images(results: Any) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn", "matplotlib")):
        pytest.skip("NO torch, scikit-learn OR matplotlib, THE NOTEBOOK CANNOT RUN")
    assert unexpected(results(NOTEBOOKS["train-images"]), IMAGES) == {}


FILES = r"data-00000 0 150 150\ndata-00000 150 200 50\ndata-00001 0 150 150\ndata-00001 150 178 28\n"
BY_SPARK = ["data-0-0000", "data-0-0001", "data-0-0002", "data-1-0000", "data-1-0001"]
LEFT_OUT = r"skipped (?:files|members): no-record 42\n"
RECORDIO = {
    "local": lines(r"records/data-0000\d", 3) + r"tarkit recordio-gen: 420 records in 3 files\n",
    "read": r"0 \(28, 28\)\n",
    "look": FIGURE,
    "index": r"200 records\n\[4, 4, 5, 5\]\n",
    "model": lines(r"prepared/data-0000\d", 2) + r"tarkit recordio-gen: 378 records in 2 files; " + LEFT_OUT,
    "spark": r"(?s).*"
    + "".join(rf"by-spark/{name}\n" for name in BY_SPARK)
    + r"recordio_gen: 378 records in 5 files; "
    + LEFT_OUT,
    "spark-same": re.escape(f"{BY_SPARK}\n"),
    "convert": r"tarkit convert: 84 records; read back and compared\ntarkit convert: 84 records\nthe same bytes\n",
    "convert-field": r"tarkit convert: 84 records; read back and compared\ntarkit convert: 84 records\n",
    "readers": FILES,
    "own-used": r"\[Shard\(name='text.words', start=0, records=16\)\]\n\['forgive', 'silent', 'users', 'forgive'\]\n",
    "damage": r"words\.recordio, offset 0: checksum mismatch .*\n162 records\nbytes 0 to 608: records 0 to 137: .*\n",
    "lost": FIGURE,
    "pyrecordio": r"b'users'\nb'forgive'\nb'slow'\n",
}


@needs_jupyter
@pytest.mark.notebooks
def test_recordio(results: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if (
        any(importlib.util.find_spec(name) is None for name in ("pyspark", "matplotlib"))
        or shutil.which("java") is None
    ):
        pytest.skip("NO pyspark, matplotlib OR java, THE NOTEBOOK CANNOT RUN")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert unexpected(results(NOTEBOOKS["recordio"]), RECORDIO) == {}


MEMBER = r"-r--r--r-- bigdata/bigdata +\d+ \S+ \S+ \S+"
LISTING = r"total \d+\n" + lines(r"-rw-r--r-- .*", 5)
SHARD_COUNTS = r"tarproc: in {0} = out {0} \+ filtered 0 \+ failed 0\n"
LOOKED_AT = SHARD_COUNTS.removesuffix(r"\n").format(3) + "; nothing was written, as there is neither -o nor -O\n"
TALK = {
    "in-0": "",
    "in-2": "".join(rf"imagenet_train-{number:04d}\.tgz\n" for number in range(10)),
    "in-3": r"imagenet_train-0000\.tgz\nimagenet_val-0000\.tgz\n",
    "in-4": lines(MEMBER, 10),
    "in-6": lines(r"__key__\n__source__\nsample\.cls\nsample\.jpg\nsample\.json", 3) + LOOKED_AT,
    "in-7": "n00000000_0\nn00000001_1\nn00000002_2\n" + LOOKED_AT,
    "in-8": SHARD_COUNTS.format(3),
    "in-9": lines(rf"{MEMBER}\.cls\n{MEMBER}\.json\n{MEMBER}\.ppm", 3),
    "look": FIGURE,
    "in-11": SHARD_COUNTS.format(40) + r"\nreal\s.*\nuser\s.*\nsys\s.*\n",
    "in-12": SHARD_COUNTS.format(40) + r"\nreal\s.*\nuser\s.*\nsys\s.*\n",
    "same-bytes": "the same bytes\n",
    "time": FIGURE,
    "in-14": r"0 n00000000_0\n40\n",
    "local": r"(?s).*: done 1 of 1\n.*" + LISTING * 3 + LOOKED_AT,
    "in-16": r"(?s).*NotFound.*job\.batch/job0000 created\n",
    "in-17": r"job0000: complete after .*\nindexes: 1 of 1 done, 0 running, 0 failed, 0 left\n",
    "in-18": LISTING * 3 + LOOKED_AT,
    "in-19": r'job\.batch "job0000" deleted.*\njob\.batch/job0000 created\n',
    "in-21": r"(?s).*\d+ bytes .* copied, .*",
    "in-23": "".join(rf"job\.batch/job{number:04d} created\n" for number in range(138, 148)),
    # The line of a busy machine, on which no pod runs for half a minute.
    "in-24": r"(?:kubetpl wait: no pod of job runs; .*\n)*148 Jobs: 148 complete\n",
    "in-25": r" *148 Completed\n",
    "in-27": lines(r"(?:(?:job\.batch|pod) .* deleted.*|No resources found)", 10),
}


@needs_jupyter
@pytest.mark.notebooks
@pytest.mark.usefixtures("standin")
def test_the_talk(results: Any) -> None:
    if importlib.util.find_spec("matplotlib") is None or None in map(shutil.which, ("convert", "curl")):
        pytest.skip("NO matplotlib, convert (ImageMagick) OR curl, THE NOTEBOOK CANNOT RUN")
    printed = results(NOTEBOOKS["etl-mapreduce"])
    assert unexpected(printed, TALK) == {}


ELASTIC = {
    "recordio": lines(r"records/data-0000\d", 3) + r"tarkit recordio-gen: 150 records in 3 files\n",
    "tar": r"iris-0\.idx iris-0\.tar iris-1\.idx iris-1\.tar iris-2\.idx iris-2\.tar\n",
    "same": lines(r"\S+ \(150, 4\) \[50 50 50\]", 3),
    "run": r"iris: shards: done 450, dead 0; records done 4500; epochs begun 30\n",
    "loss": FIGURE,
    "who": FIGURE,
    "proof": r"iris-\{0\.\.2\}\.tar: each of 4500 records was acknowledged exactly once\n"
    r"read twice: 10 records, in epoch \d+: by worker-0, then by worker-[12]\n",
    "accuracy": r"accuracy (?:0\.9\d|1\.00)\n",
    "others": r"iris\.csv: each of 450 records was acknowledged exactly once\n"
    r"records: each of 450 records was acknowledged exactly once\n",
}
needs_iris = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sklearn", "matplotlib", "grpc")),
    reason="NO scikit-learn, matplotlib OR grpcio, THE NOTEBOOKS ABOUT THE SHARD SERVICE CANNOT RUN",
)


@needs_jupyter
@needs_iris
@pytest.mark.notebooks
def test_elastic_training(results: Any) -> None:
    assert unexpected(results(NOTEBOOKS["elastic-training"]), ELASTIC) == {}


SOURCE = {
    "alone": re.escape(
        "[Shard(name='setosa', start=0, records=50), Shard(name='versicolor', start=0, records=50), "
        "Shard(name='virginica', start=0, records=50)]\n[(5.1, 2.0), (5.3, 1.9), (5.5, 2.1)]\n"
    ),
    "serve": r"flowers: shards: done 63, dead 0; records done 450; epochs begun 3\n",
    "proof": r"each row of each epoch was read and acknowledged once\n",
    "who": FIGURE,
    "mistakes": r"tarkit: tables\.py:TableReader cannot be called with .* argument 'columms'\nexit code 2\n"
    r"tarkit: tables\.py has no function 'Reader'\nexit code 2\n",
}


@needs_jupyter
@needs_iris
@pytest.mark.notebooks
def test_custom_data_source(results: Any) -> None:
    assert unexpected(results(NOTEBOOKS["custom-data-source"]), SOURCE) == {}


TRAINED = r"digits\.{}: 300 images, accuracy 0\.[789]\d, SHA-256 [0-9a-f]{{64}}\n"
OPENPAI = {
    "images": "300 images\n",
    "put": lines(r"hdfs://.*/small/[01]/", 2) + "39\n",
    "tar": lines(r"hdfs://.*/digits-\d\.tar", 3),
    "convert": r"tarkit convert: 300 records; read back and compared\ntarkit convert: 600 records; .*\n",
    "sequencefile": r"org\.apache\.hadoop\.io\.BytesWritable\n",
    "packed": lines(r"digits-\d\.tar", 3)
    + r"digits\.har/\ndigits\.seq\ndigits\.tfrecord\nsmall/\n"
    + lines(r"digits\.har/\S+", 3),
    "program": "".join(map(TRAINED.format, ("seq", "tfrecord", "har"))),
    "same": re.escape("[True, True, True]\n"),
    "job": r"(?s)protocolVersion: 2\n.*accepted\n",
    "local": r"tarproc: shards: done 1,.*\ntarproc: shards: done 2,.*\n"
    + r"\.tarkit-run-[0-9a-f]{16}\.json\n"
    + lines(r"digits-\d\.tar\ndigits-\d\.tar\.done\.json", 3)
    + "100\n",
    "check": r"tarkit pai: train\.json: it is not JSON: .*\nexit code 65\n"
    r"tarkit pai: train\.json: taskRoles\[0\]\.shmMB: .*\nexit code 65\nexit code 0\n",
    "convert-job": r"(?s)protocolVersion: 2\n.*accepted\n",
    "train": TRAINED.format("seq"),
    "clean": "",
}


@needs_jupyter
@pytest.mark.notebooks
def test_openpai_hdfs(hdfs: Hdfs, results: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn", "hdfs_native", "jsonschema")):
        pytest.skip("NO torch, scikit-learn, hdfs-native OR jsonschema, THE NOTEBOOK CANNOT RUN")
    # The user of the tests need not be HDFS's superuser.
    hdfs.shell("-chmod", "777", "/")
    monkeypatch.setenv("PAI_DEFAULT_FS_URI", hdfs.hdfs)
    assert unexpected(results(NOTEBOOKS["openpai-hdfs"]), OPENPAI) == {}
