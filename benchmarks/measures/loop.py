"""Run one of the programs in ``loops/`` in a fresh interpreter, and take what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environments import Environment, call
from rounds import MeasureError

LOOPS = Path(__file__).resolve().parent.parent / "loops"


def run_loop(environment: Environment, name: str, arguments: Sequence[str | Path]) -> dict[str, Any]:
    """The JSON that the loop wrote: ``seconds``, mostly ``evidence``.

    Raises:
        MeasureError: the loop failed or did not say how long it took.
    """
    text = call([environment.python, LOOPS / f"{name}.py", *arguments])
    try:
        result = json.loads(text)
        float(result["seconds"])
    except (ValueError, KeyError, TypeError):
        raise MeasureError(f"loop {name} did not answer with its seconds") from None
    return dict(result)


@contextmanager
def served(program: str, *arguments: str) -> Iterator[str]:
    """The address of a server, a program of LOOPS, while it runs as a process of its own."""
    command = [sys.executable, str(LOOPS / program), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout is None or server.stdin is None:
            raise MeasureError("the server has no pipes")
        try:
            port = server.stdout.readline().strip()
            if not port.isdigit():
                raise MeasureError("the server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stdin.close()
            server.wait()
