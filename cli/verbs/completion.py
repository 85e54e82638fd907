"""``tarkit completion``: print a shell's completion script for one of the three programs."""

from __future__ import annotations

import click

from ..shared.completion import SHELLS, script
from ..shared.program import standard_options, write_stdout

_PROGRAMS = ("tarproc", "tarkit", "kubetpl")
_EPILOG = """\b
Examples:
  echo 'eval "$(tarkit completion bash)"' >> ~/.bashrc
  echo 'autoload -Uz compinit && compinit; eval "$(tarkit completion zsh)"' >> ~/.zshrc
  mkdir -p ~/.config/fish/completions
  tarkit completion fish > ~/.config/fish/completions/tarkit.fish
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@standard_options
def command(shell: str, verbose: bool) -> None:
    """Print a shell script that completes command lines of tarproc, tarkit and kubetpl.

    SHELL is bash (4.4 or newer), zsh (after compinit) or fish.
    """
    write_stdout("".join(f"{script(shell, name)}\n" for name in _PROGRAMS).encode())
