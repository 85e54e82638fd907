"""A tar in pieces, one for each sample: joined again they are the tar, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import DEFAULT_MEM, RefuseLarge
from tarkit.samples.read import placed_samples
from tarkit.samples.sample import KeyRule, first_dot, key_rule


def sample_pieces(
    read: Callable[[int], bytes],
    *,
    url: str = "",
    rule: str | KeyRule = first_dot,
    on_repeated_key: str = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[tuple[str, bytes]]:
    """(key, piece) for each sample of one tar stream, in order.

    A piece begins with the first header of its sample, extended headers included, and ends where the next one begins,
    so it holds members that belong to no sample, too. The first begins where the tar does, the last has the
    end-of-archive mark. A tar without samples is one piece with the key "".

    Args:
        read: as for :func:`tarkit.samples.read.read_members`. mem: bytes that a sample may have.
        on_repeated_key: as for :func:`tarkit.samples.sample.group_by_keys`.

    Raises:
        TooLargeError: a sample has more than ``mem`` bytes.
        DataError: the tar is damaged, a key comes back, or a field comes twice.
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
