"""Public functions have whole signatures: for type checkers, for notebooks, and where a keyword is
wrong.
"""

from __future__ import annotations

import inspect
import os
import re
import site
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tarkit
from tarkit.runs.work import Work
from tarkit.runs.workoptions import WorkOptions
from tarkit.samples.read import ReadOptions
from tarkit.samples.tarwriter import TarWriterOptions
from tarkit.service.client import ClientOptions, ShardClient
from tarkit.trainers.choice import SubsetOptions
from tarkit.trainers.options import EpochOptions, SourceOptions
from tarkit.trainers.source import BatchSource

FOLDER = Path(tarkit.__file__).parent.parent
"""From which tarkit is imported: the checkout, or where it is installed."""

PROGRAM = """\
from pathlib import Path

import tarkit
from tarkit import ShardWriter, TarWriter, read_members, read_samples
from tarkit.elasticdl import RecordIndexService, build_data_shard_service
from tarkit.service.client import ShardClient
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.tensorflow import TensorBatches
from tarkit.trainers.torch import ShardDataset
from tarkit.trainers.webdataset import WebDataset, tarfile_to_samples

rule = r"(.*)_(.*)"

tarkit.process("s.tar", output=Path("o.tar"), command="true", parallel=2, fields="jpg", mem=1 << 20, script=Path("s"))
tarkit.process("s.tar", shardz="o.tar")  # Unexpected keyword argument "shardz"
tarkit.process("s.tar", command="true", fields=["jpg"])  # Argument "fields" .* "list\\[str\\]"; expected "str | None"
tarkit.proces("s.tar")  # Module has no attribute "proces"
tarkit.batches("s.tar", batch=64, fields="jpg cls", shuffle=False, rank=0, world=2, audit=Path("audit"), rule=rule)
tarkit.batches("s.tar", batch=64, fields="jpg", mem=1)  # Unexpected keyword argument "mem"
tarkit.batches("s.tar", batch="64", fields="jpg")  # Argument "batch" .* "str"; expected "int"
tarkit.batches("s.tar", fields="jpg")  # Missing named argument "batch"
ShardDataset(["s.tar"], batch=64, service="localhost:50001", collate=len).loader(2, pin_memory=True)
ShardDataset("s.tar", batch=64, num_workers=2)  # Unexpected keyword argument "num_workers"
ShardDataset("s.tar", batch=64, seed="1")  # Argument "seed" .* "str"; expected "int"
ShardDataset("s.tar", batch=64).loader(2, batch_size=64)  # Unexpected keyword argument "batch_size"
TensorBatches("s.tar", batch=64, fields="jpg", decode="l", prefetch=4, equalize="pad")
TensorBatches("s.tar", batch=64, fields="jpg", audit="audit")  # Unexpected keyword argument "audit"
WebDataset("s.tar", shardshuffle=100, on_damage="skip", cache_dir="cache").decode("rgb")
WebDataset("s.tar", shard_shuffle=100)  # Unexpected keyword argument "shard_shuffle"
tarfile_to_samples(select_files=lambda name: name.endswith("jpg"), mem=1 << 20)
tarfile_to_samples(selected=None)  # Unexpected keyword argument "selected"
ShardMap(Path("s.tar"), cache="cache", run=10)[0]["jpg"]
ShardMap("s.tar", cached="cache")  # Unexpected keyword argument "cached"
with ShardWriter("s-%d.tar", 100, encoder={"x": bytes}, compress="zst", mode=0o600, index=True) as series:
    series.write({"__key__": "a", "x": b""})
ShardWriter("s-%d.tar", max_count=100)  # Unexpected keyword argument "max_count"
ShardWriter("s-%d.tar", mode="0600")  # Argument "mode" .* "str"; expected "int"
with TarWriter(Path("s.tar"), checksum="md5") as shard:
    shard.write({"__key__": "a"})
TarWriter("s.tar", compression="gz")  # Unexpected keyword argument "compression"
samples = [sample["__key__"] for sample in read_samples(["s.tar", "t.tar"], tally=tarkit.Tally(), split=True)]
read_samples("s.tar", on_damge="skip")  # Unexpected keyword argument "on_damge"
with open("s.tar", "rb") as file:
    names = [name for name, _, _ in read_members(file.read, url="s.tar")]
    read_members(file)  # Argument 1 .* incompatible type
with ShardClient("localhost:50001", prefetch=4, patience=60) as client:
    ranges = [shard.records for shard in client]
ShardClient("localhost:50001", prefetched=4)  # Unexpected keyword argument "prefetched"
service = build_data_shard_service(8, dataset_size=64, address="localhost:50001", patience=60)
RecordIndexService(8, address="localhost:50001", prefetched=4)  # Unexpected keyword argument "prefetched"
urls = list(tarkit.expand("s-{0..9}.tar", allow_pipe=False))
tarkit.expand("s-{0..9}.tar", manifest=False)  # Unexpected keyword argument "manifest"
keys = [sample["__key__"] for sample in tarkit.group_by_keys([("a.jpg", b"", 0)], rule="last-dot")]
tarkit.group_by_keys([], key_rule="last-dot")  # Unexpected keyword argument "key_rule"
"""
"""Right calls, and wrong ones, each with a pattern for the error that it is."""


