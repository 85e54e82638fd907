"""Every option of tarproc 0.0.6 (PyPI), with the meaning that its help gives."""

from __future__ import annotations

import os

import pytest
from tarproc_support import Bench, numbered

BOTH = {f"k{number}.{field}" for number in range(3) for field in ("cls", "dat")}


def _names(bench: Bench, *arguments: str, code: int = 0) -> set[str]:
    done = bench.run(*arguments, "in.tar", "-o", "out.tar")
    assert done.returncode == code, done.stderr
    return set(bench.members()) if code in (0, 3) else set()


def test_command(bench: Bench) -> None:
    assert _names(bench, "--command", "rm sample.dat") == {"k0.cls", "k1.cls", "k2.cls"}


def test_what_tests_of_tarp_and_of_later_tarproc_do(bench: Bench) -> None:
    """The same commands.

    tarp's -m takes the command that is -c here, and finds a sample.__key__ to read.
    """
    assert _names(bench, "-c", "touch sample.foo") == BOTH | {"k0.foo", "k1.foo", "k2.foo"}
    assert _names(bench, "-c", "rm *dat*") == {"k0.cls", "k1.cls", "k2.cls"}
    assert _names(bench, "-c", "cp sample.cls sample.x.txt") == BOTH | {"k0.x.txt", "k1.x.txt", "k2.x.txt"}
    each = "(echo -n $i-; cat __key__) | tee sample-000$i.__key__ > sample-000$i.txt"
    many = f"rm sample.*; for i in {{0..9}}; do {each}; done"
    assert _names(bench, "-m", "-c", many) == {f"{i}-k{number}.txt" for i in range(10) for number in range(3)}
    assert _names(bench, "-c", "echo new-$(cat __key__) > sample.__key__") == {f"new-{name}" for name in BOTH}


def test_script(bench: Bench) -> None:
    """A file is run by the interpreter, wherever the sample's folder is.

    Else it is a program on the path.
    """
    (bench.path / "it's a script.sh").write_text("mv sample.dat sample.bin\nexit 0\n")
    names = {name.replace("dat", "bin") for name in BOTH}
    assert _names(bench, "-S", "it's a script.sh") == names
    assert _names(bench, "--script", str(bench.path / "it's a script.sh")) == names
    assert _names(bench, "-S", "true") == BOTH


def test_script_that_is_missing_or_fails(bench: Bench) -> None:
    for script in ("missing.sh", "./missing.sh", "/no/such/script"):
        done = bench.run("-S", script, "in.tar", "-o", "out.tar")
        assert done.returncode == 127 and b"script" in done.stderr
    (bench.path / "fails.sh").write_text("exit 9")
    assert bench.run("-S", "fails.sh", "in.tar", "-o", "out.tar").returncode == 1
    assert bench.run("-S", ".", "in.tar", "-o", "out.tar").returncode in (2, 126)


def test_interpreter(bench: Bench) -> None:
    (bench.path / "s.py").write_text("import os\nos.remove('sample.cls')\n")
    assert _names(bench, "-S", "s.py", "--interpreter", "python3") == {"k0.dat", "k1.dat", "k2.dat"}
    assert _names(bench, "-S", "s.py", "--interpreter", "python3 -u") == {"k0.dat", "k1.dat", "k2.dat"}
    done = bench.run("-S", "s.py", "--interpreter", "no-such-python", "in.tar", "-o", "x.tar")
    assert done.returncode == 127


def test_working_dir(bench: Bench) -> None:
    done = bench.run("--working_dir", "__{pid}__", "-c", "pwd", "in.tar")
    assert done.returncode == 0
    folders = done.stdout.decode().splitlines()
    assert len(set(folders)) == 3 and all(folder.startswith(f"{bench.path}/__") for folder in folders)
    assert os.listdir(bench.path) == ["in.tar"]
    # It is removed at the end, and so must be a new one.
    (bench.path / "exists").mkdir()
    (bench.path / "exists" / "file").touch()
    assert bench.run("-w", "exists", "-c", "pwd", "in.tar").returncode == 2
    assert (bench.path / "exists" / "file").exists()


def test_base(bench: Bench) -> None:
    done = bench.run("-b", "x", "-c", "ls; mv x.dat x.bin; touch sample.no", "in.tar", "-o", "out.tar")
    assert done.stdout == b"__key__\n__source__\nx.cls\nx.dat\n" * 3
    assert set(bench.members()) == {name.replace("dat", "bin") for name in BOTH}


