"""Plans: texts of which each line says what a member is called and where its content comes from.

``NAME SOURCE``, with blanks or tabs between. SOURCE is ``text:TEXT`` (the rest of the line, as it
is), ``file:PATH``, ``pipe:COMMAND``, a URL, or a plain path. Blank lines and lines that begin
with ``#`` are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from tarkit.errors import DuplicateFieldError, LocatedError, RepeatedKeyError, UsageError, printable
from tarkit.formats.fieldfile import FieldFile, SampleRoom
from tarkit.samples.gather import read_content
from tarkit.samples.sample import KeyRule, Sample, skip_reason
from tarkit.store.url import is_url

_LINE = re.compile(r"[ \t]*(\S+)[ \t]+(.+)", re.DOTALL)


class PlanLine(NamedTuple):
    """One line. name: of the member. key, field: what the key rule makes of it. line: counted from 1."""

    name: str
    source: str
    key: str
    field: str
    line: int


def parse_plan(lines: Iterable[bytes], *, plan: str, rule: KeyRule, allow_pipe: bool = False) -> list[PlanLine]:
    """The entries of a plan, in its order, all of them checked; nothing is opened.

    Args:
        lines: of the plan. plan: its name, for errors.
        rule: the key rule; every name must have a key and a field.
        allow_pipe: whether sources may be commands.
    """
    entries: list[PlanLine] = []
    first_line: dict[str, int] = {}
    fields: set[str] = set()
    for number, raw in enumerate(lines, 1):
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        where = f"{printable(plan)}:{number}"
        entry = _entry(text, number, where, rule, allow_pipe)
        if entries and entries[-1].key == entry.key:
            if entry.field in fields:
                raise DuplicateFieldError(
                    f"{where}: {printable(entry.name)!r} comes twice in its sample", key=entry.key
                )
        elif entry.key in first_line:
            raise RepeatedKeyError(
                f"{where}: the key comes back after other samples; it was first in line {first_line[entry.key]}",
                key=entry.key,
                hint="put the lines of one sample next to each other",
            )
        else:
            first_line[entry.key] = number
            fields = set()
        fields.add(entry.field)
        entries.append(entry)
    return entries


def _entry(text: str, number: int, where: str, rule: KeyRule, allow_pipe: bool) -> PlanLine:
    match = _LINE.fullmatch(text)
    if match is None:
        raise UsageError(f"{where}: {printable(text.strip())!r} is not NAME SOURCE")
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
    return PlanLine(name, source, *split, number)


def samples_of_plan(entries: Iterable[PlanLine], *, plan: str, folder: str = ".") -> Iterator[Sample]:
    """The samples of a checked plan, read one at a time. folder: where relative paths begin."""
    sample: Sample = {}
    room = SampleRoom()
    for entry in entries:
        if sample and sample["__key__"] != entry.key:
            yield sample
            sample = {}
        if not sample:
            sample, room = {"__key__": entry.key}, SampleRoom()
        try:
            sample[entry.field] = room.hold(_content(entry.source, folder))
        except LocatedError as error:
            error.reason = f"{error.reason} (wanted by {printable(plan)}:{entry.line})"
            raise
        except UsageError as error:
            raise UsageError(f"{printable(plan)}:{entry.line}: {error}") from None
    if sample:
        yield sample


def place_of(source: str, folder: str) -> str | PurePath:
    """What is read for a source: a path, which is relative to ``folder``; or the URL, command or text as it is."""
    if source.startswith(("text:", "pipe:")) or is_url(source):
        return source
    return PurePath(os.path.join(folder, source.removeprefix("file:")))


def _content(source: str, folder: str) -> bytes | FieldFile:
    if source.startswith("text:"):
        return source[5:].encode("utf-8", "surrogateescape")
    return read_content(place_of(source, folder))
