"""A program that is held up between the start of a child process and the line that notes it."""

from __future__ import annotations

import os
from pathlib import Path

_SITE = """
import os, subprocess, time

start = subprocess.Popen._execute_child

def held_up(*arguments):
    start(*arguments)
    while not os.path.exists({go!r}):
        time.sleep(0.01)

subprocess.Popen._execute_child = held_up
"""


def held_start(folder: Path) -> dict[str, str]:
    """The environment of a program in which this is so until the file ``go`` is in the folder."""
    (folder / "sitecustomize.py").write_text(_SITE.format(go=str(folder / "go")))
    return {"PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))}
