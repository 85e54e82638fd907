"""What becomes of samples whose command fails: outputs, failed shards, exit codes, counts."""

from __future__ import annotations

import os
import subprocess

import pytest
from tarproc_support import TARPROC, Bench, contents, numbered, one_line, tar_bytes

SAMPLES = numbered(6)
ODD_FAIL = 'case $(cat sample.cls) in *[13579]) echo "no $(cat __key__)"; exit 5;; esac'


def _odd(count: int) -> set[str]:
    return {f"k{number}.{field}" for number in range(1, count, 2) for field in ("cls", "dat")}


def _even(count: int) -> set[str]:
    return {f"k{number}.{field}" for number in range(0, count, 2) for field in ("cls", "dat")}


def _names(bench: Bench) -> set[str]:
    return set(os.listdir(bench.path)) - {"in.tar", "report.json"}


def test_nothing_fails(bench: Bench) -> None:
    done = bench.run("-c", "true", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert (done.returncode, done.stdout) == (0, b"")
    assert one_line(done.stderr) == "tarproc: in 6 = out 6 + filtered 0 + failed 0"
    assert bench.members() == contents(tar_bytes(numbered(6)))
    report = bench.report()
    assert (report["exit_code"], report["error"], report["published"]) == (0, None, True)
    assert _names(bench) == {"out.tar"}


def test_keep(bench: Bench) -> None:
    done = bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar", "--report", "report.json", "-p", "4")
    assert done.returncode == 3
    assert set(bench.members()) == _even(6)
    failed = bench.members("out.tar.failed.tar")
    assert set(failed) == _odd(6) | {f"k{number}.__error__.txt" for number in (1, 3, 5)}
    assert failed["k3.__error__.txt"] == b"exit code 5\n--- stdout ---\nno k3\n"
    assert failed["k3.dat"] == b"\3\3\3"
    assert b"in 6 = out 3 + filtered 0 + failed 3; failed samples are in out.tar.failed.tar" in done.stderr
    assert b"k1: exit code 5: no k1" in done.stderr
    report = bench.report()
    assert report["exit_code"] == 3 and report["failures"] == {"exit": 3}


def test_skip(bench: Bench) -> None:
    done = bench.run("-c", ODD_FAIL, "-e", "skip", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 3
    assert set(bench.members()) == _even(6)
    assert _names(bench) == {"out.tar"}
    assert bench.report()["samples"]["failed"] == 3
    assert [f"k{n}: exit code 5" in done.stderr.decode() for n in (1, 3, 5)] == [True] * 3
    assert b"failed samples are in" not in done.stderr


def test_ignore(bench: Bench) -> None:
    done = bench.run(
        "-c", f"rm sample.dat; {ODD_FAIL}", "-e", "ignore", "in.tar", "-o", "out.tar", "--report", "report.json"
    )
    assert done.returncode == 0
    assert set(bench.members()) == {f"k{number}.cls" for number in range(6)}
    assert b"exit codes ignored: 3" in done.stderr
    assert bench.report()["samples"] == {"in": 6, "added": 0, "out": 6, "filtered": 0, "failed": 0, "ignored": 3}
    assert _names(bench) == {"out.tar"}


def test_ignore_does_not_ignore_what_can_not_be_used(bench: Bench) -> None:
    done = bench.run("-c", "[ $(cat sample.cls) = 2 ] && kill -9 $$; exit 1", "-e", "ignore", "in.tar", "-o", "out.tar")
    assert done.returncode == 3
    assert "k2.dat" in bench.members("out.tar.failed.tar") and "k2.dat" not in bench.members()


def test_abort(bench: Bench) -> None:
    done = bench.run("-c", ODD_FAIL, "-e", "abort", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 1
    assert _names(bench) == set()
    # Once, with what the command printed.
    assert done.stderr == (b"tarproc: k1: exit code 5: no k1; --errors abort ends the run; nothing was published\n")
    report = bench.report()
    assert report["exit_code"] == 1 and report["published"] is False and "abort" in report["error"]


def test_all_failed(bench: Bench) -> None:
    done = bench.run("-c", "exit 5", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 1
    assert _names(bench) == set()
    assert b"all 6 samples failed" in done.stderr
    assert bench.report()["samples"]["failed"] == 6


@pytest.mark.parametrize(
    ("command", "code", "policy"),
    [("no-such-program", 127, "keep"), ("./sample.cls", 126, "skip"), ("exit 127", 127, "abort")],
)
def test_command_that_can_not_be_run(bench: Bench, command: str, code: int, policy: str) -> None:
    done = bench.run("-c", command, "-e", policy, "in.tar", "-o", "out.tar", "-p", "2")
    assert done.returncode == code
    assert _names(bench) == set()


def test_not_found_for_some_is_a_failure_of_some(bench: Bench) -> None:
    done = bench.run("-c", "[ $(cat sample.cls) = 2 ] && no-such-program || true", "in.tar", "-o", "out.tar")
    assert done.returncode == 0
    done = bench.run("-c", "if [ $(cat sample.cls) = 2 ]; then no-such-program; fi", "in.tar", "-o", "out.tar")
    assert done.returncode == 3
    error = bench.members("out.tar.failed.tar")["k2.__error__.txt"]
    assert (
        error.startswith(b"exit code 127 (a command was not found): line 1: no-such-program; ")
        and b"no-such-program" in error
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("kill -9 $BASHPID", b"exit code 137 (SIGKILL)\n"),
        ("kill -SEGV $BASHPID", b"exit code 139 (SIGSEGV)\n"),
        ("kill -9 $$", b"the shell that ran the command was killed by SIGKILL\n"),
        ('rm -r "$PWD"', b"the command removed its own folder\n"),
        (": > __key__", b"what the command left cannot be used: the command left an empty __key__\n"),
        ("printf k0 > __key__", b"the key was written before"),
        ("printf a.b > __key__", b"would be read back as"),
        (
            "touch sample.__x__",
            b"'sample.__x__' cannot be a field: names of the form __name__ are kept for what readers",
        ),
        ("printf a > __key__; printf b > sample.__key__", b"the command left two keys: 'a' in __key__, and 'b' in"),
        ("ln -s /etc/hostname sample.name", b"sample.name is a link that leads out of the sample's folder\n"),
        ("rm sample.*; mkfifo sample.dat; exit 1", b"exit code 1\n"),
    ],
)
def test_error_file(bench: Bench, command: str, text: bytes) -> None:
    done = bench.run("-c", f"if [ $(cat sample.cls) = 2 ]; then {command}; fi", "in.tar", "-o", "out.tar")
    assert done.returncode == 3
    failed = bench.members("out.tar.failed.tar")
    assert text in failed["k2.__error__.txt"]
    assert (failed["k2.cls"], failed["k2.dat"]) == (b"2", b"\2\2\2")
    assert len(bench.members()) == 10


@pytest.mark.parametrize(("limit", "code"), [("2", 1), ("3", 3), ("50%", 3), ("49%", 1)])
def test_max_errors(bench: Bench, limit: str, code: int) -> None:
    done = bench.run("-c", ODD_FAIL, "--max-errors", limit, "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == code
    assert _names(bench) == ({"out.tar", "out.tar.failed.tar"} if code == 3 else set())
    assert bench.report()["exit_code"] == code
    if code == 1:
        assert f"--max-errors is {limit}".encode() in done.stderr


def test_max_errors_ends_the_run_early(bench: Bench) -> None:
    bench.shard(numbered(1000))
    done = bench.run("-c", "exit 1", "--max-errors", "5", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 1
    assert bench.report()["samples"]["failed"] == 6


def test_retry(bench: Bench) -> None:
    bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    done = bench.run("-c", "ls", "--retry-failed", "out.tar.failed.tar", "-o", "again.tar")
    assert done.returncode == 0
    assert done.stdout == b"__key__\n__source__\nsample.cls\nsample.dat\n" * 3
    assert bench.members("again.tar") == {
        name: content for name, content in contents(tar_bytes(numbered(6))).items() if name in _odd(6)
    }


def test_retry_onto_the_output_is_refused(bench: Bench) -> None:
    bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    before = (bench.path / "out.tar").read_bytes()
    done = bench.run("-c", "true", "--retry-failed", "out.tar.failed.tar", "-o", "out.tar")
    assert done.returncode == 2
    assert (bench.path / "out.tar").read_bytes() == before
    assert (bench.path / "out.tar.failed.tar").exists()
    assert bench.run("-c", "true", "--retry-failed", "out.tar.failed.tar", "in.tar").returncode == 2
    assert bench.run("-c", "true", "--retry-failed", "no.failed.tar", "-o", "x.tar").returncode == 66


def test_retry_that_fails_again(bench: Bench) -> None:
    bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    command = "[ $(cat sample.cls) != 3 ]"
    done = bench.run("-c", command, "--retry-failed", "out.tar.failed.tar", "-o", "again.tar")
    assert done.returncode == 3
    assert set(bench.members("again.tar.failed.tar")) == {"k3.__error__.txt", "k3.cls", "k3.dat"}


def test_stale_failed_shard_is_removed(bench: Bench) -> None:
    bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    done = bench.run("-c", "true", "in.tar", "-o", "out.tar")
    assert done.returncode == 0
    assert b"removed out.tar.failed.tar of an earlier run" in done.stderr
    assert _names(bench) == {"out.tar"}


def test_run_that_fails_leaves_the_earlier_output_alone(bench: Bench) -> None:
    bench.run("-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    before = {name: (bench.path / name).read_bytes() for name in _names(bench)}
    assert bench.run("-c", "exit 1", "in.tar", "-o", "out.tar").returncode == 1
    assert {name: (bench.path / name).read_bytes() for name in _names(bench)} == before


def test_to_standard_output(bench: Bench) -> None:
    done = bench.run("-c", ODD_FAIL, "in.tar", "-o", "-", "--report", "report.json")
    assert done.returncode == 3
    assert set(contents(done.stdout)) == _even(6)
    assert _names(bench) == set()
    for number in (1, 3, 5):
        assert f"k{number}: exit code 5".encode() in done.stderr
    assert bench.report()["exit_code"] == 3


def test_to_nowhere(bench: Bench) -> None:
    done = bench.run("-c", ODD_FAIL, "in.tar", "--report", "report.json")
    assert done.returncode == 3
    assert done.stdout == b"no k1\nno k3\nno k5\n"
    assert _names(bench) == set()
    assert done.stderr.count(b"exit code 5") == 3
    assert bench.report()["output"] is None and bench.report()["published"] is False


@pytest.mark.parametrize("target", ["/dev/null", "/dev/stdout", "pipe:cat > copy.tar; true"])
def test_to_what_is_no_file(bench: Bench, target: str) -> None:
    """There is nothing beside these that a failed shard could be called after."""
    done = bench.run("-c", ODD_FAIL, "in.tar", "-o", target)
    assert done.returncode == 3, done.stderr
    assert not os.path.exists("/dev/null.failed.tar")
    assert _names(bench) <= {"copy.tar"}
    for number in (1, 3, 5):
        assert f"k{number}: exit code 5".encode() in done.stderr
    if target == "/dev/stdout":
        assert set(contents(done.stdout)) == _even(6)
    elif target.startswith("pipe:"):
        assert set(bench.members("copy.tar")) == _even(6)


def test_quiet_still_tells_of_failures(bench: Bench) -> None:
    done = bench.run("-q", "-c", "true", "in.tar", "-o", "out.tar")
    assert done.stderr == b""
    done = bench.run("-q", "-c", ODD_FAIL, "in.tar", "-o", "out.tar")
    assert b"failed 3" in done.stderr


def test_filtered(bench: Bench) -> None:
    command = "case $(cat sample.cls) in [01]) rm sample.*;; esac"
    done = bench.run("-c", command, "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 0
    assert bench.report()["samples"] == {"in": 6, "added": 0, "out": 4, "filtered": 2, "failed": 0, "ignored": 0}


def test_everything_filtered(bench: Bench) -> None:
    drop = ("-c", "rm sample.*", "in.tar", "-o", "out.tar", "--report", "report.json")
    done, report = bench.run(*drop), bench.report()
    assert done.returncode == 3 and done.stderr.count(b"6 samples came in, and none came out") == 1
    assert (report["exit_code"], report["empty"], report["error"]) == (3, True, None), "the reason for the exit code"
    done = bench.run(*drop, "--allow-empty")
    assert done.returncode == 0 and b"none came out" not in done.stderr and not bench.report()["empty"]
    assert bench.members() == {}
    listing = subprocess.run(["tar", "tf", "out.tar"], cwd=bench.path, stdout=subprocess.PIPE, check=True)
    assert listing.stdout == b""


def test_added(bench: Bench) -> None:
    command = "for i in 1 2; do cp sample.dat sample-$i.dat; done"
    done = bench.run("-m", "-c", command, "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 0
    assert bench.report()["samples"]["added"] == 12
    assert {"k0.cls", "k0.dat", "k0-1.dat", "k0-2.dat"} <= set(bench.members())


def test_damaged_and_missing_input(bench: Bench) -> None:
    whole = (bench.path / "in.tar").read_bytes()
    (bench.path / "cut.tar").write_bytes(whole[:3000])
    done = bench.run("-c", "true", "cut.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 65 and bench.report()["exit_code"] == 65
    done = bench.run("-c", "true", "missing.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 66 and bench.report()["exit_code"] == 66
    done = bench.run("-c", "true", "in.tar", "missing.tar", "-o", "out.tar")
    assert done.returncode == 66
    assert _names(bench) == {"cut.tar"}
    done = bench.run("-c", "true", "cut.tar", "-o", "out.tar", "--on-damage", "skip", "--report", "report.json")
    assert done.returncode == 3 and bench.report()["damage"]


def test_output_that_can_not_be_written(bench: Bench) -> None:
    for target, code in (("in.tar/folder/out.tar", 2), (".", 1), ("in.tar/x", 2)):
        done = bench.run("-c", "true", "in.tar", "-o", target)
        assert done.returncode == code
        one_line(done.stderr)


def test_report_that_can_not_be_written_is_known_at_once(bench: Bench) -> None:
    for target, code in (("in.tar/r.json", 1), ("-", 2)):
        done = bench.run("-c", "touch ../../../run/ran", "in.tar", "-o", "out.tar", "--report", target)
        assert done.returncode == code
        one_line(done.stderr)
        assert _names(bench) == set()


def test_add_log_needs_a_sample_to_be_in(bench: Bench) -> None:
    done = bench.run("-c", "echo x", "--add-log", "log", "in.tar")
    assert done.returncode == 2
    for field in ("a/b", "", "__x__"):
        assert bench.run("-c", "echo x", "--add-log", field, "in.tar", "-o", "out.tar").returncode == 2


def test_add_log_replaces_no_field(bench: Bench) -> None:
    done = bench.run("-c", "echo x", "--add-log", "dat", "in.tar", "-o", "out.tar")
    assert done.returncode != 0
    assert b"dat" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-c", "true", "-S", "x.sh"],
        ["-c", "true", "--map", "m:f"],
        ["-c", "true", "--setup", "m:f"],
        ["-c", "true", "-p", "-1"],
        ["-c", "true", "--timeout", "0"],
        ["-c", "true", "-I", "("],
        ["-c", "true", "-b", "a/b"],
        ["-c", "true", "--mem", "lots"],
        ["-c", "true", "--batch", "0"],
        ["-c", "true", "--key-rule", "("],
    ],
)
def test_usage_errors(bench: Bench, arguments: list[str]) -> None:
    done = bench.run(*arguments, "in.tar")
    assert done.returncode == 2
    one_line(done.stderr)
    assert done.stdout == b""


BAD = "echo no good >&2; exit 3"


def test_a_line_that_the_failure_has_is_not_printed_again(bench: Bench) -> None:
    done = bench.run("-c", f"{ODD_FAIL} >&2", "in.tar", "-o", "out.tar")
    lines = done.stderr.decode().splitlines()
    assert lines[:3] == [f"tarproc: k{number}: exit code 5: no k{number}" for number in (1, 3, 5)]
    assert len(lines) == 4 and done.stdout == b""
    done = bench.run("-c", ODD_FAIL, "in.tar", "-o", "-", "--count", "2")
    assert done.stderr.decode().splitlines()[:-1] == ["tarproc: k1: exit code 5: no k1"]
    # What has more lines follows whole, and none of it is in the failure's own line.
    done = bench.run("-c", f"echo first >&2; {BAD}", "in.tar", "-o", "out.tar", "--count", "1")
    assert done.stderr.decode().splitlines()[:3] == ["tarproc: k0: exit code 3", "first", "no good"]


def test_failures_of_many_inputs_name_the_shard(bench: Bench) -> None:
    bench.shard([("x", {"cls": b"1"}), ("y", {"cls": b"2"})], "other.tar")
    done = bench.run("-c", "[ $(cat __key__) != x ]", "in.tar", "other.tar", "-o", "out.tar")
    assert done.stderr.startswith(b"tarproc: other.tar, x: exit code 1: line 1: [ ")
    done = bench.run("-c", "[ $(cat __key__) != x ]", "in.tar", "other.tar", "-O", "out")
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("tarproc: other.tar, x: exit code 1: line 1: [ ")
    assert lines[-1].endswith("failed samples are in out/*.failed.tar")
    again = bench.run("-c", "[ $(cat __key__) != x ]", "in.tar", "other.tar", "-O", "out")
    assert again.returncode == 3 and again.stderr.endswith(b"failed samples are in out/*.failed.tar\n")
    assert [*bench.members("out/other.tar.failed.tar")] == ["x.__error__.txt", "x.cls"]


def test_failures_beyond_the_lines_that_are_shown_are_in_the_shard(bench: Bench) -> None:
    bench.shard(numbered(14))
    done = bench.run("-c", f"[ $(cat sample.cls) = 0 ] || {{ {BAD}; }}", "in.tar", "-o", "out.tar")
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 12, "ten failures, where the others are, and the counts"
    assert lines[10] == (
        "tarproc: further failures are not shown (-v shows them); out.tar.failed.tar gets all, with their reasons, "
        "unless nothing is published"
    )
    assert len([name for name in bench.members("out.tar.failed.tar") if name.endswith("__error__.txt")]) == 13
    # Nothing is kept where all have failed.
    done = bench.run("-c", BAD, "in.tar", "-o", "none.tar")
    assert done.stderr.decode().splitlines()[-1] == "tarproc: all 14 samples failed; nothing was published"


def test_one_line_of_standard_output_is_printed_once_on_a_terminal(bench: Bench) -> None:
    bench.shard(numbered(2))
    run = [TARPROC, "-c", "[ $(cat sample.cls) = 0 ] || { echo too dark; exit 9; }", "in.tar", "-o", "out.tar"]
    done = subprocess.run(run, cwd=bench.path, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 3 and done.stdout.count(b"too dark") == 1
    assert done.stdout.startswith(b"tarproc: k1: exit code 9: too dark\n")
    # Where they are two files, each has the line.
    done = bench.run(*run[1:])
    assert done.stdout == b"too dark\n" and b"k1: exit code 9: too dark\n" in done.stderr


def test_one_missing_shard_is_named_once(bench: Bench) -> None:
    done = bench.run("-c", "true", "in.tar", "missing.tar", "-O", "out")
    assert done.returncode == 66 and done.stderr.count(b"missing.tar") == 1


def test_without_an_output_the_last_line_says_that_nothing_was_written(bench: Bench) -> None:
    done = bench.run("-c", "rm sample.*", "in.tar")
    assert done.returncode == 0
    assert done.stderr.endswith(b"failed 0; nothing was written, as there is neither -o nor -O\n")


def test_what_a_command_leaves_is_named_for_what_it_is(bench: Bench) -> None:
    done = bench.run("-c", "mkdir sample.d; mkfifo sample.p; touch sample.", "in.tar", "-o", "out.tar")
    assert done.stderr.decode().splitlines()[0] == (
        "tarproc: k0: left in its folder, but not part of the output: sample.p (a FIFO), sample. (no field after the "
        "dot), sample.d/ (a folder); only files called sample.FIELD are (-m makes samples of files with other names, "
        "--subdirs of folders)"
    )


def test_the_last_line_counts_fields_that_became_empty(bench: Bench) -> None:
    done = bench.run("-c", ": > sample.dat", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 0
    empty = bench.report()["emptied_fields"]
    assert empty and done.stderr.endswith(f"; fields of 0 bytes that had content, or are new: {empty}\n".encode())
