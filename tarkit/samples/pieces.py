"""Cut a tar into pieces, one for each sample; joined, they are the tar byte for byte."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from tarkit.errors import DataError
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.formats.tar.headers import END_OF_ARCHIVE
from tarkit.formats.tar.large import RefuseLarge
from tarkit.formats.tar.raw import RawArchive, copied_members
from tarkit.samples.read import placed_samples
from tarkit.samples.sample import KeyRule, first_dot, in_sample, key_rule

Piece = tuple[str, bytes]
"""(key, bytes) of one piece."""


def sample_pieces(
    read: Callable[[int], bytes],
    *,
    url: str = "",
    rule: str | KeyRule = first_dot,
    on_repeated_key: str = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[Piece]:
    """Yield (key, piece) for each sample of one tar stream, in order.

    A piece begins with the first header of its sample, extended headers included, and ends where
    the next piece begins, so it also has the members that belong to no sample. The first piece
    begins where the tar does, the last piece has the end-of-archive mark. A tar without samples is
    one piece with the key "".

    Args:
        read: function that reads up to n bytes, as for :func:`tarkit.samples.read.read_members`.
        url: URL of the shard, for errors.
        on_repeated_key: error or allow, as for :func:`tarkit.samples.sample.group_by_keys`.
        tally: filled with counts.
        mem: largest size of a sample in bytes.

    Raises:
        TooLargeError: a sample has more than ``mem`` bytes.
        DataError: the tar is damaged, a key is repeated, or a sample has a field twice.
    """
    held = bytearray()

    def recorded(count: int) -> bytes:
        data = read(count)
        held.extend(data)
        return data

    samples = placed_samples(
        recorded, url=url, rule=key_rule(rule), on_repeated_key=on_repeated_key, tally=tally, large=RefuseLarge(mem)
    )
    start, last = 0, ""
    for number, (begin, sample) in enumerate(samples):
        if number:
            yield last, bytes(held[: begin - start])
            del held[: begin - start]
            start = begin
        last = sample["__key__"]
    if held:
        yield last, bytes(held)


def one_archive(tars: Iterable[Iterable[Piece]], *, rule: str | KeyRule = first_dot) -> Iterator[Piece]:
    """Join the pieces of several tars into one: drop the end-of-archive marks between them.

    Most programs read nothing after such a mark. Pieces that are not of a tar stay as they are, as
    do those whose samples would become one sample.
    """
    split_name = key_rule(rule)
    held: Piece | None = None
    last = ""  # key of the last sample before a boundary
    for pieces in tars:
        behind = held
        for key, piece in pieces:
            if held is not None and held is behind:
                content, last = _without_end_mark(held[1], piece, split_name, last)
                held = held[0], content
            if held is not None:
                yield held
            held = key, piece
    if held is not None:
        yield held


def _without_end_mark(piece: bytes, following: bytes, rule: KeyRule, last: str) -> tuple[bytes, str]:
    """Drop the end mark of a piece; return the rest and the key of its last sample.

    If the piece has no sample, the key is ``last``, that of the last sample before the piece.
    """
    out = bytearray()
    try:
        last = next(reversed(_keys(piece, rule)), last)
        if last in _keys(following, rule)[:1]:
            return piece, last
        archive = RawArchive(io.BytesIO(piece).read, "", in_sample(rule), Tally(), [], out.extend)
        deque(copied_members(archive), maxlen=0)
    except DataError:
        # The piece has no mark. The reader of the output reports a file that is not a tar.
        return piece, last
    return bytes(out), last


def _keys(piece: bytes, rule: KeyRule) -> list[str]:
    read = io.BytesIO(piece + END_OF_ARCHIVE).read
    return [sample["__key__"] for _, sample in placed_samples(read, url="", rule=rule, on_repeated_key="allow")]
