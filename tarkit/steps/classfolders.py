"""Class folders: the folders directly in a folder are classes, numbered as ImageFolder does.

torchvision's ``ImageFolder`` sorts the names of these folders as Python sorts texts, and numbers
them from 0. The table of classes is JSON, name -> number.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import DataError, MissingInputError, StreamError, UsageError, counted, printable, quoted
from tarkit.formats.tabletext import distinct_names
from tarkit.names.outputnames import is_pattern, split_pattern
from tarkit.names.redaction import redact
from tarkit.names.url import is_stream, split_query
from tarkit.samples.content import MemberFile
from tarkit.samples.gather import (
    HIDDEN_FOLDER,
    OUTPUT_ITSELF,
    SYSTEM_FILE,
    Gathered,
    gather,
    is_program_folder,
    refuse_twice,
)
from tarkit.samples.sample import KeyRule
from tarkit.store.publish import open_publish
from tarkit.store.read import read_whole

TABLE = "classes.json"
DEBRIS = frozenset((OUTPUT_ITSELF, HIDDEN_FOLDER, SYSTEM_FILE, "hidden", "macos-sidecar"))
"""Reasons of files in class folders that people did not put there: counted, and not an error."""
_SPLITS = frozenset(("train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"))
_BLANK = re.compile(r"\s")


class ClassFiles(NamedTuple):
    """The files of class folders, with a field ``cls`` for each sample.

    Attributes:
        gathered: the files.
        classes: name -> number.
        notes: phrases on empty classes.
    """

    gathered: Gathered
    classes: dict[str, int]
    notes: list[str]


def class_folders(
    root: str, classes: Mapping[str, int] | None = None, *, rule: KeyRule, leave_out: Iterable[str] = ()
) -> ClassFiles:
    """Find the files in class folders; none is opened.

    A sample's key begins with its class; blanks in it become ``_``. Links to class folders are
    followed. Hidden files and folders are listed in ``others``.

    Args:
        root: folder of the class folders.
        classes: numbers of the classes; None: the folders, sorted.
        leave_out: files that are skipped: the outputs.

    Raises:
        DataError: a file is beside the classes, ``classes`` lacks a folder, two classes or keys
            differ only in blanks, or all folders are named like parts of a data set.
        DuplicateFieldError: a sample has a field ``cls`` already.
        MissingInputError: the folder does not exist, or has no folders.
        StreamError: a folder cannot be read.
    """
    leave_out = [*leave_out]
    names, beside = _first_level(root, leave_out)
    numbers = dict(zip(names, range(len(names)), strict=True)) if classes is None else dict(classes)
    if unknown := [name for name in names if name not in numbers]:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise DataError(f"class {quoted(unknown[0])}{more} is not in the table of classes", url=root)
    found = gather(names, rule=rule, folder=root, leave_out=leave_out)
    found.others += beside
    found.named = []
    seen: dict[str, str] = {}
    files: list[MemberFile] = []
    filled = set[str]()
    for file in found.files:
        name = _BLANK.sub("_", file.name)
        split = (file.key, file.field) if name == file.name else rule(name)
        if split is None:
            found.others.append((file.name, "no-extension"))
            continue
        key = split[0]
        if key not in seen:
            folder = file.name.partition("/")[0]
            filled.add(folder)
            files.append(MemberFile(f"{key}.cls", f"text:{numbers[folder]}", key, "cls"))
        if (other := seen.setdefault(key, file.key)) != file.key:
            raise DataError(f"{quoted(other)} and {quoted(file.key)} would both have the key {quoted(key)}", url=root)
        files.append(MemberFile(name, file.source, *split))
    found.files = sorted(files, key=lambda file: file.key)
    refuse_twice(found.files)
    empty = [f"class {printable(name)} ({numbers[name]}) has no sample" for name in names if name not in filled]
    if len(numbers) > len(names):
        empty.append(f"{counted(len(numbers) - len(names), 'class', 'classes')} of the table without a folder")
    return ClassFiles(found, numbers, empty)


def _first_level(root: str, leave_out: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names of the class folders, sorted, and (name, reason) of what is beside them."""
    outputs = {os.path.abspath(name) for name in leave_out}
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError:
        raise MissingInputError("no such folder", url=root) from None
    except OSError as error:
        raise StreamError(f"this folder cannot be read: {error.strerror}", url=root) from error
    names, beside = [], []
    for entry in entries:
        is_folder = entry.is_dir()
        if is_folder and not is_program_folder(entry.name):
            names.append(entry.name)
        elif is_folder:
            beside.append((entry.name, HIDDEN_FOLDER))
        elif os.path.abspath(entry.path) in outputs:
            beside.append((entry.name, OUTPUT_ITSELF))
        else:
            is_hidden = entry.name.startswith(".") or entry.name.lower() in ("thumbs.db", "desktop.ini")
            beside.append((entry.name, "hidden" if is_hidden else "beside the class folders"))
    if not names:
        raise MissingInputError("has no folders, so no classes", url=root)
    if {name.lower() for name in names} <= _SPLITS:
        first, *others = sorted(names, key=lambda name: not name.lower().startswith("train"))
        where = f"{root.rstrip('/')}/"
        commands = [f"tarkit create {where}{first} --classes -o '{first}-%06d.tar'"]
        commands += [f"tarkit create {where}{each} --classes-from {TABLE} -o '{each}-%06d.tar'" for each in others]
        reason = f"its folders ({', '.join(map(printable, names))}) are parts of a data set, not classes"
        raise DataError(reason, url=root, hint=f"make each: {'; '.join(commands)}")
    joined: dict[str, str] = {}
    for name in names:
        if (other := joined.setdefault(_BLANK.sub("_", name), name)) != name:
            reason = f"the classes {quoted(other)} and {quoted(name)} differ only in blanks, which a key does not have"
            raise DataError(reason, url=root, hint="rename one of them")
    return names, beside


