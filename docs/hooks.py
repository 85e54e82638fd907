"""The parts of the site that its plugins leave out: pages outside `docs/`, sections of options,
links of notebooks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

import click
import griffe
import mkdocs_click._docs as commands
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tarkit.cli.shared.sections import sections

from tarkit import errors

_ROOT = Path(__file__).resolve().parent.parent
_FILES = ("*.md", "Dockerfile", "docs/**/*", "benchmarks/README.md", "notebooks/*.ipynb")
_anchors: list[tuple[str, File, str]] = []


@event_priority(100)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of `docs/` by those below the top, so that a relative link works here and
    on a code host.
    """
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted({path for pattern in _FILES for path in _ROOT.glob(pattern)}):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            name = path.relative_to(_ROOT).as_posix()
            files.append(File(name, str(_ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link a notebook to pages, not to their sources; show no list of pages beside the home page,
    which has none.
    """
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def link(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        target = files.get_file_from_path(normpath(join(dirname(page.file.src_uri), path)))
        if target is None:
            raise PluginError(f"{page.file.src_uri} has a link to {path}, which is not a file of the site")
        if anchor:
            _anchors.append((page.file.src_uri, target, anchor))
        return f'href="{target.url_relative_to(page.file)}{mark}{anchor}"'

    return re.sub(r'href="(?!\w+:|#)([^"]+)"', link, html)


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Look for the anchors of notebooks, which MkDocs does not check."""
    for name, target, anchor in _anchors:
        if target.page is None or f'id="{anchor}"' not in (target.page.content or ""):
            raise PluginError(f"{name} has a link to #{anchor}, which {target.src_uri} does not have")


def _description(context: click.Context, remove_ascii_art: bool = False) -> Iterator[str]:
    yield from _prose(context.command.help or "")


def _options(context: click.Context, style: str, show_hidden: bool = False) -> Iterator[str]:
    """Options under the headings of `--help`, and the text that follows them there."""
    for heading, records in sections(context.command, context):
        yield from (f"**{heading}:**", "")
        for names, text in records:
            yield from (f"`{names}`", f":   {_plain(' '.join(text.split()))}", "")
    yield from _prose(context.command.epilog or "")


def _prose(text: str) -> Iterator[str]:
    """Paragraphs of help as Markdown; the lines below a heading such as `Examples:` are a block of
    code.
    """
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        heading, _, rest = paragraph.removeprefix("\b\n").partition("\n")
        if paragraph.startswith("\b") and heading.endswith(":"):
            yield from (f"**{heading}**", "", "```sh", *inspect.cleandoc(rest).splitlines(), "```", "")
        else:
            yield from (*_plain(paragraph.removeprefix("\b\n")).splitlines(), "")


def _plain(text: str) -> str:
    """Text in which Markdown sees no markup, but for the names of options."""
    found = r"(?<![\w-])--?[A-Za-z][\w-]*|[\\`*_{}\[\]|#<]"
    return re.sub(found, lambda each: f"`{each[0]}`" if each[0][0] == "-" else f"&#{ord(each[0])};", text)


# Of mkdocs-click 0.9: it has no sections and no epilog, and takes help for Markdown.
for _name, _function in (("_make_description", _description), ("_make_options", _options)):
    assert callable(getattr(commands, _name)), f"mkdocs-click has no {_name} any more"
    setattr(commands, _name, _function)


class Docstrings(griffe.Extension):
    """Roles and examples outside a section of their own become code; an error has its exit code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r":\w+:`~?(?:tarkit\.(?:\w+\.)*)?(\w+)`", r"`\1`", obj.docstring.value)
            text = re.sub(r"(?m)^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", text)
            if obj.is_class and obj.path.startswith("tarkit.errors."):
                text += f"\n\nExit code {getattr(errors, obj.name).exit_code}."
            obj.docstring.value = re.sub(r"(?m)^::$", "", text)
