"""``tarkit diff``: the samples by which two data sets differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, UsageError, counted

from ..shared.meter import Meter
from ..shared.program import json_option, read_options, reader_options, refuse_terminal_input, say, standard_options
from ..shared.results import Results, met
from ..shared.selection import selected, selection_of, selection_options

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


@click.command("diff", epilog=_EPILOG)
@click.argument("specs", metavar="SHARD...", nargs=-1, required=True)
@click.option(
    "--against", metavar="SHARD", multiple=True, required=True, help="Shards of the data set B.  [repeatable]"
)
@click.option("--order", is_flag=True, help="Also compare the order of the samples.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; the exit code is the result.")
@selection_options
@reader_options
@standard_options
def command(
    specs: tuple[str, ...], against: tuple[str, ...], order: bool, as_json: bool, quiet: bool,
    allow_pipe: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
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

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or -.
    """
    refuse_terminal_input([*specs, *against])
    if "-" in specs and "-" in against:
        raise UsageError("standard input is one of the data sets: name the shards of the other one")
    from tarkit.formats.tally import Tally
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps.diff import DIFFERS, EQUAL, ONLY_A, ONLY_B, Difference, compare

    def text(found: Difference) -> str:
        fields = [_field(field, *sizes) for field, sizes in found.fields.items() if found.kind == DIFFERS]
        places = ", sample {} in A and {} in B".format(*found.places) if found.kind == "order" else ""
        return f"{_SENTENCES[found.kind]}: {found.key}{places}{': ' if fields else ''}{'; '.join(fields)}"

    tally, counts, selection = Tally(), Counter[str](), selection_of(options)
    reading = read_options(options, tally)
    with Meter("tarkit diff", quiet=quiet) as meter, selection, Results(only_messages=quiet) as results:

        def select(samples: Iterable[Sample]) -> Iterator[Sample]:
            selection.kept = 0  # the number for --rekey, in each data set
            return selection.select(samples, last=False)

        (a, in_a), (b, in_b) = (counted_shards(given, allow_pipe_in_lists=allow_pipe) for given in (specs, against))
        progress = meter.samples(in_a + in_b if in_a and in_b else None)
        chosen = select if selection.selects else None
        for found in compare(a, b, order=order, counts=counts, select=chosen, progress=progress, **reading):
            if not quiet:
                results.line(json.dumps(found._asdict()) if as_json else text(found))
        selection.check()
    if not quiet:
        words = {EQUAL: "equal", DIFFERS: "differ", ONLY_A: "only in A", ONLY_B: "only in B"}
        parts = [f"{counts[kind]} {word}" for kind, word in words.items()]
        say("tarkit diff", "; ".join([f"samples: {', '.join(parts)}", *selected(selection), *met(tally)]))
    return EXIT_SET_ASIDE if tally.lost_anything or set(counts) - {EQUAL} else EXIT_OK


def _field(field: str, a: int | None, b: int | None) -> str:
    """Return a phrase on a field of the sizes ``a`` and ``b``."""
    if a is None:
        return f"{field} only in B, {counted(b or 0, 'byte')}"
    if b is None:
        return f"{field} only in A, {counted(a, 'byte')}"
    return f"{field} {counted(a, 'byte')}, other content" if a == b else f"{field} {a} and {b} bytes"
