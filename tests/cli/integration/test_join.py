"""tarkit join: the samples of two data sets with the same key become one."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from webdataset import tariterators

from tarkit.errors import UsageError
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.join import Join
from tarkit.exchange.settings import ExchangeSettings

Run = Callable[..., Any]
Samples = Mapping[str, Mapping[str, bytes]]

KEYS = [f"{number:05d}" for number in range(1000)]
_DRAWN = random.Random(7)
LEFT = {key: {"jpg": key.encode() * 9, "cls": b"%d" % (int(key) % 7)} for key in KEYS if _DRAWN.random() > 0.03}
RIGHT = {key: {"txt": f"caption of {key}".encode()} for key in KEYS if _DRAWN.random() > 0.03}


def put(path: Path, samples: Iterable[tuple[str, Mapping[str, bytes]]]) -> Path:
    """Write a shard with Python's tarfile."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for key, fields in samples:
            for field, content in fields.items():
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size, member.mtime = len(content), 1_600_000_000
                archive.addfile(member, io.BytesIO(content))
    return path


def put_side(folder: Path, name: str, samples: Samples, shards: int) -> list[Path]:
    """Write shards with the samples in an order of their own."""
    order = [*samples.items()]
    random.Random(name).shuffle(order)
    return [put(folder / f"{name}-{number}.tar", order[number::shards]) for number in range(shards)]


