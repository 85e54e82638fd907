"""The pages of docs/cli are what the programs say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tarkit.cli import document

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "cli"


def test_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert document.main(["--check", str(FOLDER)]) == 0, capsys.readouterr().err


def test_drift_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document.main([str(tmp_path)]) == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == document.pages()
    (tmp_path / "tarproc.md").write_text("old")
    (tmp_path / "tarkit-gone.md").write_text("of a verb that is no more")
    (tmp_path / "tarkit-cat.md").unlink()
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
    assert "is no folder" in capsys.readouterr().err


def test_every_option_is_on_its_page() -> None:
    pages = document.pages()
    for name, context in document.commands():
        page = pages[f"{name.replace(' ', '-')}.md"]
        for parameter in context.command.params:
            for option in parameter.opts:
                assert not option.startswith("-") or option in page, (name, option)
