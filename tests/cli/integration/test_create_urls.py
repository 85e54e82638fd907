"""tarkit create: columns of URLs, whose content is fetched."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import Fault, FaultServer
from installed import program_path
from waiting import wait_for

from tarkit import read_samples

Run = Callable[..., Any]
JPEG = b"\xff\xd8\xff" + bytes(300)
GONE = Fault("status", status=404)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


@pytest.fixture
def table(server: FaultServer, tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "url", "caption"])
        for number in range(40):
            url = server.put(f"{number} x.jpg".replace(" ", "%20"), JPEG + b"%d" % number)
            writer.writerow([f"{number:03}", url.replace("%20", " "), f"picture {number}"])
    return path


def create(run: Run, table: Path, output: Path | str, *arguments: str | Path) -> Any:
    return run(
        *("tarkit", "create", "--table", table, "--key", "id", "--files", "url=jpg", "--columns", "caption=txt"),
        *("-o", output, "--allow-private", *arguments),
    )  # fmt: skip


def keys(folder: Path, pattern: str = "*.tar") -> list[str]:
    return [each["__key__"] for path in sorted(folder.glob(pattern)) for each in read_samples(str(path), split=True)]


def test_a_failure_is_listed_and_the_same_command_repairs_it(run: Run, server: FaultServer, table: Path) -> None:
    for number in (3, 11):
        server.objects[f"{number}%20x.jpg"].faults.append(GONE)
    out = table.parent / "train-%03d.tar"
    result = create(run, table, out, "--maxcount", "10")
    assert (result.code, result.lines) == (3, [str(out) % number for number in range(4)])
    listed = table.parent / "train-failed.csv"
    size = sum(len(JPEG) + len("picture ") + 2 * len(f"{number}") for number in range(40) if number not in (3, 11))
    assert result.stderr.splitlines() == [
        f"tarkit create: 38 samples in 4 shards, {size} bytes of new content; 2 files not "
        f"fetched (http-404 2), listed in {listed}; the same command fetches them again"
    ]
    assert [row["key"] for row in csv.DictReader(io.StringIO(listed.read_text()))] == ["003", "011"]
    server.requests.clear()
    result = create(run, table, out, "--maxcount", "10")
    assert (result.code, result.lines) == (0, [str(out) % number for number in (0, 1)])
    assert sorted({path for path, _ in server.requests}) == ["11%20x.jpg", "3%20x.jpg", "robots.txt"]
    assert not listed.exists()
    assert keys(table.parent) == [f"{number:03}" for number in range(40)]
    (first, *_) = read_samples(str(out) % 0, split=True)
    assert (first["jpg"], first["txt"]) == (JPEG + b"0", b"picture 0")
    result = create(run, table, out, "--maxcount", "10")
    assert (result.code, result.stdout) == (0, b"")


def test_addresses_are_refused_by_default(run: Run, server: FaultServer, table: Path) -> None:
    out = table.parent / "o.tar"
    result = run("tarkit", "create", "--table", table, "--key", "id", "--files", "url=jpg", "-o", out)
    assert (result.code, result.stdout) == (1, b"")
    assert "o-failed.csv: no file could be fetched, so nothing was published: address 40" in result.stderr
    assert not server.requests
    assert not out.exists()


def test_parts_shards_order_and_json(run: Run, server: FaultServer, table: Path) -> None:
    server.objects["7%20x.jpg"].faults.append(GONE)
    arguments = ["--split", "train=0.75,val=0.25", "--shards", "4", "--shuffle", "1", "--json", "--index"]
    result = create(run, table, table.parent / "%s-%02d.tar", *arguments)
    assert result.code == 3, result.stderr
    train, val = map(json.loads, result.lines)
    assert (train["part"], val["part"]) == ("train", "val")
    assert train["samples"] + val["samples"] == 39
    assert (len(train["shards"]), len(val["shards"])) == (3, 1)
    assert {**train["failed"], **val["failed"]} == {"http-404": 1}
    found = keys(table.parent, "train*.tar"), keys(table.parent, "val*.tar")
    assert sorted(found[0] + found[1]) == [f"{number:03}" for number in range(40) if number != 7]
    assert found[0] != sorted(found[0])
    result = create(run, table, table.parent / "%s-%02d.tar", *arguments)
    assert result.code == 0, result.stderr
    assert sum(json.loads(line)["samples"] for line in result.lines) == 40
    # The parts are those of the same table with the files on disk.
    local = table.parent / "local.csv"
    local.write_text("id,caption\n" + "".join(f"{number:03},x\n" for number in range(40)))
    run("tarkit", "create", "--table", local, "--key", "id", "-o", table.parent / "%s.tar", "--split", arguments[1])
    assert keys(table.parent, "val.tar") == sorted(keys(table.parent, "val-*.tar"))


def test_a_stream(run: Run, server: FaultServer, table: Path) -> None:
    server.objects["7%20x.jpg"].faults.append(GONE)
    result = create(run, table, "-")
    assert (result.code, result.stdout) == (2, b"")
    assert "-o - needs --failed-rows" in result.stderr
    listed = table.parent / "failed.csv"
    result = create(run, table, "-", "--failed-rows", listed)
    assert result.code == 3
    (table.parent / "out.tar").write_bytes(result.stdout)
    assert len(keys(table.parent)) == 39
    assert [row["key"] for row in csv.DictReader(listed.read_text().splitlines())] == ["007"]
    assert "1 file not fetched (http-404 1)" in result.stderr


def test_a_table_on_standard_input_and_map(run: Run, server: FaultServer, table: Path, tmp_path: Path) -> None:
    (tmp_path / "mapper.py").write_text("def shorter(sample):\n    return {**sample, 'jpg': sample['jpg'][:3]}\n")
    arguments = ["--key", "id", "--files", "url=jpg", "--allow-private", "--map", f"{tmp_path / 'mapper.py'}:shorter"]
    out = tmp_path / "a-%02d.tar"
    result = run("tarkit", "create", "--table", "-", *arguments, "-o", out, stdin=table.read_bytes())
    assert result.code == 0, result.stderr
    assert {sample["jpg"] for sample in read_samples(str(out) % 0, split=True)} == {JPEG[:3]}
    assert not list(tmp_path.glob("*.done.json"))


def test_rows_without_a_url_are_counted_once(run: Run, server: FaultServer, table: Path) -> None:
    table.write_text("id,url,caption\na,,x\n" + table.read_text().partition("\n")[2])
    result = create(run, table, table.parent / "%s-%02d.tar", "--split", "train=0.5,val=0.5")
    assert result.code == 0, result.stderr
    assert result.stderr.count("no value: url 1") == 1
    assert sorted(keys(table.parent))[-1] == "a"


def test_a_reader_that_has_enough(server: FaultServer, table: Path) -> None:
    for stored in server.objects.values():
        stored.content += bytes(200_000)
    words = ["create", "--table", table, "--key", "id", "--files", "url=jpg", "-o", "-", "--allow-private"]
    program = [program_path("tarkit"), *words, "--failed-rows", table.parent / "f.csv"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.read(1)
        child.stdout.close()
        assert (child.stderr.read(), child.wait()) == (b"", 0)


def test_a_dry_run(run: Run, server: FaultServer, table: Path) -> None:
    result = create(run, table, table.parent / "a-%02d.tar", "--dry-run")
    assert result.code == 0, result.stderr
    assert "40 rows to fetch" in result.stderr
    assert not server.requests
    result = create(run, table, "-", "--dry-run")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert [path.name for path in table.parent.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--maxsize", "1M"], "--maxsize does not go with URLs"),
        (["--tries", "0"], "--tries"),
        (["--timeout", "nan"], "--timeout"),
        (["--max-bytes", "x"], "--max-bytes"),
        (["--failed-rows", "failed.txt"], "*.csv"),
    ],
)
def test_options_that_are_not_valid(run: Run, table: Path, arguments: list[str], words: str) -> None:
    result = create(run, table, table.parent / "a-%02d.tar", *arguments)
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr


def test_options_of_downloads_go_with_files(run: Run, table: Path) -> None:
    for arguments in (["--tries", "3"], ["--allow-private"], ["--failed-rows", "x.csv"]):
        result = run("tarkit", "create", "--table", table, "-o", table.parent / "o.tar", *arguments)
        assert (result.code, f"{arguments[0]} goes with --files" in result.stderr) == (2, True)


def test_opt_outs_and_limits_are_passed_on(run: Run, server: FaultServer, table: Path) -> None:
    server.put("robots.txt", b"User-agent: *\nDisallow: /1\n")
    server.objects["2%20x.jpg"].headers = (("X-Robots-Tag", "noai"),)
    server.objects["3%20x.jpg"].content = JPEG * 10
    out = table.parent / "a-%02d.tar"
    result = create(run, table, out, "--max-bytes", "2k", "--json")
    assert result.code == 3
    assert json.loads(result.lines[-1])["failed"] == {"robots": 11, "opt-out": 1, "too-large": 1}
    result = create(run, table, out, "--ignore-robots", "--ignore-opt-out", "--json")
    assert (result.code, json.loads(result.lines[-1])["samples"]) == (0, 40)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_at_once(server: FaultServer, table: Path, number: int, code: int) -> None:
    server.objects["25%20x.jpg"].always = Fault("stall", at=100)
    out = table.parent / "a-%02d.tar"
    words = ["create", "--table", table, "--key", "id", "--files", "url=jpg", "-o", out, "--maxcount", "20"]
    with subprocess.Popen([program_path("tarkit"), *words, "--allow-private"], stderr=subprocess.PIPE) as child:
        record = table.parent / "a-00.tar.done.json"
        wait_for(lambda: record.exists() and '"state": "done"' in record.read_text() and server.asked("25%20x.jpg"))
        child.send_signal(number)
        begun = time.monotonic()
        child.wait()
        assert child.returncode == code
        assert time.monotonic() - begun < 20
    assert sorted(path.name for path in table.parent.iterdir()) == ["a-00.tar", "a-00.tar.done.json", "t.csv"]
