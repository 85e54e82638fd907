"""docs/api.md and the pages of docs/cli are what the docstrings and the programs print."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import document
import pytest

import tarkit

FOLDER = Path(__file__).resolve().parents[3] / "docs"


def test_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert document.main(["--check", str(FOLDER)]) == 0, capsys.readouterr().err


def test_drift_is_found_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = document.pages()
    assert document.main([str(tmp_path)]) == 0
    written = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.md")}
    assert written == pages
    (tmp_path / "cli" / "tarproc.md").write_text("old")
    (tmp_path / "cli" / "tarkit-gone.md").write_text("of a verb that is no more")
    (tmp_path / "cli" / "tarkit-cat.md").unlink()
    capsys.readouterr()
    assert document.main(["--check", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert [name in said for name in ("tarproc.md", "tarkit-gone.md", "tarkit-cat.md", "tarkit-show.md")] == [
        True,
        True,
        True,
        False,
    ]
    assert document.main([str(tmp_path)]) == 0
    assert document.main(["--check", str(tmp_path)]) == 0


def test_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document.main([str(tmp_path / "nosuch")]) == 66
    assert "is not a folder" in capsys.readouterr().err


def test_every_option_is_on_its_page() -> None:
    pages = document.pages()
    for name, context in document.commands():
        page = pages[f"cli/{name.replace(' ', '-')}.md"]
        for parameter in context.command.params:
            for option in parameter.opts:
                assert not option.startswith("-") or option in page, (name, option)


def test_what_is_public_is_on_the_page_and_in_help() -> None:
    page = document.pages()["api.md"]
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert headings == [*tarkit.__all__, *(name for name in headings if name.startswith("tarkit.")), "Errors"]
    assert [name for name in dir(tarkit) if not name.startswith("_")] == sorted(tarkit.__all__)
    assert " at 0x" not in page
    modules = {path.stem.lower() for path in Path(tarkit.__file__).parent.iterdir()}
    assert not modules & {name.lower() for name in tarkit.__all__}, "help(tarkit) would list the module as well"


def test_what_the_pages_import_is_public() -> None:
    page = document.pages()["api.md"]
    sections = {text.partition("\n")[0]: text for text in page.split("\n## ")}
    imported = [
        (path.name, module, name.strip())
        for path in (FOLDER.parent / "README.md", *FOLDER.rglob("*.md"))
        for module, names in re.findall(
            r"^from (tarkit\S*) import (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for name in names.split(",")
    ]
    assert len(imported) > 15
    for where, module, name in imported:
        names = tarkit.__all__ if module == "tarkit" else re.findall(r"^### (\w+)$", sections[module], re.MULTILINE)
        assert name in names, f"{where} imports {name} of {module}; add it to _PUBLIC of docs/document.py"


def test_the_version_is_that_of_the_package() -> None:
    assert tarkit.__version__ == importlib.metadata.version("tarkit")
