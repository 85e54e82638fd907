"""The programs and commands of docs/training-distributed.md run on two ranks, through kills."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trainshards import NEEDS_TORCH, program_of, write_shards

from tarkit.trainers.audit import audit_folder

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "training-distributed.md").read_text("utf-8")
COMMANDS = dict(re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*?)```", PAGE, re.DOTALL))
COUNTS = [61, 7, 90]
"""Samples of the shards, of different sizes: 158 make 6 batches of 24."""

OTHERS = [("lightning", "lightning", "8"), ("transformers", "transformers", "8"), ("accelerate", "accelerate", "1")]
"""Program, library, and the argument with which it ends early."""

pytestmark = NEEDS_TORCH


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The current folder has shards of dark and of bright pictures."""
    monkeypatch.chdir(tmp_path)
    pictures = [{"png": np.full((8, 8, 3), value, "uint8"), "cls": value // 200} for value in (0, 200)]
    return write_shards(tmp_path, COUNTS, lambda shard, number: pictures[number % 2], "train")


def run(command: str, **replaced: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page with this Python's programs."""
    for old, new in replaced.items():
        assert old in command
        command = command.replace(old, new)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    words = ["bash", "-eu", "-c", command.replace("torchrun --", f"{sys.executable} -m torch.distributed.run --")]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_each_program_and_command_has_a_test() -> None:
    marks = re.findall(r"(?:<!-- (\w+: \w+) -->\n)?```(?!\n)\w+\n", PAGE)
    names = ["restarts", "join", "lightning", "transformers", "accelerate"]
    assert sorted(marks) == sorted([f"command: {name}" for name in names] + [f"program: {name}" for name in names[1:]])


def test_a_killed_rank_is_started_again(spec: str) -> None:
    program = program_of("training.md", "ddp")
    for old, new in (
        ('"dataset.json"', '"train-{0..2}.tar"'),
        ("seed=1)", 'seed=1, audit="audited")'),
        ("        loss.backward()\n", f"{KILL}        loss.backward()\n"),
    ):
        assert program.count(old) == 1
        program = program.replace(old, new)
    Path("train_ddp.py").write_text(program)
    os.mkdir("killed")
    done = run(COMMANDS["restarts"])
    assert done.returncode == 0, done.stderr
    assert len(os.listdir("killed")) == 2
    assert len(re.findall(r"^epoch \d: complete: 144 of 158 samples used, 14 fill no batch", done.stdout, re.M)) == 3
    assert_each_sample_once(spec, epochs=3, batch=48)


def test_ranks_with_different_numbers_of_batches(spec: str) -> None:
    for rank, shard in enumerate((0, 2)):
        for suffix in ("tar", "idx"):
            os.rename(f"train-{shard}.{suffix}", f"part-{rank}.{suffix}")
    Path("train_join.py").write_text(program_of("training-distributed.md", "join"))
    done = run(COMMANDS["join"])
    assert done.returncode == 0, done.stderr
    lines = [f"rank {rank}: {steps} steps in epoch {epoch}" for epoch in range(2) for rank, steps in ((0, 3), (1, 5))]
    # Ranks of torchrun write a line and its end apart, so that lines mix.
    assert sorted(re.findall(r"rank \d: \d+ steps in epoch \d", done.stdout)) == sorted(lines)
    for rank, used in enumerate((48, 80)):
        audited = audit_folder(f"audited-{rank}", [f"part-{rank}.tar"])
        assert [(each.complete, each.problems, each.used) for each in audited] == [(True, [], used)] * 2


@pytest.mark.parametrize(("world", "warnings"), [(None, 0), (1, 0), (2, 1)])
def test_a_service_in_a_process_group_is_warned_of(
    world: int | None, warnings: int, spec: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch.distributed

    from tarkit.trainers.torch import ShardDataset

    if world is not None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)
    ShardDataset(spec, batch=4, service="127.0.0.1:1").loader()
    ShardDataset(spec, batch=4).loader()
    found = [
        text for text in caplog.messages if text.startswith("service= in a process group of 2 ranks: a loop of DDP")
    ]
    assert len(found) == len(caplog.messages) == warnings


@pytest.mark.parametrize(("name", "library", "stop"), OTHERS)
def test_a_trainer_is_stopped_and_resumes(name: str, library: str, stop: str, spec: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"NO {library} (tox run -e torch)")
    Path(f"train_{name}.py").write_text(program_of("training-distributed.md", name))
    arguments = COMMANDS[name].split()[-2:]
    for end in (stop, arguments[1]):
        done = run(COMMANDS[name], **{" ".join(arguments): f"{arguments[0]} {end}"})
        assert done.returncode == 0, done.stderr
    assert_each_sample_once(spec, epochs=2, batch=24)


# Rank 1 is killed in the middle of the third batch of its first and of its second start.
KILL = """\
        seen = globals().get("seen", 0) + 1
        if torch.distributed.get_rank() == 1 and seen == 3 and len(os.listdir("killed")) < 2:
            os.mkdir(f"killed/{os.getpid()}")
            os.kill(os.getpid(), 9)
"""


def assert_each_sample_once(spec: str, epochs: int, batch: int) -> None:
    audited = audit_folder("audited", [spec])
    used = sum(COUNTS) // batch * batch
    assert [(each.complete, each.problems, each.used) for each in audited] == [(True, [], used)] * epochs
