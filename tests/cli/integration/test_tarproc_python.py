"""``tarproc --map``: what mappers return, raise, print, and how they die."""

from __future__ import annotations

import os
import shutil

import pytest
from tarproc_support import Bench, contents, numbered, one_line

SAMPLES = numbered(5)
MAPPERS = """
import json, os, signal, sys, time

def same(sample):
    return sample

def upper(sample):
    sample["dat"] = sample["dat"] + b"!"
    sample["new.txt"] = "text"
    return sample

def nothing(sample):
    return None

def no_fields(sample):
    return {}

def only_key(sample):
    return {"__key__": sample["__key__"]}

def without_key(sample):
    return {"cls": sample["cls"]}

def several(sample):
    return [{"__key__": f"{sample['__key__']}-{n}", "n": str(n).encode()} for n in range(3)]

def empty_list(sample):
    return []

def generator(sample):
    for n in range(2):
        yield {"__key__": f"{sample['__key__']}-{n}", "n": b"x"}

def duplicates(sample):
    return [{"n": b"1"}, {"n": b"2"}]

def always_same_key(sample):
    return {"__key__": "k", "n": b"1"}

def encoded(sample):
    return {"a.json": {"b": [1, 2]}, "b.txt": "grün", "c.cls": 7}

def wrong_number(sample): return 7
def wrong_list(sample): return [1, 2]
def wrong_key(sample): return {"__key__": 5, "a": b""}
def wrong_key_empty(sample): return {"__key__": "", "a": b""}
def wrong_name(sample): return {5: b""}
def wrong_name_slash(sample): return {"a/b": b""}
def wrong_name_zero(sample): return {"a\\0b": b""}
def wrong_value_unknown(sample): return {"unknown_ext": 5}
def wrong_metadata(sample): return {**sample, "__mask__": b"1"}

def three_underscores(sample): return {**sample, "___": b"1"}

class Text(str): pass
class Raw(bytes): pass
def odd_types(sample):
    return {"__key__": Text(sample["__key__"]), Text("a"): Raw(b"1"), "b": bytearray(b"2"), "c": memoryview(b"3")}

def some_fail(sample):
    if sample["cls"] in (b"1", b"3"):
        raise ValueError(f"bad class\\n{sample['cls']}")
    return sample

def exits(sample):
    if sample["cls"] == b"1": sys.exit("enough")
    return sample

def exits_0(sample):
    if sample["cls"] == b"1": sys.exit(0)
    return sample

def segfaults(sample):
    if sample["cls"] == b"1": os.kill(os.getpid(), signal.SIGSEGV)
    return sample

def interrupts(sample):
    if sample["cls"] == b"1": raise KeyboardInterrupt
    return sample

def out_of_memory(sample):
    if sample["cls"] == b"1": raise MemoryError
    return sample

def recursion(sample):
    return recursion(sample) if sample["cls"] == b"1" else sample

def prints(sample):
    print("x" * 1_000_000)
    os.write(1, b"direct\\n")
    os.write(2, b"error\\n")
    os.system("echo child")
    return sample

def changes_folder(sample):
    os.chdir("/")
    return sample

def closes(sample):
    sys.stdout.close()
    return sample

def reads(sample):
    return {"read": sys.stdin.read().encode(), "n": b"1"}

STATE = None
def prepare():
    global STATE
    STATE = 11
    print("setting up")
    return {"pid": os.getpid()}

def with_state(sample, state):
    assert state == {"pid": os.getpid()}
    return {"state": str(STATE).encode()}

def bad_setup():
    raise RuntimeError("no weights")

def setup_exits():
    sys.exit(3)

def batched(samples):
    return [{"n": str(len(samples)).encode(), "cls": sample["cls"]} for sample in samples]

def batched_short(samples):
    return samples[:1]

def batched_some(samples):
    return [None if sample["cls"] == b"1" else [sample] for sample in samples]

def env(sample):
    return {"env": json.dumps(sorted(name for name in os.environ if "TARKIT" in name.upper())).encode()}

number = 5
"""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    (bench.path / "mappers.py").write_text(MAPPERS)
    return bench


def _map(bench: Bench, name: str, *options: str, code: int = 0) -> str:
    arguments = ["--map", f"mappers.py:{name}", "in.tar", "-o", "out.tar", "--report", "report.json", *options]
    done = bench.run(*arguments)
    assert done.returncode == code, done.stderr
    bench.report()
    return done.stderr.decode()


