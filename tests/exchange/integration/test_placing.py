"""--to MAP of tarkit shuffle and sort: a table that names the output of each sample."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.tarkit import main

from tarkit import TarWriter, read_samples
from tarkit.errors import DataError, UsageError
from tarkit.exchange.cuts import Outputs
from tarkit.exchange.placing import Placement
from tarkit.exchange.settings import ExchangeSettings

OUTPUTS = ["train", "val.tar", "te st"]
KEYS = [f"d{number % 2}/k{number:03d}" for number in range(90)]


def output_of(key: str) -> str:
    return OUTPUTS[int(key[-2:]) % 7 % 3]


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    draw = random.Random(5)
    found = []
    for shard in range(3):
        found.append(f"{tmp_path}/in-{shard}.tar")
        with TarWriter(found[-1]) as writer:
            for key in KEYS[shard * 30 : shard * 30 + 30]:
                writer.write({"__key__": key, "cls": str(draw.randrange(9)).encode()})
    return found


def write_map(path: Path, rows: Sequence[tuple[str, str]], columns: tuple[str, str] = ("key", "output")) -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return str(path)


@pytest.fixture
def placed(tmp_path: Path) -> str:
    return write_map(tmp_path / "map.csv", [(key, output_of(key)) for key in KEYS])


def keys_of(shard: Path) -> list[str]:
    return [each["__key__"] for each in read_samples(str(shard))]


def run(verb: str, names: Sequence[str], out: Path, *options: str, parallel: int = 1) -> int:
    return main([verb, *names, "-O", str(out), "-p", str(parallel), *options])


def tars(out: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in out.iterdir() if each.is_file() and each.suffix == ".tar"}


def test_samples_are_where_the_map_says(tmp_path: Path, names: list[str], placed: str) -> None:
    assert run("sort", names, tmp_path / "out", "--to", placed, "--by", "cls", "--reverse") == 0
    assert sorted(tars(tmp_path / "out")) == ["te st.tar", "train.tar", "val.tar"]
    cls = {each["__key__"]: each["cls"] for each in read_samples(names)}
    for output in OUTPUTS:
        path = tmp_path / "out" / f"{output.removesuffix('.tar')}.tar"
        expected = [key for key in KEYS if output_of(key) == output]
        assert keys_of(path) == sorted(expected, key=lambda key: -int(cls[key]))
        with tarfile.open(path) as archive:
            assert len(archive.getnames()) == len(expected)
        assert path.with_suffix(".idx").exists()
    assert not (tmp_path / "out" / "_exchange").exists()


def test_shuffle_within_each_output(tmp_path: Path, names: list[str], placed: str) -> None:
    made = []
    for seed, parallel, mem in (("1", 1, "1G"), ("1", 3, "60k"), ("2", 1, "1G")):
        out = tmp_path / f"{seed}-{parallel}"
        assert run("shuffle", names, out, "--to", placed, "--seed", seed, "--mem", mem, parallel=parallel) == 0
        made.append(tars(out))
    assert made[0] == made[1] != made[2]
    for output in OUTPUTS:
        keys = keys_of(tmp_path / "1-1" / f"{output.removesuffix('.tar')}.tar")
        expected = [key for key in KEYS if output_of(key) == output]
        assert sorted(keys) == sorted(expected)
        assert keys != expected


def to_tsv(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in [("x", "y"), *rows]))
    return str(path)


def to_jsonl(path: Path, rows: list[tuple[str, str]]) -> str:
    text = "".join(json.dumps({"output": b, "more": 1, "key": a}) + "\n" for a, b in rows)
    path.write_bytes(gzip.compress(text.encode()))
    return str(path)


def to_parquet(path: Path, rows: list[tuple[str, str]]) -> str:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = zip(*rows, strict=True)
    parquet.write_table(arrow.table(dict(zip(("id", "split"), map(list, columns), strict=True))), path)
    return f"{path}:id:split"


@pytest.mark.parametrize(("name", "write"), [("m.tsv", to_tsv), ("m.jsonl.gz", to_jsonl), ("m.parquet", to_parquet)])
def test_formats_of_the_map(tmp_path: Path, name: str, write: Callable[[Path, Any], str]) -> None:
    placement = Placement(write(tmp_path / name, [(key, output_of(key)) for key in KEYS]))
    assert (placement.outputs, placement.keys) == (("te st.tar", "train.tar", "val.tar"), 90)


def test_numbers_are_keys_and_outputs(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"key": 7, "output": 3}\n{"key": "07", "output": "3.tar"}\n')
    placement = Placement(str(tmp_path / "m.jsonl"))
    assert (placement.outputs, placement.keys) == (("3.tar",), 2)


@pytest.mark.parametrize(
    "name",
    [
        "a/b", "/a", "..", ".", "../a", ".hidden", ".tar", "a.tar.done.json", "a.tar.failed.tar", "a.failed.tar",
        "a\\b", "a\nb", "a.tgz", "a.tar.gz", "a?b", "a#b", "n" * 201, "a.idx",
    ],
)  # fmt: skip
def test_output_cannot_have_the_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"m\.csv: row 3: an output cannot have the name .* in -O DIR"):
        Placement(write_map(tmp_path / "m.csv", [("k", "good"), ("k2", name)]))


@pytest.mark.parametrize(
    ("text", "source", "reason"),
    [
        ("key,output\na,x\na,y\n", "", "row 3: the key 'a' has two outputs"),
        ("key,output\na,\n", "", "row 2: output is empty"),
        ("key,output\n,x\n", "", "row 2: key is empty"),
        ("key\na\n", "", "has one column; a map has keys and outputs"),
        ("key,output\na,x\n", ":key:nosuch", "has no column nosuch; it has key, output"),
        ("key,output\na,x\n", ":key", "name both columns, FILE:KEYCOLUMN:OUTPUTCOLUMN, or none"),
        ("key,output\n", "", "the table has no rows"),
    ],
)
def test_map_is_not_valid(tmp_path: Path, text: str, source: str, reason: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises((DataError, UsageError)) as caught:
        Placement(f"{tmp_path}/m.csv{source}")
    assert reason in str(caught.value)
    with pytest.raises(UsageError, match=r"the map is a file named \*\.csv"):
        Placement("map.txt")


def test_key_that_the_map_lacks(tmp_path: Path, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    listed = write_map(tmp_path / "m.csv", [(key, "x") for key in [*KEYS[:50], "nosuch1", "nosuch2"]])
    assert run("shuffle", names, tmp_path / "out", "--to", listed) == 65
    error = capsys.readouterr().err
    assert f"m.csv, key {KEYS[50]!r}: the map does not list this key; --unlisted skip leaves such samples out" in error
    assert error.count("\n") == 1
    assert not tars(tmp_path / "out")
    assert run("sort", names, tmp_path / "skipped", "--to", listed, "--unlisted", "skip") == 0
    error = capsys.readouterr().err
    assert "samples: in 90 = out 50 + filtered 40 + failed 0" in error
    assert "keys that the map does not list: 40" in error
    assert "keys of the map that no sample has: 2" in error
    assert keys_of(tmp_path / "skipped" / "x.tar") == sorted(KEYS[:50])


def test_left_out_samples_take_no_space_in_run_files(tmp_path: Path, names: list[str]) -> None:
    listed = write_map(tmp_path / "m.csv", [(KEYS[0], "x")])
    sizes = []
    for options in ([], ["--to", listed, "--unlisted", "skip"]):
        work = tmp_path / f"work-{len(sizes)}"
        more = ["--stage", "scatter", "--slice", "0/1", "--work", str(work)]
        assert run("sort", names, tmp_path / "out", *more, *options) == 0
        sizes.append((work / "run-000000.tar").stat().st_size)
    assert sizes[1] < sizes[0] / 4


def test_output_without_a_sample_is_an_empty_shard(tmp_path: Path, names: list[str]) -> None:
    rows = [("no1", "a"), *((key, "b") for key in KEYS), ("no2", "c")]
    assert run("shuffle", names, tmp_path / "out", "--to", write_map(tmp_path / "m.csv", rows)) == 0
    assert [len(keys_of(tmp_path / "out" / f"{name}.tar")) for name in "abc"] == [0, 90, 0]


def test_failed_samples_of_all_outputs(tmp_path: Path, names: list[str], placed: str) -> None:
    assert run("sort", names, tmp_path / "out", "--to", placed, "--by", "1 / (cls * 1)") == 3
    failed = keys_of(tmp_path / "out" / "val.tar.failed.tar")
    zeros = [each["__key__"] for each in read_samples(names) if each["cls"] == b"0"]
    assert failed == zeros != []
    assert sum(len(keys_of(tmp_path / "out" / name)) for name in ("train.tar", "val.tar", "te st.tar")) == 90 - len(
        zeros
    )


def test_done_outputs_are_kept_and_others_refused(
    tmp_path: Path, names: list[str], placed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("sort", names, out, "--to", placed) == 0
    capsys.readouterr()
    assert run("sort", names, out, "--to", placed) == 0
    assert "0 shards, 3 done before" in capsys.readouterr().err
    (out / "train.tar").unlink()
    assert run("sort", names, out, "--to", placed) == 0
    assert "1 shard, 2 done before" in capsys.readouterr().err
    other = write_map(tmp_path / "other.csv", [(key, "val") for key in KEYS])
    assert run("sort", names, out, "--to", other) == 2
    assert "has 1 shard of another run, such as val.tar; use another folder, or --force" in capsys.readouterr().err
    assert run("sort", names, out, "--to", other, "--force") == 0
    assert keys_of(out / "val.tar") == sorted(KEYS)


def test_changed_map_is_another_exchange(tmp_path: Path, names: list[str], placed: str) -> None:
    work = ["--work", f"{tmp_path}/work", "--stage", "scatter", "--slice", "0/1"]
    assert run("sort", names, tmp_path / "out", "--to", placed, *work) == 0
    write_map(Path(placed), [(key, "all") for key in KEYS])
    assert run("sort", names, tmp_path / "out", "--to", placed, *work) == 2


def test_stages_make_the_same_outputs(tmp_path: Path, names: list[str], placed: str) -> None:
    assert run("shuffle", names, tmp_path / "whole", "--to", placed) == 0
    work = ["--work", f"{tmp_path}/work", "--to", placed, "--stage"]
    for stage in ("scatter", "gather"):
        for number in range(2):
            assert run("shuffle", names, tmp_path / "out", *work, stage, "--slice", f"{number}/2") == 0
    assert tars(tmp_path / "out") == tars(tmp_path / "whole")
    assert not (tmp_path / "work").exists()


def test_killed_run_is_resumed(tmp_path: Path, names: list[str], placed: str) -> None:
    assert run("shuffle", names, tmp_path / "whole", "--to", placed) == 0
    code = (
        "import os, signal, sys\nfrom tarkit.exchange.output import GatheredOutput\n"
        "publish = GatheredOutput.publish\nmade = []\n"
        "def killed(self):\n    made.append(publish(self))\n"
        "    if len(made) == 2: os.kill(os.getpid(), signal.SIGKILL)\n    return made[-1]\n"
        "GatheredOutput.publish = killed\nfrom tarkit.cli.tarkit import main\nmain(sys.argv[1:])\n"
    )
    words = ["shuffle", *names, "-O", f"{tmp_path}/out", "-p", "1", "--to", placed]
    done = subprocess.run([sys.executable, "-c", code, *words], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert run("shuffle", names, tmp_path / "out", "--to", placed) == 0
    assert tars(tmp_path / "out") == tars(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "m.csv", "--shards", "3"], "--shards does not go with --to, which names the shards"),
        (["--to", "m.csv", "--maxcount", "3"], "--maxcount does not go with --to"),
        (["--unlisted", "skip"], "--unlisted goes with --to"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, names: list[str], placed: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [placed if each == "m.csv" else each for each in options]
    assert run("shuffle", names, tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err


def test_settings_of_named_outputs() -> None:
    with pytest.raises(UsageError, match="shards does not go with outputs that are named"):
        Outputs(("a.tar",), ExchangeSettings(shards=2))
