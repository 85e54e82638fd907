"""The first run of docs/shard-service.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from object_servers import free_ports

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "shard-service.md").read_text(encoding="utf-8")


def test_the_first_run(tmp_path: Path) -> None:
    (port,) = map(str, free_ports(1))
    worker, commands = re.findall(r"```(?:python|sh)\n(.*?)```", PAGE, re.DOTALL)[:2]
    (tmp_path / "worker.py").write_text(worker.replace("50001", port))
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-c", commands.replace("50001", port)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "had ended before" not in done.stderr  # both workers took part
    lines = done.stdout.splitlines()
    (last,) = re.findall(r"The last line of the service is `(.*?)`", PAGE)
    assert last in lines
    ends = [min(first + 20, 150) for first in range(0, 150, 20)]
    assert sorted(set(lines) - {last}) == sorted(f"iris {end - (end - 1) % 20 - 1} {end}" for end in ends)