@pytest.mark.parametrize("name", ["same", "changes_folder", "closes"])
def test_unchanged(bench: Bench, name: str) -> None:
    _map(bench, name, "-p", "3")
    assert bench.members() == contents(bench.path / "in.tar")


def test_changed_and_new_fields(bench: Bench) -> None:
    _map(bench, "upper")
    assert bench.members()["k1.dat"] == b"\1\1\1!" and bench.members()["k1.new.txt"] == b"text"
    assert bench.members()["k1.cls"] == b"1"


@pytest.mark.parametrize("name", ["nothing", "empty_list"])
def test_filtered(bench: Bench, name: str) -> None:
    assert "5 samples came in, and none came out (a function that returns None" in _map(bench, name, code=3)
    assert bench.report()["exit_code"] == 3 and bench.report()["published"]
    _map(bench, name, "--allow-empty")
    assert bench.members() == {} and bench.report()["samples"]["filtered"] == 5


@pytest.mark.parametrize("name", ["no_fields", "only_key"])
def test_sample_without_fields(bench: Bench, name: str) -> None:
    """It would leave no trace in the shard, so that somebody must be told."""
    assert "no fields" in _map(bench, name, code=1)


def test_key_is_kept(bench: Bench) -> None:
    _map(bench, "without_key")
    assert bench.members() == {f"k{number}.cls": b"%d" % number for number in range(5)}


def test_several(bench: Bench) -> None:
    _map(bench, "several")
    assert len(bench.members()) == 15 and bench.members()["k4-2.n"] == b"2"
    assert bench.report()["samples"]["added"] == 10
    _map(bench, "generator")
    assert len(bench.members()) == 10


def test_duplicate_keys(bench: Bench) -> None:
    assert "written before" in _map(bench, "duplicates", code=1)
    _map(bench, "always_same_key", code=3)
    assert bench.report()["samples"] == {"in": 5, "added": 0, "out": 1, "filtered": 0, "failed": 4, "ignored": 0}
    # Side by side they would be read back as one sample, whatever is allowed.
    assert "right before" in _map(bench, "duplicates", "--on-repeated-key", "allow", code=1)


def test_values_are_encoded(bench: Bench) -> None:
    _map(bench, "encoded", "--count", "1")
    members = bench.members()
    assert members["k0.a.json"].replace(b" ", b"").strip() == b'{"b":[1,2]}'
    assert (members["k0.b.txt"], members["k0.c.cls"]) == ("grün".encode(), b"7")


def test_odd_types(bench: Bench) -> None:
    _map(bench, "odd_types", "--count", "1")
    assert bench.members() == {"k0.a": b"1", "k0.b": b"2", "k0.c": b"3"}


@pytest.mark.parametrize("name", ["key_empty", "name_slash", "name_zero", "value_unknown"])
def test_wrong_results_are_failures(bench: Bench, name: str) -> None:
    stderr = _map(bench, f"wrong_{name}", code=1)
    assert "all 5 samples failed" in stderr
    assert "status" not in stderr, "the process died of it"


@pytest.mark.parametrize("name", ["number", "list", "key", "name"])
def test_a_result_of_a_wrong_type_is_one_error(bench: Bench, name: str) -> None:
    """It was one a sample: a mapper that returns a number does so for all."""
    stderr = _map(bench, f"wrong_{name}", "-p", "2", code=2)
    assert (
        stderr.startswith(f"tarproc: mappers.py:wrong_{name}, for the first sample, k0: ") and stderr.count("\n") == 1
    )
    assert not (bench.path / "out.tar").exists()


def test_a_later_result_of_a_wrong_type_fails_its_sample(bench: Bench) -> None:
    (bench.path / "m.py").write_text("def f(s): return 7 if s['cls'] == b'3' else s\n")
    done = bench.run("--map", "m.py:f", "in.tar", "-o", "out.tar")
    assert done.returncode == 3 and b"k3: a mapper returns a dict, None or several dicts, not int\n" in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("def f(): pass", (), "f() is called with a sample: too many positional arguments"),
        ("def f(a, b): pass", (), "f(a, b) is called with a sample: missing a required argument: 'b'"),
        (
            "def f(a): pass\ndef g(): return 1",
            ("--setup", "g"),
            "f(a) is called with a sample and the result of setup: too many positional arguments",
        ),
        ("def f(a, *, b): pass", ("--batch", "2"), "f(a, *, b) is called with a list of samples: missing a required"),
        ("async def f(a): pass", (), "f is an async function"),
    ],
)
def test_a_mapper_of_wrong_arity_is_one_error(bench: Bench, text: str, options: tuple[str, ...], reason: str) -> None:
    """It was a traceback a sample."""
    (bench.path / "m.py").write_text(f"{text}\n")
    done = bench.run("--map", "m.py:f", *options, "in.tar", "-o", "out.tar")
    assert done.returncode == 2 and done.stderr.startswith(f"tarproc: the mapper {reason}".encode()), done.stderr
    assert done.stderr.count(b"\n") == 1 and not (bench.path / "out.tar").exists()


