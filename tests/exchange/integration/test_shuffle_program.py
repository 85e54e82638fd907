"""tarkit shuffle as people run it: options, exit codes, messages, processes, environments."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, gathered, keys_of, left_in, numbered_inputs, shards_of, tarkit, write_shard
from installed import program_path

from tarkit.exchange.shuffle import Shuffle


def test_processes_do_not_change_bytes(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [9] * 12)
    found = []
    for parallel, slices in ((1, 3), (2, 7), (4, 12)):
        out = tmp_path / f"out-{parallel}"
        exchange(urls, out, Shuffle(4), shards=5, slices=slices)
        code, _, messages = tarkit(
            "shuffle", *urls, "-O", out, "--shards", "5", "--seed", "4", "-p", str(parallel), folder=tmp_path
        )
        assert (code, left_in(out)) == (0, []), messages
        assert "samples: in 108 = out 108" in messages
        found.append(files_of(out))
    assert found[0] == found[1] == found[2]
    exchange(urls, tmp_path / "api", Shuffle(4), shards=5).run()
    assert found[0] == files_of(tmp_path / "api")


def test_environment_does_not_change_bytes(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [5, 6])
    urls.append(write_shard(tmp_path / "é ü.tar", [("ä/ß", {"cls": b"1"})]))
    found = []
    for number, variables in enumerate(
        (
            {"LC_ALL": "C", "PYTHONHASHSEED": "0", "TZ": "UTC"},
            {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "USER": "nobody"},
        )
    ):
        done = subprocess.run(
            [program_path("tarkit"), "shuffle", *urls, "-O", f"out{number}", "--shards", "2", "--seed", "1", "-q"],
            cwd=tmp_path, env={**os.environ, **variables}, umask=0o077 * number, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        found.append(files_of(tmp_path / f"out{number}"))
    assert found[0] == found[1]


def test_gnu_tar_lists_all_samples(tmp_path: Path) -> None:
    one, two = (Path(url).read_bytes() for url in numbered_inputs(tmp_path / "in", [4, 5]))
    long = write_shard(tmp_path / "long.tar", [("d" * 90 + "/" + "n" * 190, {"cls": b"x"})], format=1)
    (tmp_path / "both.tar").write_bytes(one + two)
    code, _, messages = tarkit("shuffle", "both.tar", long, "-O", "out", "--maxcount", "6", folder=tmp_path)
    assert code == 0, messages
    listed = [
        line
        for path in shards_of(tmp_path / "out")
        for line in subprocess.run(["tar", "-tf", path], capture_output=True, text=True, check=True).stdout.split()
    ]
    assert len(listed) == 19 and "d" * 90 + "/" + "n" * 190 + ".cls" in listed


def lines_of(messages: str) -> list[str]:
    return [line for line in messages.splitlines() if line]


def test_errors_are_one_line_with_their_code(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4])
    cut = tmp_path / "cut.tar"
    cut.write_bytes(Path(urls[0]).read_bytes()[:3000])
    again = write_shard(tmp_path / "again.tar", [("s00/n0001", {"png": b""})])
    (tmp_path / "taken").write_text("a file")
    for words, code, shown in [
        ([*urls, "--shards", "9"], 2, "8 samples cannot fill 9 shards"),
        ([*urls, "--shards", "2", "--maxcount", "3"], 2, "shards and maxcount"),
        ([*urls, "--shards", "0"], 2, "--shards"),
        ([urls[1], cut, "--shards", "2"], 65, "cut.tar"),
        ([urls[0], "gone.tar", "--shards", "2"], 66, "gone.tar"),
        ([urls[0], again, "--shards", "2"], 65, "s00/n0001"),
        ([*urls, "--shards", "2", "--work", "taken/x"], 1, "taken"),
    ]:
        found, printed, messages = tarkit("shuffle", *words, "-O", "out", folder=tmp_path)
        assert (found, printed) == (code, ""), (words, messages)
        (line,) = lines_of(messages)
        assert line.startswith("tarkit") and shown in line, line
        assert shards_of(tmp_path / "out") == []
        for path in [*tmp_path.glob("out/**/*")][::-1]:
            path.rmdir() if path.is_dir() else path.unlink()


def test_errors_of_a_process_are_one_line_too(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    Path(urls[1]).write_bytes(Path(urls[1]).read_bytes()[:3000])
    exchange(urls, tmp_path / "out", slices=3, shards=2)
    code, _, messages = tarkit("shuffle", *urls, "-O", "out", "--shards", "2", "-p", "3", folder=tmp_path)
    assert code == 65
    (line,) = lines_of(messages)
    assert "in-001.tar" in line and "nothing was gathered" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into any folder")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4])
    (tmp_path / "closed").mkdir(mode=0o555)
    code, _, messages = tarkit("shuffle", *urls, "-O", "closed/out", folder=tmp_path)
    assert code == 1 and len(lines_of(messages)) == 1 and "closed" in messages


def test_status_of_a_finished_and_of_a_half_finished_run(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4])
    assert tarkit("shuffle", *urls, "-O", "out", "--shards", "3", folder=tmp_path)[0] == 0
    code, printed, messages = tarkit("status", "out", folder=tmp_path)
    assert code == 0, printed + messages
    (tmp_path / "out" / "shard-000001.tar.done.json").unlink()
    code, printed, _ = tarkit("status", "out", "--json", folder=tmp_path)
    assert code == 1
    assert json.loads(printed)["missing"] == ["shard-000001.tar"]
    # And the run makes it again.
    code, _, messages = tarkit("shuffle", *urls, "-O", "out", "--shards", "3", folder=tmp_path)
    assert code == 0 and "1 shard, 2 done before" in messages
    assert tarkit("status", "out", folder=tmp_path)[0] == 0


def test_status_of_the_work_folder_names_missing_slices(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    Path(urls[1]).write_bytes(b"")
    exchange(urls, tmp_path / "out", slices=3, shards=2)
    assert tarkit("shuffle", *urls, "-O", "out", "--shards", "2", folder=tmp_path)[0] == 65
    code, printed, _ = tarkit("status", "out/_exchange", "--json", folder=tmp_path)
    assert code == 1
    assert "run-000001.tar" in json.dumps(json.loads(printed)["failed"])


def test_run_files_are_shards_that_show_can_read(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    Path(urls[1]).write_bytes(b"")
    exchange(urls, tmp_path / "out", slices=3, shards=2)
    tarkit("shuffle", *urls, "-O", "out", "--shards", "2", folder=tmp_path)
    code, printed, messages = tarkit("show", "--count", "out/_exchange/run-000000.tar", folder=tmp_path)
    assert (code, printed.strip()) == (0, "4"), messages
    with open(tmp_path / "list", "wb") as out:
        subprocess.run(["tar", "-tf", "out/_exchange/run-000000.tar"], cwd=tmp_path, stdout=out, check=True)
    assert sum(line.startswith("s00/") for line in (tmp_path / "list").read_text().splitlines()) == 8


def test_the_report_in_json_adds_up(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    code, printed, _ = tarkit("shuffle", *urls, "-O", "out", "--maxcount", "5", "--json", folder=tmp_path)
    found = json.loads(printed)
    assert code == 0 and found["shards"] == found["done"] == 3
    assert found["samples"]["in"] == found["samples"]["out"] == 12
    assert found["bytes"] == sum(path.stat().st_size for path in shards_of(tmp_path / "out"))


def test_many_slices_with_few_descriptors(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2] * 100, most=50)
    exchange(urls, tmp_path / "out", shards=2, slices=100)
    words = ["shuffle", *urls, "-O", "out", "--shards", "2", "--seed", "0", "-p", "1", "--mem", "1M"]
    done = subprocess.run(
        [program_path("tarkit"), *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(keys_of(tmp_path / "out")) == 200


def test_two_runs_at_once(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [12] * 10)
    exchange(urls, tmp_path / "right", shards=6).run()
    for attempt in range(2):
        out = tmp_path / f"out{attempt}"
        exchange(urls, out, shards=6, slices=10)
        command = [program_path("tarkit"), "shuffle", *urls, "-O", str(out), "--shards", "6", "--seed", "0", "-p", "1"]
        both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        messages = [process.communicate(timeout=120)[1] for process in both]
        assert 0 in [process.returncode for process in both]
        assert all(len(lines_of(text)) == 1 for text in messages), messages
        found = {name: data for name, data in files_of(out).items() if not name.startswith("_exchange")}
        assert found == files_of(tmp_path / "right")
        assert tarkit("shuffle", *urls, "-O", out, "--shards", "6", "--seed", "0", folder=tmp_path)[0] == 0
        assert files_of(out) == files_of(tmp_path / "right")
    assert len(gathered(tmp_path / "out0")) == 6
