"""Writes ``docs/api.md`` and the pages of ``docs/cli`` from the programs and docstrings themselves.

``python docs/document.py [--check] docs`` writes them, or with ``--check`` reports which of them
are out of date, and exits with 1.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import click
from tarkit.cli.shared.program import run_program, say
from tarkit.cli.shared.sections import sections

import tarkit
from tarkit import errors
from tarkit.errors import EXIT_FAILED, EXIT_OK, MissingInputError

_NAME = "python docs/document.py"
_ANNOTATION = re.compile(r"(:|->) (?:ForwardRef\('([^']*)'\)|'([^']*)')")
_PUBLIC = {
    "tarkit.runs.work": "Work",
    "tarkit.runs.counts": "Counts",
    "tarkit.runs.engine": "Reporter",
    "tarkit.runs.process": "ShardsFailedError EmptyResultError",
    "tarkit.runs.account": "TooManyErrorsError",
    "tarkit.store.read": "open_read",
    "tarkit.store.publish": "open_publish",
    "tarkit.store.cache": "PartCache",
    "tarkit.readers.create": "create_data_reader custom_data_reader",
    "tarkit.readers.reader": "AbstractDataReader Shard Task TaskShard shards_of",
    "tarkit.samples.index": "IndexedMember ShardIndex build_index count_of_index decode_index publish_index",
    "tarkit.specs.manifest": "ManifestShard compare_manifest read_manifest write_manifest",
    "tarkit.samples.indexedshard": "IndexedShard open_indexed",
    "tarkit.formats.recordio": "RecordIndex RecordWriter read_index read_records",
    "tarkit.formats.pyrecordio": "Index Scanner Writer",
    "tarkit.formats.tfrecord": "RecordWriter read_records",
    "tarkit.formats.example": "BytesList decode_example encode_example",
    "tarkit.formats.sequencefile": "PairWriter header_of read_index read_pairs",
    "tarkit.formats.har": "HarArchive HarWriter",
    "tarkit.service.client": "ShardClient DataSet HeldShard NoShard ServedRecord acknowledge read_shards "
    "served_records",
    "tarkit.elasticdl": "build_data_shard_service DataShardService RecordIndexService",
    "tarkit.trainers.torch": "ShardDataset ShardLoader dataset_state",
    "tarkit.trainers.webdataset": "WebDataset tarfile_to_samples",
    "tarkit.trainers.tensorflow": "TensorBatches ReportBatchDone",
    "tarkit.trainers.lasterror": "release_at_exit",
    "tarkit.trainers.source": "BatchSource",
    "tarkit.trainers.loader": "EpochLoader",
    "tarkit.trainers.shardmap": "ShardMap",
    "tarkit.trainers.order": "EpochOrder OrderSettings Place",
    "tarkit.world": "Consumer consumer",
    "tarkit.steps.convert": "Encoding VerifyError convert",
}
"""What is public beside ``tarkit`` itself: module -> names."""
_ROLE = re.compile(r":\w+:`~?(?:tarkit\.(?:\w+\.)*)?(\w+)`")


def programs() -> dict[str, click.Command]:
    """All programs by name."""
    from tarkit.cli.kubetpl import kubetpl
    from tarkit.cli.tarkit import tarkit
    from tarkit.cli.tarproc import tarproc

    return {"kubetpl": kubetpl, "tarkit": tarkit, "tarproc": tarproc}


def commands() -> Iterator[tuple[str, click.Context]]:
    """(name as typed, context) of all programs and of all their verbs."""
    for name, program in programs().items():
        yield from _with_verbs(name, click.Context(program, info_name=name, **program.context_settings))


def _with_verbs(name: str, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield name, context
    command = context.command
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                yield from _with_verbs(f"{name} {verb}", click.Context(found, info_name=verb, parent=context))


def pages() -> dict[str, str]:
    """Each page's path below ``docs`` -> its text."""
    made = {f"cli/{name.replace(' ', '-')}.md": _page(name, context) for name, context in commands()}
    lines = ["# Commands", "", "Made from the programs' own help; the same texts come with `--help`.", ""]
    for name, context in commands():
        lines.append(f"- [`{name}`]({name.replace(' ', '-')}.md): {context.command.get_short_help_str(200)}")
    return {"api.md": _api_page(), "cli/README.md": "\n".join(lines) + "\n", **made}


def _page(name: str, context: click.Context) -> str:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    blocks = [f"# {name}", f"```text\n{name} {usage}\n```", *_prose(command.help or "")]
    shown = sections(command, context)
    blocks.append("## Options")
    for heading, records in shown:
        blocks += [f"### {heading}"] if len(shown) > 1 else []
        blocks.append("\n".join(f"- `{names}`: {_inline(' '.join(text.split()))}" for names, text in records))
    if isinstance(command, click.Group):
        verbs = [(verb, command.get_command(context, verb)) for verb in command.list_commands(context)]
        blocks.append("## Verbs")
        page = name.replace(" ", "-")
        lines = [f"- [`{verb}`]({page}-{verb}.md): {found.get_short_help_str(200)}" for verb, found in verbs if found]
        blocks.append("\n".join(lines))
    blocks += _prose(command.epilog or "")
    if "/etl:1" in (command.epilog or ""):
        blocks.append("[How to make the image](../images.md).")
    blocks.append("Exit codes are [the same for all programs](../exit-codes.md).")
    return "\n\n".join(blocks) + "\n"


