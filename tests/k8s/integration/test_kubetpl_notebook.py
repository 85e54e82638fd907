"""The notebook's kubetpl cells give what the original gave, but for a list of differences, each
with its reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import alone, at, documents, printed
from notebookdifferences import CONTAINER, DIFFERENCES, MISSING, POD

from tarkit.mapping.shellrules import pod_words

ORIGINAL = Path(__file__).resolve().parents[1] / "data" / "kubetpl-original"

# In [15]
CONFIGURATION = """\
image: gcr.io/research-191823/bigdata19
memory: 4G
cpu: 1
app: bigdata19
port:
  - 7880
"""

LOOK = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz |
tarproc --count 3 -c "ls -l"
"""
CONVERT = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz |
tarproc --count 3 -c "gm convert sample.jpg sample.ppm; rm sample.jpg" -o - |
dd of=/dev/null # put a copy-to-destination here
"""
LOOP = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-$i.tgz |
tarproc -c 'gm convert sample.jpg sample.ppm; rm sample.jpg' -o - |
dd of=/dev/null # put a copy-to-destination here
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = alone(tmp_path, monkeypatch)
    (found / "kubetpl.yaml").write_text(CONFIGURATION)
    return found


def put(document: Any, path: str, value: Any) -> None:
    parent, _, key = path.rpartition(" ")
    if value == MISSING:
        del at(document, parent)[key]
    else:
        at(document, parent)[key] = value


def check(ours: dict[str, Any], cell: str, command: str) -> None:
    """Undo the listed differences: then the two are equal."""
    original = yaml.safe_load((ORIGINAL / f"notebook-{cell}.yaml").read_text())
    name, start = (
        original["metadata"]["name"],
        ["/bin/bash", "-euo", "pipefail", *(pod_words(command, "/bin/bash") or ())],
    )
    own = {
        f"{CONTAINER} name": (name, None),
        f"{CONTAINER} command": (["/bin/bash", "-c", command.strip("\n") + "\n"], start),
        f"{CONTAINER} args": (None, [command]),
        f"{POD} hostname": (name, None),
    }
    for path, (was, now, why) in DIFFERENCES.items():
        assert why
        was = own[path][0] if was == "*" else was
        now = own[path][1] if now == "*" else now
        assert at(original, path) == was, path
        assert at(ours, path) == now, path
        put(ours, path, was)
    assert ours == original


def test_single_jobs(folder: Path) -> None:
    for cell, command in (("in16", LOOK), ("in19", CONVERT)):
        check(yaml.safe_load(printed("job", "-n", "job0000", "-c", command)), cell, command)


def test_the_loop_as_one_stream_gives_the_same_jobs(folder: Path) -> None:
    text = printed("jobs", "-n", "job{i}", "-c", LOOP.replace("$i", "{i}"), "--over", "{0000..0147}")
    many = documents(text)
    assert [each["metadata"]["name"] for each in many] == [f"job{number:04d}" for number in range(148)]
    for number in (0, 73, 147):
        ours = many[number]
        # What they have besides, so that all of them can be asked for at once.
        assert ours["metadata"]["labels"].pop("tarkit.dev/run") == "job"
        assert ours["spec"]["template"]["metadata"]["labels"].pop("tarkit.dev/run") == "job"
        check(ours, f"in23-{number:04d}", LOOP.replace("$i", f"{number:04d}"))


def test_the_cells_run_as_they_stand_with_bash(folder: Path) -> None:
    """The shell's own quoting, not ours: what the notebook's lines give to kubectl."""
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").write_text("#!/bin/bash\ncat >> applied\necho >> applied\necho --- >> applied\n")
    (folder / "bin" / "kubectl").chmod(0o755)
    script = 'for i in 0000 0147; do\nkubetpl job -n job$i -c "' + LOOP + '" | kubectl apply -f - >> _log\ndone\n'
    env = {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, check=True)
    applied = [each for each in yaml.safe_load_all((folder / "applied").read_text()) if each]
    assert len(applied) == 2
    for ours, number in zip(applied, ("0000", "0147"), strict=True):
        check(ours, f"in23-{number}", LOOP.replace("$i", number))
