"""``tarkit zoo init|build|push``: make an image with a model zoo in it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

import click

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, EXIT_OK, CommandNotRunnableError, UsageError

from ..shared.program import say, standard_options, version_option

_NAME = "tarkit zoo"


@click.group(
    "zoo",
    epilog="""\b
Examples:
  tarkit zoo init --model_zoo model_zoo
  tarkit zoo build --image registry.example.com/zoo:1 .
  tarkit zoo push registry.example.com/zoo:1
""",
)
@version_option
def command() -> None:
    """Put a model zoo, a folder of trainers, into an image for kubetpl train."""


@command.command("init", epilog="\b\nExample:\n  tarkit zoo init --model_zoo model_zoo --local_pkg_dir wheels")
@click.option(
    "--base_image",
    metavar="IMAGE",
    help="Image to build on; it has Python and pip.  [default: tarkit's own image, tarkit:VERSION]",
)
@click.option("--extra_pypi_index", metavar="URL", help="Package index with tarkit and other requirements.")
@click.option("--local_pkg_dir", metavar="DIR", help="Folder of wheels to install, tarkit's among them.")
@click.option("--model_zoo", metavar="DIR", default=".", show_default=True, help="Folder to copy to /model_zoo.")
@click.option("--force", is_flag=True, help="Overwrite a Dockerfile that differs.")
@standard_options
def _init(
    base_image: str | None, extra_pypi_index: str | None, local_pkg_dir: str | None,
    model_zoo: str, force: bool, verbose: bool,
) -> int:  # fmt: skip
    """Write ./Dockerfile, and a requirements file into the model zoo if it has none.

    The image contains tarkit with the shard service, from --local_pkg_dir, from --extra_pypi_index,
    or from the base image.
    """
    import tarkit
    from tarkit.elasticdl.zoo import zoo_files

    made = zoo_files(
        Path(), model_zoo=model_zoo, base_image=f"tarkit:{tarkit.__version__}" if base_image is None else base_image,
        version=tarkit.__version__, extra_pypi_index=extra_pypi_index, local_pkg_dir=local_pkg_dir,
    )  # fmt: skip
    dockerfile = Path("Dockerfile")
    if not force and dockerfile.exists() and dockerfile.read_bytes() != made.dockerfile.encode():
        raise UsageError("Dockerfile is there, and is another; --force replaces it")
    for path, text in ((made.requirements, "# What the trainers need, a line each.\n"), (dockerfile, made.dockerfile)):
        if path is dockerfile or not path.exists():
            path.write_text(text, encoding="utf-8")
            say(_NAME, f"wrote {path}")
    return EXIT_OK


_engine_option = click.option(
    "--engine", type=click.Choice(["docker", "podman", "buildah"]), help="[default: the first that is here]"
)
_more_argument = click.argument("more", nargs=-1, metavar="[-- ENGINE_ARGS...]", type=click.UNPROCESSED)


@command.command("build", epilog="\b\nExample:\n  tarkit zoo build --image registry.example.com/zoo:1 . -- --no-cache")
@click.argument("path", metavar="PATH")
@click.option("--image", metavar="NAME", required=True, help="Name of the image.")
@_engine_option
@_more_argument
@standard_options
def _build(path: str, image: str, engine: str | None, more: tuple[str, ...], verbose: bool) -> NoReturn:
    """Build the Dockerfile in the folder PATH.

    The exit code is that of the container engine; 66: the Dockerfile is missing; 127: no container
    engine is installed.
    """
    from tarkit.elasticdl import zoo

    _become(zoo.build_command(engine or zoo.find_engine(), path, image, more))


@command.command("push", epilog="\b\nExample:\n  tarkit zoo push registry.example.com/zoo:1")
@click.argument("image", metavar="IMAGE")
@_engine_option
@_more_argument
@standard_options
def _push(image: str, engine: str | None, more: tuple[str, ...], verbose: bool) -> NoReturn:
    """Push an image to its registry, with the container engine's login.

    The exit code is that of the container engine; 127: no container engine is installed.
    """
    from tarkit.elasticdl import zoo

    _become(zoo.push_command(engine or zoo.find_engine(), image, more))


def _become(words: list[str]) -> NoReturn:
    """Replace this process by a container engine: signals and the exit code are its own.

    Its output goes to standard error.
    """
    # A timer outlives exec, and would end the engine.
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.dup2(2, 1)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN
        raise CommandNotRunnableError(f"{words[0]} cannot be run: {error.strerror}", code) from None