def test_a_decorator_that_gives_the_second_argument_is_no_wrong_arity(bench: Bench) -> None:
    (bench.path / "m.py").write_text(
        "import functools\n"
        "def with_state(f): return functools.wraps(f)(lambda sample: f(sample, 1))\n"
        "@with_state\ndef f(sample, state): return sample\n"
    )
    assert bench.run("--map", "m.py:f", "in.tar", "-o", "out.tar").returncode == 0


def test_metadata_in_an_answer_fails_the_sample_by_name(bench: Bench) -> None:
    """Left out of the output, it would be lost without a word."""
    assert "'__mask__' cannot be a field" in _map(bench, "wrong_metadata", code=1)
    _map(bench, "three_underscores")
    assert bench.members()["k0.___"] == b"1"


def test_exception(bench: Bench) -> None:
    stderr = _map(bench, "some_fail", code=3)
    assert "k1: ValueError: b'1' (mappers.py:" in stderr and "raise ValueError(f" in stderr
    assert stderr.count("\n") == 3 and "Traceback" not in stderr, "two failures, and the counts"
    shown = _map(bench, "some_fail", "-v", code=3)
    assert shown.count("Traceback") == 2 and "in some_fail\n" in shown
    error = bench.members("out.tar.failed.tar")["k3.__error__.txt"].decode()
    assert error.startswith("ValueError: b'3' (mappers.py:")
    assert "\nTraceback (most recent call last):\n" in error
    assert 'mappers.py", line' in error and "in some_fail" in error and "bad class" in error
    assert "pythonworker" not in error
    _map(bench, "some_fail", "-e", "abort", code=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exits", "ended with status 1"),
        ("exits_0", "ended with status 0"),
        ("segfaults", "was killed by SIGSEGV"),
        ("interrupts", ""),
        ("out_of_memory", "MemoryError"),
        ("recursion", "RecursionError"),
    ],
)
def test_processes_that_die(bench: Bench, name: str, text: str) -> None:
    _map(bench, name, "-p", "2", code=3)
    failed = bench.members("out.tar.failed.tar")
    assert set(failed) == {"k1.cls", "k1.dat", "k1.__error__.txt"}
    assert text.encode() in failed["k1.__error__.txt"]
    assert len(bench.members()) == 8


def test_what_is_printed_does_not_get_into_the_tar(bench: Bench) -> None:
    done = bench.run("--map", "mappers.py:prints", "in.tar", "-o", "-", "-p", "2")
    assert done.returncode == 0
    assert contents(done.stdout) == contents(bench.path / "in.tar")
    assert done.stderr.count(b"direct\n") == done.stderr.count(b"child\n") == done.stderr.count(b"error\n") == 5
    assert done.stderr.count(b"x" * 1_000_000) == 5
    done = bench.run("--map", "mappers.py:prints", "in.tar", "-o", "out.tar")
    assert done.stdout.count(b"direct\n") == 5 and len(done.stdout) > 5_000_000


def test_standard_input_is_empty(bench: Bench) -> None:
    done = bench.run("--map", "mappers.py:reads", "-", "-o", "out.tar", input=(bench.path / "in.tar").read_bytes())
    assert done.returncode == 0 and bench.members()["k0.read"] == b""


def test_setup(bench: Bench) -> None:
    for setup in ("mappers.py:prepare", "prepare"):
        _map(bench, "with_state", "--setup", setup, "-p", "2")
        assert set(bench.members().values()) == {b"11"}


def test_setup_that_fails(bench: Bench) -> None:
    assert "no weights" in _map(bench, "with_state", "--setup", "bad_setup", code=2)
    assert "no function 'missing'" in _map(bench, "with_state", "--setup", "missing", code=2)
    _map(bench, "with_state", "--setup", "setup_exits", code=126)


