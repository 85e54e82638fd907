"""Derive the names of outputs, and recognize the numbers of a series of shards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from tarkit.errors import UsageError, printable, quoted
from tarkit.names.braces import expand_braces
from tarkit.names.redaction import redact
from tarkit.names.url import display_name, is_stream, local_path, scheme_of, split_query

FAILED_SUFFIX = ".failed.tar"
"""Suffix added to an output's name for the shard of its failed samples."""

DONE_SUFFIX = ".done.json"
"""Suffix added to an output's name for its done record."""

RUN_RECORD = ".tarkit-run-{}.json"
"""Name of the run record in an output folder.

It is a hidden file, so that no program takes it for a shard.
"""

SHARD_SUFFIX = ".tar"
INDEX_SUFFIX = ".idx"
SEEK_SUFFIX = ".seek"
_ZST, _GZ = (".tar.zst", ".tzst"), (".tar.gz", ".tgz")

FEW = 100_000
"""Number of inputs up to which each name is checked, which takes less than a second."""

_CONVERSION = re.compile(r"%(?:(%)|(0?[0-9]*d)|)")
_NUMBER = re.compile(r"(?<!%)(?:%%)*%(?:0[0-9]{1,2}d|d(?![0-9A-Za-z])(?!.*/))", re.DOTALL)
_NUMBERED = re.compile(
    r"(?:[^{}\\#]*/)?(?P<head>[^{}\\#/]*)\{-?[0-9]+\.\.-?[0-9]+(?:\.\.-?[0-9]+)?\}(?P<end>[^{}\\#/]*)"
)


def output_name(url: str) -> str:
    """Return the file name of a shard: the last part of its path, without a URL's query.

    Raises:
        UsageError: standard input, commands and folders have no such name.
    """
    path = url
    scheme = scheme_of(url)
    if scheme in ("file", "local") and (local := local_path(url)) is not None:
        path = local
    elif scheme:
        path = url.partition("://")[2].partition("?")[0]
        if scheme in ("http", "https"):
            path = path.partition("#")[0]
        path = path.partition("/")[2]
    name = path.rpartition("/")[2]
    if url == "-" or scheme == "pipe" or name in ("", ".", ".."):
        raise UsageError(f"{quoted(url)} has no file name to give to its output; name the output yourself")
    return name


def has_index_name(url: str) -> bool:
    """Return True if a shard of this name may have an index: ``*.tar``, also with zst or gzip."""
    return not is_stream(url) and split_query(url)[0].endswith((SHARD_SUFFIX, *_ZST, *_GZ))


def is_packed_name(url: str) -> bool:
    """Return True if a shard of this name is compressed, and may have an index."""
    return not is_stream(url) and split_query(url)[0].endswith((*_ZST, *_GZ))


def index_url(url: str) -> str:
    """Return the name of a shard's index.

    It is ``x.0.idx`` for ``x.0.tar``, and ``x.0.tar.zst.idx`` for ``x.0.tar.zst``. Different shards
    have different indexes.

    Raises:
        UsageError: a shard of this name has no index.
    """
    if not has_index_name(url):
        reason = "only a shard whose name ends in .tar, .tar.zst, .tzst, .tar.gz or .tgz has an index"
        raise UsageError(f"{display_name(url)}: {reason}{_shard_hint(url)}")
    path, query = split_query(url)
    return path.removesuffix(SHARD_SUFFIX) + INDEX_SUFFIX + query


def _shard_hint(url: str) -> str:
    """Return a hint for a name that is not that of a shard with an index."""
    name, path = display_name(url), split_query(url)[0]
    if is_stream(url):
        return ""
    if "." not in path.rpartition("/")[2]:  # most likely a folder
        return f"; name the shards of a folder, such as '{name.rstrip('/')}/*.tar'"
    if path.endswith(INDEX_SUFFIX):
        return "; name the shard, not its index"
    return f"; unpack it: tarkit cat {name} -o OUT.tar"


def index_command(url: str, *, force: bool = False) -> str:
    """Return the command that makes the index of a shard, as a hint.

    An index cannot be written beside a shard that is read over http.
    """
    option, name = "--force " if force else "", display_name(url)
    if scheme_of(url) not in ("http", "https"):
        return f"tarkit index {option}{name}"
    base = split_query(name)[0].rpartition("/")[2]
    return f"tarkit index {option}{base} in the folder that the server serves"


def has_written_index(url: str) -> bool:
    """Return True if a shard of this name is written with an index, if that is wanted."""
    return has_index_name(url) and not split_query(url)[0].endswith(_GZ)


def written_index_url(url: str) -> str:
    """Return the name of the index of a shard that is to be written.

    Raises:
        UsageError: a shard of this name is not written with an index.
    """
    name = index_url(url)
    if not has_written_index(url):
        reason = "a shard compressed by gzip is not written with an index"
        raise UsageError(f"{display_name(url)}: {reason}; name it .tar.zst, or run tarkit index on it afterwards")
    return name


def seek_url(url: str) -> str:
    """Return the name of the file with the points where decompression of a shard can begin."""
    return _with_end(url, SEEK_SUFFIX)


def failed_samples_url(url: str) -> str:
    """Return the name of the shard of an output's failed samples.

    The query of a URL stays at its end.
    """
    return _with_end(url, FAILED_SUFFIX)


