"""The commands of kubetpl that print manifests: one for each generator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, UsageError, printable
from tarkit.k8s.settings import GENERATORS, TABLE

from ..shared.program import say, standard_options, write_stdout
from ..shared.sections import LongHelp
from .settingoptions import setting_options, switch_options

if TYPE_CHECKING:
    from tarkit.k8s.generate import Asked


def generator_command(generator: str) -> click.Command:
    """Return the command of a generator."""
    from tarkit.k8s.generate import generator_of

    about, example, _, form, _ = generator_of(generator)

    @click.command(
        generator,
        cls=LongHelp,
        help=f"{about}\n\nFields without an option keep the template's values. Only the manifest is printed on stdout.",
        epilog=f"\b\nExample:\n  {example}",
    )
    @click.argument("words", metavar=form, nargs=-1, type=click.UNPROCESSED)
    @setting_options(generator)
    @switch_options
    @standard_options
    def command(words: tuple[str, ...], output: str, verbose: bool, **options: Any) -> int:
        if words and not form:
            raise UsageError(f"{words[0]}: kubetpl {generator} takes options only")
        request = asked(generator, list(words), **options)
        documents = request.documents(partial(say, "kubetpl"))
        from tarkit.k8s.yamltext import dump_documents, dump_json

        text = dump_documents(documents) if output == "yaml" else dump_json(documents)
        write_stdout(text.encode("utf-8"))
        return EXIT_OK

    return command


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
        options = {name: value for name, value in context.params.items() if name != "words"}
        return asked(words[0], list(context.params["words"]), **options)