def types_of(listed: Any, *named: str) -> dict[str, str]:
    """Name -> text of the type, of what a class or function lists, without those that are named."""
    hints = {name: getattr(hint, "__forward_arg__", hint) for name, hint in listed.__annotations__.items()}
    return {name: hint for name, hint in hints.items() if name not in (*named, "return")}


def test_a_type_checker_finds_each_wrong_call_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="NO mypy (pip install mypy)")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", program.name]
    # What is installed is found without a path.
    path = {} if str(FOLDER) in site.getsitepackages() else {"MYPYPATH": str(FOLDER)}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    found = dict(re.findall(r"(?m)^program\.py:(\d+): error: (.*)$", done.stdout))
    wanted = {str(number): line for number, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line}
    assert found.keys() == wanted.keys(), done.stdout
    assert len(wanted) > 10
    for number, line in wanted.items():
        assert re.match(line.partition("  # ")[2].replace("|", r"\|"), found[number])


def test_options_of_process_are_the_fields_of_work() -> None:
    named = ("inputs", "output", "outdir", "command", "function", "parallel")
    fields = types_of(Work, *named)
    for name in ("manifest", "report", "retry_failed", "script", "working_dir"):
        fields[name] = fields[name].replace("str", "str | os.PathLike[str]")
    assert types_of(WorkOptions) == fields


def test_options_that_are_passed_on_are_those_of_the_function_that_takes_them() -> None:
    assert types_of(TarWriterOptions) == types_of(tarkit.TarWriter.__init__, "fileobj")
    named = ("urls", "batch", "fields", "decode", "collate", "subset")
    assert types_of(SourceOptions, *SubsetOptions.__annotations__) == types_of(BatchSource.__init__, *named)
    assert types_of(ClientOptions) == types_of(ShardClient.__init__, "address", "dataset")
    named = ("urls", "allow_pipe_in_lists", "literal", "split", "large", "in_place")
    assert types_of(ReadOptions) == types_of(tarkit.read_samples, *named)


def test_options_of_webdataset_are_its_arguments() -> None:
    """Those of torch's DataLoader: test_shard_dataset.py."""
    webdataset = pytest.importorskip("webdataset", reason="NO webdataset (pip install webdataset)")
    from tarkit.trainers.webdataset import WebDatasetOptions

    theirs = {*inspect.signature(webdataset.WebDataset).parameters} - {"urls"}
    assert WebDatasetOptions.__optional_keys__ == theirs | ReadOptions.__optional_keys__


@pytest.mark.parametrize("table", [WorkOptions, SubsetOptions, EpochOptions, SourceOptions])
def test_each_option_is_described_where_it_is_listed(table: Any) -> None:
    described = re.findall(r"(?m)^    (\w+): ", inspect.getdoc(table) or "")
    inherited = {SourceOptions: EpochOptions.__annotations__, EpochOptions: SubsetOptions.__annotations__}.get(
        table, ()
    )
    assert described == [name for name in table.__annotations__ if name not in inherited]


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        (tarkit.process, {"paralel": 2}, r"process\(\) got .* keyword argument 'paralel'\. Did you mean 'parallel'\?"),
        (tarkit.process, {"on_damge": "skip"}, r"process\(\) got .* 'on_damge'\. Did you mean 'on_damage'\?"),
        (tarkit.batches, {"batch": 1, "fields": "x", "mem": 1}, r"batches\(\) got an unexpected .* argument 'mem'"),
        (tarkit.batches, {"batch_size": 9}, r"batches\(\) got .* 'batch_size'\. Did you mean 'batch'\?"),
        (tarkit.ShardWriter, {"max_count": 9}, r"ShardWriter\(\) got .* 'max_count'\. Did you mean 'maxcount'\?"),
    ],
)
def test_a_wrong_keyword_is_named_with_the_function(function: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(TypeError, match=f"^{expected}$"):
        function("s-%d.tar", **options)


def test_a_notebook_completes_every_option() -> None:
    for function, table in ((tarkit.process, WorkOptions), (tarkit.batches, SourceOptions)):
        parameters = inspect.signature(function).parameters
        assert table.__optional_keys__ < parameters.keys()
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    assert str(inspect.signature(tarkit.ShardWriter).parameters["mode"].annotation) == "int"


@pytest.mark.parametrize("name", sorted({*tarkit.__all__} - {"Sample", "Tally", "TarkitError"}))
def test_type_hints_are_found_when_a_program_runs(name: str) -> None:
    function = getattr(tarkit, name)
    assert get_type_hints(function.__init__ if isinstance(function, type) else function)