def outputs(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*.tar"))


def read(folder: Path) -> list[tuple[str, dict[str, bytes]]]:
    """The samples of all outputs, in their order, as webdataset reads them."""
    found, expand = [], tariterators.tar_file_expander
    for path in outputs(folder):
        with path.open("rb") as stream:
            for each in tariterators.group_by_keys(expand([{"url": str(path), "stream": stream}])):
                found.append((each["__key__"], {name: each[name] for name in each if name[0] != "_"}))
    return found


def members(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def check_index(run: Run, path: Path, folder: Path) -> None:
    """Compare the index of a shard with the one of a copy."""
    copy = folder / "copy.tar"
    copy.write_bytes(path.read_bytes())
    assert run("tarkit", "index", copy).code == 0
    assert path.with_suffix(".idx").read_bytes() == copy.with_suffix(".idx").read_bytes()


def expected(left: Samples, right: Samples, how: str) -> list[tuple[str, dict[str, bytes]]]:
    keys = {"inner": {*left} & {*right}, "left": {*left}, "outer": {*left} | {*right}}[how]
    return [(key, {**left.get(key, {}), **right.get(key, {})}) for key in sorted(keys)]


def result(run: Run, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = run("tarkit", "join", *arguments, "--json", "-p", "1")
    assert done.code == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(run: Run, *arguments: str | Path, code: int = 2) -> str:
    done = run("tarkit", "join", *arguments, "-p", "1")
    assert (done.code, done.stdout, done.stderr.count("\n")) == (code, b"", 1), done.stderr
    return str(done.stderr)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    folder = tmp_path_factory.mktemp("sides")
    return put_side(folder, "left", LEFT, 4), put_side(folder, "right", RIGHT, 3)


Sides = tuple[list[Path], list[Path]]


@pytest.mark.parametrize(
    ("how", "cut"), [("inner", ("--maxcount", "301")), ("left", ("--shards", "4")), ("outer", ("--maxsize", "900k"))]
)
def test_join_is_that_of_a_dict(how: str, cut: tuple[str, str], sides: Sides, run: Run, tmp_path: Path) -> None:
    found = result(run, *sides[0], "--", *sides[1], "-O", tmp_path / "out", "--how", how, *cut)
    assert read(tmp_path / "out") == expected(LEFT, RIGHT, how)
    assert len(outputs(tmp_path / "out")) == found["shards"] > 1
    pairs, left_only, right_only = (len(keys) for keys in (
        {*LEFT} & {*RIGHT}, {*LEFT} - {*RIGHT}, {*RIGHT} - {*LEFT}
    ))  # fmt: skip
    assert min(left_only, right_only) > 10
    assert (found["pairs"], found["left_only"], found["right_only"]) == (pairs, left_only, right_only)
    samples = found["samples"]
    assert samples["in"] == len(LEFT) + len(RIGHT) == samples["out"] + samples["filtered"]
    records = [json.loads(path.read_bytes()) for path in (tmp_path / "out").glob("*.done.json")]
    assert sum(each["output"].get("dropped", {}).get("joined into one sample", 0) for each in records) == pairs
    assert sum(each["output"].get("noted", {}).get("left only", 0) for each in records) == left_only
    assert sum(each["output"].get("dropped", {}).get("right only", 0) for each in records) == (
        right_only if how != "outer" else 0
    )
    again = result(run, *sides[0], "--", *sides[1], "-O", tmp_path / "out", "--how", how, *cut)
    assert again == found | {"done": 0, "done_before": found["shards"]}


def test_members_keep_their_bytes_and_those_of_the_left_come_first(run: Run, tmp_path: Path) -> None:
    left = put(tmp_path / "l.tar", [("b", {"txt": b"1", "a": b""}), ("a", {"z": b"x" * 600})])
    right = put(tmp_path / "r.tar", [("a", {"c": b"2"}), ("b", {"b.c": b"3" * 512})])
    result(run, left, "--", right, "-O", tmp_path / "out")
    (out,) = outputs(tmp_path / "out")
    assert members(out) == ["a.z", "a.c", "b.txt", "b.a", "b.b.c"]
    with tarfile.open(out) as archive:
        assert {each.mtime for each in archive} == {1_600_000_000}
    check_index(run, out, tmp_path)


def test_outputs_do_not_depend_on_processes_and_slices(sides: Sides, run: Run, tmp_path: Path) -> None:
    def made(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".tar", ".idx")}

    inputs = [*sides[0], "--", *sides[1], "--how", "outer", "--shards", "3"]
    for parallel in ("1", "2"):
        assert run("tarkit", "join", *inputs, "-O", tmp_path / parallel, "-p", parallel).code == 0
    first = made(tmp_path / "1")
    assert len(first) == 2 * 3
    assert made(tmp_path / "2") == first
    for slices in (1, 5):
        folder = tmp_path / f"slices-{slices}"
        for number in range(slices):
            part = ("--stage", "scatter", "--slice", f"{number}/{slices}", "-p", "1")
            assert run("tarkit", "join", *inputs, "-O", folder, *part).code == 0
        for number in range(2):
            part = ("--stage", "gather", "--slice", f"{number}/2", "-p", "1")
            assert run("tarkit", "join", *inputs, "-O", folder, *part).code == 0
        assert made(folder) == first


def test_pairs_are_never_in_two_outputs(run: Run, tmp_path: Path) -> None:
    samples = {f"k{number}": {"a": b"1"} for number in range(5)}
    left = put(tmp_path / "l.tar", samples.items())
    right = put(tmp_path / "r.tar", [(key, {"b": b"2"}) for key in [*samples][1:]])
    for count in (1, 2, 3):
        folder = tmp_path / str(count)
        found = result(run, left, "--", right, "-O", folder, "--how", "left", "--maxcount", str(count))
        assert found["pairs"] == 4
        assert [key for key, _ in read(folder)] == [*samples]
        assert max(sum(name.endswith(".a") for name in members(path)) for path in outputs(folder)) <= count


def test_order_is_that_of_the_bytes_of_keys(run: Run, tmp_path: Path) -> None:
    keys = ["a", "a/b", "a\x01", "ab", "é", "z", "\U0001f600", "caf\udce9"]
    left = put(tmp_path / "l.tar", [(key, {"x": b"1"}) for key in reversed(keys)])
    right = put(tmp_path / "r.tar", [(key, {"y": b"2"}) for key in keys])
    found = result(run, left, "--", right, "-O", tmp_path / "out", "--maxcount", "100")
    assert found["pairs"] == len(keys)
    order = sorted(keys, key=lambda key: key.encode("utf-8", "surrogateescape"))
    assert members(outputs(tmp_path / "out")[0]) == [f"{key}.{field}" for key in order for field in "xy"]


def test_a_field_of_both_sides(run: Run, tmp_path: Path) -> None:
    left = put(tmp_path / "l.tar", [("a", {"jpg": b"L", "txt": b"l", "z": b""}), ("b", {"jpg": b"B"})])
    right = put(tmp_path / "r.tar", [("a", {"json": b"{}", "txt": b"r" * 700}), ("b", {"jpg": b"R"})])
    said = refused(run, left, "--", right, "-O", tmp_path / "error", code=65)
    assert said == (
        f"tarkit: {right}, key 'a': field txt is in {left} too; --on-conflict left or right chooses one; "
        "--prefix renames the fields of a side\n"
    )
    assert not outputs(tmp_path / "error")
    result(run, left, "--", right, "-O", tmp_path / "left", "--on-conflict", "left")
    assert read(tmp_path / "left") == [
        ("a", {"jpg": b"L", "txt": b"l", "z": b"", "json": b"{}"}), ("b", {"jpg": b"B"})
    ]  # fmt: skip
    result(run, left, "--", right, "-O", tmp_path / "right", "--on-conflict", "right")
    assert read(tmp_path / "right") == [
        ("a", {"jpg": b"L", "z": b"", "json": b"{}", "txt": b"r" * 700}), ("b", {"jpg": b"R"})
    ]  # fmt: skip
    (out,) = outputs(tmp_path / "right")
    assert members(out) == ["a.jpg", "a.z", "a.json", "a.txt", "b.jpg"]
    check_index(run, out, tmp_path)


def test_prefixes_rename_fields(run: Run, tmp_path: Path) -> None:
    left = put(tmp_path / "l.tar", [("d/a", {"txt": b"l"}), ("d/b", {"txt": b"alone"})])
    right = put(tmp_path / "r.tar", [("d/a", {"txt": b"r"})])
    result(run, left, "--", right, "-O", tmp_path / "both", "--prefix", "old.,new-", "--how", "left")
    assert read(tmp_path / "both") == [("d/a", {"old.txt": b"l", "new-txt": b"r"}), ("d/b", {"old.txt": b"alone"})]
    result(run, left, "--", right, "-O", tmp_path / "one", "--prefix", ",new.", "--mtime", "5")
    with tarfile.open(outputs(tmp_path / "one")[0]) as archive:
        assert [(each.name, each.mtime) for each in archive] == [("d/a.txt", 1_600_000_000), ("d/a.new.txt", 5)]
    said = refused(
        run, left, "--", right, "-O", tmp_path / "last", "--prefix", ",new.", "--key-rule", "last-dot", code=65
    )
    assert f"{right}, key 'd/a': with this --prefix, member 'd/a.new.txt' would not be field 'new.txt'" in said


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_key_in_two_shards_of_a_side_is_an_error(side: str, run: Run, tmp_path: Path) -> None:
    one, two = put(tmp_path / "one.tar", [("k", {"a": b""})]), put(tmp_path / "two.tar", [("k", {"b": b""})])
    other = put(tmp_path / "other.tar", [("k", {"c": b""})])
    arguments = [one, two, "--", other] if side == "left" else [other, "--", one, two]
    said = refused(run, *arguments, "-O", tmp_path / "out", code=65)
    assert said.startswith(f"tarkit: {two}, key 'k': the key is in {one} too, which is on the {side} side as well; ")
    assert not outputs(tmp_path / "out")
    said = refused(
        run, one, two, "--", put(tmp_path / "no.tar", [("n", {"c": b""})]), "-O", tmp_path / "alone", code=65
    )
    assert f"the key is in {one} too" in said


def test_a_key_twice_on_both_sides_is_an_error(run: Run, tmp_path: Path) -> None:
    paths = [put(tmp_path / f"{name}.tar", [("k", {name: b""})]) for name in "abcd"]
    said = refused(run, *paths[:2], "--", *paths[2:], "-O", tmp_path / "out", code=65)
    assert f"{paths[1]}, key 'k': the key is in {paths[0]} too" in said


CAPTIONS = [("00012", 'a "quoted",\nlong line'), ("7", "007"), ("é", "Ünï"), ("NA", "NA"), ("lost", "none")]


def put_table(path: Path) -> Path:
    import csv

    text = io.StringIO()
    if path.suffix == ".jsonl":
        text.writelines(json.dumps({"id": key, "caption": caption}) + "\n" for key, caption in CAPTIONS)
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        keys, captions = zip(*CAPTIONS, strict=True)
        parquet.write_table(pyarrow.table({"id": keys, "caption": captions}), path)
        return path
    else:
        writer = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\r\n")
        writer.writerows([("id", "caption"), *CAPTIONS])
    content = text.getvalue().encode()
    content = b"\xef\xbb\xbf" + content if ".csv" in path.name else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["c.csv", "c.csv.gz", "c.jsonl", "c.parquet"])
def test_a_table_is_a_side(name: str, run: Run, tmp_path: Path) -> None:
    table = put_table(tmp_path / name)
    left = put(tmp_path / "l.tar", [(key, {"jpg": key.encode()}) for key in ("00012", "12", "7", "007", "é", "NA")])
    found = result(run, left, "--", table, "--key", "id", "-O", tmp_path / "right")
    assert (found["pairs"], found["left_only"], found["right_only"]) == (4, 2, 1)
    captions = dict(CAPTIONS)
    joined = [(key, {"jpg": key.encode(), "caption.txt": captions[key].encode()}) for key in ("00012", "7", "NA", "é")]
    assert read(tmp_path / "right") == joined
    result(run, table, "--", left, "--key", "id", "--columns", "caption=txt", "-O", tmp_path / "left", "--how", "outer")
    with_fields = dict(read(tmp_path / "left"))
    assert with_fields["lost"] == {"txt": b"none"}
    assert with_fields["007"] == {"jpg": b"007"}
    assert [*with_fields["00012"]] == ["txt", "jpg"]


def test_values_that_are_null_are_no_fields(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"id": "a", "x": 1, "y": null}\n{"id": "b", "x": null, "y": null}\n{"id": "c", "x": [2], "y": "t"}\n'
    )
    left = put(tmp_path / "l.tar", [(key, {"jpg": b""}) for key in "abc"])
    arguments = (left, "--", tmp_path / "t.jsonl", "--key", "id", "--how", "left", "-O", tmp_path / "out")
    done = run("tarkit", "join", *arguments, "-p", "2")
    assert done.code == 0
    assert done.stderr.endswith("left only: 1; skipped members: no-value 3, row-without-values 1\n")
    assert [{**fields} for _, fields in read(tmp_path / "out")] == [
        {"jpg": b"", "x.json": b"1"}, {"jpg": b""}, {"jpg": b"", "x.json": b"[2]", "y.txt": b"t"}
    ]  # fmt: skip