@pytest.mark.parametrize("fields", ["cls,dat", "cls, dat some"])
def test_fields(bench: Bench, fields: str) -> None:
    bench.shard([(key, {**each, "more": b"x"}) for key, each in numbered(3)] + [("some", {"some": b"1"})])
    done = bench.run("-f", fields, "-c", "ls", "in.tar", "-o", "out.tar")
    assert done.stdout.startswith(b"__key__\n__source__\nsample.cls\nsample.dat\n" * 3)
    assert set(bench.members()) - {"some.some"} == BOTH


def test_fieldmode(bench: Bench) -> None:
    bench.shard([("k0", {"cls": b"0"}), ("k1", {"cls": b"1", "dat": b"1"}), ("k2", {"txt": b"2"})])
    assert _names(bench, "--fieldmode", "ignore", "-f", "cls dat", "-c", "true") == {"k0.cls", "k1.cls", "k1.dat"}
    done = bench.run("-F", "error", "-f", "cls dat", "-c", "true", "in.tar", "-o", "x.tar")
    assert done.returncode == 65 and b"'dat'" in done.stderr and not (bench.path / "x.tar").exists()


@pytest.mark.parametrize("mode", [[], ["-F", "ignore"], ["-F", "error"]])
def test_a_field_that_no_sample_has_is_an_error(bench: Bench, mode: list[str]) -> None:
    """Else a typing error filters all samples, and exits with 0."""
    for fields, output in (("cls jgp", ["-o", "x.tar"]), ("jgp", [])):
        done = bench.run(*mode, "-f", fields, "-c", "true", "in.tar", *output, "--report", "report.json")
        assert done.returncode == 65
        assert b"in.tar" in done.stderr and b"'jgp'" in done.stderr and b"cls, dat" in done.stderr
        assert not (bench.path / "x.tar").exists()
        assert bench.report()["exit_code"] == 65


def test_the_fields_that_there_are_are_listed_but_not_without_bound(bench: Bench) -> None:
    bench.shard([("k", {f"f{number:04}" + "x" * 100: b"1" for number in range(1000)})])
    done = bench.run("-f", "jgp\tjgp2", "-c", "true", "in.tar", "-o", "x.tar")
    assert done.returncode == 65 and b"f0019" in done.stderr and b" and 980 more" in done.stderr
    assert len(done.stderr) < 3000


