"""What a fresh interpreter loads and runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import tarkit


def test_python_m_tarkit_is_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tarkit", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"tarkit {tarkit.__version__}\n"


def where_tarkit_is() -> Path:
    """The folder from which these tests import tarkit: the checkout, or where it is installed."""
    spec = importlib.util.find_spec("tarkit")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


def modules() -> list[str]:
    """All modules of the library, without the programs."""
    folder = where_tarkit_is()
    paths = [path.relative_to(folder).with_suffix("") for path in (folder / "tarkit").rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths if path.parts[1] != "cli"]
    return sorted(names)


def loaded_by(statement: str, folder: Path) -> set[str]:
    """Top-level names outside the standard library that a fresh interpreter loads for this
    statement.
    """
    program = (
        f"import sys; sys.path.insert(0, {str(where_tarkit_is())!r}); before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_every_library_module_loads_only_the_standard_library(tmp_path: Path) -> None:
    """But for a trainer's module, which is one with its library."""
    of_trainers = {f"tarkit.trainers.{library}" for library in ("torch", "tensorflow", "webdataset")}
    names = [name for name in modules() if name not in of_trainers]
    assert loaded_by(f"import {', '.join(names)}", tmp_path) == {"tarkit"}
    assert loaded_by("import click", tmp_path) == {"click"}, "the check can fail"
