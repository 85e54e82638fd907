"""A tar in pieces, one for each sample: joined again they are the tar, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import DEFAULT_MEM, RefuseLarge
from tarkit.formats.tar.walk import Member
from tarkit.samples.read import read_members
from tarkit.samples.sample import KeyRule, first_dot, group_by_keys, key_rule


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
    split = key_rule(rule)
    held = bytearray()
    begins: dict[str, int] = {}

    def recorded(count: int) -> bytes:
        data = read(count)
        held.extend(data)
        return data

    def noted(members: Iterable[Member]) -> Iterator[Member]:
        for member in members:
            parts = split(member[0])
            if parts is not None:
                begins.setdefault(parts[0], member[2])
            yield member

    large = RefuseLarge(mem)
    members = read_members(recorded, url=url, rule=split, tally=tally, large=large)
    samples = group_by_keys(
        noted(members),
        url=url,
        rule=split,
        on_repeated_key=on_repeated_key,
        tally=tally,
        sample_limit=mem,
        spill=large.spill,
    )
    start, last = 0, ""
    for number, sample in enumerate(samples):
        begin = begins.pop(sample["__key__"])
        if number:
            yield last, bytes(held[: begin - start])
            del held[: begin - start]
            start = begin
        last = sample["__key__"]
    if held:
        yield last, bytes(held)
