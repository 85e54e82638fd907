"""Tasks of a stage in several processes."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tarkit.exchange.tasks import StageTaskError, task_results
from tarkit.mapping.scratch import Scratch


def test_the_files_of_a_task_that_was_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the samples that it had spilled: those of a large slice may fill the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def task(number: int) -> int:
        with Scratch() as scratch:
            Path(scratch.path, "spill-0.tar").write_bytes(b"x" * 1000)
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(StageTaskError):
        list(task_results(task, range(3), 2))
    assert os.listdir(tmp_path) == []


def test_a_task_that_has_begun_ends_after_the_process_of_another_was_killed(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def task(number: int) -> None:
        if number == 1:
            begun.touch()
            time.sleep(0.3)
            ended.touch()
            return
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(StageTaskError, match="run the same command again"):
        list(task_results(task, range(2), 2))
    assert ended.exists()
