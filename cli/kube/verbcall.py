"""The options of a verb of tarkit on a command line of kubetpl, passed on byte for byte.

They are those of the verb's own command, which checks them as it does in a pod.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import click

from tarkit.k8s.settings import VerbCall

from ..shared.sections import LongHelp

_OF_PODS = ("--parallel", "--stage", "--slice", "--wait", "--outdir", "--allow-pipe")
"""Options that kubetpl gives to the pods itself, or that no pod can have."""
_OF_ONE_PROCESS = (
    *("--dry-run", "--force", "--json", "--quiet", "--verbose", "--version"),
    *("--block", "--buffer"),
)  # fmt: skip
"""Options that have no effect in a stage, or do not go with stages."""
_WORK, _SHARDS = "--work", "--shards"
_TYPED = f"{__name__}.typed"
_BETWEEN = "\0"
"""Argument between the two sides of the inputs, where a verb has two."""


class _TypedOptions(LongHelp):
    """A command that keeps the values of its options as they were typed."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = parse(args=args)
            ctx.meta[_TYPED] = dict(found[0])
            return found

        parser.parse_args = parse_args
        return parser


def verb_class(verb: str) -> type[click.Command]:
    """Return the class of a command with the arguments of a verb."""
    own = type(_command(verb))
    # A verb may parse its arguments in its own way.
    return type("VerbOptions", (_TypedOptions,) if own in _TypedOptions.__mro__ else (_TypedOptions, own), {})


def verb_parameters(verb: str) -> list[click.Parameter]:
    """Return the inputs and options of a verb, without those that differ between its pods."""
    found = [*map(copy.copy, _passed(verb))]
    for each in found:
        if each.name == "inputs":
            # That they are missing is said as of all else that a manifest needs.
            each.required = False
    return found


def verb_call(verb: str, context: click.Context) -> VerbCall:
    """Return the arguments of a verb on a parsed command line."""
    sides: list[list[str]] = [[]]
    for word in context.params["inputs"]:
        if word == _BETWEEN:
            sides.append([])
        else:
            sides[-1].append(word)
    typed, words = context.meta[_TYPED], list[str]()
    known: dict[str, Any] = {}
    for each in _passed(verb):
        known |= dict.fromkeys(each.opts, context.params[str(each.name)])
        if isinstance(each, click.Option) and each.name in typed and _WORK not in each.opts:
            words += _words(each, typed[each.name])
    return VerbCall(verb, tuple(words), tuple(map(tuple, sides)), known.get(_WORK), known.get(_SHARDS))


def _command(verb: str) -> click.Command:
    found: click.Command = importlib.import_module(f"...verbs.{verb}", __name__).command
    return found


def _passed(verb: str) -> list[click.Parameter]:
    left_out = {*_OF_PODS, *_OF_ONE_PROCESS}
    return [each for each in _command(verb).params if left_out.isdisjoint(each.opts)]


def _words(option: click.Option, value: Any) -> Iterator[str]:
    """Yield the words of an option with a value that the parser has found."""
    name = max(option.opts, key=len)
    if option.is_flag:
        off = max(option.secondary_opts, key=len, default=name)
        yield name if value in (True, option.flag_value) else off
        return
    for each in value if option.multiple else [value]:
        if name.startswith("--"):
            # As one word, a value may begin with a dash.
            yield f"{name}={each}"
        else:
            yield from (name, str(each))
