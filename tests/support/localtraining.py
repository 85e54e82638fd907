"""Elastic training jobs on this machine, for tests that kill parts of them.

And what tests of training on iris need.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from installed import program_path

F = TypeVar("F", bound=Callable[..., Any])


def _needs(marker: str, library: str, what: str) -> Callable[[F], F]:
    missing = any(importlib.util.find_spec(name) is None for name in (library, "sklearn", "grpc"))
    reason = f"NO {library}, scikit-learn OR grpcio, {what} DOES NOT RUN (tox run -e {marker})"
    skipped = pytest.mark.skipif(missing, reason=reason)
    return lambda test: getattr(pytest.mark, marker)(skipped(test))


needs_torch = _needs("torch", "torch", "ELASTIC TRAINING")
needs_estimator = _needs("estimator", "tensorflow_estimator", "THE ESTIMATOR")


def iris_data(folder: Path) -> Path:
    """The data as the archive of UCI has them, in another order."""
    from sklearn.datasets import load_iris

    found = load_iris()
    rows = [
        ",".join(map(str, [*numbers, f"Iris-{found.target_names[label]}"]))
        for numbers, label in zip(found.data, found.target, strict=True)
    ]
    random.Random(0).shuffle(rows)
    path = folder / "iris.data"
    path.write_text("\n".join(rows) + "\n\n")
    return path


class LocalTraining:
    """``kubetpl local train`` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self.state = folder, folder / "state"
        path = f"{os.path.dirname(program_path('kubetpl'))}:{os.environ['PATH']}"
        self._env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [program_path("kubetpl"), "local", "--state", str(self.state), "--retry-delay", "0.2", "--inherit-env",
             "train", "--image_name", "none", "--job_name", "job", "--end_grace", "8", "--lease_ceiling", "5",
             *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._env, cwd=folder,
        )  # fmt: skip

    def logs(self, role: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted((self.state / "logs" / f"job-{role}").glob("*.log"))}

    def wait(self, reached: Callable[[], object], seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < until and self.process.poll() is None, self.all_logs()
            time.sleep(0.05)

    def all_logs(self) -> str:
        return "\n".join(f"{path}: {path.read_text()[-2000:]}" for path in self.state.glob("logs/*/*.log"))

    def kill(self, role: str, word: str) -> None:
        """Kill a process of a pod of this role, by a word of its command line, once there
        is one.
        """
        self.wait(lambda: self.processes(role, word))
        os.kill(max(self.processes(role, word)), signal.SIGKILL)

    def processes(self, role: str, word: str) -> list[int]:
        """Those of the pods of a role that have a word in their command line; "" is in all."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                except OSError:
                    continue
                mine = f"{self.state}/pods/job-{role}-".encode()
                if word.encode() in command and mine in variables:
                    found.append(int(entry.name))
        return found

    def scale(self, number: int) -> None:
        words = [program_path("kubetpl"), "scale", "job-worker", "-j", str(number), "--state", str(self.state)]
        subprocess.run(words, check=True)

    def end(self, seconds: float = 300) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, out

    def counts(self) -> str:
        """The last line of the service's log."""
        return list(self.logs("shards").values())[-1].splitlines()[-1]
