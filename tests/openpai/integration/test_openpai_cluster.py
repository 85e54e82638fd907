"""Jobs submitted to a stand-in for OpenPAI's server, by tarkit and by OpenPAI's own client."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paijobs
import pytest
import yaml
from installed import program_path
from paiserver import TOKEN, PaiServer, pai_server
from tarbuild import archive_of
from tarkit.cli.kubetpl import main as kubetpl
from tarkit.cli.tarkit import main as tarkit

from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import read_job
from tarkit.specs.slicedlist import write_list

FOLDER = Path(__file__).resolve().parents[3]
CLIENT = Path.home() / ".cache/tarkit-tests/node_modules/.bin/pai"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaiServer]:
    with pai_server() as found:
        monkeypatch.setenv("PAI_CLUSTER", f"{found.url}/rest-server/")
        monkeypatch.setenv("PAI_USER", "ada")
        monkeypatch.setenv("PAI_TOKEN", TOKEN)
        yield found


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(paijobs.V2))
    return path


def program(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = tarkit(["pai", *map(str, words)])
    out, err = capfd.readouterr()
    assert TOKEN not in out + err
    return code, out, err


def test_a_job_is_submitted(server: PaiServer, job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert program(capfd, "submit", job) == (0, "ada~train_1\n", "")
    assert server.texts == {"ada~train_1": job.read_text()}


def test_job_json_goes_to_api_1_or_is_converted(
    server: PaiServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(paijobs.V1))
    assert program(capfd, "submit", path, "--api", "1")[:2] == (0, "ada~train-1\n")
    assert server.texts["ada~train-1"] == path.read_text()
    server.texts.clear()
    assert program(capfd, "submit", path)[:2] == (0, "ada~train-1\n")
    assert yaml.safe_load(server.texts["ada~train-1"])["protocolVersion"] == 2
    yaml_job = tmp_path / "job.yaml"
    yaml_job.write_text(yaml.safe_dump(paijobs.V2))
    assert program(capfd, "submit", yaml_job, "--api", "1")[0] == 2


def test_refusals_say_what_the_server_said(server: PaiServer, job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(capfd, "submit", job)
    code, _, err = program(capfd, "submit", job)
    assert (code, "409 ConflictJobError: The job ada~train_1 already exists." in err) == (1, True)
    for status, body, exit_code in ((500, b"<html>", 75), (429, b"", 75), (403, b"{}", 75), (404, b"", 1)):
        server.fails.append((status, body))
        code, _, err = program(capfd, "submit", job)
        assert (code, len(err.splitlines())) == (exit_code, 1)


def test_a_job_comes_from_standard_input(job: Path) -> None:
    words = [program_path("tarkit"), "pai", "check", "-"]
    for text, code in ((job.read_bytes(), 0), (b"name: x", 65)):
        assert subprocess.run(words, input=text, capture_output=True, check=False).returncode == code


def test_a_token_is_read_from_a_file(
    server: PaiServer, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PAI_TOKEN")
    code, _, err = program(capfd, "submit", job)
    assert (code, "the token may be missing, or too old" in err) == (75, True)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    assert program(capfd, "submit", job, "--token-file", token)[0] == 0
    token.write_text("")
    assert program(capfd, "submit", job, "--token-file", token)[0] == 2
    assert program(capfd, "submit", job, "--token-file", tmp_path / "none")[0] == 66
    monkeypatch.setenv("PAI_TOKEN", "a\nb")
    assert program(capfd, "submit", job)[0] == 2


def test_a_cluster_that_is_not_there(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = program(capfd, "submit", job, "--user", "ada", "--cluster", "http://127.0.0.1:9")
    assert (code, len(err.splitlines())) == (75, 1)
    assert program(capfd, "submit", job, "--user", "ada", "--cluster", "pai.example.com")[0] == 2


@pytest.mark.skipif(not CLIENT.exists(), reason="NO CLIENT OF OPENPAI: npm install @microsoft/openpai-js-sdk")
def test_the_official_client_sees_a_job_that_was_submitted(
    server: PaiServer, job: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    (home / ".openpai").mkdir(parents=True)
    (home / ".openpai/clusters.json").write_text("[]")

    def pai(*words: object) -> str:
        run = subprocess.run(
            [CLIENT, *map(str, words)],
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    pai("addc", server.url, "ada", TOKEN, "--alias", "c")
    program(capfd, "submit", job)
    assert "train_1" in pai("listj", "c")
    assert "RUNNING" in pai("getj", "c", "train_1")


def fan_out(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = kubetpl(["pai", *words])
    return (code, *capfd.readouterr())


COMMON = ("-n", "grey", "-I", "example.com/etl:1", "-c", 'echo "it\'s" > sample.txt', "-O", "hdfs://nn:9000/out")


@pytest.mark.parametrize("protocol", ["1", "2"])
def test_a_run_over_shards_is_a_job_that_openpai_accepts(protocol: str, capfd: pytest.CaptureFixture[str]) -> None:
    shards = "hdfs://nn:9000/raw-{0000..0147}.tar"
    code, out, err = fan_out(capfd, *COMMON, "--shards", shards, "--tasks", "37", "--protocol", protocol)
    assert (code, err) == (0, "")
    job = read_job(out, "job")
    assert (job.protocol, problems_in(job)) == (int(protocol), [])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-c", "echo <% x %>"], "<% in the command"),
        (["-n", "a b"], "OpenPAI would refuse it: name"),
        (["--shards", "*.tar"], "in a folder of this machine"),
        (["--shards", f"{FOLDER}/*.md"], "tasks cannot see what it names here"),
        (["--", "-O", "elsewhere"], "-O after --: kubetpl gives it to tarproc itself; change -O before --"),
        (["--", "-c", "true"], "-c after --: kubetpl gives it to tarproc itself; change -c before --"),
        (["--", "--count", "1"], "--count after --: with it, not all shards would be made"),
        (["--", "--report"], "after --: option --report requires argument"),
    ],
)
def test_what_cannot_be_a_job_is_an_error(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    shards = [] if "--shards" in words else ["--shards", "hdfs://nn/raw-{0..9}.tar"]
    code, out, err = fan_out(capfd, *COMMON, *shards, *words)
    assert (code, out, reason in err) == (2, "", True)


def test_a_secret_in_a_url_of_a_job_is_warned_of_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    shards = "https://ada:c4n4ry@host/raw-{0..9}.tar"
    code, _, err = fan_out(capfd, *COMMON, "--shards", shards)
    assert (code, "--shards https://host/raw-{0..9}.tar: it has a password" in err, "c4n4ry" in err) == (0, True, False)
    words = ("--job_name", "a", "--image_name", "i", "--job_command", "x", "--training_data", shards)
    assert kubetpl(["train", *words]) == 0
    err = capfd.readouterr().err
    assert ("--training_data https://host/raw-{0..9}.tar: it has a password" in err, "c4n4ry" in err) == (True, False)


def test_tasks_of_a_job_make_all_shards(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        (tmp_path / f"raw-{number}.tar").write_bytes(archive_of([(f"{number}.txt", b"x")], tarfile.USTAR_FORMAT))
    out = tmp_path / "out"
    words = ["-n", "grey", "-I", "x", "-c", "tr x y < sample.txt > sample.up; rm sample.txt", "-O", str(out)]
    code, text, _ = fan_out(capfd, *words, "--shards", f"{tmp_path}/raw-{{0..4}}.tar", "--tasks", "2")
    job = read_job(text, "job").job
    assert (code, job["taskRoles"]["map"]["instances"]) == (0, 2)
    assert [run_task(job, index) for index in range(2)] == [0, 0]
    assert sorted(path.name for path in out.glob("*.tar")) == [f"raw-{number}.tar" for number in range(5)]


def run_task(job: dict[str, Any], index: int) -> int:
    """The exit code of a task's entrypoint, as OpenPAI runs it."""
    env = {**os.environ, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index)}
    env["PATH"] = f"{os.path.dirname(program_path('tarproc'))}:{env['PATH']}"
    bash = ["bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c", *job["taskRoles"]["map"]["commands"]]
    return subprocess.run(bash, env=env, check=False, capture_output=True, timeout=60).returncode


def test_a_list_that_changes_between_the_tasks_of_a_job_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Slices of the new list have other shards: some were made twice, others never."""
    names = [f"{tmp_path}/raw-{number}.tar" for number in range(4)]
    for name in names:
        Path(name).write_bytes(archive_of([("a.txt", b"x")], tarfile.USTAR_FORMAT))
    listed, words = tmp_path / "list", ["-n", "grey", "-I", "x", "-c", "true", "-O", str(tmp_path / "out")]
    listed.write_text("\n".join(names))
    code, text, _ = fan_out(capfd, *words, "--shards", f"@file://{listed}", "--tasks", "2")
    job = read_job(text, "job").job
    assert (code, run_task(job, 0)) == (0, 0)
    listed.write_text("\n".join(reversed(names)))
    assert run_task(job, 1) == 65


def test_a_list_whose_slices_were_planned_has_a_task_for_each(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/list"
    write_list(url, [f"s3://b/raw-{number}.tar" for number in range(5)], [3, 1, 1], outdir="hdfs://nn:9000/out")
    code, text, err = fan_out(capfd, *COMMON, "--shards", f"@{url}")
    assert (code, err) == (0, "")
    assert read_job(text, "job").job["taskRoles"]["map"]["instances"] == 3
