"""Expand shard specs, the texts with which users name many shards.

A spec is a path, a URL, ``-`` (standard input), a ``pipe:`` command, a pattern with braces or with
``*?[``, ``@LIST``, a file of specs, or a data set's manifest (``dataset.json``). Only such lists
and manifests are opened here. Object stores are asked for listings, and for the existence of a name
with ``[``; the Hugging Face Hub for the commit of a revision.
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

# Names of shards that braces expand to must not begin with these.
_WORDS = ("-", "@", "pipe:")
_IPV6_HOST = re.compile(r"(?<=[/@])\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\](?=[:/]|\Z)")
_GLOB = re.compile(r"[*?\[]")
_NUL = "\0"
_FEW = 1000
_MOST_SHARDS = 100_000
"""Number of names that are made before a run begins, to count the inputs."""
MOST_NAMES = 10_000_000
"""Largest number of names of one pattern; all of them still fit into memory."""


def expand(
    specs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    allow_pipe: bool = True,
    allow_pipe_in_lists: bool = False,
    manifests: bool = True,
    outputs: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the paths and URLs of the shards that ``specs`` name, in order.

    - Braces expand as in bash, except that unbalanced braces are an error.
    - ``*``, ``?``, ``[`` (and ``**`` for any depth) are looked up locally and on every fsspec file
      system that can list; the matches come sorted. In an http URL, ``?`` begins the query.
    - At hf://, each name has the commit of the branch or tag in its spec, or of the default branch.
    - An existing local file whose name is the spec wins over both; at a URL, an object whose name
      has a ``[`` wins over the pattern.
    - ``@LIST`` reads one spec per line; blank lines and lines that begin with ``#`` are skipped.
      Lists do not nest. ``@-`` reads the list from standard input. Relative names in a local list
      are relative to the current folder, as in ``tar -T`` and ``ls DIR/*.tar > LIST``; those in a
      list at a URL are relative to that URL's folder.
    - A spec that ends with ``.json`` names a data set's manifest (``docs/formats/manifest.md``) and
      stands for the shards that it lists, unless ``manifests`` is False. Their samples and bytes
      are not compared with it here.
    - ``pipe:`` commands are never expanded. In a list they are allowed only with
      ``allow_pipe_in_lists``, because the author of such a list runs commands here.
    - ``-`` stays as it is; standard input can be named once.
    - A list or a manifest must not be one of ``outputs``, which would replace it. The shards are
      not compared with them.

    Args:
        specs: one spec or several.
        allow_pipe: True if a spec may be a ``pipe:`` command.
        allow_pipe_in_lists: True if a line of a list may be a ``pipe:`` command.
        manifests: False if a name that ends with ``.json`` is an ordinary name.
        outputs: paths and URLs of the outputs.

    Raises:
        UsageError: a spec is not valid: unbalanced braces, or more braces than a name may have; a
            pattern of more than 10 million names, or on a server that cannot list; a ``pipe:``
            command that is not allowed; standard input named twice; a list or manifest that is an
            output.
        MissingInputError: a pattern matches nothing, or a list does not exist or names no shard.
        DataError: a JSON file is not a manifest.
        StreamError: a list or manifest cannot be read.
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
    """Yield the text of one spec, or of each of several.

    Raises:
        UsageError: a spec has no text, such as an open file.
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
    """Reject a list or manifest that is one of the outputs.

    Raises:
        UsageError: the list or manifest is an output.
    """
    check_other_than(outputs, (source if source == "-" or scheme_of(source) else Path(source),))


def _listed(manifest: str, outputs: Sequence[str]) -> Iterator[str]:
    """Yield the shards that a manifest lists.

    A folder whose name ends in ``.json`` is a folder, not a manifest.
    """
    if os.path.isdir(manifest):
        return iter((manifest,))
    _check_source(manifest, outputs)
    return (shard.url for shard in read_manifest(manifest))


def fixed_names(spec: str) -> Product | None:
    """Return the names of a spec that are known without a listing or a list, or None.

    None for ``-``, a command, a list, a manifest or a glob; or if a name could be one of those that
    braces must not expand to.

    Raises:
        UsageError: the braces are not balanced.
    """
    if _is_special(spec) or _GLOB.search(spec) or is_manifest(spec):
        return None
    if not scheme_of(spec) and os.path.exists(spec):
        return Product((Choice((spec,)),))
    found = parse_braces(spec)
    return None if _may_be_special(found) else found


