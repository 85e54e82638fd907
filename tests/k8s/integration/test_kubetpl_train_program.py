"""The program kubetpl train as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from installed import program_path
from kubetplrun import kubetpl

COMMON = ("--job_name", "iris", "--image_name", "example.com/tarkit:1", "--job_command", "python train.py $X")


def documents(*words: str) -> list[dict[str, Any]]:
    done = kubetpl("train", *words)
    assert done.code == 0, done.err
    return list(yaml.safe_load_all(done.out))


def job(found: list[dict[str, Any]], role: str) -> dict[str, Any]:
    (one,) = [each for each in found if each["kind"] == "Job" and each["metadata"]["labels"]["role"] == role]
    return one


def container(found: list[dict[str, Any]], role: str) -> dict[str, Any]:
    return dict(job(found, role)["spec"]["template"]["spec"]["containers"][0])


def test_a_model_zoo_is_found_from_the_folder_above_it(tmp_path: Path) -> None:
    found = documents(*COMMON, "--model_zoo=zoo", "--num_ps=1", "--need_tf_config")
    assert {container(found, role)["workingDir"] for role in ("ps", "chief", "worker")} == {"/"}
    assert "workingDir" not in container(documents(*COMMON), "worker")
    here = subprocess.run(
        [program_path("kubetpl"), "local", "train", *COMMON, "--model_zoo=nosuch/zoo"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert here.returncode == 2 and "go to the folder that it is in" in here.stderr


def test_nothing_heavy_is_imported_to_print() -> None:
    code = (
        "import sys; from tarkit.cli.kubetpl import main; main(sys.argv[1:]); "
        "print([name for name in ('grpc', 'kubernetes', 'numpy') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "train", *COMMON], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
