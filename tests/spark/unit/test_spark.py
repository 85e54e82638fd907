"""What the jobs on Spark do, in one process: slices, names, bytes, errors.

Spark itself is in test_spark_jobs.py.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sparkcontext import MODEL, Context
from tarkit.cli.sparkrecords import command, main
from traced import traced_peak

import tarkit
from tarkit.errors import DataError, MissingInputError, StreamError, TarkitError, TemporaryStreamError, UsageError
from tarkit.formats.example import decode_example
from tarkit.formats.recordio import read_records
from tarkit.formats.tally import Tally
from tarkit.runs.work import Work
from tarkit.spark import process, tasks
from tarkit.spark.records import RecordFile, generate_records
from tarkit.spark.sourceslices import FolderSlice, TarSlice, plan_slices


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """25 files in folders, one of them hidden; and the same as tars."""
    for number in range(25):
        path = tmp_path / "raw" / f"class{number % 3}" / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d " % number * (number * 400))
    (tmp_path / "raw" / ".hidden").write_bytes(b"x")
    names = sorted(path for path in (tmp_path / "raw").rglob("*") if path.is_file())
    for name, mode in (("raw.tar", "w"), ("raw.tgz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as tar:  # type: ignore[call-overload]
            for path in reversed(names):
                # Long names have headers of their own before them.
                tar.add(path, f"./{'long/' * 30}{path.relative_to(tmp_path)}" if "13" in path.name else path.name)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "raw"


def contents(folder: Path) -> dict[str, list[bytes]]:
    return {path.name: list(read_records(path)) for path in sorted(folder.iterdir())}


def generate(source: Path, folder: Path, **options: Any) -> list[RecordFile]:
    options.setdefault("model_file", str(source.parent / "model.py"))
    options.setdefault("context", Context())
    is_tar = source.is_file() or "tar" in source.name
    return generate_records(str(source), str(folder), is_tar=is_tar, **options)


@pytest.mark.parametrize("name", ["raw", "raw.tar", "raw.tgz"])
@pytest.mark.parametrize("workers", [1, 3, 26])
def test_slices_are_contiguous_and_give_each_file_once(raw: Path, name: str, workers: int) -> None:
    tally = Tally()
    is_tar = name != "raw"
    slices, classes = plan_slices(str(raw.parent / name), workers, tally, is_tar=is_tar, with_classes=False)
    files = [(file.name, file.read()) for part in slices for file in part.files()]
    assert tally.skipped["hidden"] == 1 and classes is None
    paths = sorted(raw.rglob("*.jpg"), reverse=is_tar)
    assert [content for _, content in files] == [path.read_bytes() for path in paths]
    assert max(len(list(part.files())) for part in slices) == -(-25 // workers)
    assert [part.number for part in slices] == sorted({part.number for part in slices})
    for part in slices[1:]:
        assert isinstance(part, TarSlice if is_tar else FolderSlice)
        assert not isinstance(part, TarSlice) or (part.skip, part.offset).index(0) == (name == "raw.tgz")


@pytest.mark.parametrize("name", ["raw", "raw.tar", "raw.tgz"])
def test_files_are_named_by_worker_and_chunk_and_hold_each_record_once(raw: Path, tmp_path: Path, name: str) -> None:
    written = generate(raw.parent / name, tmp_path / "out", records_per_file=5)
    found = contents(tmp_path / "out")
    assert list(found) == [f"data-{worker}-{chunk:04d}" for worker in range(2) for chunk in range(3)]
    assert written == [RecordFile(name, len(records)) for name, records in found.items()]
    assert [len(records) for records in found.values()] == [5, 5, 2, 5, 5, 3]
    expected = [path.read_bytes() for path in sorted(raw.rglob("*.jpg"), reverse=name != "raw")]
    assert [record for records in found.values() for record in records] == expected


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "\udcff\n.jpg").write_bytes(b"hello")
    (tmp_path / "model.py").write_text(MODEL)
    assert generate(tmp_path / "raw", tmp_path / "out") == [RecordFile("data-1-0000", 1)]


def test_a_multiple_of_the_records_in_a_file_leaves_no_empty_file(raw: Path, tmp_path: Path) -> None:
    next(raw.rglob("*.jpg")).unlink()
    written = generate(raw, tmp_path / "out", records_per_file=6)
    assert [file.records for file in written] == [6, 6, 6, 6]
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_workers_without_files_write_nothing(raw: Path, tmp_path: Path) -> None:
    context = Context()
    written = generate(raw, tmp_path / "out", workers=60, context=context)
    assert context.tasks == len(written) == 25
    (tmp_path / "none").mkdir()
    assert generate(tmp_path / "none", tmp_path / "out2") == []
    assert not (tmp_path / "out2").exists()


def test_images_without_a_model_file(raw: Path, tmp_path: Path) -> None:
    generate(raw, tmp_path / "a", model_file=None)
    found = [decode_example(record) for each in contents(tmp_path / "a").values() for record in each]
    assert [list(record["label"] or ()) for record in found] == [[0]] * 9 + [[1]] * 8 + [[2]] * 8
    with pytest.raises(tasks.TaskError, match=r"raw.tar, member '\d+.jpg': the folder '' is not one of the classes"):
        generate(tmp_path / "raw.tar", tmp_path / "b", model_file=None, classes=["class0"])
    with pytest.raises(DataError, match="an image is in no folder"):
        generate(tmp_path / "raw.tar", tmp_path / "b", model_file=None)


def test_a_task_that_is_run_again_changes_nothing(raw: Path, tmp_path: Path) -> None:
    generate(raw, tmp_path / "once", records_per_file=5)
    generate(raw, tmp_path / "twice", records_per_file=5, context=Context(again=2))
    for path in (tmp_path / "once").iterdir():
        assert path.read_bytes() == (tmp_path / "twice" / path.name).read_bytes()
    assert len(list((tmp_path / "twice").iterdir())) == 6


def test_files_of_an_attempt_that_was_lost_do_not_stay(raw: Path, tmp_path: Path) -> None:
    """A function that gives fewer records in the second attempt, against the rules, leaves none of
    the first.
    """
    (tmp_path / "model.py").write_text(
        "import os\n"
        "def prepare_data_for_a_single_file(file, name):\n"
        f"    again = os.path.exists({str(tmp_path / 'again')!r})\n"
        f"    open({str(tmp_path / 'again')!r}, 'w').close() if '24' in name else None\n"
        "    return None if again and '1' in name else file.read()\n"
    )
    written = generate(raw, tmp_path / "out", workers=1, records_per_file=2, context=Context(again=1))
    assert [file.name for file in written] == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert sum(file.records for file in written) < 25


def test_what_killed_tasks_left_is_removed(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".data-0-0000.tarkit-0123abcd").write_bytes(b"half")
    (tmp_path / "out" / "notes.txt").write_bytes(b"mine")
    generate(raw, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["data-0-0000", "data-1-0000", "notes.txt"]
    (tmp_path / "out" / ".data-0-0000.tarkit-0123abcd").write_bytes(b"half")
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    raise KeyError(3)\n")
    with pytest.raises(tasks.TaskError):
        generate(raw, tmp_path / "out", force=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_files_of_an_earlier_run(raw: Path, tmp_path: Path) -> None:
    generate(raw, tmp_path / "out", records_per_file=1)
    (tmp_path / "out" / ".data-0-0000.tarkit-0123abcd").touch()
    with pytest.raises(UsageError, match=r"out has 25 files of an earlier run, such as data-0-0000; --force replaces"):
        generate(raw, tmp_path / "out")
    # The folder may be that of a job that runs.
    assert len(list((tmp_path / "out").iterdir())) == 26
    assert len(generate(raw, tmp_path / "out", force=True)) == len(list((tmp_path / "out").iterdir())) == 2


def test_a_folder_that_is_not_shared_is_an_error(raw: Path, tmp_path: Path) -> None:
    class Elsewhere(Context):
        def collect(self) -> list[Any]:
            found = super().collect()
            (tmp_path / "out" / "data-1-0000").unlink()
            return found

    with pytest.raises(StreamError, match=r"data-1-0000 was written on another machine .* that all machines share"):
        generate(raw, tmp_path / "out", context=Elsewhere())


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        ("x = 1\n", "has no function prepare_data_for_a_single_file", 2),
        ("import nosuchmodule\n", "model.py' raised ModuleNotFoundError: No module named 'nosuchmodule'", 2),
        ("def (\n", "model.py' is not Python: ", 2),
        ("def prepare_data_for_a_single_file(f, n): return 3\n", "raw, member 'class0/00.jpg': .* gave int", 65),
        (
            "def prepare_data_for_a_single_file(f, n): 1 / 0\n",
            "jpg': .* raised ZeroDivisionError: division",
            65,
        ),
        ("def prepare_data_for_a_single_file(f): pass\n", "takes files on disk; name a folder of them", 2),
    ],
)
def test_errors_in_tasks_are_one_line_with_a_code(
    raw: Path, tmp_path: Path, text: str, message: str, code: int
) -> None:
    (tmp_path / "model.py").write_text(text)
    source = tmp_path / "raw.tar" if "disk" in message else raw
    with pytest.raises(TarkitError, match=message) as caught:
        generate(source, tmp_path / "out")
    assert caught.value.exit_code == code and "\n" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*"))


def test_sources_that_are_missing_damaged_or_changed(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        generate(tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "cut.tar").write_bytes((tmp_path / "raw.tar").read_bytes()[:60_000])
    with pytest.raises(DataError, match=r"cut.tar"):
        generate(tmp_path / "cut.tar", tmp_path / "out")
    (part,), _ = plan_slices(str(tmp_path / "raw.tar"), 1, Tally(), is_tar=True, with_classes=False)
    (tmp_path / "raw.tar").write_bytes(b"")
    with pytest.raises(TemporaryStreamError, match="the tar changed after it was listed; run the job again"):
        list(part.files())
    assert isinstance(part, TarSlice)
    (tmp_path / "raw.tar").write_bytes(bytes(10240))
    assert plan_slices(str(tmp_path / "raw.tar"), 1, Tally(), is_tar=True, with_classes=False) == ([], None)


def test_a_tar_that_changes_while_a_slice_of_it_is_read(raw: Path, tmp_path: Path) -> None:
    """In place, with the same headers: the next records would be those of another tar."""
    path = tmp_path / "raw.tar"
    (part,), _ = plan_slices(str(path), 1, Tally(), is_tar=True, with_classes=False)
    files = part.files()
    next(files)
    os.utime(path, ns=(1, 1))
    with pytest.raises(TemporaryStreamError, match="the tar changed after it was listed; run the job again"):
        list(files)


def test_a_spark_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's errors have many lines, and some have none."""
    no_java = Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
    for error, message in (
        (Exception("no\nat x"), "started: no$"),
        (Exception(), "started: Exception$"),
        (no_java, "port number.; Spark 4 needs Java 17 or newer: install it, or set JAVA_HOME$"),
    ):
        library = Mock(**{"SparkContext.side_effect": error})
        monkeypatch.setattr(tasks, "library", lambda *_, library=library: library)
        with pytest.raises(UsageError, match=message), tasks.new_context("x"):
            pass