def test_several_tables_in_a_store(run: Run, tmp_path: Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    files.pipe({"/join/c-0.csv": b"id,txt\na,1\n", "/join/c-1.csv": b"id,txt\nc,3\nb,2\n"})
    left = put(tmp_path / "l.tar", [(key, {"jpg": b""}) for key in "abcd"])
    found = result(run, left, "--", "memory://join/c-{0..1}.csv", "--key", "id", "-O", tmp_path / "out")
    files.rm("/join", recursive=True)
    assert (found["pairs"], found["left_only"]) == (3, 1)
    assert [fields["txt"] for _, fields in read(tmp_path / "out")] == [b"1", b"2", b"3"]


def test_faults_of_a_table(run: Run, tmp_path: Path) -> None:
    left = put(tmp_path / "l.tar", [("a", {"jpg": b""})])
    table = tmp_path / "t.csv"

    def fault(content: str, *arguments: str) -> str:
        table.write_text(content)
        return refused(run, left, "--", table, "-O", tmp_path / "out", "--force", "--key", "id", *arguments, code=65)

    assert f"{table}, key 'a': the key comes twice, as samples 0 and 2 of this input; " in fault(
        "id,x\na,1\nb,2\na,3\n"
    )
    assert f"{table}: has no column 'id'; it has name, x" in fault("name,x\na,1\n")
    assert f"{table}: no key" in fault("id,x\n,1\n").replace("row 2 has no key", "no key")
    assert "cannot be a key" in fault("id,x\na.b,1\n")
    assert "would not be field '__x__'" in fault("id,x__\na,1\n", "--prefix", ",__", "--columns", "x__=x__")
    assert not outputs(tmp_path / "out")


def test_a_table_that_was_changed_is_not_mixed_in(run: Run, tmp_path: Path) -> None:
    left = put(tmp_path / "l.tar", [("a", {"jpg": b""})])
    table = tmp_path / "t.csv"
    table.write_text("id,txt\na,1\n")
    arguments = (left, "--", table, "--key", "id", "-O", tmp_path / "out")
    assert run("tarkit", "join", *arguments, "--stage", "scatter", "--slice", "0/2").code == 0
    table.write_text("id,txt\na,22\n")
    assert "has the run files of another exchange (columns: " in refused(run, *arguments, "--columns", "txt")
    result(run, *arguments)
    assert [fields["txt"] for _, fields in read(tmp_path / "out")] == [b"22"]


def test_samples_of_40_mib_are_joined(run: Run, tmp_path: Path) -> None:
    content = random.Random(3).randbytes(1 << 20)
    large = {
        key: content[number:] + content * count + b"end" for number, (key, count) in enumerate([("b", 39), ("c", 32)])
    }
    left = put(tmp_path / "l.tar", [("a", {"x": b"1"}), ("b", {"bin": large["b"], "x": b"2"}), ("c", {"y": b"3"})])
    right = put(tmp_path / "r.tar", [("c", {"bin": large["c"], "z": b"4"}), ("b", {"txt": b"5", "x": b"6"})])
    arguments = (left, "--", right, "--on-conflict", "right", "--mem", "32M")
    result(run, *arguments, "-O", tmp_path / "out", "--how", "outer")
    found = read(tmp_path / "out")
    assert [(key, [*fields]) for key, fields in found] == [
        ("a", ["x"]), ("b", ["bin", "txt", "x"]), ("c", ["y", "bin", "z"])
    ]  # fmt: skip
    for key, fields in found[1:]:
        assert hashlib.sha256(fields["bin"]).digest() == hashlib.sha256(large[key]).digest()
    assert (found[1][1]["x"], found[2][1]["z"]) == (b"6", b"4")


def test_sides_are_named_as_elsewhere(sides: Sides, run: Run, tmp_path: Path) -> None:
    left, right = sides
    listed = [{"url": str(path), "nsamples": 0} for path in left]
    (tmp_path / "m.json").write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in right))
    pairs = len({*LEFT} & {*RIGHT})
    folder = left[0].parent
    for number, (ours, theirs) in enumerate([
        (tmp_path / "m.json", f"@{tmp_path}/list.txt"), (f"{folder}/left-*.tar", f"{folder}/right-{{0..2}}.tar")
    ]):  # fmt: skip
        assert result(run, ours, "--", theirs, "-O", tmp_path / f"{number}")["pairs"] == pairs


