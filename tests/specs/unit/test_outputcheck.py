"""An output is none of the inputs, and has a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.runs.process import process
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.specs.outputcheck import check_tar_output, other_than
from tarkit.steps.convert import convert
from tarkit.steps.join import concatenate
from tarkit.steps.recordfiles import clear_record_files
from tarkit.store.transfer import copy_all, plan_copies


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "in.tar"
    with tarkit.TarWriter(str(path), encoder=False) as writer:
        writer.write({"__key__": "a", "x": b"1"})
    os.link(path, "hard.tar")
    os.symlink(path, "soft.tar")
    return path


@pytest.mark.parametrize("name", ["./in.tar", "hard.tar", "soft.tar", "file://HERE/in.tar", "{soft,hard}.tar"])
def test_tarproc_does_not_replace_its_input(shard: Path, name: str) -> None:
    before = shard.read_bytes()
    with pytest.raises(UsageError, match=r"\.tar is an input, and .*name another output"):
        process([name.replace("HERE", str(shard.parent)), "in.tar"], output="hard.tar", command="true")
    assert shard.read_bytes() == before


def test_tarproc_does_not_replace_an_input_by_failed_samples_or_by_what_it_retries(shard: Path) -> None:
    os.rename("hard.tar", "o.tar.failed.tar")
    with pytest.raises(UsageError, match=r"in\.tar is an input, and the same file as the output o\.tar\.failed\.tar"):
        process("in.tar", output="o.tar", command="true")
    with pytest.raises(UsageError, match=r"o\.tar\.failed\.tar is an input, and an output too"):
        process(retry_failed="o.tar.failed.tar", output="o.tar.failed.tar", command="true")


def test_a_run_does_not_replace_the_program_that_it_runs(shard: Path) -> None:
    mapper, script = shard.parent / "mapper.py", shard.parent / "script.sh"
    mapper.write_text("def f(sample):\n    return sample\n")
    script.write_text("true\n")
    for options in ({"function": f"{mapper}:f", "output": str(mapper)}, {"script": str(script), "output": str(script)}):
        with pytest.raises(UsageError, match="is an input, and an output too; name another output"):
            tarkit.process(str(shard), **options)
    assert mapper.read_text().startswith("def f") and script.read_text() == "true\n"


def test_lists_and_manifests_are_inputs_too(shard: Path) -> None:
    write_manifest("set.json", [ManifestShard(url="in.tar", nsamples=1)])
    os.link("set.json", "set.tar")
    for name in ("names.tar", "names"):
        Path(name).write_text("soft.tar\n")
    Path("sets").write_text("set.json\n")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    for spec, output in (
        ("@names.tar", "names.tar"),
        ("@names", f"{shard.parent}/names"),
        ("set.json", "set.tar"),
        ("{set,set}.json", "set.tar"),
        ("s*.json", "set.tar"),
        ("@sets", "set.tar"),
    ):
        with pytest.raises(UsageError, match=r"is an input, and .*output.*; name another output"):
            process(spec, output=output, command="true")
        with pytest.raises(UsageError, match=r"is an input, and .*output.*; name another output"):
            convert(spec, output, "tar")
        with open(os.devnull, "wb") as sink, pytest.raises(UsageError, match="is an input, and"):
            concatenate([spec], sink, target=output)  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_tar_does_not_get_the_name_of_a_manifest(shard: Path) -> None:
    with pytest.raises(UsageError, match=r"x\.json: \.json is not written; name it \.tar"):
        process("in.tar", output="x.json", command="true")
    with pytest.raises(UsageError, match=r"\.json is not written"):
        tarkit.TarWriter("x.json")


def test_the_output_that_standard_input_reads(shard: Path) -> None:
    keep = os.dup(0)
    with open(shard, "rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(UsageError, match=r"- is an input, and the same file as the output in.tar"):
            list(other_than(["in.tar"], ["-"]))
    finally:
        os.dup2(keep, 0)
        os.close(keep)


def test_an_output_without_a_folder_is_refused_before_anything_is_read(shard: Path) -> None:
    os.symlink("new/x.tar", "link")
    for output, said in (
        ("new/x.tar", "the folder new is missing; make it"),
        ("file:///gone-folder/x.tar", "the folder /gone-folder is missing"),
        ("link", "/new is missing"),
        ("in.tar/x.tar", r"the folder in\.tar is not a folder"),
        ("x.tar.foo", r"x\.tar\.foo: \.foo is not written; name it \.tar"),
        ("s3://b/x.tar.foo?v=1", r"\.foo is not written"),
    ):
        with pytest.raises(UsageError, match=said):
            process("gone.tar", output=output, command="true")
    assert not os.path.exists("new")
    for pattern in ("new/x-%d.tar", "new/%06d.tar", "new/%06d/x.tar"):
        with pytest.raises(UsageError, match="the folder new is missing"):
            check_tar_output(pattern)
    for output in ("x.tar", "x.har/", "x.v1.tar.gz", "x.tar.TGZ", "in-%06d/x.tar", "pipe:cat > new/x.tar.foo", "-"):
        check_tar_output(output)
    for write in (tarkit.TarWriter, lambda name: tarkit.ShardWriter(f"{name}.%d")):
        with pytest.raises(UsageError, match="is not written"):
            write("x.tar.foo")


def test_a_file_is_not_copied_onto_itself(shard: Path) -> None:
    for target in ("in.tar", "hard.tar", "soft.tar", "."):
        (done,) = copy_all(plan_copies(["in.tar"], target))
        assert "is the same file as" in str(done.error) and "in.tar" in str(done.error)
    (done,) = copy_all(plan_copies(["in.tar"], "new.tar"))
    assert done.error is None and shard.stat().st_ino == os.stat("hard.tar").st_ino


def test_record_files_that_are_the_source_are_not_removed(shard: Path) -> None:
    os.rename("hard.tar", "data-00000")
    with pytest.raises(UsageError, match=r"in\.tar is an input, and the same file as the output .*data-00000"):
        clear_record_files(".", force=True, sources=["in.tar"])
    assert clear_record_files(".", force=True, sources=["soft.csv"]) == 1
