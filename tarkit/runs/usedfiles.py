"""Files that a run's work uses in addition to its fingerprint, and their digests.

They are the regular files at absolute paths in the command, and the Python modules that its scripts
and its mapper import from beside them. Nothing is run to find them, so what a program opens by
itself is not among them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader

from tarkit.runs.work import Work

UsedFile = dict[str, str]
"""path: absolute. sha256: of the content, in hex. name: of a module of the mapper, its path below
the folder that it was found in, which is the same on machines that have it in different folders.
"""

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run", "/boot"),
    *("/System", "/Library", "/private/etc"),
)
"""Folders of the system: their files change with an installation, and are not recorded."""

_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/)")
_ENDS = r"\s'\"`;|&<>()$*?\\"
_PATH = re.compile(rf"(?:(?<![\w.~$}})/\]*?])|(?<=\s-[A-Za-z]))(?:{_HOME.pattern})?/(?!/)[^{_ENDS}]+")
_QUOTED = re.compile(rf"""(?:'(/[^']+)'|"((?:{_HOME.pattern})?/[^"$`]+)")""")
_TARGET = re.compile(r"(?:>[>|&]?|\btee(?:\s+-\w+)*)\s*['\"]?\Z")
"""Pattern of the text before a path to which the command writes, so that the path is not an input.
"""

_LONGEST_SCRIPT = 1 << 20
_LOADERS = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)


def used_files(work: Work) -> list[UsedFile]:
    """Return the files that the work uses and that exist on this machine, sorted by path."""
    found: dict[str, UsedFile] = {}

    def add(path: str, name: str | None = None) -> None:
        # What cannot be read is not seen from here.
        with suppress(OSError):
            if path not in found and _is_of_user(path):
                found[path] = {**({} if name is None else {"name": name}), "path": path, "sha256": sha256_of_file(path)}

    specs = [spec for spec in (work.function, work.setup) if isinstance(spec, str)]
    places = [place for spec in specs if (place := spec.rpartition(":")[0])]
    modules = [place for place in places if not place.endswith(".py")]
    scripts = [os.path.abspath(place) for place in (*places, work.script or "") if place.endswith(".py")]
    _add_modules([*map(os.path.dirname, scripts), *([os.getcwd()] if modules else [])], scripts, modules, add)
    for path in _named_in(_commands_of(work)):
        add(path)
        _add_modules([os.path.dirname(path)], [path], [], lambda each, _: add(each))
    return [found[path] for path in sorted(found)]


def _commands_of(work: Work) -> Iterator[str]:
    """Return the texts that may name files: the commands and the script."""
    for name in ("command", "filter", "interpreter", "shell"):
        yield getattr(work, name, None) or ""
    with suppress(OSError, UnicodeDecodeError):
        # Else it is a program, or a mistake that is reported where it is started.
        if work.script is not None and os.path.getsize(work.script) <= _LONGEST_SCRIPT:
            with open(work.script, encoding="utf-8") as file:
                yield file.read()


def sha256_of_file(path: str) -> str:
    """Return the SHA-256 of a file, in hex; the file is read once for each of its states.

    Raises:
        OSError: the file cannot be read.
    """
    state = os.stat(path)
    return _digest(path, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)


@cache
def _digest(path: str, *_state: int) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _is_of_user(path: str) -> bool:
    """Return True if it is a regular file that does not belong to the system."""
    real = os.path.realpath(path)
    return os.path.isfile(real) and not any(real.startswith(f"{folder}/") for folder in _SYSTEM)


def _named_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield absolute paths in commands, except those that a command only writes to."""
    for text in texts:
        for match in (*_PATH.finditer(text), *_QUOTED.finditer(text)):
            found = match[0].strip("'\"")
            if not _TARGET.search(text, max(0, match.start() - 80), match.start()):
                for each in {found, *re.split("[:,{}]", found)}:
                    path = os.path.expanduser(_HOME.sub("~", each))
                    if path.startswith("/"):
                        yield os.path.normpath(path)


def _add_modules(
    folders: Sequence[str], scripts: Iterable[str], modules: Iterable[str], add: Callable[[str, str | None], None]
) -> None:
    """Add the modules that Python files import from the user's folders.

    Imports are read from the source; those that are made at run time are not seen.
    """
    to_read, wanted = [(script, "") for script in scripts if script.endswith(".py")], [*modules]
    if not to_read and not wanted:
        return
    search = [*dict.fromkeys([*folders, *filter(_is_users_folder, (os.path.abspath(each) for each in sys.path))])]
    finder = cache(lambda folder: FileFinder(folder, *_LOADERS))
    seen = {script for script, _ in to_read}
    while to_read or wanted:
        if not wanted:
            wanted += _imports(*to_read.pop())
            continue
        for path, package in _find(wanted.pop(), search, finder):
            if path not in seen:
                seen.add(path)
                to_read.append((path, package))
                add(path, os.path.relpath(path, next(each for each in search if path.startswith(f"{each}/"))))


def _is_users_folder(folder: str) -> bool:
    """Return True if a folder of sys.path has neither the standard library nor packages."""
    installed = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    parts = {"site-packages", "dist-packages", "lib-dynload"}
    return os.path.isdir(folder) and folder not in installed and parts.isdisjoint(folder.split("/"))


def _find(name: str, folders: Sequence[str], finder: Callable[[str], FileFinder]) -> Iterator[tuple[str, str]]:
    """Return the files of a module and of its packages, each with its package for relative imports.

    The list is empty for tarkit, whose version is in the done record.
    """
    package, parts = "", name.split(".")
    for part in parts if parts[0] != "tarkit" else ():
        inside: list[str] = []
        for spec in filter(None, (finder(folder).find_spec(part) for folder in folders)):
            inside += spec.submodule_search_locations or ()
            if spec.loader is not None and spec.origin is not None:
                if is_package := spec.submodule_search_locations is not None:
                    package, inside = f"{package}.{part}".lstrip("."), [*(spec.submodule_search_locations or ())]
                yield spec.origin, package
                if not is_package:
                    return
                break
        else:
            # Without __init__.py, a package may be in several folders.
            package = f"{package}.{part}".lstrip(".")
        folders = inside


def _imports(path: str, package: str) -> Iterator[str]:
    """Yield the names of modules that a source file may import.

    Names that are not modules are not found later.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read()) if path.endswith(".py") else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        # It is reported where it is run.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".") if node.level and package else []
            parts = [*above[: len(above) - node.level + 1], *([node.module] if node.module else [])]
            yield from (".".join([*parts, alias.name]) for alias in node.names)
