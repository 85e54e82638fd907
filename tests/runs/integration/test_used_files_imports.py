"""The files that are found beside a mapper are those that Python imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from usedtree import BESIDE, names, write_tree

from tarkit.runs.work import Work


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path)


def test_what_is_found_is_what_python_imports(tree: Path) -> None:
    """The mapper is really run, without the modules that cannot be."""
    (tree / "helper.py").write_text("import space.deep.down\n")
    (tree / "space/two.py").write_text("x = 1\n")
    (tree / "pkg/up.py").write_text("x = 1\n")
    (tree / "pkg/inner/__init__.py").write_text("from ..up import x as thing\n")
    (tree / "pkg/other.py").write_text("")
    (tree / "mapper.py").write_text((tree / "mapper.py").read_text().replace(", numpy", "") + "grey({})\n")
    program = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*(getattr(m, '__file__', '') for m in "
    words = [sys.executable, "-c", f"{program}[*sys.modules.values()]), sep='\\n')", f"{tree}/mapper.py"]
    environment = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    loaded = {line.removeprefix(f"{tree}/") for line in result.stdout.splitlines() if line.startswith(str(tree))}
    assert loaded == names(Work(function=f"{tree}/mapper.py:grey"), tree) == BESIDE
