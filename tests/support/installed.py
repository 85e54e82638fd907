"""Where the installed programs are."""

from __future__ import annotations

import os
import shutil
import sys


def program_path(program: str) -> str:
    """Where the program of this very environment is."""
    found = shutil.which(program, path=os.path.dirname(os.path.abspath(sys.executable)))
    assert found is not None, f"{program} is not installed beside {sys.executable}"
    return found
