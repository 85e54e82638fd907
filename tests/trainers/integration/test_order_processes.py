"""The order of an epoch in another process."""

from __future__ import annotations

import os
import subprocess
import sys

from tarkit.trainers.order import EpochOrder, OrderSettings


def test_the_same_order_with_other_hashes() -> None:
    """Python's own hashes differ in each process."""
    program = "from tarkit.trainers.order import *; print(EpochOrder([9] * 9, OrderSettings(7, seed=3), 2).batch(5))"
    environments = ({**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2"))
    found = {subprocess.check_output([sys.executable, "-c", program], env=each) for each in environments}
    assert found == {f"{EpochOrder([9] * 9, OrderSettings(7, seed=3), 2).batch(5)}\n".encode()}