def patterns_of(specs: Sequence[str]) -> list[Product] | None:
    """Return the names of each spec, or None if a listing or a list is needed for them.

    Raises:
        UsageError: the braces are not balanced.
    """
    found = [pattern for spec in specs if (pattern := fixed_names(spec)) is not None]
    return found if len(found) == len(specs) else None


def _may_be_special(names: Product) -> bool:
    """Return True if a name could be a command, a list, standard input or empty."""
    if names.count <= _FEW:
        return any(map(_is_special, names.items(0, names.count)))
    # For a larger pattern, the text before its first braces must rule it out; no such word has a
    # number in it.
    head, rest = "", names.parts
    if isinstance(rest[0], Choice) and rest[0].count == 1:
        head, rest = next(rest[0].items(0, 1)).lower(), rest[1:]
    numbered = isinstance(rest[0], Range)
    return any(head.startswith(word) or (not numbered and word.startswith(head)) for word in _WORDS)


def _is_special(name: str) -> bool:
    """Return True if a name from the user is not the name of a shard."""
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
    """Return True if an object has this name, so that it is not a pattern, as for a path."""
    try:
        stat(url)
    except TemporaryStreamError:
        raise
    except (MissingInputError, StreamError):
        # Permission to list does not include permission to read metadata.
        return False
    return True


def _as_path(path: str) -> str:
    """Return a file's path in a form that is not taken for ``pipe:…``, ``-`` or a URL."""
    return f"./{path}" if _is_special(path) or scheme_of(path) else path


def _read_list(source: str, stdin_uses: list[str]) -> Iterator[str]:
    """Yield the specs in a list, without comments and blank lines; "-" is standard input."""
    if not source:
        raise UsageError("@ names no list; write @FILE, @URL or @- for standard input")
    if source.startswith("pipe:"):
        raise UsageError(f"@{quoted(source)}: a list is read from a file, a URL or - (standard input)")
    if source == "-":
        _use_stdin("@-", stdin_uses)
        lines: Iterator[bytes] = iter(sys.stdin.buffer)
    else:
        from tarkit.store.read import read_whole

        # A path is always opened as a path, even if it looks like a URL.
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
    """Check that local shards exist before the first of them is processed.

    Raises:
        MissingInputError: several are named and some are missing; the message has their number and
            examples.
    """
    local = [path for name in names if not is_stream(name) and (path := local_path(name)) is not None]
    missing = [path for path in local if not os.path.exists(path)]
    if missing and len(local) > 1:
        examples = ", ".join(map(printable, missing[:3]))
        raise MissingInputError(f"{len(missing)} of {len(local)} inputs are missing, for example {examples}")


def counted_shards(
    specs: Iterable[str], *, allow_pipe_in_lists: bool, outputs: Sequence[str] = (), must_exist: bool = False
) -> tuple[Iterator[str], int | None]:
    """Return the shards that ``specs`` name, and their number.

    The number is None if there are very many, or if the only input is a stream.

    Args:
        allow_pipe_in_lists: True if a list may have ``pipe:`` commands.
        outputs: paths and URLs of the outputs.
        must_exist: True to check now that local shards exist. A single input is not checked,
            because the reader's message says more.

    Raises:
        UsageError: a spec is not valid (see :func:`expand`), or an input is an output.
        MissingInputError: a shard or a list does not exist.
        DataError: a JSON file is not a manifest.
        StreamError: a list or manifest cannot be read.
    """
    shards = other_than(outputs, expand(specs, allow_pipe_in_lists=allow_pipe_in_lists, outputs=outputs))
    first = list(itertools.islice(shards, _MOST_SHARDS + 1))
    if must_exist:
        _check_local(first)
    is_unknown = len(first) > _MOST_SHARDS or (len(first) == 1 and is_stream(first[0]))
    count = None if is_unknown else len(first)
    return itertools.chain(first, shards), count


def take_slice(n: int, i: int, w: int) -> range:
    """Return the numbers of the items in slice ``i`` when ``n`` items are cut into ``w`` slices.

    The slices are disjoint, complete and in order, and their lengths differ by at most one.

    Raises:
        UsageError: n is negative, or i is not in 0 <= i < w.
    """
    if n < 0 or not 0 <= i < w:
        raise UsageError(f"slice {i} of {w} over {n} things; it takes n >= 0 and 0 <= i < w")
    return range(n * i // w, n * (i + 1) // w)
