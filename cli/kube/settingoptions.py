"""Flags for settings, shared by all commands of kubetpl that make manifests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tarkit.k8s.settings import FLAG, LIST, PAIRS, TABLE, Setting

from ..shared.program import option_group

F = TypeVar("F", bound=Callable[..., Any])


def setting_options(generator: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of a generator's settings."""
    return option_group(*(_option(each) for each in TABLE.values() if each.applies(generator)))


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
    click.option(
        "-l", "--config", metavar="FILE", multiple=True, help="Read settings from this file, too; the last one wins."
    ),
    click.option("--template", metavar="FILE", help="Fill this manifest instead of tarkit's own."),
    click.option(
        "--set",
        "assignments",
        metavar="PATH=VALUE",
        multiple=True,
        help="Set any field of the manifest, such as spec.suspend=true.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["yaml", "json"]),
        default="yaml",
        show_default=True,
        help="Format of the output.",
    ),
)
"""Options for the sources of settings and templates, final changes, and the format of the output.
"""
