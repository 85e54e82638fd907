"""An image with a model zoo: its Dockerfile, and the commands that build and push it.

A model zoo is a folder of trainers.

The image has tarkit with its extra ``service``, and the folder at ``/model_zoo``; with ``/`` as the
working folder, ``python -m model_zoo.iris.train`` runs a trainer of it. The arguments are those of
``elasticdl zoo``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tarkit.errors import EXIT_NOT_FOUND, CommandNotRunnableError, MissingInputError, UsageError, printable

ENGINES = ("docker", "podman", "buildah")
"""Container engines, in the order of preference."""

_IMAGE = re.compile(r"[\w][\w.:/@+-]*", re.ASCII)
_INDEX = re.compile(r"https?://[^\s\\'\"/?#]+(/[\w.~+%@:/-]*)?", re.ASCII)
"""Pattern of a URL without a query, since a query may be a token."""
_PATH = re.compile(r"[\w.,+@=/ -]+")
"""Pattern of names without characters that have a meaning in a Dockerfile."""


class ZooFiles(NamedTuple):
    """The files from which the image of a model zoo is built.

    Attributes:
        dockerfile: the text of the Dockerfile.
        requirements: the requirements file, a path below the folder of the build.
    """

    dockerfile: str
    requirements: Path


def zoo_files(
    folder: Path, *, model_zoo: str = ".", base_image: str, version: str, extra_pypi_index: str | None = None,
    local_pkg_dir: str | None = None,
) -> ZooFiles:  # fmt: skip
    """Make the Dockerfile that ``tarkit zoo init`` writes, for a build in ``folder``.

    Args:
        model_zoo, local_pkg_dir: below ``folder``, because a build sees nothing else.
        base_image: an image with Python and pip, and with tarkit unless ``extra_pypi_index`` or
            ``local_pkg_dir`` is given.
        version: version of tarkit to install from ``extra_pypi_index``.
        local_pkg_dir: all wheels in it are installed, tarkit's among them.

    Raises:
        UsageError: a name that cannot be in a Dockerfile, a path outside, wheels without tarkit's,
            or a password in the URL, which anyone could read in the image.
        MissingInputError: a path is not there.
    """
    if not _IMAGE.fullmatch(base_image):
        raise UsageError(f"--base_image {printable(base_image)!r} is not an image's name, such as python:3.12-slim")
    zoo = _below(folder, model_zoo, "--model_zoo", os.path.isdir)
    pip = f"python3 -m pip install --no-cache-dir{_index_option(extra_pypi_index)}"
    requirements = (PurePosixPath(zoo) / "requirements.txt").as_posix()
    steps = [
        *_package_steps(folder, version, pip, local_pkg_dir, indexed=extra_pypi_index is not None),
        # The requirements first: a change of a trainer does not install them again.
        _copy(requirements, "/model_zoo/"),
        f"RUN {pip} -r /model_zoo/requirements.txt",
        _copy(zoo, "/model_zoo/"),
    ]
    text = "\n".join(
        [
            "# Made by tarkit zoo init. Build it with: tarkit zoo build --image NAME .",
            f"FROM {base_image}",
            "USER root",
            *steps,
            "ENV PYTHONUNBUFFERED=1",
            "# python -m model_zoo.NAME finds the trainers from here.",
            "WORKDIR /",
            "# The user of the pods that kubetpl prints.",
            "USER 65532:65532",
        ]
    )
    return ZooFiles(f"{text}\n", folder / requirements)


def _package_steps(folder: Path, version: str, pip: str, local: str | None, *, indexed: bool) -> Iterator[str]:
    """Yield the lines of the Dockerfile that install tarkit and its service.

    Args:
        pip: the command that installs.
    """
    if local is not None:
        local = _below(folder, local, "--local_pkg_dir", os.path.isdir)
        wheels = sorted(path.name for path in (folder / local).glob("*.whl"))
        if sum(name.startswith("tarkit-") for name in wheels) != 1:
            raise UsageError(
                f"--local_pkg_dir {local} needs one wheel of tarkit, and has {', '.join(wheels) or 'no wheel'}; "
                f"in tarkit's sources: pip wheel --no-deps -w {shlex.quote(local)} ."
            )
        paths = [_below(folder, f"{local}/{name}", "--local_pkg_dir", os.path.isfile) for name in wheels]
        yield _copy(*paths, "/wheels/")
        found = [f"/wheels/{name}[service]" if name.startswith("tarkit-") else f"/wheels/{name}" for name in wheels]
        yield f"RUN {pip} {shlex.join(found)} && rm -r /wheels"
    elif indexed:
        yield f"RUN {pip} {shlex.quote(f'tarkit[service]=={version}')}"
    else:
        # Not from PyPI, where a package of this name could be anyone's.
        yield "# tarkit and its service are in the base image, or the build ends here."
        yield "RUN python3 -c 'import tarkit.service.serve, google.protobuf, grpc, prometheus_client'"


def _index_option(url: str | None) -> str:
    if url is None:
        return ""
    if not _INDEX.fullmatch(url):
        raise UsageError("--extra_pypi_index is not a URL such as https://pypi.example.com/simple")
    if "@" in url.split("/")[2]:
        raise UsageError(
            "--extra_pypi_index has a password, which anyone could read in the image; "
            "put the URL into a pip.conf, and give that to the build: docs/images.md"
        )
    return f" --extra-index-url={shlex.quote(url)}"


def _copy(*paths: str) -> str:
    return f"COPY {json.dumps(paths, ensure_ascii=False)}"


def _below(folder: Path, path: str, option: str, is_right: Callable[[Path], bool]) -> str:
    """Return the path by which a Dockerfile in ``folder`` names a file or folder."""
    if not _PATH.fullmatch(path):
        raise UsageError(f"{option} {printable(path)!r}: a Dockerfile cannot name it; rename it")
    relative = Path(os.path.relpath(os.path.realpath(folder / path), os.path.realpath(folder)))
    if relative.parts[:1] == ("..",):
        raise UsageError(f"{option} {path} is outside of the folder of the Dockerfile, and a build sees nothing else")
    if not is_right(folder / relative):
        kind = "file" if is_right is os.path.isfile else "folder"
        raise MissingInputError(f"{option}: it is not a {kind}, or is not there", url=path)
    return relative.as_posix()


def find_engine() -> str:
    """Find the first of ``ENGINES`` that is installed.

    Raises:
        CommandNotRunnableError: none is installed (exit code 127).
    """
    found = next(filter(shutil.which, ENGINES), None)
    if found is None:
        raise CommandNotRunnableError("no container engine: install docker, podman or buildah", EXIT_NOT_FOUND)
    return found


def build_command(engine: str, folder: str, image: str, more: Sequence[str] = ()) -> list[str]:
    """Make the command that builds the Dockerfile of a folder.

    Args:
        more: further arguments of the engine.

    Raises:
        UsageError: the image has an invalid name.
        MissingInputError: the folder has no Dockerfile.
    """
    _image_name(image)
    dockerfile = os.path.join(folder, "Dockerfile")
    if not os.path.isfile(dockerfile):
        raise MissingInputError("no such file; tarkit zoo init writes one", url=dockerfile)
    if folder.startswith("-"):  # else an option of the engine
        folder, dockerfile = os.path.join(".", folder), os.path.join(".", dockerfile)
    return [engine, "build", "-t", image, "-f", dockerfile, *more, folder]


def push_command(engine: str, image: str, more: Sequence[str] = ()) -> list[str]:
    """Make the command that pushes an image to its registry.

    Raises:
        UsageError: the image has an invalid name.
    """
    _image_name(image)
    return [engine, "push", *more, image]


def _image_name(image: str) -> None:
    if not _IMAGE.fullmatch(image):
        raise UsageError(f"{printable(image)!r} is not an image's name, such as registry.example.com/zoo:1")
