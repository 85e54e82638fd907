"""The commands of kubetpl that print manifests: one for each generator, and for each template of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_USAGE, UsageError, printable
from tarkit.k8s.settings import GENERATORS

from ..shared.program import say, verbose_option, version_option, write_stdout
from ..shared.sections import LongHelp
from .manifestfile import accepted, findings_of
from .settingoptions import asked, print_options, setting_options, shown, switch_options

if TYPE_CHECKING:
    from tarkit.k8s.generate import Asked


def generator_command(generator: str) -> click.Command:
    """The command of a generator, or of a template that is called so."""
    from tarkit.k8s.generate import generator_of

    about, example, _, form, _ = generator_of(generator)

    @click.command(
        generator,
        cls=LongHelp,
        help=f"{about}\n\nWhat is not set stays as the template has it. Only YAML goes to standard output.",
        epilog=f"\b\nExample:\n  {example}" if example else "",
    )
    @click.argument("words", metavar=form, nargs=-1, type=click.UNPROCESSED)
    @setting_options(generator if generator in GENERATORS else "job")
    @switch_options
    @print_options
    @verbose_option
    @version_option
    def command(
        words: tuple[str, ...], kube_version: str, no_lint: bool, print_config: bool, output: str, verbose: bool,
        **options: Any,
    ) -> int:  # fmt: skip
        if words and not form:
            raise UsageError(f"{words[0]}: kubetpl {generator} takes options only")
        request = asked(generator, options, list(words))
        if print_config:
            text = shown(request.configuration)
        else:
            documents = request.documents(partial(say, "kubetpl"))
            if not no_lint and not accepted(findings_of(documents, kube_version, request.from_outside)):
                return EXIT_USAGE
            from tarkit.k8s.yamltext import dump_documents, dump_json

            text = dump_documents(documents) if output == "yaml" else dump_json(documents)
        write_stdout(text.encode("utf-8"))
        return EXIT_OK

    return command


def asked_for(words: Sequence[str]) -> Asked:
    """What the rest of a command line asks for: a generator's name and its arguments, as ``kubetpl`` takes them."""
    if not words or words[0] not in GENERATORS:
        got = f"; got {printable(words[0])!r}" if words else ""
        raise UsageError(f"name what is to be made, and its options: one of {', '.join(GENERATORS)}{got}")
    with generator_command(words[0]).make_context(words[0], list(words[1:])) as context:
        options = dict(context.params)
    return asked(words[0], options, list(options.pop("words")))
