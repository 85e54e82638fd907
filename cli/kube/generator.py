"""The commands of kubetpl that print manifests: one for each generator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, UsageError, printable
from tarkit.k8s.settings import EXCHANGES, GENERATORS, TABLE

from ..shared.program import say, standard_options, write_stdout
from ..shared.sections import LongHelp
from .settingoptions import setting_options, switch_options
from .verbcall import verb_call, verb_class, verb_parameters

if TYPE_CHECKING:
    from tarkit.k8s.generate import Asked

_KEPT = "Fields without an option keep the template's values. Only the manifest is printed on stdout."
_OF_A_VERB = (
    "The inputs and options of tarkit {0} reach the pods as they are written; tarkit {0} --help explains them. All "
    "Jobs can be applied at once: the pods of a stage wait for the done records of the stage before. " + _KEPT
)


def generator_command(generator: str, about: str = "") -> click.Command:
    """Return the command of a generator.

    Args:
        about: first sentence of its help.
    """
    from tarkit.k8s.generate import generator_of

    found = generator_of(generator)
    is_verb = generator in EXCHANGES

    @setting_options(generator)
    @switch_options
    @standard_options
    def call(output: str, **options: Any) -> int:
        request = _asked_in(generator, click.get_current_context())
        documents = request.documents(partial(say, "kubetpl"))
        from tarkit.k8s.yamltext import dump_documents, dump_json

        text = dump_documents(documents) if output == "yaml" else dump_json(documents)
        write_stdout(text.encode("utf-8"))
        return EXIT_OK

    if not is_verb:
        call = click.argument("words", metavar=found.words, nargs=-1, type=click.UNPROCESSED)(call)
    command = click.command(
        generator,
        cls=verb_class(generator) if is_verb else LongHelp,
        help=f"{about}\n\n{_OF_A_VERB.format(generator) if is_verb else _KEPT}",
        epilog=f"\b\nExample:\n  {found.example}",
    )(call)
    command.params[:0] = verb_parameters(generator) if is_verb else []
    return command


def _asked_in(generator: str, context: click.Context) -> Asked:
    """Return what a parsed command line asks for."""
    from tarkit.k8s.generate import generator_of

    words = list(context.params.get("words", ()))
    if words and not generator_of(generator).words:
        raise UsageError(f"{words[0]}: kubetpl {generator} takes options only")
    verb = verb_call(generator, context) if generator in EXCHANGES else None
    names = [each.name for each in TABLE.values() if each.applies(generator)]
    settings = {name: context.params[name] for name in (*names, "config", "template", "assignments")}
    return replace(asked(generator, words, **settings), verb=verb)


def asked(
    generator: str, words: list[str], *, config: Sequence[str], template: str | None, assignments: tuple[str, ...],
    **settings: Any,
) -> Asked:  # fmt: skip
    """Combine the command line and the configuration files."""
    from tarkit.k8s.configuration import read_settings
    from tarkit.k8s.generate import Asked

    given = {name: settings[name] for name in TABLE if settings.get(name) not in (None, ())}
    found = read_settings(given, _files(config))
    return Asked(generator, found, given, words, template, assignments)


def _files(given: Sequence[str]) -> list[str]:
    """List the configuration files, those of the lowest precedence first."""
    from tarkit.k8s.configuration import FOLDER_FILES

    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    usual = [os.path.join(home, "kubetpl", "config.yaml"), *FOLDER_FILES]
    missing = next((name for name in given if not os.path.exists(name)), None)
    if missing is not None:
        raise UsageError(f"--config {missing}: no such file")
    return [*(name for name in usual if os.path.isfile(name)), *given]


def asked_for(words: Sequence[str]) -> Asked:
    """Parse a generator's name and its arguments, as ``kubetpl`` does."""
    if not words or words[0] not in GENERATORS:
        got = f"; got {printable(words[0])!r}" if words else ""
        raise UsageError(f"name what is to be made, and its options: one of {', '.join(GENERATORS)}{got}")
    with generator_command(words[0]).make_context(words[0], list(words[1:])) as context:
        return _asked_in(words[0], context)