def test_samples_that_lack_a_field_are_counted(bench: Bench) -> None:
    bench.shard([("k0", {"cls": b"0"}), ("k1", {"cls": b"1", "dat": b"1"}), ("k2", {"txt": b"2"})])
    done = bench.run("-f", "cls dat", "-c", "true", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 0
    assert b"samples without a field of --fields: cls 1, dat 2" in done.stderr
    assert bench.report()["missing_fields"] == {"cls": 1, "dat": 2}
    assert bench.report()["samples"]["filtered"] == 1


def test_samples_that_are_not_counted_are_not_asked_for_fields(bench: Bench) -> None:
    bench.shard([("k0", {"cls": b"0"}), ("k1", {"dat": b"1"})])
    assert bench.run("-f", "dat", "--count", "1", "-c", "true", "in.tar", "-o", "x.tar").returncode == 65
    assert bench.run("-f", "dat", "--count", "2", "-c", "true", "in.tar", "-o", "x.tar").returncode == 0
    assert bench.run("-f", "dat", "--count", "0", "-c", "true", "in.tar", "-o", "x.tar").returncode == 0
    bench.shard([])
    assert bench.run("-f", "dat", "-c", "true", "in.tar", "-o", "x.tar").returncode == 0


def test_failed_samples_that_lack_a_field_can_be_retried(bench: Bench) -> None:
    bench.shard([("k0", {"cls": b"0"}), ("k1", {"cls": b"1", "dat": b"1"})])
    assert bench.run("-f", "cls dat", "-c", "[ -e sample.dat ]", "in.tar", "-o", "out.tar").returncode == 3
    done = bench.run("-f", "cls dat", "-c", "true", "--retry-failed", "out.tar.failed.tar", "-o", "again.tar")
    assert done.returncode == 0, done.stderr
    assert bench.members("again.tar") == {"k0.cls": b"0"}


def test_error_handling(bench: Bench) -> None:
    command = "rm sample.dat; [ $(cat sample.cls) != 1 ]"
    assert _names(bench, "-e", "ignore", "-c", command) == {"k0.cls", "k1.cls", "k2.cls"}
    assert _names(bench, "--error-handling", "skip", "-c", command, code=3) == {"k0.cls", "k2.cls"}


def test_include_and_exclude(bench: Bench) -> None:
    assert _names(bench, "-I", "dat", "-c", "true") == {"k0.dat", "k1.dat", "k2.dat"}
    assert _names(bench, "-E", "dat$", "-c", "true") == {"k0.cls", "k1.cls", "k2.cls"}
    assert _names(bench, "--include", "^sample", "--exclude", "[.]d", "-c", "true") == {"k0.cls", "k1.cls", "k2.cls"}


def test_separator(bench: Bench) -> None:
    """Files with another base are samples of their own; here that has to be asked for."""
    command = "cp sample.dat left.dat; mv sample.dat sample_1.dat"
    names = _names(bench, "-m", "-s", "/", "-c", command)
    assert {name for name in names if name.startswith("k0")} == {"k0.cls", "k0/left.dat", "k0/_1.dat"}
    assert {name for name in _names(bench, "-m", "-c", command) if name.startswith("k0")} == {
        "k0.cls",
        "k0left.dat",
        "k0_1.dat",
    }


def test_count_verbose_and_silent(bench: Bench) -> None:
    assert len(_names(bench, "--count", "2", "-c", "true")) == 4
    assert _names(bench, "--count", "0", "-c", "true") == set()
    assert _names(bench, "--count", "99", "-c", "true") == BOTH
    assert _names(bench, "--verbose", "-c", "true") == BOTH
    assert bench.run("-q", "-c", "true", "in.tar").stderr == b""


def test_output_and_input(bench: Bench) -> None:
    for flag in ("-o", "--output"):
        assert bench.run("-c", "true", flag, "out.tar", "in.tar").returncode == 0
    assert bench.run("in.tar", "-c", "true").returncode == 0
    for given in ((), ("-",)):
        done = bench.run("-c", "cat __source__; echo", *given, input=(bench.path / "in.tar").read_bytes())
        assert done.stdout == b"-\n" * 3
    assert bench.run("-c", "cat __source__; echo", "in.tar").stdout == b"in.tar\n" * 3


def test_several_inputs_are_one_stream(bench: Bench) -> None:
    for number in range(3):
        bench.shard([(f"s{number}", {"cls": b"x"})], f"s-{number}.tar")
    for inputs in (["s-{0..2}.tar"], ["s-0.tar", "s-{1..2}.tar"], ["@list.txt"]):
        (bench.path / "list.txt").write_text("s-0.tar\ns-1.tar\ns-2.tar\n")
        done = bench.run("-c", "cat __source__; echo", *inputs, "-o", "out.tar", "-p", "2")
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"s-0.tar\ns-1.tar\ns-2.tar\n"
        assert sorted(bench.members()) == ["s0.cls", "s1.cls", "s2.cls"]


def test_subdirs(bench: Bench) -> None:
    command = "mkdir a b; cp sample.cls a/; cp sample.dat b/sample.x; rm sample.*"
    names = _names(bench, "--subdirs", "-c", command)
    assert {name for name in names if name.startswith("k0")} == {"k0/a.cls", "k0/b.x"}


def test_batch(bench: Bench) -> None:
    done = bench.run("--batch", "2", "-c", "ls; rm */sample.dat", "in.tar", "-o", "out.tar")
    assert done.stdout == b"00000000\n00000001\n00000000\n"
    assert set(bench.members()) == {"k0.cls", "k1.cls", "k2.cls"}


def test_shells(bench: Bench) -> None:
    for shell in ("sh", "/bin/bash"):
        assert bench.run("--shell", shell, "-c", "ls | wc -l", "in.tar").stdout == b"4\n" * 3
    done = bench.run("--shell", "python3", "-c", "import os; print(len(os.listdir()))", "in.tar")
    assert done.stdout == b"4\n" * 3
    for shell in ("no-such-shell", "/no/such/bash"):
        assert bench.run("--shell", shell, "-c", "ls", "in.tar").returncode == 127
