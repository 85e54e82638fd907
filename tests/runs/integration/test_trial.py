"""tarproc --try: the first samples, in folders that stay."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter

Tree = dict[str, dict[str, str]]


@pytest.fixture
def trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Any]]:
    """``trial(*words)``: exit code, stderr and the tree of the folder that stays."""
    from tarkit.cli.tarproc import main

    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.chdir(tmp_path)
    with TarWriter("in.tar", encoder=False) as writer:
        for number in range(6):
            writer.write({"__key__": f"a b/k{number}", "cls": b"%d" % number, "dat": b"x"})

    def run(*words: str) -> tuple[int, str, Tree]:
        code = main(["--try", "3", *words])
        stderr = capfd.readouterr().err
        found = re.search(r"the samples of this trial are in (.*); nothing was published\n", stderr)
        assert found and [path.name for path in temporary.iterdir()] == [Path(found[1]).name], stderr
        folder = Path(found[1])
        tree = {
            each.name: {path.name: path.read_text() for path in each.iterdir() if path.name != "__source__"}
            for each in folder.iterdir()
        }
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".py")) == ["in.tar", "tmp"]
        shutil.rmtree(folder)
        return code, stderr, tree

    yield run
    assert [*temporary.iterdir()] == []


def test_a_command(trial: Callable[..., Any]) -> None:
    code, stderr, tree = trial(
        "-c", "echo $(cat __key__); tr 0-9 a-j < sample.cls > sample.txt; rm sample.dat", "in.tar"
    )
    assert code == 0 and stderr.endswith("in 3 = out 3 + filtered 0 + failed 0\n")
    assert tree == {
        f"00000{number}-a_b_k{number}": {
            "__key__": f"a b/k{number}", "__log__": f"a b/k{number}\n", "sample.cls": str(number),
            "sample.txt": "abc"[number],
        } for number in range(3)
    }  # fmt: skip


@pytest.mark.parametrize(
    "output", [["-o", "out.tar", "--index"], ["-O", "out", "--slice", "1/2", "--manifest", "m.json"]]
)
def test_failures_are_kept_and_outputs_ignored(output: list[str], trial: Callable[..., Any]) -> None:
    """Also with the policies that would stop the run, or lose what failed."""
    words = ("-e", "abort", "--max-errors", "0", "-c", "echo no >&2; test $(cat sample.cls) != 1 || exit 5", "in.tar")
    code, stderr, tree = trial(*words, *output)
    assert code == 3 and "a b/k1: exit code 5" in stderr and "in 3 = out 2 + filtered 0 + failed 1\n" in stderr
    assert sorted(tree) == ["000000-a_b_k0", "000001-a_b_k1-failed", "000002-a_b_k2"]
    failed = tree["000001-a_b_k1-failed"]
    assert failed.pop("__error__").startswith("exit code 5")
    assert failed == {"__key__": "a b/k1", "__log__": "no\n", "sample.cls": "1", "sample.dat": "x"}


def test_all_fail(trial: Callable[..., Any]) -> None:
    code, stderr, tree = trial("-c", "exit 4", "in.tar")
    assert code == 1 and "tarproc: all 3 samples failed; nothing was published\n" in stderr
    assert [name[-7:] for name in tree] == ["-failed"] * 3
    code, stderr, tree = trial("-c", "no-such-command", "in.tar")
    assert code == 127 and len(tree) == 3


def test_filters_several_samples_and_batches(trial: Callable[..., Any]) -> None:
    code, _, tree = trial("--filter", "echo here; grep -q 1 sample.cls", "in.tar")
    assert code == 0 and sorted(tree) == ["000000-a_b_k0", "000001-a_b_k1", "000002-a_b_k2"]
    assert tree["000000-a_b_k0"] == {"__log__": "here\n"} and len(tree["000001-a_b_k1"]) == 4
    code, _, tree = trial("-m", "-c", "cp sample.cls more.cls", "--count", "1", "in.tar")
    assert code == 0 and sorted(tree) == ["000000-a_b_k0", "000000-a_b_k0+1"]
    assert sorted(each["__key__"] for each in tree.values()) == ["a b/k0", "a b/k0more"]
    code, _, tree = trial("--batch", "2", "-p", "2", "-c", "ls | wc -l", "in.tar")
    assert code == 0 and [each["__log__"] for _, each in sorted(tree.items())] == ["2\n", "2\n", "1\n"]


def test_a_script_and_a_function(trial: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("open('sample.new', 'w').write('made')")
    code, _, tree = trial("-S", "s.py", "--interpreter", "python3", "in.tar")
    assert code == 0 and tree["000002-a_b_k2"]["sample.new"] == "made"
    (tmp_path / "m.py").write_text(
        "def f(sample):\n"
        "    print('mapped')\n"
        "    field = {b'0': 'x/y', b'1': 'n' * 300, b'2': 'ok'}[sample['cls']]\n"
        "    return {'__key__': sample['__key__'], field: b'1'}\n"
    )
    code, _, tree = trial("--map", "m.py:f", "in.tar")
    assert code == 3 and sorted(tree) == ["000000-a_b_k0-failed", "000001-a_b_k1-failed", "000002-a_b_k2"]
    assert "x/y" in tree["000000-a_b_k0-failed"]["__error__"]
    assert "cannot be a file's name" in tree["000001-a_b_k1-failed"]["__error__"]
    assert tree["000002-a_b_k2"] == {"__key__": "a b/k2", "__log__": "mapped\n", "sample.ok": "1"}


def test_a_field_that_cannot_be_a_file(trial: Callable[..., Any], tmp_path: Path) -> None:
    with tarfile.open("in.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo(f"k.{'n' * 300}"))
        archive.addfile(tarfile.TarInfo("l.txt"))
    code, _, tree = trial("-c", "true", "in.tar")
    assert code == 3 and "cannot be a file's name" in tree["000000-k-failed"]["__error__"]
    assert len(tree["000001-l"]) == 2


def test_what_cannot_be_tried(capfd: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarproc import main

    assert main(["--try", "2", "-O", "out", "--retry-failed", "out", "-c", "true"]) == 2
    assert "--try goes with --retry-failed OUT.failed.tar" in capfd.readouterr().err
    assert main(["--try", "0", "-c", "true", "in.tar"]) == 2