def done_record_url(url: str) -> str:
    """Return the name of an output's done record.

    The query of a URL stays at its end.
    """
    return _with_end(url, DONE_SUFFIX)


def _with_end(url: str, end: str) -> str:
    path, query = split_query(url)
    return path + end + query


def plan_outputs(urls: Iterable[str], folder: str) -> Iterator[tuple[str, str]]:
    """Yield each input with its output: the same name in ``folder``.

    Raises:
        UsageError: two inputs have the same name, an input has no name, or an input would be
            replaced by its own output or by the failed samples of another input.
    """
    seen: dict[str, str] = {}
    # The folder is resolved once for all names. A file:// URL gives a path, because %XX in a name
    # stands for another character in a URL.
    target, (head, query) = local_path(folder), split_query(folder)
    base = (target or head).rstrip("/")
    # Each parent of a local input is looked up once.
    real = cache(os.path.realpath)
    for url in urls:
        name = output_name(url)
        if name in seen:
            raise UsageError(
                f"{display_name(seen[name])} and {display_name(url)} would both become {name}; "
                "rename one, or use separate runs"
            )
        is_failed = name.endswith(FAILED_SUFFIX) and name.removesuffix(FAILED_SUFFIX) in seen
        if is_failed or name + FAILED_SUFFIX in seen:
            shard = name.removesuffix(FAILED_SUFFIX) if is_failed else name
            other = seen[shard if is_failed else shard + FAILED_SUFFIX]
            raise UsageError(
                f"{display_name(other)} and {display_name(url)}: {shard + FAILED_SUFFIX} is where failed samples of "
                f"{shard} go; use separate runs"
            )
        path = None if target is None else local_path(url)
        is_inside = path is not None and real(os.path.dirname(path)) == real(target)
        if is_inside or split_query(url)[0] == f"{base}/{name}":
            raise UsageError(f"{display_name(url)} would be replaced by its own output; name another folder")
        seen[name] = url
        yield url, f"{base}/{name}{query}"


def are_distinct(specs: Sequence[str]) -> bool:
    """Return True if the patterns alone show that all outputs have distinct names.

    That needs specs ``FOLDER/HEAD{FIRST..LAST}END`` with braces in one place only, where no HEAD is
    the beginning of another HEAD. False: all names must be compared.

    Raises:
        UsageError: the first name of a spec is not that of a file.
    """
    heads = []
    for spec in specs:
        match = _NUMBERED.fullmatch(spec)
        if match is None or "%" in spec or match["end"].endswith(FAILED_SUFFIX):
            return False
        output_name(next(expand_braces(spec)))
        heads.append(match["head"])
    return not any(second.startswith(first) for first, second in pairwise(sorted(heads)))


def shard_name(pattern: str, number: int) -> str:
    """Return the name of a shard: ``out-%06d.tar`` and 7 give ``out-000007.tar``.

    ``%%`` stands for a plain percent sign.

    Args:
        pattern: the pattern of a series.
        number: number of the shard, from 0.

    Raises:
        UsageError: the pattern has not exactly one ``%d`` (with or without a width), or number is
            negative.
    """
    split_pattern(pattern)
    if number < 0:
        raise UsageError(f"shards are numbered from 0; got {number}")
    return pattern % number


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split a pattern of names into the text before and after its number.

    Raises:
        UsageError: the pattern has not exactly one ``%d`` (with or without a width).
    """
    places = []
    for match in _CONVERSION.finditer(pattern):
        if match[1] is None and match[2] is None:
            raise UsageError(f"{quoted(pattern)}: write %06d where the number goes, and %% for a plain percent sign")
        if match[2] is not None:
            places.append(match)
    if len(places) != 1:
        raise UsageError(
            f"{quoted(pattern)} must have exactly one place for the shard's number, such as %06d; it has {len(places)}"
        )
    return pattern[: places[0].start()].replace("%%", "%"), pattern[places[0].end() :].replace("%%", "%")


def is_pattern(name: str) -> bool:
    """Return True if a name has a place for a number.

    That is ``%06d`` anywhere, or ``%d`` in its last part with no letter or digit after it. Other
    names with a percent sign stay as they are (``a%20b.tar``, ``10%discount/a.tar``), and so does a
    command (``pipe:… $(date +%d)``).
    """
    return not name.startswith("pipe:") and _NUMBER.search(name) is not None


def reject_pattern(output: str) -> None:
    """Reject a pattern where the output is one shard.

    Raises:
        UsageError: the output is a pattern.
    """
    if is_pattern(output):
        raise UsageError(
            f"-o {printable(redact(output))}: the output is one shard; pipe it into tarkit split - -o PATTERN"
        )


def number_of_shard(pattern: str, url: str) -> int | None:
    """Return the number in a name that a pattern stands for; None if it does not match."""
    path, _ = split_query(pattern)
    return _number(split_query(url)[0], path, *split_pattern(path))


def _number(name: str, path: str, before: str, after: str) -> int | None:
    digits = name[len(before) : len(name) - len(after)]
    if name != f"{before}{digits}{after}" or not digits.isdecimal():
        return None
    # With %06d, x-7.tar and x-0000007.tar are not part of the series.
    return int(digits) if shard_name(path, int(digits)) == name else None
