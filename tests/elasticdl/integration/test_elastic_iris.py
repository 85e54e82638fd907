"""Training on iris through the shard service, with kills: tox run -e torch,estimator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from localtraining import iris_data, needs_estimator, needs_torch
from object_servers import free_ports
from shardservice import Caller, Service

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "training-elastic.md").read_text("utf-8")
PROGRAMS = {name: ROOT / "notebooks" / f"elastic_iris_{name}.py" for name in ("torch", "estimator")}
ROWS, BATCH = 150, 16
SHARDS = 10
"""Of an epoch; the last one has 6 records."""
SECONDS = 300
LEASES = ("--lease-ceiling", "10")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_has_the_program(name: str) -> None:
    assert f"```python\n{PROGRAMS[name].read_text('utf-8')}```\n" in PAGE


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    return iris_data(tmp_path)


class Job:
    """A service, to which programs declare their data set, and these programs.

    All are killed at the end.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._service = stack.enter_context(Service(folder, *LEASES))
        self.address = self._service.address

    def kill_the_service(self) -> None:
        """Kill it, and start it again after a second."""
        self._service.kill()
        time.sleep(1)
        self._service.start()

    def begin(self, program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """A process of a program."""
        command = [sys.executable, str(PROGRAMS[program]), *map(str, arguments)]
        # Several processes of several threads each would mostly wait for one another.
        environment = {**os.environ, "DLROVER_MASTER_ADDR": self.address, "OMP_NUM_THREADS": "1", **environment}
        with open(self._folder / "stderr", "a") as stderr:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self._stack.callback(_end, process)
        return process

    def wait_for(self, reached: Callable[[Any], bool]) -> None:
        """Wait until the progress of the data set is so."""
        until = time.monotonic() + SECONDS
        with Caller(self.address) as call:
            while not (found := call("GetProgress").progress) or not reached(found[0]):
                assert time.monotonic() < until, f"{found}\n{(self._folder / 'stderr').read_text()[-5000:]}"
                time.sleep(0.02)

    def add(self, working: list[subprocess.Popen[str]], begin: Callable[[], subprocess.Popen[str]]) -> None:
        """Begin another program, which has done shards when this returns.

        The others pause until then: on a quick machine they would have done all before it comes.
        """
        for process in working:
            process.send_signal(signal.SIGSTOP)
        # Of these, reports may be on their way.
        theirs: list[int] = []
        self.wait_for(lambda progress: not theirs.append(progress.done + progress.leased))
        working.append(begin())
        self.wait_for(lambda progress: progress.done > theirs[0])
        for process in working[:-1]:
            process.send_signal(signal.SIGCONT)

    def counts(self) -> list[str]:
        """What the service prints when it is stopped."""
        self._service.process.terminate()
        code, out, _ = self._service.end()
        assert code == 143
        return out


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with ExitStack() as stack:
        yield Job(tmp_path, stack)


def printed(process: subprocess.Popen[str]) -> tuple[int, float]:
    """Steps and accuracy that a program prints at its end."""
    out, _ = process.communicate(timeout=SECONDS)
    found = re.fullmatch(r"steps (\d+), accuracy ([\d.]+)\n", out)
    assert process.returncode == 0 and found, out
    return int(found[1]), float(found[2])


def all_done(epochs: int) -> list[str]:
    """The counts of a service whose shards are all done, each once."""
    done = f"done {SHARDS * epochs}, dead 0; records done {ROWS * epochs}; epochs begun {epochs}"
    return [f"iris_training_data: shards: {done}"]


@needs_torch
def test_torch_through_kills(iris: Path, tmp_path: Path, job: Job) -> None:
    epochs = 800  # so many that it lasts until both workers have found the service again

    def begin() -> subprocess.Popen[str]:
        return job.begin("torch", iris, tmp_path / "model", epochs)

    workers = [begin()]
    job.wait_for(lambda progress: progress.done > 50)
    job.add(workers, begin)
    job.wait_for(lambda progress: progress.done > 150)
    job.kill_the_service()
    job.wait_for(lambda progress: progress.done > 300 and progress.workers == 2)
    workers.pop(0).kill()
    job.add(workers, begin)
    found = [printed(process) for process in workers]
    assert job.counts() == all_done(epochs)
    assert all(accuracy > 0.9 for _, accuracy in found)
    # The late one has a part in it, and the killed one had.
    assert all(steps for steps, _ in found) and sum(steps for steps, _ in found) < SHARDS * epochs


@needs_torch
def test_a_program_that_is_run_again_trains_nothing_and_ends_with_3(iris: Path, tmp_path: Path, job: Job) -> None:
    for code, lines in ((0, 1), (3, 0)):
        process = job.begin("torch", iris, tmp_path / "model", 2)
        out, _ = process.communicate(timeout=SECONDS)
        assert (process.returncode, len(out.splitlines())) == (code, lines)
    assert "'iris_training_data' had ended before this worker came" in (tmp_path / "stderr").read_text()
    assert job.counts() == all_done(2)


@needs_estimator
def test_estimator_alone(iris: Path, tmp_path: Path, job: Job) -> None:
    steps, accuracy = printed(job.begin("estimator", iris, tmp_path / "model", 20))
    # Batches go on across shards: 3000 records are 187 of 16, and one of 8.
    assert steps == 188
    assert accuracy > 0.9
    assert job.counts() == all_done(20)


@needs_estimator
def test_estimator_of_a_cluster_through_kills(iris: Path, tmp_path: Path, job: Job) -> None:
    epochs = 200
    cluster = {role: [f"127.0.0.1:{port}"] for role, port in zip(("chief", "worker", "ps"), free_ports(3), strict=True)}

    def begin(role: str) -> subprocess.Popen[str]:
        task = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
        return job.begin("estimator", iris, tmp_path / "model", epochs, TF_CONFIG=task, WORKER_TYPE=role)

    begin("ps")
    chief = begin("chief")
    job.wait_for(lambda progress: progress.done > 50)
    working = [chief]
    job.add(working, lambda: begin("worker"))
    job.wait_for(lambda progress: progress.done > 150)
    job.kill_the_service()
    job.wait_for(lambda progress: progress.done > 300 and progress.workers == 2)
    working.pop().kill()
    _, accuracy = printed(chief)
    assert accuracy > 0.9
    assert job.counts() == all_done(epochs)
