"""The published clients of ElasticDL, unmodified, each in an environment of its own, and programs
that use them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path.home() / ".cache" / "tarkit-tests" / "elasticdl"

_OLD = ["packaging", "grpcio", "psutil", "protobuf==3.20.3"]
# name -> (package, what else is installed, variable with the service's address). 1.4.2 does not
# declare packaging and grpcio; the other two ask for a grpcio of 2020, which has no wheel for a
# Python of today, so they come without it.
CLIENTS = {
    "elasticai-api-1.4.2": ("elasticai-api==1.4.2", [*_OLD[:3], "protobuf"], "DLROVER_MASTER_ADDR"),
    "elasticai-api-1.4.1": ("elasticai-api==1.4.1", _OLD, "MASTER_ADDR"),
    "elasticdl-api-1.0.0": ("elasticdl-api==1.0.0", _OLD, "MASTER_ADDR"),
}

# Reads a data set to its end. A line for each shard that was read; one for each that was fetched,
# if it is to stop.
READER = """
import json, sys, time
from elasticai_api.common.data_shard_service import build_data_shard_service
asked = json.loads(sys.argv[1])
service = build_data_shard_service(
    batch_size=4, num_epochs=asked["epochs"], dataset_size=asked["size"], num_minibatches_per_shard=2,
    dataset_name=asked["name"])
number, fails = 0, asked.get("fails", 0)
while True:
    shard = service.fetch_shard()
    if not shard:
        break
    number += 1
    if number == asked.get("stops_at"):
        print(json.dumps(["holds", shard.start, shard.end]), flush=True)
        time.sleep(1000)
    time.sleep(asked.get("seconds", 0))
    error = "cannot be decoded" if fails else ""
    for first in range(shard.start, shard.end, 4):
        service.report_batch_done(min(4, shard.end - first), error)
    print(json.dumps(["failed" if error else "read", shard.start, shard.end]), flush=True)
    fails = max(0, fails - 1)
print(json.dumps(["end", service.get_current_epoch(), 0]), flush=True)
"""


class NoClient(Exception):
    """An environment could not be made; the text says why."""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise NoClient(f"{' '.join(words[-3:])}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")


def environment(name: str, packages: list[str], without_dependencies: list[str] | None = None) -> Path:
    """The interpreter of an environment with these packages, made once for all runs.

    Raises: NoClient.
    """
    folder = CACHE / f"{name}-py{sys.version_info.major}{sys.version_info.minor}"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        # Tests that run side by side wait here for the first of them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*install, *packages)
        if without_dependencies:
            _run(*install, "--no-deps", "--no-build-isolation", *without_dependencies)
        (folder / "complete").touch()
    return python


def client_python(name: str) -> Path:
    """The interpreter of an environment with a published client.

    Raises: NoClient.
    """
    package, others, _ = CLIENTS[name]
    # The older two are sources, built with what setuptools had until version 80.
    return environment(name, ["setuptools<80", "wheel", *others], [package])


def started(name: str, address: str, text: str, *arguments: str, worker: int = 0) -> subprocess.Popen[str]:
    """A program with a published client, on a service."""
    variables = {key: value for key, value in os.environ.items() if key not in ("DLROVER_MASTER_ADDR", "MASTER_ADDR")}
    variables |= {CLIENTS[name][2]: address, "WORKER_ID": str(worker), "PYTHONUNBUFFERED": "1"}
    words = [str(client_python(name)), "-c", text, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, **pipes, text=True, env=variables)  # type: ignore[call-overload, no-any-return]
