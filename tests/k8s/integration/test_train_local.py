"""Elastic training jobs on this machine, with kills: tox run -e torch,estimator."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from localtraining import LocalTraining, iris_data, needs_estimator, needs_torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="NO grpcio, NO SHARD SERVICE TO TRAIN BY"
)
NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., LocalTraining]]:
    begun: list[LocalTraining] = []

    def begin(*words: str) -> LocalTraining:
        begun.append(LocalTraining(tmp_path, *words))
        return begun[-1]

    yield begin
    for each in begun:
        each.process.kill()
        each.process.communicate()


def test_a_failed_worker_fails_the_job(training: Callable[..., LocalTraining]) -> None:
    run = training("--num_workers", "1", "--relaunch_on_worker_failure", "0", "--job_command", "exit 7")
    code, out = run.end()
    assert "exit code 7" in out
    assert "job-worker: Failed" in out
    assert code == 1


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    return iris_data(tmp_path)


@needs_torch
def test_iris_in_pytorch_from_two_workers_to_four_to_one(
    tmp_path: Path, iris: Path, training: Callable[..., LocalTraining]
) -> None:
    program, model = NOTEBOOKS / "elastic_iris_torch.py", tmp_path / "model"
    run = training(
        "--num_workers", "2", "--framework", "torch", "--relaunch_on_worker_failure", "20",
        "--job_command", f"exec {sys.executable} {program} {iris} {model} 300",
    )  # fmt: skip
    run.wait(model.exists)
    run.kill("worker", program.name)
    run.scale(4)
    run.wait(lambda: any(name.startswith("3-") for name in run.logs("worker")))
    run.kill("shards", "serve")
    run.scale(1)
    code, out = run.end(300)
    assert code == 0, out + run.all_logs()
    assert "shards: done 3000, dead 0; records done 45000; epochs begun 300" in run.counts()
    assert re.search(r"accuracy (0\.9|1\.0)", "".join(run.logs("worker").values()))


@needs_estimator
def test_the_estimator_with_a_parameter_server_and_an_evaluator(
    tmp_path: Path, iris: Path, training: Callable[..., LocalTraining]
) -> None:
    program, model = NOTEBOOKS / "elastic_iris_estimator.py", tmp_path / "model"
    run = training(
        "--num_workers", "1", "--num_ps", "1", "--num_evaluator", "1", "--need_tf_config=true",
        "--distribution_strategy=ParameterServerStrategy", "--relaunch_on_worker_failure", "20",
        "--job_command", f"exec {sys.executable} {program} {iris} {model} 60",
    )  # fmt: skip
    run.wait(lambda: list(model.glob("model.ckpt-*.index")))
    run.kill("worker", program.name)
    run.kill("shards", "serve")
    code, out = run.end(300)
    assert code == 0, out + run.all_logs()
    assert "shards: done 600, dead 0; records done 9000; epochs begun 60" in run.counts()
    assert "accuracy" in "".join(run.logs("chief").values())
    assert list(model.glob("model.ckpt-*.index"))
