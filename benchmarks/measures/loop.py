"""Run one of the programs in ``loops/`` in a fresh interpreter, and take what it measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
