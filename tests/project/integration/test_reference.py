"""Which names are public: the pages of docs/api list them, and the other pages import no other."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

import tarkit

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PUBLIC = {
    name for page in (DOCS / "api").glob("*.md") for name in re.findall(r"^::: (tarkit\S+)$", page.read_text(), re.M)
}
"""The full names that pages of the API list."""


def defined(module: str) -> set[str]:
    """The names at the top of a module, which may need a library that is not installed."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    found = set()
    body = ast.parse(Path(spec.origin).read_text()).body
    for node in (*body, *(each for block in body if isinstance(block, ast.If) for each in block.body)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return found


@pytest.mark.parametrize("name", sorted(PUBLIC - {"tarkit.errors"}))
def test_a_public_name_is_defined(name: str) -> None:
    module, _, last = name.rpartition(".")
    assert last in (tarkit.__all__ if module == "tarkit" else defined(module))


def test_all_of_tarkit_is_public() -> None:
    assert {name for name in PUBLIC if name.count(".") == 1} == {f"tarkit.{name}" for name in tarkit.__all__} | {
        "tarkit.errors"
    }
    assert [name for name in dir(tarkit) if not name.startswith("_")] == sorted(tarkit.__all__)
    modules = {path.stem.lower() for path in Path(tarkit.__file__).parent.iterdir()}
    assert not modules & {name.lower() for name in tarkit.__all__}, "help(tarkit) would list the module as well"


def test_what_the_pages_import_is_public() -> None:
    imported = [
        (path.name, module, name.strip())
        for path in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for module, names in re.findall(
            r"^from (tarkit\S*) import (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for name in names.split(",")
    ]
    assert len(imported) > 15
    for where, module, name in imported:
        assert f"{module}.{name}" in PUBLIC, f"{where} imports {name} of {module}; add it to a page of docs/api"


def test_the_version_is_that_of_the_package() -> None:
    assert tarkit.__version__ == importlib.metadata.version("tarkit")
