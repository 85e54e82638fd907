"""Shard specs: the text with which people name many shards, and what it stands for.

A spec is a path, a URL, ``-`` (standard input), a ``pipe:`` command, a pattern with braces or with
``*?[``, ``@LIST``, a file of specs, or a data set's manifest (``dataset.json``). Nothing is opened
here except such lists and manifests; object stores are asked only for listings, and whether
something has a name with ``[``, and the Hugging Face Hub for the commit that a revision stands for.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError, printable, quoted
from tarkit.names.braces import Choice, Product, Range, parse_braces
from tarkit.names.url import is_stream, local_path, scheme_of
from tarkit.specs.manifest import is_manifest, read_manifest
from tarkit.specs.outputcheck import check_other_than, other_than
from tarkit.store.entries import glob as store_glob
from tarkit.store.entries import pinned, stat

# What names of shards, which braces stand for, may not begin with.
_WORDS = ("-", "@", "pipe:")
_IPV6_HOST = re.compile(r"(?<=[/@])\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\](?=[:/]|\Z)")
_GLOB = re.compile(r"[*?\[]")
_NUL = "\0"
_FEW = 1000
_MOST_SHARDS = 100_000
"""So many names are made before a run begins, to know how many there are."""
MOST_NAMES = 10_000_000
"""So many names may be made of one pattern: what holds them all still fits into memory."""


def expand(
    specs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    allow_pipe: bool = True,
    allow_pipe_in_lists: bool = False,
    manifests: bool = True,
    outputs: Sequence[str] = (),
) -> Iterator[str]:
    """Paths and URLs of the shards that ``specs`` name, in order, one at a time as they are asked
    for.

    - Braces expand as in bash, except that unbalanced ones are an error.
    - ``*``, ``?``, ``[`` (and ``**`` for any depth) are looked up locally and on every fsspec file
      system that can list; the matches come sorted. In an http URL, ``?`` begins the query.
    - At hf://, each name has the commit that the branch, tag or no revision in its spec stands for now.
    - An existing local file whose very name is the spec wins over both; at a URL, what has a name with ``[`` wins
      over the pattern.
    - ``@LIST`` reads one spec per line; blank lines and lines that begin with ``#`` are skipped. Lists
      do not nest. ``@-`` reads the list from standard input. Relative names in a local list are relative
      to the current folder, as in ``tar -T`` and ``ls DIR/*.tar > LIST``; those in a list at a URL are relative
      to that URL's folder.
    - A spec that ends with ``.json`` names a data set's manifest (``docs/formats/manifest.md``), and stands for the
      shards that it lists. What it says of their samples and bytes is not compared here. Not with ``manifests=False``.
    - ``pipe:`` commands are never expanded. In a list they are allowed only with ``allow_pipe_in_lists``,
      since the author of such a list runs commands here.
    - ``-`` stays as it is; standard input can be named once.
    - A list or a manifest may not be one of ``outputs``, which would replace it. The shards are not compared with them.

    Raises:
        UsageError: a spec that cannot be: unbalanced braces or more of them than names of shards
            have, a pattern of more than 10 million names, a pattern on a server that cannot list, a
            ``pipe:`` that is not allowed, standard input named twice, a list or manifest that is an
            output.
        MissingInputError: a pattern that matches nothing; a list that does not exist or names no
            shard.
        DataError: a JSON file that is not a manifest.
        StreamError: a list or manifest that cannot be read.
    """
    stdin_uses: list[str] = []
    for spec in spec_texts(specs):
        if _NUL in spec:
            raise UsageError(f"a shard's name has a NUL byte behind {quoted(spec.partition(_NUL)[0])}")
        if not spec.startswith("@"):
            yield from _expand_one(spec, stdin_uses, allow_pipe, manifests, outputs)
            continue
        source = spec[1:]
        _check_source(source, outputs)
        for line in _read_list(source, stdin_uses):
            if _NUL in line:
                raise UsageError(
                    f"list {quoted(source)} has a NUL byte behind {quoted(line.partition(_NUL)[0])}; "
                    "write one name on each line, in UTF-8 (find -print, not -print0)"
                )
            if line.startswith("@"):
                raise UsageError(f"list {quoted(source)} names another list, {quoted(line)}; lists do not nest")
            if line.startswith("pipe:") and not allow_pipe_in_lists:
                raise UsageError(
                    f"list {quoted(source)} names a command, {quoted(line)}; "
                    "commands are taken from the command line only, or with --allow-pipe (allow_pipe_in_lists)"
                )
            yield from _expand_one(_beside(source, line), stdin_uses, allow_pipe, manifests, outputs)


def spec_texts(specs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """The text of one spec or each of several.

    Raises:
        UsageError: one has none, such as an open file.
    """
    several = isinstance(specs, Iterable) and not isinstance(specs, str) and not hasattr(specs, "read")
    for item in cast("Iterable[Any]", specs if several else [specs]):
        spec = os.fspath(item) if isinstance(item, os.PathLike) else item
        if not isinstance(spec, str):
            hint = "; give the name of the file, and not the open file" if hasattr(spec, "read") else ""
            raise UsageError(f"a shard is named by text; got {type(spec).__name__}{hint}")
        yield spec


def _expand_one(
    spec: str, stdin_uses: list[str], allow_pipe: bool, manifests: bool, outputs: Sequence[str]
) -> Iterator[str]:
    if not spec:
        raise UsageError("a shard's name is empty; name a path, a URL or - for standard input")
    if spec == "-":
        _use_stdin(spec, stdin_uses)
        yield spec
    elif spec.startswith("pipe:"):
        if not allow_pipe:
            raise UsageError(f"{quoted(spec)}: a command cannot be used here; name a path or a URL")
        yield spec
    elif not scheme_of(spec) and os.path.exists(spec):
        yield from _listed(spec, outputs) if manifests and is_manifest(spec) else (spec,)
    else:
        spec = pinned(spec)
        plain, is_listed = not _GLOB.search(spec), manifests and is_manifest(spec)
        pattern = parse_braces(spec)
        if pattern.count > MOST_NAMES:
            raise UsageError(
                f"{quoted(spec)} stands for more than {MOST_NAMES} names; check the numbers in its braces, or name "
                "parts of it in several runs"
            )
        for name in pattern.items(0, pattern.count):
            # Checked again, since braces could hide a command, a list or standard input.
            if name != spec and _is_special(name):
                raise UsageError(f"{quoted(spec)} expands to {quoted(name)}; braces may only stand for names of shards")
            found = iter((name,)) if plain else _expand_glob(name)
            for each in found:
                yield from _listed(each, outputs) if is_listed else (each,)


def _check_source(source: str, outputs: Sequence[str]) -> None:
    """Refuse a list or manifest that is one of the outputs.

    Raises: UsageError.
    """
    check_other_than(outputs, (source if source == "-" or scheme_of(source) else Path(source),))


def _listed(manifest: str, outputs: Sequence[str]) -> Iterator[str]:
    """The shards that a manifest lists.

    A folder that is called like one is what it is.
    """
    if os.path.isdir(manifest):
        return iter((manifest,))
    _check_source(manifest, outputs)
    return (shard.url for shard in read_manifest(manifest))


def fixed_names(spec: str) -> Product | None:
    """The names that a spec stands for, each to be had by its number, if nothing need be listed or
    read for them.

    None: it is ``-``, a command, a list, a manifest or a glob; or a name may be what braces may not
    stand for.

    Raises:
        UsageError: unbalanced braces.
    """
    if _is_special(spec) or _GLOB.search(spec) or is_manifest(spec):
        return None
    if not scheme_of(spec) and os.path.exists(spec):
        return Product((Choice((spec,)),))
    found = parse_braces(spec)
    return None if _may_hide(found) else found


def patterns_of(specs: Sequence[str]) -> list[Product] | None:
    """The names of each spec, if nothing has to be listed or read to know them all; else None.

    Raises:
        UsageError: unbalanced braces.
    """
    found = [pattern for spec in specs if (pattern := fixed_names(spec)) is not None]
    return found if len(found) == len(specs) else None


def _may_hide(names: Product) -> bool:
    """Whether a name may be a command, a list, standard input or nothing."""
    if names.count <= _FEW:
        return any(map(_is_special, names.items(0, names.count)))
    # Of a larger pattern the text before its first braces must rule it out; a number is the middle
    # of no such word.
    head, rest = "", names.parts
    if isinstance(rest[0], Choice) and rest[0].count == 1:
        head, rest = next(rest[0].items(0, 1)).lower(), rest[1:]
    numbered = isinstance(rest[0], Range)
    return any(head.startswith(word) or (not numbered and word.startswith(head)) for word in _WORDS)


def _is_special(name: str) -> bool:
    """Whether a name stands for something else than a shard, when a person writes it."""
    return name in ("", "-") or name.startswith(("@", "pipe:"))


def _expand_glob(name: str) -> Iterator[str]:
    scheme = scheme_of(name)
    if scheme in ("http", "https"):
        if re.search(r"[*\[]", _IPV6_HOST.sub("", name.partition("?")[0])):
            raise UsageError(
                f"{quoted(name)}: shards on an http server cannot be listed; name them with braces or in an @list"
            )
        return iter((name,))
    text = _IPV6_HOST.sub("", name) if scheme else name
    if not _GLOB.search(text):
        return iter((name,))
    if scheme:
        found = [name] if "[" in text and _is_there(name) else store_glob(name)
    else:
        found = [name] if os.path.exists(name) else [_as_path(path) for path in sorted(glob.glob(name, recursive=True))]
    if not found:
        raise MissingInputError("nothing matches this pattern", url=name)
    return iter(found)


def _is_there(url: str) -> bool:
    """Whether something has just this name, which then is not a pattern, as with a path."""
    try:
        stat(url)
    except TemporaryStreamError:
        raise
    except (MissingInputError, StreamError):
        # Who may list may not always look.
        return False
    return True


def _as_path(path: str) -> str:
    """The path of a file, so written that it is taken for nothing else: a file may be called
    ``pipe:…`` or ``-``.
    """
    return f"./{path}" if _is_special(path) or scheme_of(path) else path


def _read_list(source: str, stdin_uses: list[str]) -> Iterator[str]:
    """The specs in a list, without comments and blank lines; "-" is standard input."""
    if not source:
        raise UsageError("@ names no list; write @FILE, @URL or @- for standard input")
    if source.startswith("pipe:"):
        raise UsageError(f"@{quoted(source)}: a list is read from a file, a URL or - (standard input)")
    if source == "-":
        _use_stdin("@-", stdin_uses)
        lines: Iterator[bytes] = iter(sys.stdin.buffer)
    else:
        from tarkit.store.read import read_whole

        # A path that is none is never taken for something else, whatever it looks like.
        lines = iter(read_whole(source if scheme_of(source) else Path(source)).splitlines())
    found = False
    for raw in lines:
        line = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").strip()
        if line and not line.startswith("#"):
            found = True
            yield line
    if not found:
        raise MissingInputError("the list names no shard", url=source)


def _beside(source: str, line: str) -> str:
    if not scheme_of(source) or scheme_of(line) or line == "-" or line.startswith(("/", "pipe:")):
        return line
    return f"{source.partition('?')[0].rpartition('/')[0]}/{line}"


def _use_stdin(spec: str, stdin_uses: list[str]) -> None:
    if stdin_uses:
        raise UsageError(f"standard input is named twice ({stdin_uses[0]} and {spec}); it can be read only once")
    stdin_uses.append(spec)


def _check_local(names: Iterable[str]) -> None:
    """Look whether the shards that are on this machine exist, before hours are spent on the first
    of them.

    Raises:
        MissingInputError: several are named, and some are missing: how many, with examples.
    """
    local = [path for name in names if not is_stream(name) and (path := local_path(name)) is not None]
    missing = [path for path in local if not os.path.exists(path)]
    if missing and len(local) > 1:
        examples = ", ".join(map(printable, missing[:3]))
        raise MissingInputError(f"{len(missing)} of {len(local)} inputs are missing, for example {examples}")


def counted_shards(
    specs: Iterable[str], *, allow_pipe_in_lists: bool, outputs: Sequence[str] = (), must_exist: bool = False
) -> tuple[Iterator[str], int | None]:
    """The shards that ``specs`` name, and how many.

    None if there are very many, or the only one is a stream.

    Args:
        must_exist: those on this machine are looked for now, unless it is the only one: the reader
            says it better.

    Raises:
        UsageError: one of them is one of the outputs.
        MissingInputError: some do not exist. As :func:`expand`.
    """
    shards = other_than(outputs, expand(specs, allow_pipe_in_lists=allow_pipe_in_lists, outputs=outputs))
    first = list(itertools.islice(shards, _MOST_SHARDS + 1))
    if must_exist:
        _check_local(first)
    is_unknown = len(first) > _MOST_SHARDS or (len(first) == 1 and is_stream(first[0]))
    count = None if is_unknown else len(first)
    return itertools.chain(first, shards), count


def take_slice(n: int, i: int, w: int) -> range:
    """Which of ``n`` things are in slice ``i`` of ``w``: the slices are disjoint, complete, in
    order, and their lengths differ by at most one.

    Raises:
        UsageError: not n >= 0 and 0 <= i < w.
    """
    if n < 0 or not 0 <= i < w:
        raise UsageError(f"slice {i} of {w} over {n} things; it takes n >= 0 and 0 <= i < w")
    return range(n * i // w, n * (i + 1) // w)
