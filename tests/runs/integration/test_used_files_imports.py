"""The files that are found beside a mapper are those that Python imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarkit.runs.usedfiles import used_files
from tarkit.runs.work import Work


def names(work: Work, folder: Path) -> set[str]:
    """Names of the files that are found, those of a command as below ``folder``."""
    return {each.get("name") or str(Path(each["path"]).relative_to(folder)) for each in used_files(work)}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    sources = {
        "mapper.py": "import os, json, numpy\nimport helper\nfrom space import one\nimport pkg.sub as s\n"
        "from pkg import other, VALUE\ndef grey(sample):\n    import late\n    return sample\n",
        "helper.py": "import space.deep.down\nraise SystemExit('this is never run')\n",
        "space/one.py": "", "space/two.py": "", "space/deep/down.py": "from ..two import x\n",
        "pkg/__init__.py": "VALUE = 1\n", "pkg/sub.py": "from . import beside\nfrom .inner import thing\n",
        "pkg/beside.py": "", "pkg/other.py": "def broken(:\n", "pkg/inner/__init__.py": "from ..up import x\n",
        "pkg/up.py": "", "late.py": "", "never.py": "", "pkg/never.py": "",
    }  # fmt: skip
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


BESIDE = {
    "helper.py", "space/one.py", "space/two.py", "space/deep/down.py", "pkg/__init__.py", "pkg/sub.py", "pkg/beside.py",
    "pkg/other.py", "pkg/inner/__init__.py", "pkg/up.py", "late.py",
}  # fmt: skip


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
