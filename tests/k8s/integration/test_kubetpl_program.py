"""The program kubetpl as a process: bytes, locales, pipes, imports.

And kubectl reads what it prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from containercommands import HARD, check
from kubetplrun import MAIN, alone, at, documents, printed

KUBETPL = str(Path(sys.executable).parent / "kubetpl")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the whole module, since Hypothesis runs a test's function many times in one."""
    with pytest.MonkeyPatch.context() as patch:
        yield alone(tmp_path_factory.mktemp("commands"), patch)


def test_kubectl_reads_the_same(tmp_path: Path, kubectl_program: str) -> None:
    # What kustomize writes of a line end of Unicode, PyYAML reads as another one.
    commands = [
        *(each for each in HARD if "\x85" not in each),
        "\n\n x 'y' \"z\" \\ $$ {i}\n\n\n",
        "echo $(HOME) 日本 😀\n\t#\n",
    ]
    texts = [
        printed("job", "-n", f"x{number}", "-c", command, "-e", "A=value of A", "-e", "B=1e3")
        for number, command in enumerate(commands)
    ]
    (tmp_path / "jobs.yaml").write_text("---\n".join(texts), "utf-8", newline="")
    (tmp_path / "kustomization.yaml").write_text("resources: [jobs.yaml]\n")
    read = subprocess.run([kubectl_program, "kustomize", str(tmp_path)], capture_output=True, check=True)
    found = {each["metadata"]["name"]: each for each in documents(read.stdout.decode())}
    for number, command in enumerate(commands):
        assert found[f"x{number}"] == documents(texts[number])[0]
        check(at(found[f"x{number}"], MAIN), command)


def run(words: list[bytes | str], folder: Path, **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [KUBETPL, *words], cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words", [["job", "-c", b"a\xffb", "-e", b"A=\xff"], ["job", "-l", b"\xff"], [b"\xff"]]
)  # fmt: skip
def test_bytes_that_are_no_text_are_refused(words: list[bytes | str], tmp_path: Path) -> None:
    code, out, err = run(words, tmp_path, LC_ALL="C.UTF-8")
    assert (code, out) == (2, b"")
    assert all(line.startswith("kubetpl: ") for line in err.decode("ascii", "replace").splitlines())
    assert b"bug in tarkit" not in err


def test_another_locale_changes_nothing(tmp_path: Path) -> None:
    """The manifest is UTF-8 whatever the terminal is."""
    outputs = {
        run(["job", "-c", "é", "-e", "A=日"], tmp_path, **env)
        for env in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"})
    }
    assert [code for code, *_ in outputs] == [0]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    words = [
        "jobs",
        "--over",
        "{0..3}",
        "-n",
        "j{i}",
        "-c",
        "echo\n\n$$",
        "-e",
        "B=1",
        "-e",
        "A=2",
        "-L",
        "z=1",
        "-L",
        "a=2",
    ]
    outputs = set()
    for number in range(2):
        home = tmp_path / f"home{number}"
        home.mkdir()
        env = {"PYTHONHASHSEED": str(number), "USER": f"u{number}", "HOSTNAME": f"h{number}", "TZ": f"UTC{number}"}
        outputs.add(run(words, home, **env))
    ((code, text, err),) = outputs
    assert (code, err) == (0, b"")
    assert b"/tmp" not in text
    assert os.uname().nodename.encode() not in text


def test_a_pipe_that_is_closed_is_no_error(tmp_path: Path) -> None:
    script = f"{KUBETPL} jobs --over '{{0..300}}' -n 'j{{i}}' | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "apiVersion: batch/v1\n", "")
