"""Flags, environment and files into settings: what all commands of kubetpl that make manifests share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import printable
from tarkit.k8s.settings import FLAG, LIST, PAIRS, TABLE, Setting

from ..shared.program import option_group

if TYPE_CHECKING:
    from tarkit.k8s.configuration import Configuration

F = TypeVar("F", bound=Callable[..., Any])


def template_folders(path: str | None) -> list[str]:
    """Where templates are looked for: the folders of ``--path A:B``, else the usual ones."""
    from tarkit.k8s.templates import FOLDERS

    return list(FOLDERS) if path is None else [folder for folder in path.split(":") if folder]


def setting_options(generator: str | None) -> Callable[[F], F]:
    """The flags of a generator's settings; of all settings, if it is None."""

    return option_group(*(_option(each) for each in TABLE.values() if generator is None or each.applies(generator)))


def _option(setting: Setting) -> Callable[[F], F]:
    arguments: dict[str, Any] = {"help": setting.help, "default": None}
    if setting.kind == FLAG:
        arguments.update(is_flag=True, flag_value=True, type=click.BOOL)
    elif setting.choices:
        arguments["type"] = click.Choice(setting.choices)
    else:
        arguments.update(type=str, metavar=setting.metavar, multiple=setting.kind in (LIST, PAIRS))
    return click.option(*setting.flags, setting.name, **arguments)


switch_options = option_group(
    click.option("-l", "--config", metavar="FILE", multiple=True, help="Settings from this file; later ones win."),
    click.option("--profile", metavar="NAME", help="Settings of this profile of the configuration files."),
    click.option("--template", metavar="FILE", help="Fill this manifest instead of tarkit's own."),
    click.option("--path", metavar="A:B", help="Folders in which templates are looked for by name."),
    click.option(
        "--set", "assignments", metavar="PATH=VALUE", multiple=True, help="Set any field, such as spec.suspend=true."
    ),
    click.option("--reset", metavar="SETTING", multiple=True, help="Of this one, only the command line counts."),
    click.option("--compat-lists", is_flag=True, help="A list given here replaces that of the files."),
    click.option("--unique", is_flag=True, help="Add something to the name that it never had before."),
)
"""Where settings and templates come from, and what is changed at last."""
print_options = option_group(
    click.option("--print-config", "--print_config", is_flag=True, help="Print what is set, and by what, instead."),
    click.option(
        "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Format."
    ),
)
"""What is printed, and in which format."""


def settings_text(configuration: Configuration) -> str:
    """All settings that were given, as YAML that ``--config`` reads again, each with its source."""
    from tarkit.k8s.yamltext import dump_documents

    lines = []
    for name, value in configuration.settings.asked().items():
        origins = configuration.origins[name]
        if not isinstance(value, (list, dict)):
            lines += _commented(dump_documents([{name: value}]), origins[""])
            continue
        lines.append(f"{name}:")
        for key, entry in value.items() if isinstance(value, dict) else [(each, each) for each in value]:
            text = dump_documents([{"x": {key: entry} if isinstance(value, dict) else [entry]}])
            lines += _commented(re.sub(r"\Ax:\n", "", text), origins[key])
    if configuration.price:
        lines += dump_documents([{"price": configuration.price}]).splitlines()
    return "".join(f"{line}\n" for line in lines) or "# nothing is set; the templates stay as they are\n"


def _commented(text: str, origin: str) -> list[str]:
    """The lines of a value; a block cannot have a comment inside, so it is above."""
    # Not splitlines: other ends of lines may be inside a block.
    lines = text.removesuffix("\n").split("\n")
    origin = printable(origin)
    if len(lines) == 1:
        return [f"{lines[0]}  # {origin}"]
    return [f"# {origin}", *lines]