def test_an_empty_side_is_no_error(run: Run, tmp_path: Path) -> None:
    left, empty = put(tmp_path / "l.tar", [("a", {"jpg": b"1"})]), put(tmp_path / "e.tar", [])
    found = result(run, left, "--", empty, "-O", tmp_path / "left", "--how", "left", "--allow-empty")
    assert (found["pairs"], found["left_only"], found["samples"]["out"]) == (0, 1, 1)
    assert result(run, empty, "--", left, "-O", tmp_path / "outer", "--how", "outer")["right_only"] == 1


def test_no_common_key_ends_with_3(run: Run, tmp_path: Path) -> None:
    left, right = put(tmp_path / "l.tar", [("a", {"x": b""})]), put(tmp_path / "r.tar", [("b", {"y": b""})])
    done = run("tarkit", "join", left, "--", right, "-O", tmp_path / "out", "-p", "1")
    assert done.code == 3
    assert done.stderr.endswith("left only: 1; right only: 1; no key is on both sides\n")
    assert result(run, left, "--", right, "-O", tmp_path / "out", "--allow-empty")["samples"]["out"] == 0
    assert len(read(tmp_path / "out")) == 0
    assert result(run, left, "--", right, "-O", tmp_path / "outer", "--how", "outer")["samples"]["out"] == 2