def test_batches(bench: Bench) -> None:
    _map(bench, "batched", "--batch", "2", "-p", "2")
    members = bench.members()
    assert [members[f"k{number}.n"] for number in range(5)] == [b"2", b"2", b"2", b"2", b"1"]
    _map(bench, "batched_some", "--batch", "3")
    assert len(bench.members()) == 8
    assert "gave 1 answers" in _map(bench, "batched_short", "--batch", "5", code=2)


def test_environment_is_not_polluted(bench: Bench) -> None:
    _map(bench, "env")
    assert set(bench.members().values()) == {b"[]"}


def test_module_in_the_current_folder(bench: Bench) -> None:
    assert bench.run("--map", "mappers:same", "in.tar", "-o", "out.tar").returncode == 0
    (bench.path / "pack").mkdir()
    (bench.path / "pack" / "__init__.py").touch()
    shutil.copy(bench.path / "mappers.py", bench.path / "pack" / "inner.py")
    assert bench.run("--map", "pack.inner:same", "in.tar", "-o", "out.tar").returncode == 0
    (bench.path / "helper_of_it.py").write_text("value = b'1'\n")
    (bench.path / "user.py").write_text("import helper_of_it\ndef f(s): return {'v': helper_of_it.value}\n")
    assert bench.run("--map", f"{bench.path}/user.py:f", "in.tar", "-o", "out.tar").returncode == 0


def test_a_file_that_was_changed_in_the_same_second_is_read_again(bench: Bench) -> None:
    """Python itself takes the bytecode of a file of the same length for that of the new one."""
    for number in (1, 2):
        (bench.path / "quick.py").write_text(f"def f(s): return {{'n': b'{number}'}}\n")
        os.utime(bench.path / "quick.py", (0, 1_700_000_000 + number / 10))
        assert bench.run("--map", "quick.py:f", "in.tar", "-o", "out.tar").returncode == 0
        assert set(bench.members().values()) == {b"%d" % number}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("mappers.py:missing", "no function 'missing'"),
        ("mappers.py:number", "no function 'number'"),
        ("missing.py:f", "the file 'missing.py' does not exist"),
        ("missing:f", "the module 'missing' does not exist"),
        ("mappers.py", "must be module:function"),
        ("broken:f", "ModuleNotFoundError: No module named 'not_installed'"),
        ("syntax.py:f", "SyntaxError"),
        ("raises.py:f", "ValueError: at the top"),
    ],
)
def test_function_that_can_not_be_loaded(bench: Bench, spec: str, text: str) -> None:
    (bench.path / "broken.py").write_text("import not_installed\n")
    (bench.path / "syntax.py").write_text("def f(:\n")
    (bench.path / "raises.py").write_text("raise ValueError('at the top')\n")
    done = bench.run("--map", spec, "in.tar", "-o", "out.tar", "-p", "2")
    assert done.returncode == 2, done.stderr
    assert text in one_line(done.stderr)
    assert not (bench.path / "out.tar").exists()


def test_module_that_exits(bench: Bench) -> None:
    (bench.path / "leaves.py").write_text("import sys\nsys.exit(4)\n")
    done = bench.run("--map", "leaves.py:f", "in.tar", "-o", "out.tar")
    assert done.returncode in (2, 126)
    one_line(done.stderr)


def test_same_bytes_for_any_number_of_processes(bench: Bench) -> None:
    bench.shard(numbered(200, 1000))
    (bench.path / "slow.py").write_text(
        "import random, time\n"
        "def f(s):\n    time.sleep(random.random() / 100)\n    s['x'] = s['dat'][::-1]\n    return s\n"
    )
    outputs = set()
    for slots in ("1", "2", "16"):
        assert bench.run("--map", "slow.py:f", "in.tar", "-o", "out.tar", "-p", slots).returncode == 0
        outputs.add((bench.path / "out.tar").read_bytes())
    assert len(outputs) == 1


def test_large_samples(bench: Bench) -> None:
    """Larger than any socket's buffer, in both directions at once."""
    bench.shard(numbered(6, 20_000_000))
    done = bench.run("--map", "mappers.py:upper", "in.tar", "-o", "out.tar", "-p", "3")
    assert done.returncode == 0
    assert bench.members()["k5.dat"] == b"\5" * 20_000_000 + b"!"
    assert os.path.getsize(bench.path / "out.tar") > 120_000_000
