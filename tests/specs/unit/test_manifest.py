"""The manifest of a data set: its text, what is refused, and that it is found out when it is
wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifestshards import listed, shards

import tarkit
from tarkit.errors import DataError, MissingInputError, TarkitError, UsageError
from tarkit.readers.create import create_data_reader
from tarkit.readers.files import FileDataReader
from tarkit.specs.manifest import (
    ManifestShard,
    _joined,
    _name_in,
    compare_manifest,
    is_manifest,
    read_manifest,
    write_manifest,
)
from tarkit.specs.shardspec import expand, fixed_names
from tarkit.trainers.shardmap import ShardMap

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "manifest.md").read_text(encoding="utf-8")
WIDS = Path(__file__).resolve().parents[1] / "data" / "manifest" / "widsindex.json"


def text(**entry: Any) -> str:
    return json.dumps({"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1, **entry}]})


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_bytes_of_widsindex(tmp_path: Path, parallel: int) -> None:
    names = shards(tmp_path)
    for _ in range(2):  # indexes are made, then they are fresh
        write_manifest(f"{tmp_path}/dataset.json", listed(names, parallel=parallel))
        assert (tmp_path / "dataset.json").read_bytes() == WIDS.read_bytes() + b"\n"
    assert listed(names, check=True) == listed(names, force=True) == read_manifest(f"{tmp_path}/dataset.json")


def test_the_manifest_of_widsindex_is_read() -> None:
    folder = str(WIDS.parent)
    assert [shard[:3] for shard in read_manifest(str(WIDS))] == [
        (f"{folder}/s-0.tar", 3, 10240),
        (f"{folder}/s-1.tar", 1, 10240),
        (f"{folder}/s-2.tar", 4, 10240),
    ]


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    Path("dataset.json").write_text(block)
    found = read_manifest("dataset.json")
    assert found[0] == ManifestShard("s-0.tar", 3, 10240, "8c715d709eea752f1d3795efd1a878bb")
    write_manifest("again.json", found)
    assert Path("again.json").read_text() == block
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "manifest.md", "exec"), {})


def test_the_digest_is_of_all_bytes(tmp_path: Path) -> None:
    """Also of two archives, large members and zeros behind the end, in all three ways."""
    url = str(tmp_path / "a.tar")
    with tarkit.TarWriter(url, encoder=False) as writer:
        writer.write({"__key__": "a", "x": os.urandom(3 << 20)})
        writer.separate()
        writer.write({"__key__": "b", "x": b"1"})
    with open(url, "ab") as file:
        file.write(bytes(1 << 20))
    data = Path(url).read_bytes()
    wanted = [ManifestShard(url, 2, len(data), hashlib.md5(data).hexdigest())]
    assert listed([url]) == listed([url]) == listed([url], check=True) == listed([url], force=True) == wanted


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("\xff", "it is not JSON"),
        ("[]", "not an object with wids_version 1"),
        ("{}", "not an object with wids_version 1"),
        ('{"wids_version": 2, "shardlist": []}', "not an object with wids_version 1"),
        ('{"wids_version": true, "shardlist": []}', "not an object with wids_version 1"),
        ('{"wids_version": 1.0, "shardlist": []}', "not an object with wids_version 1"),
        ('{"wids_version": 1}', "its shardlist is not a list of shards, or is empty"),
        ('{"wids_version": 1, "shardlist": []}', "its shardlist is not a list of shards, or is empty"),
        ('{"wids_version": 1, "shardlist": {"a": 1}}', "its shardlist is not a list of shards, or is empty"),
        ('{"wids_version": 1, "datasets": [{"source_url": "b.json"}]}', "it has other data sets"),
        ('{"wids_version": 1, "shardlist": ["a.tar"]}', "entry 0 of its shardlist: it is not an object"),
        (text(url=None), "entry 0 of its shardlist: url is not a text"),
        (text(url=""), "url is not a text"),
        (text(url="pipe:cat a.tar"), "is not the name of a shard"),
        (text(url="-"), "is not the name of a shard"),
        (text(url="a\0.tar"), "is not the name of a shard"),
        (text(nsamples=None), "nsamples is None, which is not a number of samples"),
        (text(nsamples="1"), "nsamples is '1', which"),
        (text(nsamples=-1), "nsamples is -1, which"),
        (text(nsamples=True), "nsamples is True, which"),
        (text(nsamples=1.0), "nsamples is 1.0, which"),
        (text(filesize=-1), "filesize is -1, which"),
        (text(md5sum="x"), "md5sum is 'x', which"),
        (text(md5sum=7), "md5sum is 7, which"),
        (json.dumps({"wids_version": 1, "shardlist": [{"url": u, "nsamples": 1} for u in ("a", "./a")]}), "entry 1 of"),
    ],
)
def test_what_is_not_a_manifest(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "dataset.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        read_manifest(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("again", ["./a.tar", "b/../a.tar", "{}/a.tar", "file://{}/./a.tar"])
def test_a_shard_under_two_names(tmp_path: Path, again: str) -> None:
    """Its samples would come twice in each epoch."""
    shards = [{"url": name, "nsamples": 1} for name in ("a.tar", again.format(tmp_path))]
    (tmp_path / "m.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    with pytest.raises(DataError, match="entry 1 of its shardlist: the shard is in it already"):
        read_manifest(f"{tmp_path}/m.json")


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = WIDS.read_bytes()
    path = tmp_path / "dataset.json"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(DataError):
            read_manifest(str(path))


def test_other_keys_and_missing_sizes_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    path.write_text(text(weight=2, dataset="x", filesize=None))
    assert read_manifest(str(path)) == [ManifestShard(f"{tmp_path}/a.tar", 1)]


@pytest.mark.parametrize(
    ("manifest", "shard", "name"),
    [
        ("/d/m.json", "/d/a.tar", "a.tar"),
        ("/d/m.json", "/d/e/a.tar", "e/a.tar"),
        ("/d/m.json", "file:///d/a%20b.tar", "a b.tar"),
        ("/d/m.json", "/e/a.tar", "/e/a.tar"),
        ("/d/m.json", "/dd/a.tar", "/dd/a.tar"),
        ("/m.json", "/a.tar", "a.tar"),
        ("/d/m.json", "/d/pipe:a.tar", "./pipe:a.tar"),
        ("/d/m.json", "/d/e/b:a.tar", "e/b:a.tar"),
        ("/d/m.json", "s3://b/a.tar", "s3://b/a.tar"),
        ("s3://b/d/m.json", "s3://b/d/e/a.tar", "e/a.tar"),
        ("s3://b/d/m.json", "s3://b/d/x:a.tar", "./x:a.tar"),
        ("s3://b/d/m.json", "s3://b/a.tar", "s3://b/a.tar"),
        ("s3://b/d/m.json", "gs://b/d/a.tar", "gs://b/d/a.tar"),
        ("https://u:p@h/d/m.json?t=1", "https://u:p@h/d/a.tar?t=1", "a.tar"),
    ],
)
def test_names_of_shards(manifest: str, shard: str, name: str) -> None:
    assert _name_in(manifest, shard) == name
    assert _joined(manifest, name) == shard.replace("file://", "").replace("%20", " ")


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("d")
    write_manifest("d/m.json", [ManifestShard("d/a.tar", 1), ManifestShard(f"{tmp_path}/d/b.tar", 2)])
    assert [shard.url for shard in read_manifest("d/m.json")] == ["d/a.tar", "d/b.tar"]
    monkeypatch.chdir("d")
    assert [shard.url for shard in read_manifest("m.json")] == ["a.tar", "b.tar"]


@pytest.mark.parametrize("name", ["/a.tar", "../a.tar", "b/../../a.tar"])
def test_a_manifest_at_a_url_names_no_local_path(name: str) -> None:
    url = "memory://manifest/d/m.json"
    fsspec.filesystem("memory").pipe("/manifest/d/m.json", text(url=name).encode())
    with pytest.raises(DataError, match="is not below the folder of the manifest; it must be a whole URL"):
        read_manifest(url)


def test_stores(tmp_path: Path) -> None:
    url = "memory://manifest-stores/m.json"
    write_manifest(url, [ManifestShard("memory://manifest-stores/d/a.tar", 3, 7)])
    assert b'"url": "d/a.tar"' in fsspec.filesystem("memory").cat("/manifest-stores/m.json")
    assert read_manifest(url) == [ManifestShard("memory://manifest-stores/d/a.tar", 3, 7)]
    with pytest.raises(MissingInputError):
        read_manifest("memory://manifest-stores/other.json")


@pytest.mark.parametrize(
    ("manifest", "urls", "message"),
    [
        ("m.txt", ["a.tar"], "m.txt: the name of a manifest ends in .json"),
        ("pipe:cat > m.json", ["a.tar"], "the name of a manifest ends in .json"),
        ("m.json", ["a.tar", "./a.tar"], "./a.tar is listed twice, so it would be read twice"),
        ("m.json", ["pipe:cat a.tar"], "pipe:cat … cannot be found from m.json"),
        ("m.json", ["https://u:secret@h/a.tar"], "has a user, password or query"),
        ("m.json", ["https://h/a.tar?sig=secret"], "has a user, password or query"),
        ("memory://m/m.json", ["/d/a.tar"], "/d/a.tar cannot be found from memory://m/m.json; write that beside it"),
    ],
)
def test_what_cannot_be_written(
    manifest: str, urls: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        write_manifest(manifest, [ManifestShard(url, 1) for url in urls])
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not os.listdir()


def test_which_names_are_manifests() -> None:
    names = ["a.json", "s3://b/a.json", "https://h/a.json?x=1", "a.tar", "pipe:cat a.json", "-", "a.json.gz"]
    assert [is_manifest(name) for name in names] == [True, True, True, False, False, False, False]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=8)


@given(st.dictionaries(NAMES, st.integers(0, 1 << 60), min_size=1, max_size=5))
def test_what_is_written_is_read(counts: dict[str, int]) -> None:
    url = "memory://manifest-round/d/m.json"
    found = [ManifestShard(f"memory://manifest-round/d/{name}.tar", count, count) for name, count in counts.items()]
    write_manifest(url, found)
    assert read_manifest(url) == found
    compare_manifest(url, found[::-1])


@given(st.integers(0, len(WIDS.read_bytes()) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_in_the_names_and_numbers(at: int, bit: int) -> None:
    data = bytearray(WIDS.read_bytes())
    data[at] ^= 1 << bit
    fsspec.filesystem("memory").pipe("/manifest-flip/m.json", bytes(data))
    try:
        found = read_manifest("memory://manifest-flip/m.json")
    except TarkitError as error:
        assert error.exit_code == 65
    else:
        assert len(found) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found[:2], "it also lists 1 shard: s-2.tar; tarkit index --manifest writes it from the shards"),
        (lambda found: [*found, found[0]._replace(url="z.tar")], "it does not list 1 shard: z.tar; "),
        (lambda found: [found[0]._replace(nsamples=9), *found[1:]], "nsamples of s-0.tar is 3, and it has 9; "),
        (lambda found: [found[0]._replace(filesize=9), *found[1:]], "filesize of s-0.tar is 10240, and it has 9; "),
        (lambda found: [found[0]._replace(md5sum="0" * 32), *found[1:]], "md5sum of s-0.tar is 8c715d709eea752f1d"),
    ],
)
def test_what_a_comparison_finds(change: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.json").write_bytes(WIDS.read_bytes())
    found = read_manifest("m.json")
    compare_manifest("m.json", found)
    with pytest.raises(DataError) as caught:
        compare_manifest("m.json", change(found))
    assert str(caught.value).startswith(f"m.json: {message}")


@pytest.mark.parametrize(
    "options",
    [{"output": "o.tar"}, {}, {"outdir": "o", "slice": "0/2"}, {"outdir": "o", "on_repeated_key": "allow"}],
)
def test_a_run_that_makes_no_list(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--manifest"):
        tarkit.process(shards(tmp_path), function=lambda sample: sample, manifest="d.json", **options)


@pytest.fixture
def data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the manifest of three shards that are beside it, and nothing else.

    Another one is the current.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    write_manifest(f"{folder}/dataset.json", listed(shards(folder)))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("spec", ["data/dataset.json", "data/{dataset,}.json", "data/d*t.json", "@list"])
def test_a_manifest_is_a_spec(data_set: Path, spec: str) -> None:
    (data_set.parent / "list").write_text("data/dataset.json\n")
    if spec == "data/{dataset,}.json":
        (data_set / ".json").write_text(json.dumps({"wids_version": 1, "shardlist": [{"url": "x", "nsamples": 1}]}))
    expected = [f"data/s-{number}.tar" for number in range(3)] + ["data/x"] * (spec == "data/{dataset,}.json")
    assert list(expand(spec)) == expected
    assert list(expand(spec, manifests=False)) != expected
    assert fixed_names(spec) is None  # it has to be read


def test_a_manifest_is_read_only_when_its_first_shard_is_asked_for(tmp_path: Path) -> None:
    found = expand(["a.tar", f"{tmp_path}/none.json"])
    assert next(found) == "a.tar"
    with pytest.raises(MissingInputError):
        next(found)


def test_readers_and_plans_take_a_manifest(data_set: Path) -> None:
    from tarkit.k8s.plan.sliceplan import plan_shards

    reader = create_data_reader("data/dataset.json")
    assert [count for _, _, count in reader.create_shards()] == [3, 1, 4]
    plan = plan_shards([f"{data_set}/dataset.json"])
    assert plan.entries == [f"{data_set}/s-{number}.tar" for number in range(3)]


@pytest.mark.parametrize("spec", ["data/dataset.json", "data/{dataset,}.json", "data/d*t.json", "@list.json"])
def test_a_data_set_is_opened_by_any_spec_of_its_manifest(data_set: Path, spec: str) -> None:
    (data_set.parent / "list.json").write_text("data/dataset.json\n")
    if spec == "data/{dataset,}.json":
        (data_set / ".json").write_text(json.dumps({"wids_version": 1, "shardlist": [{"url": "x.tar", "nsamples": 2}]}))
    assert len(ShardMap(spec)) == 8 + 2 * (spec == "data/{dataset,}.json")


def test_a_reader_of_other_files_has_json_as_they_are(data_set: Path) -> None:
    class Objects(FileDataReader):
        def count(self, url: str) -> int:
            return 1

        def read(self, url: str, start: int, end: int) -> Any:
            yield json.loads(Path(url).read_text())

    assert Objects("data/dataset.json").create_shards() == [("data/dataset.json", 0, 1)]
    assert create_data_reader("data/dataset.json", reader_type="Text").create_shards()[0].name == "data/dataset.json"


def test_files_are_listed_copied_and_removed_as_they_are(
    data_set: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest itself, and not its shards."""
    from tarkit.cli.tarkit import main

    assert main(["ls", "data/dataset.json"]) == 0
    assert "s-0.tar" not in capfd.readouterr().out
    assert main(["put", "data/dataset.json", "memory://manifest-copy/"]) == 0
    assert fsspec.filesystem("memory").ls("/manifest-copy", detail=False) == ["/manifest-copy/dataset.json"]
    assert main(["rm", "data/dataset.json"]) == 0
    assert sorted(path.name for path in data_set.glob("*.tar")) == [f"s-{number}.tar" for number in range(3)]


def test_a_manifest_that_is_read_as_a_shard_is_named(data_set: Path) -> None:
    """Where a program of others makes the names, such as webdataset."""
    with pytest.raises(DataError, match=r"dataset\.json, offset 0: .*, and it looks like a data set's manifest"):
        next(tarkit.read_samples("data/dataset.json", literal=True))


def test_json_that_is_not_a_manifest_is_named_for_what_it_is(data_set: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    for content, words in (('{"a": 1}', "it is not an object with wids_version 1"), ("<html>", "it is not JSON")):
        Path("o.json").write_text(content)
        assert main(["show", "o.json"]) == 65
        assert capfd.readouterr().err.startswith(f"tarkit: o.json: {words}")
