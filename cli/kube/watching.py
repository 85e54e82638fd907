"""How long a verb of kubetpl waits for the cluster, and what it says about that."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ..shared.program import say

if TYPE_CHECKING:
    from tarkit.k8s.cluster.jobwatch import Watching

PATIENCE = 300.0
"""Seconds for which a cluster may not answer, unless ``--patience`` says otherwise."""


def watching(program: str, timeout: float | None = None, patience: float = PATIENCE) -> Watching:
    """From now on. timeout, patience: in seconds; None is for ever. program: what the lines on stderr begin with."""
    from tarkit.k8s.cluster.jobwatch import Watching
    from tarkit.k8s.durations import in_words

    most = "" if math.isinf(patience) else f", for {in_words(patience)} at most"
    return Watching(
        until=None if timeout is None else time.monotonic() + timeout,
        patience=patience,
        clock=time.monotonic,
        sleep=time.sleep,
        lost=lambda why: say(program, f"{why}; asking again{most}"),
        back=lambda: say(program, "the cluster answers again"),
    )