def test_dry_run_counts_both_sides(run: Run, tmp_path: Path) -> None:
    left, table = put(tmp_path / "l.tar", [("a", {"x": b"123"})]), put_table(tmp_path / "c.csv")
    found = result(run, left, "--", table, "--key", "id", "-O", tmp_path / "out", "--dry-run")
    assert (found["samples"], found["content"]) == (6, 3 + sum(len(text.encode()) for _, text in CAPTIONS))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("parallel", ["1", "2"])
def test_a_side_that_cannot_be_read(parallel: str, sides: Sides, run: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(sides[1][0].read_bytes()[:5000])
    for right, code in ((cut, 65), (tmp_path / "none.tar", 66), (tmp_path / "none.csv", 66)):
        options = ["--key", "id"] if right.suffix == ".csv" else []
        done = run(
            "tarkit", "join", *sides[0], "--", right, "-O", tmp_path / f"out-{right.name}", "-p", parallel, *options
        )
        assert (done.code, done.stdout, done.stderr.count("\n")) == (code, b"", 1)
        assert str(right) in done.stderr
        assert not outputs(tmp_path / f"out-{right.name}")


def test_usage_errors(run: Run, tmp_path: Path) -> None:
    left, right = put(tmp_path / "l.tar", [("a", {"x": b""})]), put(tmp_path / "r.tar", [("b", {"y": b""})])
    table, other = put_table(tmp_path / "c.csv"), put_table(tmp_path / "c.jsonl")

    def said(*arguments: str | Path) -> str:
        return refused(run, *arguments, "-O", tmp_path / "out")

    assert "a join has two sides, with -- between them" in said(left, right)
    assert "the left side has no inputs" in said("--", right)
    assert "the right side has no inputs" in said(left, "--")
    assert f"{left} is named twice" in said(left, "--", right, left)
    assert "--rekey does not go with join: no key would be on both sides" in said(left, "--", right, "--rekey")
    assert "several joined samples would have the same key" in said(left, "--", right, "--on-repeated-key", "allow")
    assert "'x' is not LEFT,RIGHT" in said(left, "--", right, "--prefix", "x")
    assert "the name of a field has no slash" in said(left, "--", right, "--prefix", "x/,")
    assert f"{table} is a table; --key names the column of its keys" in said(left, "--", table)
    assert "both sides have tables" in said(table, "--", other, "--key", "id")
    assert "no input is a table" in said(left, "--", right, "--key", "id")
    assert "--columns goes with --key" in said(left, "--", right, "--columns", "a")
    assert "No such option" in said(left, "--", right, "--outter")
    assert not (tmp_path / "out").exists()


def test_what_follows_a_second_mark_is_no_option(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(Path("l.tar"), [("a", {"x": b""})])
    put(Path("-r.tar"), [("a", {"y": b""})])
    done = run("tarkit", "join", "-O", "out", "l.tar", "--", "--how", "inner", "--", "-r.tar")
    assert (done.code, "joined into one sample: 1" in done.stderr) == (0, True)


def test_inputs_of_the_library_are_those_of_the_step(tmp_path: Path) -> None:
    left, right = (str(put(tmp_path / f"{name}.tar", [("a", {name: b""})])) for name in "lr")
    step = Join([left], [right])
    with pytest.raises(UsageError, match="those of its left side, and then those of its right side"):
        Exchange(step, [right, left], str(tmp_path / "out"), ExchangeSettings(shards=1))
    found = Exchange(step, step.inputs, str(tmp_path / "out"), ExchangeSettings(maxcount=9)).run()
    assert (found.counts.out, found.dropped) == (1, {"joined into one sample": 1})
