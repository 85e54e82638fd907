"""tarkit select, and the selection options of cat and split."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from PIL import Image
from waiting import wait_for
from webdataset import tariterators

from tarkit import TarWriter, read_samples
from tarkit.formats.tally import Tally
from tarkit.steps import select
from tarkit.steps.selection import Selection

Run = Callable[..., Any]


def picture(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "JPEG")
    return stream.getvalue()


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards of ten samples; every second sample has a caption, numbers are in JSON."""
    paths = [tmp_path / f"in-{number:02d}.tar" for number in range(3)]
    for number, path in enumerate(paths):
        with TarWriter(str(path), encoder=False, mtime=1234567890 + number, user="someone") as writer:
            for at in range(number * 10, number * 10 + 10):
                sample = {"__key__": f"{at:03d}", "cls": b"%d" % (at % 4), "json": b'{"w": %d}' % at}
                sample["jpg"] = picture(10 + at, 20)
                writer.write(sample | ({} if at % 2 else {"txt": b"number %d" % at}))
    return paths


def of_webdataset(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        members = ({**member, "__url__": ""} for member in tariterators.tar_file_iterator(file))
        return list(tariterators.group_by_keys(members))


def keys(*paths: Path) -> list[str]:
    return [sample["__key__"] for sample in read_samples([str(path) for path in paths])]


def test_one_shard_of_samples_that_keep_their_bytes(run: Run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    result = run("tarkit", "select", *shards, "--where", "json.w >= 8 and cls != 3", "--match", "[02468]$", "-o", out)
    wanted = [f"{at:03d}" for at in range(8, 30, 2)]
    assert (result.code, result.stdout, keys(out)) == (0, b"", wanted)
    assert result.stderr.startswith("tarkit select: 11 samples of 3 shards, ")
    assert "samples dropped by --match 15, --where 4" in result.stderr
    assert result.stderr.count("\n") == 1
    with tarfile.open(out) as archive:
        assert {(info.uname, info.mtime) for info in archive} == {("someone", 1234567890 + each) for each in range(3)}
        assert [info.name for info in archive][:4] == ["008.cls", "008.jpg", "008.json", "008.txt"]
    expected = [sample for path in shards for sample in of_webdataset(path) if sample["__key__"] in wanted]
    assert of_webdataset(out) == expected


def test_all_of_a_shard_is_the_shard_itself(run: Run, shards: list[Path], tmp_path: Path) -> None:
    result = run("tarkit", "select", *shards, "--where", "has(jpg)", "-O", tmp_path / "all")
    assert (result.code, result.lines) == (0, [str(tmp_path / "all" / path.name) for path in shards])
    assert [(tmp_path / "all" / path.name).read_bytes() for path in shards] == [path.read_bytes() for path in shards]
    assert run("tarkit", "select", "-q", *shards, "-O", tmp_path / "copy").stderr == ""
    assert [(tmp_path / "copy" / path.name).read_bytes() for path in shards] == [path.read_bytes() for path in shards]


def test_fields_names_and_keys_are_changed(run: Run, shards: list[Path], tmp_path: Path) -> None:
    options = ["--fields", "txt cls,json", "--rename", "label=cls", "--drop-fields", "json", "--rekey", "new/%s-%02d"]
    result = run("tarkit", "select", *shards, *options, "--match", "1.$", "-o", tmp_path / "out.tgz")
    assert result.code == 0
    assert "samples without a field of --fields: txt 5" in result.stderr
    samples = list(read_samples(str(tmp_path / "out.tgz")))
    assert [sample["__key__"] for sample in samples] == [f"new/{at:03d}-{at - 10:02d}" for at in range(10, 20)]
    assert [{*sample} - {"__key__", "__url__"} for sample in samples][:2] == [{"label", "txt"}, {"label"}]
    assert (tmp_path / "out.tgz").read_bytes()[:2] == b"\x1f\x8b"


def test_a_list_of_keys_and_keys_that_no_sample_has(run: Run, shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("003\nx\n015\n")
    (tmp_path / "good.csv").write_text("n,id\n1,001\n2,003\n3,z\n4,014\n")
    options = ["--without-keys", tmp_path / "bad.txt", "--keys", f"{tmp_path / 'good.csv'}:id"]
    result = run("tarkit", "select", *shards, *options, "-o", tmp_path / "out.tar")
    assert (result.code, keys(tmp_path / "out.tar")) == (0, ["001", "014"])
    assert "samples dropped by --keys 27, --without-keys 1" in result.stderr
    assert "keys of --keys that no sample has: 1 (z)" in result.stderr
    assert "keys of --without-keys that no sample has: 1 (x)" in result.stderr


def test_nothing_is_selected(run: Run, shards: list[Path], tmp_path: Path) -> None:
    command = ["tarkit", "select", *shards, "--match", "nothing", "-q"]
    result = run(*command, "-o", tmp_path / "out.tar")
    assert (result.code, keys(tmp_path / "out.tar")) == (3, [])
    assert "no sample is selected" in result.stderr
    assert run(*command, "-o", tmp_path / "out.tar", "--allow-empty")[::2] == (0, "")
    result = run(*command, "-O", tmp_path / "out", "--json")
    assert result.code == 3
    assert json.loads(result.stdout)["dropped"] == {"match": 30}
    assert keys(*(tmp_path / "out" / path.name for path in shards)) == []


def test_a_misspelt_field_publishes_nothing(run: Run, shards: list[Path], tmp_path: Path) -> None:
    for output in (["-o", tmp_path / "out.tar"], ["-O", tmp_path / "out"]):
        result = run("tarkit", "select", *shards, "--where", "jsn.w > 1", *output)
        assert result.code == 65
        assert "where: no sample has the field 'jsn'; did you mean json? the samples have cls, j" in result.stderr
    assert not (tmp_path / "out.tar").exists()
    assert os.listdir(tmp_path / "out") == []


def test_a_misspelt_value_of_json_is_reported(run: Run, shards: list[Path], tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "in.tar")) as writer:
        writer.write({"__key__": "a", "json": {"nsfw": True}})
    for words in (["select", "-o", tmp_path / "out.tar"], ["show"], ["count"]):
        result = run("tarkit", *words, tmp_path / "in.tar", "--where", "json.nfsw != true or json.nfsw == null")
        assert result.code == 0 and "values of --where that no sample has: json.nfsw" in result.stderr
    result = run("tarkit", "show", tmp_path / "in.tar", "--where", "json.nsfw")
    assert "values of" not in result.stderr


def test_shards_wait_until_each_field_was_seen(
    run: Run, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TarWriter(str(tmp_path / "in-03.tar"), encoder=False) as writer:
        writer.write({"__key__": "x", "late": b"1", "json": b'{"w": 1}'})
    command = ["tarkit", "select", *shards, tmp_path / "in-03.tar", "--where", "has(late) or json.w == 3"]
    result = run(*command, "-O", tmp_path / "out")
    assert (result.code, len(result.lines)) == (0, 4)
    assert keys(*map(Path, result.lines)) == ["003", "x"]
    monkeypatch.setattr(select, "_MOST_WAITING", 2)
    result = run(*command, "-O", tmp_path / "other")
    assert (result.code, result.lines) == (65, [])
    assert "no sample has the field 'late'" in result.stderr
    assert os.listdir(tmp_path / "other") == []


def test_shards_of_an_earlier_run(run: Run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["tarkit", "select", *shards[:2], "--match", "5$", "-O", out]
    assert run("tarkit", "select", *shards, "-O", out).code == 0
    (out / "in-02.idx").write_text("v1.2 0\n")
    (out / "other-00.tar").write_bytes(b"of another set")
    result = run(*command)
    assert (result.code, result.stdout) == (2, b"")
    assert f"{out / 'in-00.tar'} and 2 more are there from an earlier run; --force" in result.stderr
    result = run(*command, "--force", "--dry-run")
    assert "2 samples of 2 shards" in result.stderr
    assert "would remove 1 shard of an earlier run" in result.stderr
    assert keys(out / "in-02.tar") == keys(shards[2])
    result = run(*command, "--force", "--json")
    found = json.loads(result.stdout)
    assert found["removed"] == [str(out / "in-02.tar")]
    assert (found["samples"], found["shards"]) == (2, [str(out / "in-00.tar"), str(out / "in-01.tar")])
    assert sorted(os.listdir(out)) == ["in-00.tar", "in-01.tar", "other-00.tar"]
    assert keys(out / "in-00.tar", out / "in-01.tar") == ["005", "015"]
    (tmp_path / "plain.tar").write_bytes(shards[0].read_bytes())
    assert run("tarkit", "select", tmp_path / "plain.tar", "-O", out).code == 0
    assert "plain.tar is there from an earlier run" in run("tarkit", "select", tmp_path / "plain.tar", "-O", out).stderr


def test_a_shard_that_replaces_one_loses_its_index(run: Run, shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "in-00.idx").write_text("v1.2 0\n")
    assert run("tarkit", "select", shards[0], "--match", "1", "-O", tmp_path / "out").code == 0
    assert os.listdir(tmp_path / "out") == ["in-00.tar"]


def test_damage_keeps_the_shards_before_it(run: Run, shards: list[Path], tmp_path: Path) -> None:
    shards[1].write_bytes(shards[1].read_bytes()[:5000])
    result = run("tarkit", "select", *shards, "-O", tmp_path / "out", "--match", "")
    assert (result.code, os.listdir(tmp_path / "out")) == (65, ["in-00.tar"])
    assert "in-01.tar, offset" in result.stderr
    result = run("tarkit", "select", *shards, "-O", tmp_path / "out", "--on-damage", "skip", "--force")
    assert (result.code, len(result.lines)) == (3, 3)
    assert "damage: 1 stretch" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name the output: one shard, -o OUT, or a folder"),
        (["-o", "a.tar", "-O", "b"], "name the output"),
        (["-o", "a.tar", "--force"], "--force goes with -O"),
        (["-O", "b", "-p", "2"], "-p goes with -o"),
        (["-o", "-", "--json"], "would both go to standard output"),
        (["-o", "a-%d.tar"], "the output is one shard"),
        (["-o", "a.zip"], "a.zip"),
        (["-O", "."], "would be replaced by its own output"),
        (["-o", "a.tar", "--where", "().__class__"], "cannot be used here"),
        (["-o", "a.tar", "--where", "(" * 100_000], "it may have 1000"),
        (["-o", "a.tar", "--where", "cls = 3"], "write == for equal"),
        (["-o", "a.tar", "--rekey", "x"], "write %s for the old key"),
    ],
)
def test_options_that_do_not_fit(
    run: Run, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    result = run("tarkit", "select", shards[0].name, *options)
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert sorted(os.listdir()) == before


def test_values_that_cannot_be_compared_name_the_key(run: Run, shards: list[Path], tmp_path: Path) -> None:
    result = run("tarkit", "select", *shards, "--where", "txt > 3", "-o", tmp_path / "out.tar")
    assert (result.code, (tmp_path / "out.tar").exists()) == (65, False)
    assert "in-00.tar, key '000': where: txt is a text and 3 is a number, which cannot be compared" in result.stderr


def test_one_key_in_two_shards(run: Run, shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "again.tar").write_bytes(shards[0].read_bytes())
    command = ["tarkit", "select", shards[0], tmp_path / "again.tar", "--match", "3$"]
    result = run(*command, "-o", tmp_path / "out.tar")
    assert (result.code, "the key is in " in result.stderr) == (65, True)
    assert run(*command, "-o", tmp_path / "out.tar", "--rekey", "%03d").code == 0
    assert keys(tmp_path / "out.tar") == ["000", "001"]
    result = run(*command, "-o", tmp_path / "out.tar", "--rekey", "same%.0s%s", "--rekey", "0%%%s")
    assert "the key is in " in result.stderr


@pytest.mark.parametrize("more", [[], ["--fields", "jpg"]])
def test_cat_selects(run: Run, shards: list[Path], tmp_path: Path, more: list[str]) -> None:
    stdin = shards[0].read_bytes()
    with tarfile.open(tmp_path / "more.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("README"), io.BytesIO())
    for inputs in (shards, ["-", *shards[1:], tmp_path / "more.tar"]):
        result = run("tarkit", "cat", *inputs, "--where", "width(jpg) >= 35", *more, stdin=stdin)
        assert result.code == 0
        assert "5 samples of " in result.stderr
        assert "samples dropped by --where 25" in result.stderr
        assert ("skipped members: no-extension 1" in result.stderr) is (inputs[0] == "-")
        with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
            assert [name for name in archive.getnames() if "jpg" in name] == [f"{at:03d}.jpg" for at in range(25, 30)]
    assert run("tarkit", "cat", *shards, "--match", "x").code == 3
    result = run("tarkit", "cat", *shards, "-o", tmp_path / "out.tar", "--dry-run", "--json", "--match", "^00")
    assert (result.code, json.loads(result.stdout)["samples"], (tmp_path / "out.tar").exists()) == (0, 10, False)
    assert run("tarkit", "cat", "--raw", *shards, "--match", "x").code == 2


@pytest.mark.parametrize("parallel", ["1", "2", "5"])
def test_cat_in_parallel_keeps_the_order(run: Run, shards: list[Path], tmp_path: Path, parallel: str) -> None:
    whole = run("tarkit", "cat", *shards).stdout
    packed = []
    for path in shards:
        packed.append(path.with_suffix(".tar.gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    assert run("tarkit", "cat", "-p", parallel, *packed[:2], shards[2]).stdout == whole
    packed[1].write_bytes(packed[1].read_bytes()[:-100])
    result = run("tarkit", "cat", "-p", parallel, *packed, "-o", tmp_path / "out.tar")
    assert (result.code, "in-01.tar.gz" in result.stderr, (tmp_path / "out.tar").exists()) == (65, True, False)
    packed[1].unlink()
    result = run("tarkit", "cat", "-p", parallel, *packed, "-o", tmp_path / "out.tar")
    assert (result.code, "in-01.tar.gz: no such file" in result.stderr) == (66, True)


def test_split_into_shards_of_equal_length(run: Run, shards: list[Path], tmp_path: Path) -> None:
    pattern = tmp_path / "p-%d.tar"
    result = run("tarkit", "split", *shards, "--shards", "4", "-o", pattern)
    assert (result.code, len(result.lines)) == (0, 4)
    assert [len(keys(Path(name))) for name in result.lines] == [7, 8, 7, 8]
    assert keys(*map(Path, result.lines)) == keys(*shards)
    result = run("tarkit", "split", *shards, "--shards", "3", "--where", "json.w < 7", "--force", "-o", pattern)
    assert [keys(Path(name)) for name in result.lines] == [["000", "001"], ["002", "003"], ["004", "005", "006"]]
    assert "7 samples in 3 shards" in result.stderr
    assert "samples dropped by --where 23" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shards", "31"], "30 samples cannot fill 31 shards"),
        (["--shards", "2", "--match", "003"], "1 sample cannot fill 2 shards"),
        (["--shards", "2", "--maxcount", "3"], "--maxcount and --shards exclude each other"),
        (["--shards", "2", "-"], "'-' can be read only once; use --maxcount or --maxsize"),
        (["--shards", "2", "pipe:cat x.tar"], "can be read only once"),
    ],
)
def test_shards_of_equal_length_that_cannot_be(
    run: Run, shards: list[Path], tmp_path: Path, options: list[str], message: str
) -> None:
    result = run("tarkit", "split", *shards, "-o", tmp_path / "p-%d.tar", *options, stdin=shards[0].read_bytes())
    assert (result.code, message in result.stderr) == (2, True)
    assert list(tmp_path.glob("p-*")) == []


def test_shards_that_change_between_the_count_and_the_split(
    run: Run, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = select.count_selected

    def then_more(*arguments: Any, **options: Any) -> int:
        number = real(*arguments, **options)
        shards[1].write_bytes(shards[2].read_bytes())
        shards[2].unlink()
        shards[0].rename(shards[2])
        shards[0].write_bytes(bytes(10240))
        return number

    monkeypatch.setattr(select, "count_selected", then_more)
    result = run("tarkit", "split", *shards, "--shards", "2", "-o", tmp_path / "p-%d.tar")
    assert result.code == 1
    assert "30 samples were counted, and 20 came; the input was changed meanwhile" in result.stderr


def test_convert_selects(run: Run, shards: list[Path], tmp_path: Path) -> None:
    options = ["--where", "json.w >= 25", "--rename", "n=json", "--drop-fields", "jpg"]
    result = run("tarkit", "convert", *shards, "-o", tmp_path / "a.parquet", *options)
    assert (result.code, "samples dropped by --where 25" in result.stderr) == (0, True)
    result = run("tarkit", "convert", tmp_path / "a.parquet", "-o", tmp_path / "a.tar", "--match", "[68]", "--verify")
    assert (result.code, keys(tmp_path / "a.tar")) == (0, ["026", "028"])
    result = run("tarkit", "convert", *shards, "-o", tmp_path / "a.recordio", "--field", "cls", "--match", "9$")
    assert (result.code, run("tarkit", "show", "--count", tmp_path / "a.recordio").stdout) == (0, b"3\n")
    result = run("tarkit", "convert", *shards, "-o", tmp_path / "b.recordio", "--match", "9$")
    assert (result.code, "pipe shards through tarkit select" in result.stderr) == (2, True)
    for name, more in (("b.recordio", ["--field", "cls"]), ("b.parquet", [])):
        result = run("tarkit", "convert", *shards, "-o", tmp_path / name, "--where", "has(jsn)", *more)
        assert (result.code, "did you mean json?" in result.stderr) == (65, True)
        assert not (tmp_path / name).exists()


def test_killed_and_run_again(run: Run, shards: list[Path], tmp_path: Path) -> None:
    waiting, out = tmp_path / "in-09.tar", tmp_path / "out"
    os.mkfifo(waiting)
    command = ["select", shards[0], waiting, "--where", "cls == 1", "-O", out]
    with subprocess.Popen([program_path("tarkit"), *command]) as process:
        wait_for((out / "in-00.tar").exists)
        wait_for(lambda: len(os.listdir(out)) == 2)
        process.kill()
    waiting.unlink()
    waiting.write_bytes(shards[2].read_bytes())
    result = run("tarkit", *command)
    assert (result.code, "in-00.tar is there from an earlier run" in result.stderr) == (2, True)
    assert run("tarkit", *command, "--force").code == 0
    assert sorted(os.listdir(out)) == ["in-00.tar", "in-09.tar"]
    assert keys(out / "in-00.tar", out / "in-09.tar") == ["001", "005", "009", "021", "025", "029"]


def test_progress_has_the_number_of_shards(shards: list[Path], tmp_path: Path) -> None:
    tally, seen = Tally(), list[tuple[int | None, float]]()

    def progress(count: int | None) -> None:
        seen.append((count, tally.shards_read()))

    names = [str(path) for path in shards]
    every = sum(1 for name in names for _ in read_samples(name))
    with Selection() as selection:
        select.select_one(names, str(tmp_path / "one.tar"), selection, tally=tally, progress=progress)
        assert {count for count, _ in seen} == {len(names)} and len(seen) == every
        assert [part for _, part in seen] == sorted(part for _, part in seen) and tally.shards_read() == len(names)
        seen.clear()
        select.select_shards(names, str(tmp_path / "out"), selection, progress=progress)
        assert {count for count, _ in seen} == {len(names)} and len(seen) == every
