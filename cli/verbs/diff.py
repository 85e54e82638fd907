"""``tarkit diff``: the samples by which two data sets differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, UsageError, counted

from ..shared.program import refuse_terminal_input
from ..shared.shardverb import VerbRun, against_option, shard_verb

if TYPE_CHECKING:
    from tarkit.samples.sample import Sample

_EPILOG = """\b
Examples:
  tarkit diff 'old-{0000..0147}.tar' --against 'new-*.tar'
  tarkit diff a.tar --against b.tar -q && echo equal
  tarkit diff a.tar --against b.tar --drop-fields json
  tarkit diff a.tar --against b.tar --json | jq -r 'select(.kind == "only-a").key'

\b
Exit codes: 0 the data sets are equal; 3 they differ, or damage was skipped. All others are
failures: 1 a shard cannot be read, 2 usage, 65 a shard is damaged, 66 missing, 75 temporary.
"""
_SENTENCES = {"only-a": "only in A", "only-b": "only in B", "differs": "differs", "order": "in another order"}


@shard_verb("diff", epilog=_EPILOG, inputs="SHARD...")
@against_option(required=True)
@click.option("--order", is_flag=True, help="Also compare the order of the samples.")
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no differences, no progress, no summary.")
def command(run: VerbRun, against: tuple[str, ...], order: bool) -> int:
    """List the samples by which two data sets differ, by key and content.

    The data sets are A, the shards SHARD, and B, those of --against. Samples are compared by their
    keys, however they are divided among shards; of the members, only names and contents count. If a
    key is repeated, its samples are compared in their order. Each line is a difference, in the
    order of the keys; the counts are printed at the end, on stderr:

    \b
      only in A: 000007
      only in B: 000009
      differs: 000008: cls 1 and 2 bytes; jpg 95 bytes, other content; txt only in A, 12 bytes
      in another order: 000003, sample 17 in A and 3 in B  (the first of them, with --order)

    With --json each line is {"kind", "key", "fields": {FIELD: [BYTES IN A, BYTES IN B]}, "places":
    [NUMBER IN A, NUMBER IN B]}; KIND is only-a, only-b, differs or order, and null is absence.

    Options such as --drop-fields and --where select what is compared of both data sets; --rekey
    %06d compares the samples by their number.

    Memory is bounded: above 64 MB, keys and digests are sorted in a temporary file in $TMPDIR, else
    /var/tmp, of about 250 bytes a sample.
    """
    refuse_terminal_input(against)
    if "-" in run.inputs and "-" in against:
        raise UsageError("standard input is one of the data sets: name the shards of the other one")
    from tarkit.steps.diff import DIFFERS, EQUAL, ONLY_A, ONLY_B, Difference, compare

    def text(found: Difference) -> str:
        fields = [_field(field, *sizes) for field, sizes in found.fields.items() if found.kind == DIFFERS]
        places = ", sample {} in A and {} in B".format(*found.places) if found.kind == "order" else ""
        return f"{_SENTENCES[found.kind]}: {found.key}{places}{': ' if fields else ''}{'; '.join(fields)}"

    def select(samples: Iterable[Sample]) -> Iterator[Sample]:
        run.selection.kept = 0  # the number for --rekey, in each data set
        return run.selection.select(samples, last=False)

    counts = Counter[str]()
    run.results.only_messages = run.is_quiet
    (a, in_a), (b, in_b) = ((run.shards(given), run.total) for given in (run.inputs, against))
    progress = run.meter.samples(in_a + in_b if in_a and in_b else None)
    chosen = select if run.chosen else None
    for found in compare(a, b, order=order, counts=counts, select=chosen, progress=progress, **run.reading):
        if not run.is_quiet:
            run.results.line(json.dumps(found._asdict()) if run.as_json else text(found))
    run.selection.check()
    words = {EQUAL: "equal", DIFFERS: "differ", ONLY_A: "only in A", ONLY_B: "only in B"}
    run.notes = [f"samples: {', '.join(f'{counts[kind]} {word}' for kind, word in words.items())}"]
    return EXIT_SET_ASIDE if set(counts) - {EQUAL} else EXIT_OK


def _field(field: str, a: int | None, b: int | None) -> str:
    """Return a phrase on a field of the sizes ``a`` and ``b``."""
    if a is None:
        return f"{field} only in B, {counted(b or 0, 'byte')}"
    if b is None:
        return f"{field} only in A, {counted(a, 'byte')}"
    return f"{field} {counted(a, 'byte')}, other content" if a == b else f"{field} {a} and {b} bytes"