def test_what_spark_reports_becomes_one_line() -> None:
    reason = tasks._reason
    lost = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, "
    lost += "most recent failure: Lost task 0.1 (TID 6) (host executor 1): ExecutorLostFailure (exit code 137)\n\tat a"
    assert reason(lost) == (
        "a task failed on the Spark cluster: Lost task 0.1 (TID 6) (host executor 1): ExecutorLostFailure "
        "(exit code 137)"
    )
    raised = "PythonException: [X] Traceback (most recent call last):\n  File x\n    y()\n{}\n SQLSTATE: 38000\n"
    assert reason(raised.format("OSError: [Errno 28] full")).endswith("cluster: OSError: [Errno 28] full")
    assert "install tarkit" in reason(raised.format("ModuleNotFoundError: No module named 'tarkit'"))


def test_without_pyspark_the_extra_is_named(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"a job on Spark needs .* pip install pyspark .*extra 'spark'"):
        generate(raw, tmp_path / "out", context=None)
    with pytest.raises(ImportError, match=r"a run on Spark needs .* pip install pyspark"):
        process(Work(outdir=str(tmp_path / "out"), command="true"), str(tmp_path / "raw.tar"))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for shard in range(5):
        with tarkit.TarWriter(f"{tmp_path}/in-{shard}.tar") as sink:
            for number in range(4):
                sink.write({"__key__": f"k{shard}{number}", "txt": f"{number}"})
    return tmp_path


