"""Elastic training jobs whose service, workers and chief are killed, ended or stopped for a second
at random, and that are scaled meanwhile: tox run -e elasticdl.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from localtraining import LocalTraining

pytestmark = [
    pytest.mark.elasticdl,
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="NO grpcio, NO SHARD SERVICE TO TRAIN BY"),
]


KILLS = int(os.environ.get("TARKIT_KILLS", "10"))
"""In all, in jobs of five each."""
IN_A_JOB = 5
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]
EPOCHS, SHARDS = 3, 40

# A line for each shard before it is used, and after the service has it on its disk that it was.
TRAINER = f"""\
import os, sys, time
from tarkit.service.client import ShardClient
from tarkit.service.dataset import DataSet
name = f"{{os.environ['WORKER_TYPE']}}-{{os.environ['WORKER_ID']}}-{{os.getpid()}}"
log = os.open(os.path.join(sys.argv[1], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
data = DataSet("d", {SHARDS * 10}, 10, epochs={EPOCHS})
with ShardClient(os.environ["DLROVER_MASTER_ADDR"], data, prefetch=0) as client:
    for shard in client:
        for word in ("used", "done"):
            if word == "done":
                client.done(shard)
                client.flush()
            os.write(log, f"{{word}} {{shard.epoch}} {{shard.start}} {{time.monotonic_ns()}}\\n".encode())
            time.sleep(0.1)
"""


def _begin(folder: Path) -> LocalTraining:
    (folder / "used").mkdir()
    (folder / "train.py").write_text(TRAINER)
    return LocalTraining(
        folder, "--num_workers", "2", "--num_ps", "1", "--need_tf_config", "--relaunch_on_worker_failure", "20",
        "--lease_ceiling", "2", "--job_command",
        f'[ "$WORKER_TYPE" = ps ] && exec sleep 1000; exec {sys.executable} {folder}/train.py {folder}/used',
    )  # fmt: skip


def _records(folder: Path) -> list[tuple[int, str, tuple[str, str]]]:
    """(time, used or done, (epoch, start)) of all processes, in the order of time.

    A line that was cut is left out.
    """
    found = []
    for path in (folder / "used").iterdir():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                word, epoch, start, when = line.split()
                found.append((int(when), word, (epoch, start)))
    return sorted(found)


@pytest.mark.parametrize("seed", range(-(-KILLS // IN_A_JOB)))
def test_random_kills_lose_nothing_and_repeat_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = _begin(tmp_path)
    killed = []
    try:
        run.wait(lambda: any((tmp_path / "used").iterdir()))
        for _ in range(min(IN_A_JOB, KILLS - seed * IN_A_JOB)):
            time.sleep(chance.uniform(0, 1.5))
            role, choice = chance.choice(["shards", "worker", "worker", "chief"]), chance.random()
            number, workers = chance.choice(SIGNALS), chance.choice([0, 0, 0, 1, 4])
            if workers:
                with suppress(subprocess.CalledProcessError):  # it has ended
                    run.scale(workers)
                killed.append(f"{workers} workers")
            if processes := sorted(run.processes(role, "")):
                process = processes[int(choice * len(processes))]
                try:
                    os.kill(process, number)
                    killed.append(f"{role} by {number.name}")
                    if number == signal.SIGSTOP:
                        time.sleep(1)  # less than a lease
                        os.kill(process, signal.SIGCONT)
                except ProcessLookupError:
                    killed.append(f"{role}, which had ended")
        code, out = run.end(300)
    finally:
        run.process.kill()
        run.process.communicate()
    records = _records(tmp_path)
    acknowledged: set[tuple[str, str]] = set()
    for _, word, shard in records:
        assert word == "done" or shard not in acknowledged, f"{shard} again, seed {seed}, killed {killed}"
        if word == "done":
            acknowledged.add(shard)
    what = f"seed {seed}, killed {killed}: {out}"
    if code:
        assert code == 1 and "exit code" in out and ": Failed (" in out, what
        return
    assert f"shards: done {EPOCHS * SHARDS}, dead 0; records done {EPOCHS * SHARDS * 10}" in run.counts(), what
    assert len({shard for _, _, shard in records}) == EPOCHS * SHARDS, what
