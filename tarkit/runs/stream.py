"""One run of a command or function over samples: the books, failed samples, the output.

:func:`run` draws outcomes in input order and puts each sample where it belongs. It
decides nothing about shells or processes (the pools do) nor about what a person sees (the
caller gives a ``Reporter``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tarkit.errors import UsageError
from tarkit.mapping.parallel import Pool, in_batches, ordered_map
from tarkit.runs.account import ERROR_FIELD, ERROR_POLICIES, Account, Policy, Reporter, Sinks
from tarkit.runs.counts import Books
from tarkit.samples.sample import Sample


def run(
    samples: Iterable[Sample],
    pool: Pool,
    sinks: Sinks,
    *,
    policy: Policy,
    reporter: Reporter,
    window: int,
    batch_size: int = 1,
) -> Books:
    """Run every sample through a pool, and publish what came of it.

    Args:
        samples: drawn lazily. pool: what runs them. sinks: where they go; published at the end, or
            discarded on any exception.
        policy: what to do with failures. reporter: is told. window: bytes of samples held at most.
        batch_size: samples for one call of the command or function.

    Returns:
        The books, balanced.

    Raises:
        TooManyErrorsError: the limit was exceeded, or not one sample succeeded.
        TarkitError: the input is damaged, the output can not be written, and so on.
    """
    if policy.errors not in ERROR_POLICIES:
        raise UsageError(f"error policy {policy.errors!r} must be one of {', '.join(ERROR_POLICIES)}")
    account = Account(Books(), sinks, policy, reporter)
    try:
        for batch, outcome in ordered_map(in_batches(samples, batch_size), pool, window=window):
            account.enter(batch, outcome)
        account.conclude()
        sinks.publish()
    except BaseException:
        sinks.discard()
        raise
    return account.books


def without_reports(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Failed samples as they were before they failed."""
    for sample in samples:
        sample.pop(ERROR_FIELD, None)
        yield sample