def read_classes(url: str) -> dict[str, int]:
    """Read a table of classes: JSON, name -> number or a list of names; else a name on each line.

    Raises:
        DataError: the file is not a table of classes.
        MissingInputError: it does not exist.
        StreamError: it cannot be read.
    """
    data = read_whole(url)
    try:
        text = data.decode("utf-8-sig")
        is_json = split_query(url)[0].endswith(".json")
        found = json.loads(text, object_pairs_hook=distinct_names) if is_json else text.splitlines()
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not a table of classes: {printable(str(error))}", url=url) from None
    if isinstance(found, list):
        table = {name: number for number, name in enumerate(found) if isinstance(name, str) and name}
        is_table = len(table) == len(found)
    else:
        table = found if isinstance(found, dict) else {}
        is_table = all(type(number) is int and number >= 0 for number in table.values())
    if not is_table or not table:
        hint = 'a table of classes is JSON such as {"cat": 0, "dog": 1}, or a text with one name on each line'
        raise DataError("is not a table of classes with distinct names and whole numbers", url=url, hint=hint)
    return table


def table_beside(output: str) -> str:
    """Return the URL of the table of classes in the folder of an output.

    Raises:
        UsageError: the output is a stream, which has no folder.
    """
    if is_stream(output):
        shown = printable(redact(output))
        raise UsageError(f"{shown} has no folder for the table of classes; name a file, or use --classes-from")
    path, query = split_query(output)
    folder, slash, _ = (split_pattern(path)[0] if is_pattern(output) else path).rpartition("/")
    return f"{folder}{slash}{TABLE}{query}"


def check_table(url: str, classes: Mapping[str, int], *, force: bool) -> bool:
    """Check that no other table of classes is at this place; return True if one must be written.

    Args:
        url: place of the table.
        classes: name -> number.
        force: a different table may be replaced.

    Raises:
        UsageError: a different table exists.
    """
    with suppress(MissingInputError, *([DataError] if force else [])):
        if read_classes(url) == dict(classes):
            return False
        if not force:
            shown = printable(redact(url))
            raise UsageError(f"{shown} is there with other numbers; --classes-from uses it, --force replaces it")
    return True


def write_classes(url: str, classes: Mapping[str, int]) -> None:
    """Write a table of classes.

    Raises:
        StreamError: the table cannot be written.
    """
    with open_publish(url, compression=None) as stream:
        stream.write(json.dumps(classes, indent=1).encode() + b"\n")
