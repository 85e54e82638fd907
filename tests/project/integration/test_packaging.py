"""What people install is what stands in the tree: nothing forgotten, nothing at the top that is not
ours to take.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from setupcfg import CONFIG, FOLDERS, ROOT

LISTED = set(CONFIG["options"]["packages"].split())
SCRIPTS = dict(line.split(" = ") for line in CONFIG["options.entry_points"]["console_scripts"].strip().splitlines())


def installed_path(path: Path) -> str:
    """Where a file of the checkout is installed: cli/x.py as tarkit/cli/x.py."""
    relative = path.relative_to(ROOT).as_posix()
    for name, folder in FOLDERS.items():
        if relative.startswith(f"{folder}/"):
            return name.replace(".", "/") + relative[len(folder) :]
    return relative


def tops() -> list[Path]:
    return [ROOT / "tarkit", *(ROOT / folder for folder in FOLDERS.values())]


def source_files() -> list[Path]:
    return [path for top in tops() for path in sorted(top.rglob("*.py"))]


def test_the_list_of_packages_equals_the_folders() -> None:
    folders = {Path(installed_path(path)).parent.as_posix().replace("/", ".") for path in source_files()}
    assert folders == LISTED, "packages in setup.cfg is an explicit list: add or remove the folder there"


def test_every_package_folder_has_an_init_file() -> None:
    without = sorted({str(path.parent) for path in source_files() if not (path.parent / "__init__.py").exists()})
    assert not without, f"an editable install cannot import a folder without __init__.py: {without}"


def third_party(path: Path) -> set[str]:
    """The top-level names outside the standard library that a file imports, wherever the statement
    stands.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"tarkit"}


def distribution(requirement: str) -> str:
    """The name in a requirement, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip())[0]).lower()


def required_by(name: str) -> set[str]:
    """What an installed distribution needs itself."""
    try:
        found = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    return {distribution(each) for each in found if "extra ==" not in each}


def test_what_is_imported_is_declared() -> None:
    lists = [CONFIG["options"]["install_requires"], *CONFIG["options.extras_require"].values()]
    declared = {distribution(line) for text in lists for line in text.splitlines() if not line.startswith("#")}
    # The clients of a store come with its extra.
    declared |= set().union(*(required_by(name) for name in declared if name and name != "tarkit"))
    distributions = importlib.metadata.packages_distributions()
    for name in sorted(set().union(*(third_party(path) for path in source_files()))):
        # What is not installed here cannot be looked up.
        brings = {distribution(each) for each in distributions.get(name, ())}
        assert not brings or brings & declared, f"import {name}: add one of {sorted(brings)} to setup.cfg"


def build_needs_isolation() -> bool:
    """Whether what is installed cannot build a wheel: setuptools brings bdist_wheel itself from
    70.1 on.
    """
    if importlib.util.find_spec("setuptools") is None:
        return True
    version = tuple(int(part) for part in importlib.metadata.version("setuptools").split(".")[:2])
    return version < (64, 0) or (version < (70, 1) and importlib.util.find_spec("wheel") is None)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree, since a build leaves files where it runs."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed in this environment, so no wheel can be built")
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tree"
    copy.mkdir()
    for path in (*tops(), *(ROOT / name for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"))):
        if path.is_dir():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    if not build_needs_isolation():
        command.append("--no-build-isolation")
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = (".binpb", ".css", ".html", ".js", ".proto", ".typed", ".yaml")
    data = [path for top in tops() for path in top.rglob("*") if path.suffix in kinds]
    expected = {installed_path(path) for path in [*source_files(), *data]}
    assert "tarkit/py.typed" in expected
    assert sorted(expected - names) == []


def test_the_wheel_takes_one_name_at_the_top(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"tarkit"}


def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in archive.read(name)


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_console_script_resolves_in_the_wheel(script: str, unpacked: Path, tmp_path: Path) -> None:
    module, function = SCRIPTS[script].split(":")
    program = (
        f"import {module} as found; print(found.__file__); raise SystemExit(not callable(getattr(found, {function!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(unpacked), "another installed copy was imported"
