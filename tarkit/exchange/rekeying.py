"""Give the samples of different inputs different keys."""

from __future__ import annotations

from tarkit.exchange.newmembers import NewMembers
from tarkit.samples.rawsamples import RawSample, piece_of
from tarkit.samples.sample import KeyRule


class Rekeyed:
    """A function that puts the number of its input before the key of a sample.

    Args:
        rule: key rule, by which the new names must be those of the same fields.
        mtime: time of the members, see :class:`tarkit.exchange.newmembers.NewMembers`.
        format: tar format of the members.
    """

    def __init__(self, rule: KeyRule, mtime: float | None = None, format: str = "pax") -> None:
        hint = "use a key rule that allows a folder before the key"
        self._made = NewMembers(rule, "--rekey", hint, mtime, format)

    def __call__(self, sample: RawSample, shard: int, url: str) -> RawSample:
        """Return the sample with a new key and new headers.

        Raises:
            DataError: with the new key, names are not read as the same fields.
        """
        prefix = f"{shard:06d}/"
        members = (
            (field.decode("utf-8", "surrogateescape"), prefix.encode() + name, piece_of(sample.parts, at, size))
            for field, at, size, name in sample.places()
        )
        return self._made.sample(prefix + sample.key, members, url=url)
