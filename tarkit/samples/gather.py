"""Collect files, folders and plans as samples: list the files, name the members, sort them.

A plan is a text; each line has the name of a member and the source of its content: ``NAME SOURCE``,
with blanks or tabs between. SOURCE is ``text:TEXT`` (the rest of the line, unchanged),
``file:PATH``, ``pipe:COMMAND``, a URL, or a plain path. Blank lines and lines that begin with ``#``
are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import PurePath

from tarkit.errors import (
    DataError,
    DuplicateFieldError,
    MissingInputError,
    RepeatedKeyError,
    StreamError,
    UsageError,
    printable,
)
from tarkit.names.url import is_url
from tarkit.samples.codecs import extension_of
from tarkit.samples.content import MemberFile, read_content
from tarkit.samples.sample import KeyRule, first_dot, last_dot, skip_reason

_MADE = re.compile(r"(?i:\.(?:tar(?:\.\w+)?|tgz|tzst|tbz2|txz|idx|json))\Z")
"""Ends of the names of shards, indexes, manifests and tables: no others are left out as outputs."""
_LINE = re.compile(r"[ \t]*(\S+)[ \t]+(.+)", re.DOTALL)

_SPELLINGS = {"jpeg": "jpg", "tiff": "tif", "htm": "html", "yml": "yaml", "mpeg": "mpg"}
"""Extensions of file types that have two, each with the one that stands for both."""
_OF_SYSTEMS = ("thumbs.db", "desktop.ini")
"""Files that a desktop leaves in folders of pictures."""
OUTPUT_ITSELF, HIDDEN_FOLDER, SYSTEM_FILE = "the output itself", "hidden folder", "system-file"
"""Reasons under which files are skipped, besides those of ``skip_reason``."""


@dataclass
class Gathered:
    """The files that were found for samples, and the other files.

    Attributes:
        files: sorted by key, the fields of one sample together.
        others: (name, reason why it is not part of a sample).
        named: paths of the files that were named, not found in a folder.
        stripped: number of names that lost a leading slash or ``./``.
    """

    files: list[MemberFile] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    stripped: int = 0


def gather(paths: Iterable[str], *, rule: KeyRule, folder: str = ".", leave_out: Iterable[str] = ()) -> Gathered:
    """Find all files that ``paths`` name or contain; none is opened.

    Folders are walked to any depth, except hidden ones in them; links to files are followed, links
    to folders only where they are named themselves. Member names are the paths as given, without a
    leading slash or ``./``.

    Args:
        paths: files and folders, relative to ``folder``.
        folder: folder where relative paths begin.
        leave_out: files that are skipped when they are found in a folder: the output.

    Raises:
        DuplicateFieldError: a file is given twice.
        MissingInputError: a path does not exist.
        StreamError: a folder cannot be read.
        UsageError: a path is empty, or has ``..`` in it.
    """
    gathered, names = Gathered(), [*paths]
    outputs = {found for path in leave_out if (found := _file_id(path)) is not None}
    for path in names:
        if not path:
            raise UsageError("a file's name is empty")
        place = os.path.join(folder, path)
        # So that no path looks like a URL, a command or a text.
        place = place if place[0] in "./" else f"./{place}"
        if os.path.isdir(place):
            _walk(gathered, place, os.path.join(path, ""), rule, outputs)
            continue
        name = _member_name(path)
        gathered.stripped += name != path
        if os.path.isfile(place):
            gathered.named.append(place)
            _take(gathered, name, place, rule)
        elif os.path.exists(place):
            gathered.others.append((name, "not-a-file"))
        else:
            is_link = os.path.islink(place)
            problem = "the target of this link does not exist" if is_link else "no such file or folder"
            raise MissingInputError(problem, url=path)
    # A stable sort: samples come in the order of their keys, independent of the order of the
    # arguments.
    gathered.files.sort(key=attrgetter("key"))
    if len(names) > 1:
        refuse_twice(gathered.files)
    return gathered


def refuse_twice(files: Iterable[MemberFile]) -> None:
    """Reject a name that two files have.

    Raises:
        DuplicateFieldError: two files have one name.
    """
    seen: dict[str, str | PurePath] = {}
    for file in files:
        other = seen.setdefault(file.name, file.source)
        if other is not file.source:
            problem = f"field {file.field!r} of this sample is given twice"
            hint = "name each file once, in or outside of the folder that it is in"
            if other != file.source:
                problem += f": {printable(_shown(other))} and {printable(_shown(file.source))}"
                hint = "rename one of them"
            raise DuplicateFieldError(problem, url=_shown(file.source), member=file.name, key=file.key, hint=hint)


def _shown(source: str | PurePath) -> str:
    return str(source).removeprefix("./")


def _walk(gathered: Gathered, place: str, given: str, rule: KeyRule, leave_out: set[tuple[int, int]]) -> None:
    """Take all files below a folder.

    Args:
        place: path to open the folder by.
        given: path as given, with a slash at its end.
    """
    prefix = _member_name(given)
    try:
        with os.scandir(place) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise StreamError(f"this folder cannot be read: {error.strerror}", url=given.rstrip("/")) from error
    inodes = {inode for _, inode in leave_out}
    for entry in entries:
        name = prefix + entry.name
        if prefix != given and not entry.is_dir(follow_symlinks=False):
            gathered.stripped += 1
        # The number of an inode comes with the listing; a link has that of its target only in its
        # status.
        is_output = leave_out and (entry.inode() in inodes or entry.is_symlink()) and _file_id(entry.path) in leave_out
        if is_output:
            if _MADE.search(entry.name) is None:
                raise UsageError(f"{printable(name)} is an input, and an output too; name another output")
            gathered.others.append((name, OUTPUT_ITSELF))
        elif entry.is_file():
            _take(gathered, name, entry.path, rule)
        elif not entry.is_dir():
            is_link = entry.is_symlink()
            gathered.others.append((name, "link without a target" if is_link else "not-a-file"))
        elif entry.is_symlink():
            gathered.others.append((name, "link to a folder"))
        elif is_program_folder(entry.name):
            gathered.others.append((name, HIDDEN_FOLDER))
        else:
            _walk(gathered, entry.path, f"{given}{entry.name}/", rule, leave_out)


def is_program_folder(folder: str) -> bool:
    """Return True for the name of a folder that programs make, not people."""
    return folder.startswith(".") or folder == "__MACOSX"


def _take(gathered: Gathered, name: str, place: str, rule: KeyRule) -> None:
    """Take a file, or list it with the others."""
    split = rule(name)
    reason = None
    # The first characters nearly always show that skip_reason() would return None.
    if split is None or rule is not first_dot or name[0] == "_" or split[1][0] == "_":
        reason = skip_reason(name, rule)
    if split is not None and split[1].lower() in ("db", "ini") and place.rpartition("/")[2].lower() in _OF_SYSTEMS:
        reason = SYSTEM_FILE
    if reason is not None or split is None:
        gathered.others.append((name, reason or "no-extension"))
    else:
        gathered.files.append(MemberFile(name, place, *split))


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _member_name(path: str) -> str:
    name = path
    while name.startswith(("/", "./")):
        name = name[1:] if name[0] == "/" else name[2:]
    if ".." in name.split("/"):
        raise UsageError(f"{printable(path)!r}: a member's name cannot have .. in it; go to another folder with -C")
    return name


def parse_plan(plan: str, *, rule: KeyRule, folder: str = ".", allow_pipe: bool = False) -> list[MemberFile]:
    """Parse the lines of a plan, in its order; all of them are checked.

    No source is opened.

    Args:
        plan: path or URL of the plan.
        folder: folder where relative paths begin.
        allow_pipe: True if sources may be commands.

    Raises:
        UsageError: a line is not valid.
        DuplicateFieldError: a sample has a field twice.
        RepeatedKeyError: the lines of a sample are not adjacent.
    """
    text = read_content(plan)
    files: list[MemberFile] = []
    first_line: dict[str, int] = {}
    fields: set[tuple[str, str]] = set()
    for number, raw in enumerate((text if isinstance(text, bytes) else text.read()).split(b"\n"), 1):
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        file = _entry(line, f"{printable(plan)}:{number}", rule, folder, allow_pipe)
        first = first_line.setdefault(file.key, number)
        if (file.key, file.field) in fields:
            reason = f"{file.wanted_by}: {printable(file.name)!r} is listed twice in its sample"
            raise DuplicateFieldError(reason, key=file.key)
        if first != number and files[-1].key != file.key:
            problem = f"{file.wanted_by}: the key comes back after other samples; it was first in line {first}"
            raise RepeatedKeyError(problem, key=file.key, hint="put the lines of one sample next to each other")
        fields.add((file.key, file.field))
        files.append(file)
    return files


def _entry(line: str, where: str, rule: KeyRule, folder: str, allow_pipe: bool) -> MemberFile:
    match = _LINE.fullmatch(line)
    if match is None:
        raise UsageError(f"{where}: {printable(line.strip())!r} is not NAME SOURCE")
    name, source = match[1], match[2]
    if not source.startswith("text:"):
        source = source.strip(" \t")
    if name.startswith(("/", "./")) or ".." in name.split("/"):
        raise UsageError(f"{where}: the name {printable(name)!r} begins with / or ./, or has .. in it")
    split = rule(name)
    reason = skip_reason(name, rule)
    if split is None or reason is not None:
        raise UsageError(
            f"{where}: the name {printable(name)!r} cannot be a file of a sample ({reason}); write KEY.FIELD"
        )
    if source in ("-", "file:", "pipe:"):
        raise UsageError(f"{where}: the source {source!r} names nothing to read")
    if source.startswith("pipe:") and not allow_pipe:
        raise UsageError(f"{where}: commands are run only with --allow-pipe")
    is_path = not (source.startswith(("text:", "pipe:")) or is_url(source))
    return MemberFile(name, PurePath(folder, source.removeprefix("file:")) if is_path else source, *split, where)


def refuse_same_extension(files: Iterable[MemberFile], rule: KeyRule) -> None:
    """Reject samples with two files of one extension, such as ``a.JPEG`` and ``a.jpg``.

    Dots in names are often not meant to begin a field: ``img_0.5.jpg`` and ``img_0.7.jpg`` have the
    same key by the first dot, and would become one sample.

    Args:
        files: files, those of one sample next to each other.

    Raises:
        DataError: two files of a sample have the same extension.
    """
    key: str | None = None
    found: dict[str, str] = {}
    first: MemberFile | None = None
    for file in files:
        if file.key != key:
            # Most samples of folders are one file, which is not looked at.
            key, found, first = file.key, {}, file
            continue
        if first is not None:
            found[_kind_of(first.field)], first = first.name, None
        kind = _kind_of(file.field)
        other = found.setdefault(kind, file.name)
        if other == file.name:
            continue
        hint = "pass --on-same-extension allow if they belong together"
        # last_dot gives no key for a name that ends with a dot.
        apart = {split[0] for split in map(last_dot, (other, file.name)) if split is not None}
        if rule is first_dot and len(apart) > 1:
            hint += ", or --key-rule last-dot, here and in every reader, if they are separate samples"
        else:
            hint += ", or rename one of them"
        fields = f"{kind} fields" if kind else "fields"
        reason = f"{printable(other)!r} and {printable(file.name)!r} would be two {fields} of one sample"
        raise DataError(reason, key=key, hint=hint)


def _kind_of(field: str) -> str:
    """Return the type of a field's file, with one spelling for each."""
    last, compressed = extension_of(field)
    return _SPELLINGS.get(last, last) + (".gz" if compressed else "")
