"""The Dockerfile and the page about images agree with the rest of the tree."""

from __future__ import annotations

import re

from programs import commands
from setupcfg import CONFIG, FOLDERS, ROOT

import tarkit

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.name != "images.md")


def test_the_build_sees_what_the_wheel_is_made_of() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    files = {"LICENSE", "README.md", "pyproject.toml", "setup.cfg"}
    assert kept == {"dist/*.whl", "tarkit", *FOLDERS.values()} | files
    assert all((ROOT / name).exists() for name in kept - {"dist/*.whl"})


def test_the_user_is_that_of_the_pods() -> None:
    (user, group) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[-1]
    text = (ROOT / "k8s_templates" / "indexed.yaml").read_text(encoding="utf-8")
    assert (re.findall(r"runAsUser: (\d+)", text), re.findall(r"runAsGroup: (\d+)", text)) == ([user], [group])


def test_arguments_of_the_build_are_on_the_page() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))
    table = dict(re.findall(r"^\| `([A-Z]+)` \| `?([^`|]+?)`? \|", PAGE, re.MULTILINE))
    assert table == {**arguments, "WHEEL": "(none)"} and arguments["WHEEL"] == ""
    assert set(arguments["EXTRAS"].split(",")) <= set(CONFIG["options.extras_require"])
    versions = re.findall(r"\btarkit[:-](\d+\.\d+\.\d+)", DOCKERFILE + PAGE)
    assert versions and set(versions) == {tarkit.__version__}


def test_pages_that_name_the_image_say_how_it_is_made() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
    for name, context in commands():
        # The site puts the help of all verbs on the page of their program.
        texts[f"docs/commands/{name.split()[0]}.md"] += context.command.epilog or ""
    naming = {name: text for name, text in texts.items() if "example.com/etl:1" in text or "example/etl:1" in text}
    assert len(naming) >= 5 and "docs/commands/kubetpl.md" in naming
    without = [name for name, text in naming.items() if not re.search(r"\]\([\w./]*images\.md(#[\w-]+)?\)", text)]
    assert without == [], "link docs/images.md"