def work(shards: Path, **options: Any) -> Work:
    return Work(outdir=f"{shards}/out", **({"command": "echo more >> sample.txt"} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outdir": None}, "needs outdir"),
        ({"output": "x.tar"}, "output is not for a Work on Spark"),
        ({"slice": "0/2"}, "slice is not for"),
        ({"working_dir": "w"}, "working_dir is not for"),
        ({"retry_failed": "x"}, "retry_failed is not for"),
        ({"report": "x.json"}, "report is not for"),
        ({"inputs": ()}, "name the input shards"),
        ({"inputs": ("-",)}, "standard input and output are not on the cluster"),
        ({"inputs": ("a/x.tar", "b/x.tar")}, "would both become x.tar"),
    ],
)
def test_what_cannot_be_on_spark_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"outdir": "out", "command": "true", "inputs": ("x.tar",)} | options
    with pytest.raises(UsageError, match=message):
        process(Work(**given), context=Context())


def test_an_error_of_the_whole_run_comes_back_with_its_code(shards: Path) -> None:
    with pytest.raises(tasks.TaskError, match=r"nosuch.*\(5 tasks failed; this is the first\)") as caught:
        process(work(shards, command=None, script="nosuch"), f"{shards}/in-*.tar", context=Context())
    assert caught.value.exit_code == 127
    with pytest.raises(UsageError, match="partitions is 0"):
        process(work(shards), f"{shards}/in-0.tar", context=Context(), partitions=0)


PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


def test_the_page_has_all_options() -> None:
    table = re.findall(r"^\| `(--\w+)` \|", PAGE.read_text(), re.MULTILINE)
    options = [each.opts[0] for each in command.params if each.opts[0] not in ("-v", "--version")]
    assert table == options


def test_the_commands_of_the_page_are_understood() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    jobs = [shlex.split(line) for line in lines if "--output_dir=" in line]
    assert len(jobs) == 7
    for words in jobs:
        ours = itertools.dropwhile(lambda word: not word.startswith("--training_data"), words)
        given = command.make_context("recordio_gen", list(ours), obj=[False]).params
        assert given["output_dir"] and bool(given["training_data_dir"]) != bool(given["training_data_tar_file"])


def test_the_page_and_the_image_have_a_version_of_spark_that_is_tested() -> None:
    tested, image = (
        set(re.findall(r"pyspark==([\d.]+)", path.read_text()))
        for path in (PAGE.parent.parent / "tox.ini", PAGE.parent / "spark" / "Dockerfile")
    )
    assert image == set(re.findall(r"Spark (\d+\.\d+\.\d+)", PAGE.read_text())) and image <= tested


def test_a_source_without_records_is_named_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tarkit.spark.records.generate_records", lambda *_, **__: [])
    assert main(["--training_data_dir=s3://b/raw?X-Amz-Signature=c4n4ry", "--output_dir=out"]) == 2
    error = capfd.readouterr().err
    assert "s3://b/raw" in error and "gives no record; see --model_file" in error and "c4n4ry" not in error


@pytest.mark.parametrize("words", [[], ["--training_data_dir=a", "--training_data_tar_file=b.tar"]])
def test_one_of_two_sources_is_given(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--output_dir=out", *words]) == 2
    assert "give --training_data_dir or --training_data_tar_file, one of the two" in capfd.readouterr().err


def test_a_task_holds_one_file_at_a_time(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    for number in range(40):
        (tmp_path / "large" / f"{number:02d}").write_bytes(bytes(1 << 20))
    with tarfile.open(tmp_path / "large.tar", "w") as tar:
        tar.add(tmp_path / "large", "large")
    (tmp_path / "model.py").write_text("def prepare_data_for_a_single_file(file, name):\n    return file.read()[:9]\n")
    for source in ("large", "large.tar"):
        with traced_peak() as peak:
            written = generate(tmp_path / source, tmp_path / f"{source}.out", workers=1)
            assert [file.records for file in written] == [40] and peak() < 16 << 20, (source, peak())
