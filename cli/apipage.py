"""The text of ``docs/api.md``: the signatures and docstrings of what ``import tarkit`` gives."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import tarkit
from tarkit import errors

_PLACE = re.compile(r"<function (\w+) at 0x[0-9a-f]+>")
_ANNOTATION = re.compile(r"(:|->) '([^']*)'")
_ROLE = re.compile(r":\w+:`~?(?:tarkit\.(?:\w+\.)*)?(\w+)`")


def api_page() -> str:
    """The page, in Markdown."""
    blocks = [
        "# Python API",
        "Made from the docstrings by `python -m tarkit.cli.document docs`. What is on this page is public; every other "
        "module and name may change without notice.",
    ]
    for name in tarkit.__all__:
        blocks += _entry(name, getattr(tarkit, name))
    blocks += ["## Errors", "All of them are in `tarkit.errors`; `exit_code` is what a program ends with."]
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.TarkitError)]
    rows = [f"| `{each.__name__}` | {each.exit_code} | {_first_line(each)} |" for each in raised]
    blocks.append("\n".join(["| error | exit code | when |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def _entry(name: str, found: Any) -> Iterator[str]:
    yield f"## {name}"
    if not inspect.isclass(found) and not inspect.isfunction(found):
        yield f"```python\n{name} = {found}\n```"
        yield _text(_alias_text(name))
        return
    yield f"```python\n{_signature(name, found)}\n```"
    yield _text(inspect.getdoc(found) or "")
    for method, each in vars(found).items() if inspect.isclass(found) else ():
        if not method.startswith("_") and (inspect.isfunction(each) or isinstance(each, property)):
            shown = method if isinstance(each, property) else _signature(method, each)
            yield f"### {name}.{method}\n\n```python\n{shown}\n```"
            yield _text(inspect.getdoc(each) or "")


def _signature(name: str, found: Any) -> str:
    """As it would be written; an exception has none of its own."""
    if inspect.isclass(found) and issubclass(found, Exception):
        return f"class {name}({', '.join(each.__name__ for each in found.__bases__)})"
    signature = inspect.signature(found)
    shown = str(signature.replace(parameters=[each for each in signature.parameters.values() if each.name != "self"]))
    return name + _ANNOTATION.sub(r"\1 \2", _PLACE.sub(r"\1", shown))


def _alias_text(name: str) -> str:
    """The string that follows the assignment of a name in the module that defines it."""
    module = sys.modules[f"tarkit.{tarkit._MODULES[name]}"]
    body = ast.parse(inspect.getsource(module)).body
    for node, following in zip(body, body[1:], strict=False):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(following, ast.Expr):
            return str(ast.literal_eval(following.value))
    return ""


def _first_line(found: type) -> str:
    return _ROLE.sub(r"`\1`", (inspect.getdoc(found) or "").partition("\n")[0]).replace("|", "\\|")


def _text(docstring: str) -> str:
    """Docstring as Markdown: lists of arguments keep their lines, and roles become code."""
    paragraphs = []
    for paragraph in _ROLE.sub(r"`\1`", docstring).replace("``", "`").split("\n\n"):
        heading, _, rest = paragraph.partition("\n")
        if heading in ("Args:", "Raises:", "Returns:"):
            paragraphs.append(f"{heading}\n\n```text\n{inspect.cleandoc(rest)}\n```")
        elif all(line.startswith("    ") for line in paragraph.splitlines()):
            paragraphs.append(f"```python\n{inspect.cleandoc(paragraph)}\n```")
        elif paragraph != "::":
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)
