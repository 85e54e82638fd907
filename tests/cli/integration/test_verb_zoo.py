"""tarkit zoo: a Dockerfile for a model zoo, and the commands of the container engine that is
there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from waiting import wait_for

import tarkit
from tarkit.elasticdl.zoo import zoo_files

Run = Callable[..., Any]
VERSION = tarkit.__version__
ENGINE = """#!/bin/sh
echo "$(basename "$0")" "$@" >> "$ENGINE_LOG"
echo "result on standard output"
exit "${ENGINE_CODE:-0}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a model zoo."""
    (tmp_path / "model_zoo" / "iris").mkdir(parents=True)
    (tmp_path / "model_zoo" / "iris" / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``engines(*names)``: no other engines are installed; returns the file that lists their
    calls."""

    def install(*names: str) -> Path:
        programs = folder / "programs"
        programs.mkdir()
        for name in ("sh", "basename"):
            (programs / name).symlink_to(f"/bin/{name}" if name == "sh" else "/usr/bin/basename")
        for name in names:
            (programs / name).write_text(ENGINE)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.setenv("ENGINE_LOG", str(folder / "calls"))
        return folder / "calls"

    return install


def test_init_writes_a_dockerfile_and_requirements(run: Run, folder: Path) -> None:
    result = run("tarkit", "zoo", "init", "--model_zoo=model_zoo")
    assert (result.code, result.stdout) == (0, b"")
    assert result.stderr == "tarkit zoo: wrote model_zoo/requirements.txt\ntarkit zoo: wrote Dockerfile\n"
    lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    assert lines == [
        f"FROM tarkit:{VERSION}",
        "USER root",
        "RUN python3 -c 'import tarkit.service.serve, google.protobuf, grpc, prometheus_client'",
        'COPY ["model_zoo/requirements.txt", "/model_zoo/"]',
        "RUN python3 -m pip install --no-cache-dir -r /model_zoo/requirements.txt",
        'COPY ["model_zoo", "/model_zoo/"]',
        "ENV PYTHONUNBUFFERED=1",
        "WORKDIR /",
        "USER 65532:65532",
    ]


def test_what_the_base_image_has_to_have_can_be_imported() -> None:
    # The line of the Dockerfile, in the environment of the tests.
    (program,) = re.findall(r"python3 -c '(.*)'", zoo_files(Path(), base_image="b", version="1").dockerfile)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_dockerfile_and_requirements_of_the_user_stay(run: Run, folder: Path) -> None:
    (folder / "model_zoo" / "requirements.txt").write_text("scikit-learn\n")
    assert run("tarkit", "zoo", "init", "--model_zoo", "model_zoo").code == 0
    # The same again is nothing that is lost.
    assert run("tarkit", "zoo", "init", "--model_zoo", "model_zoo").code == 0
    (folder / "Dockerfile").write_text("FROM mine\n")
    refused = run("tarkit", "zoo", "init", "--model_zoo", "model_zoo")
    assert (refused.code, refused.stderr.count("\n")) == (2, 1) and "--force replaces it" in refused.stderr
    assert (folder / "Dockerfile").read_text() == "FROM mine\n"
    assert run("tarkit", "zoo", "init", "--model_zoo", "model_zoo", "--force").code == 0
    assert (folder / "Dockerfile").read_text() != "FROM mine\n"
    assert (folder / "model_zoo" / "requirements.txt").read_text() == "scikit-learn\n"


def test_wheels_of_a_folder_are_copied(run: Run, folder: Path) -> None:
    (folder / "my wheels").mkdir()
    for name in ("elasticai_api-1.4.2-py3-none-any.whl", f"tarkit-{VERSION}-py3-none-any.whl"):
        (folder / "my wheels" / name).touch()
    words = ["--local_pkg_dir", "my wheels", "--base_image", "tensorflow/tensorflow:2.15.0"]
    assert run("tarkit", "zoo", "init", *words, "--extra_pypi_index", "https://pypi.example.com/simple").code == 0
    text = (folder / "Dockerfile").read_text()
    pip = "RUN python3 -m pip install --no-cache-dir --extra-index-url=https://pypi.example.com/simple"
    assert "FROM tensorflow/tensorflow:2.15.0\n" in text
    assert (
        'COPY ["my wheels/elasticai_api-1.4.2-py3-none-any.whl", '
        f'"my wheels/tarkit-{VERSION}-py3-none-any.whl", "/wheels/"]\n'
        f"{pip} /wheels/elasticai_api-1.4.2-py3-none-any.whl '/wheels/tarkit-{VERSION}-py3-none-any.whl[service]' "
        "&& rm -r /wheels\n"
    ) in text
    assert f'COPY ["requirements.txt", "/model_zoo/"]\n{pip} -r /model_zoo/requirements.txt\n' in text
    assert 'COPY [".", "/model_zoo/"]\n' in text


def test_tarkit_from_an_index_has_this_version(run: Run, folder: Path) -> None:
    assert run("tarkit", "zoo", "init", "--extra_pypi_index", "https://pypi.example.com/simple").code == 0
    index = "--extra-index-url=https://pypi.example.com/simple"
    expected = f"RUN python3 -m pip install --no-cache-dir {index} 'tarkit[service]=={VERSION}'\n"
    assert expected in (folder / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--base_image", "a\nRUN evil"], 2, "is not an image's name"),
        (["--base_image", "$X"], 2, "is not an image's name"),
        (["--extra_pypi_index", "https://ada:c4n4ry@pypi.example.com/simple"], 2, "has a password"),
        (["--extra_pypi_index", "pypi.example.com"], 2, "is not a URL"),
        (["--extra_pypi_index", "https://pypi.example.com/?token=c4n4ry"], 2, "is not a URL"),
        (["--extra_pypi_index", "https://pypi.example.com/$(id)"], 2, "is not a URL"),
        (["--extra_pypi_index", "https://pypi.example.com/\nRUN evil"], 2, "is not a URL"),
        (["--base_image", ""], 2, "is not an image's name"),
        (["--base_image", '"; rm -rf /'], 2, "is not an image's name"),
        (["--extra_pypi_index", "https://pypi.example.com/' && evil"], 2, "is not a URL"),
        (["--model_zoo", "nosuch"], 66, "--model_zoo: it is not a folder, or is not there"),
        (["--model_zoo", ".."], 2, "is outside of the folder of the Dockerfile"),
        (["--model_zoo", "out"], 2, "is outside of the folder of the Dockerfile"),
        (["--model_zoo", "a*"], 2, "a Dockerfile cannot name it"),
        (["--local_pkg_dir", "model_zoo"], 2, "needs one wheel of tarkit, and has no wheel; in tarkit's sources: pip"),
        (["--local_pkg_dir", "two"], 2, "has tarkit-1-py3-none-any.whl, tarkit-2-py3-none-any.whl"),
    ],
)
def test_what_a_dockerfile_cannot_have_is_refused(
    run: Run, folder: Path, words: list[str], code: int, part: str
) -> None:
    (folder / "out").symlink_to("/")
    (folder / "two").mkdir()
    for number in (1, 2):
        (folder / "two" / f"tarkit-{number}-py3-none-any.whl").touch()
    result = run("tarkit", "zoo", "init", *words)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (code, b"", 1)
    assert part in result.stderr and "c4n4ry" not in result.stderr
    assert not (folder / "Dockerfile").exists() and not (folder / "requirements.txt").exists()


def test_the_engine_that_is_there_builds_and_pushes(spawn: Run, folder: Path, engines: Callable[..., Path]) -> None:
    calls = engines("podman", "buildah")
    assert spawn("tarkit", "zoo", "init").code == 0
    built = spawn("tarkit", "zoo", "build", "--image=zoo:1", ".", "--", "--build-arg", "A=b c")
    # What the engine prints is not a result of tarkit's.
    assert (built.code, built.stdout, built.stderr) == (0, b"", "result on standard output\n")
    pushed = spawn("tarkit", "zoo", "push", "zoo:1", "--engine", "buildah", env={**os.environ, "ENGINE_CODE": "125"})
    assert pushed.code == 125
    assert calls.read_text() == "podman build -t zoo:1 -f ./Dockerfile --build-arg A=b c .\nbuildah push zoo:1\n"


def test_no_engine(spawn: Run, folder: Path, engines: Callable[..., Path]) -> None:
    engines()
    found = spawn("tarkit", "zoo", "push", "zoo:1")
    assert (found.code, found.stderr) == (127, "tarkit: no container engine: install docker, podman or buildah\n")
    named = spawn("tarkit", "zoo", "push", "zoo:1", "--engine", "podman")
    assert (named.code, named.stderr) == (127, "tarkit: podman cannot be run: No such file or directory\n")
    (folder / "programs" / "podman").write_text("notes\n")
    forbidden = spawn("tarkit", "zoo", "push", "zoo:1", "--engine", "podman")
    assert (forbidden.code, forbidden.stderr) == (126, "tarkit: podman cannot be run: Permission denied\n")


def test_a_build_without_a_dockerfile_or_a_name(spawn: Run, folder: Path, engines: Callable[..., Path]) -> None:
    calls = engines("podman")
    missing = spawn("tarkit", "zoo", "build", "--image", "zoo:1", "model_zoo")
    assert missing.code == 66 and "no such file; tarkit zoo init writes one" in missing.stderr
    (folder / "Dockerfile").touch()
    for words in (["build", "--image", "--rm", "."], ["push", "a b"]):
        assert spawn("tarkit", "zoo", *words).code == 2
    (folder / "-d").mkdir()
    (folder / "-d" / "Dockerfile").touch()
    assert not calls.exists()
    assert spawn("tarkit", "zoo", "build", "--image", "zoo:1", "--", "-d").code == 0
    assert calls.read_text() == "podman build -t zoo:1 -f ./-d/Dockerfile ./-d\n"


def test_a_signal_ends_the_engine(folder: Path, engines: Callable[..., Path]) -> None:
    """It does not get the timer of the program that it was, either, which would end it after half a
    second.
    """
    script = "trap 'echo > removed; exit 1' TERM\n/bin/sleep 0.7\necho > started\nwhile :; do /bin/sleep 0.05; done\n"
    engines()
    (folder / "programs" / "docker").write_text(f"#!/bin/sh\n{script}")
    (folder / "programs" / "docker").chmod(0o755)
    words = [sys.executable, program_path("tarkit"), "zoo", "push", "zoo:1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: (folder / "started").exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, (folder / "removed").exists()) == (1, True)