def _prose(text: str) -> list[str]:
    """Paragraphs as Markdown; those that click leaves unwrapped become blocks of text."""
    blocks = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if not paragraph.strip():
            continue
        if not paragraph.startswith("\b"):
            blocks.append(_inline(paragraph))
            continue
        lines = paragraph.partition("\n")[2].splitlines()
        if lines and lines[0].endswith(":"):
            blocks.append(f"## {lines.pop(0)[:-1]}")
            blocks.append("```sh\n" + "\n".join(line.removeprefix("  ") for line in lines) + "\n```")
        else:
            blocks.append(_inline("\n".join(lines)))
    return blocks


def _inline(text: str) -> str:
    """Text in which Markdown sees no markup."""
    return re.sub(r"([*_<\[\]|`])", r"\\\1", text)


def _api_page() -> str:
    """The page, in Markdown."""
    blocks = [
        "# Python API",
        "Made from the docstrings by `python docs/document.py docs`. What is on this page is public; every other "
        "module and name may change without notice.",
    ]
    for name in tarkit.__all__:
        blocks += _api_entry(name, getattr(tarkit, name), "##")
    for module, names in _PUBLIC.items():
        blocks.append(f"## {module}")
        for name in names.split():
            blocks += _api_entry(name, getattr(_module(module), name), "###")
    blocks += ["## Errors", "All of them are in `tarkit.errors`; `exit_code` is what a program ends with."]
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.TarkitError)]
    rows = [f"| `{each.__name__}` | {each.exit_code} | {_first_line(each)} |" for each in raised]
    blocks.append("\n".join(["| error | exit code | when |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def _module(name: str) -> Any:
    """A module; that of a trainer is on the page of a machine without its library, too."""
    if not name.endswith((".torch", ".tensorflow", ".webdataset")):
        return importlib.import_module(name)
    data, tensorflow = types.ModuleType("torch.utils.data"), types.ModuleType("tensorflow")
    data.IterableDataset = object  # type: ignore[attr-defined]
    callbacks = types.SimpleNamespace(callbacks=types.SimpleNamespace(Callback=object))
    tensorflow.keras = callbacks  # type: ignore[attr-defined]
    webdataset = types.ModuleType("webdataset")
    webdataset.WebDataset = object  # type: ignore[attr-defined]
    known = {"torch": types.ModuleType("torch"), "webdataset": webdataset, "tensorflow": tensorflow}
    with mock.patch.dict(sys.modules, {**known, "torch.utils.data": data}):
        return importlib.import_module(name)


def _api_entry(name: str, found: Any, heading: str) -> Iterator[str]:
    yield f"{heading} {name}"
    # In Python 3.10, an alias such as dict[str, Any] is taken for a class.
    if isinstance(found, types.GenericAlias) or not (inspect.isclass(found) or inspect.isfunction(found)):
        yield f"```python\n{name} = {found}\n```"
        yield _text(_alias_text(name))
        return
    if found.__name__ != name:
        yield f"Another name of `{found.__name__}`."
        return
    yield f"```python\n{_signature(name, found)}\n```"
    yield _text(inspect.getdoc(found) or "")
    ours = (
        [each for each in inspect.getmro(found) if each.__module__.startswith("tarkit.")]
        if inspect.isclass(found)
        else []
    )
    for method in dict.fromkeys(method for each in ours for method in vars(each)):
        each = inspect.getattr_static(found, method)
        if isinstance(each, classmethod):
            each = getattr(found, method)
        if method.startswith("_") or method in getattr(found, "__dataclass_fields__", ()):
            continue
        is_value = isinstance(each, (property, functools.cached_property))
        if inspect.isroutine(each) or is_value:
            shown = method if is_value else _signature(method, each)
            yield f"{heading}# {name}.{method}\n\n```python\n{shown}\n```"
            yield _text(inspect.getdoc(each) or "")


def _signature(name: str, found: Any) -> str:
    """As it would be written; an exception has none of its own."""
    if inspect.isclass(found) and issubclass(found, Exception):
        return f"class {name}({', '.join(each.__name__ for each in found.__bases__)})"
    signature = inspect.signature(found)
    parameters = [
        each if each.default is each.empty else each.replace(default=_Default(each.default))
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    shown = str(signature.replace(parameters=parameters))
    return name + _ANNOTATION.sub(r"\1 \2\3", shown)


class _Default:
    """What a parameter is by default: a plain value, the name of a function, or of a class."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, (str, bytes, int, float, tuple, type(None))):
            return repr(value)
        if inspect.isfunction(value) and value.__name__.isidentifier():
            return value.__name__
        return f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else "..."


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


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder")
@click.option("--check", is_flag=True, help="Write nothing; report what is out of date, and exit with 1.")
def document(folder: str, check: bool) -> int:
    """Write the page of the API and those of the commands into FOLDER."""
    place = Path(folder)
    if not place.is_dir():
        raise MissingInputError("is not a folder", url=folder)
    wanted = pages()
    wrong = [name for name, text in wanted.items() if not _is(place / name, text)]
    wrong += sorted(name for path in place.glob("cli/*.md") if (name := f"cli/{path.name}") not in wanted)
    if check:
        for name in wrong:
            say(_NAME, f"{place / name} is out of date; run {_NAME} {folder}")
        return EXIT_FAILED if wrong else EXIT_OK
    for name in wrong:
        if name in wanted:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(wanted[name], encoding="utf-8")
        else:
            (place / name).unlink()
        say(_NAME, f"{place / name} {'written' if name in wanted else 'removed'}")
    return EXIT_OK


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_program(document, _NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
