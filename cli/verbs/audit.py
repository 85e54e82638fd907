"""``tarkit audit``: check that a training used each sample once an epoch."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_DATA, EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, counted, printable

from ..shared.program import json_option, standard_options, work_option
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.trainers.audit import EpochAudit

_LISTED = 20
_EPILOG = """\b
Examples:
  tarkit audit audited
  tarkit audit audited 'train-{0000..0147}.tar'

\b
Exit codes: 0 each epoch is complete, and each sample was used once; 1 the last epoch is not
complete, or epochs were undone by a later start; 2 the shards are not those of the training;
3 complete, but samples failed or were dropped; 65 samples are missing, were used twice, or differ
from the shards, a line is damaged, or DIR has the records of two trainings; 66 DIR has no audit.
"""


@click.command("audit", epilog=_EPILOG)
@click.argument("folder", metavar="DIR")
@click.argument("specs", metavar="[SHARD]...", nargs=-1)
@json_option
@work_option("key_rule")
@standard_options
def command(folder: str, specs: tuple[str, ...], as_json: bool, key_rule: str, verbose: bool) -> int:
    """Check that a training used each sample exactly once an epoch, from the records in DIR.

    DIR is the argument audit= of ShardDataset or tarkit.batches. Samples that were delivered before
    the training resumed from an earlier state are not counted as used, and are reported as undone.
    Missing and repeated samples are listed by shard and number. Of streams, each sample is used
    once in a pass over its stream, and the number of used samples of each stream is shown. With
    SHARD, all shards that any epoch has read, the delivered keys are compared with those of the
    shards' indexes. No sample is read. Long lists are cut; -v prints all.
    """
    from tarkit.trainers.audit import audit_folder

    epochs = audit_folder(folder, specs, key_rule)
    problems = [problem for epoch in epochs for problem in epoch.problems]
    with Results() as results:
        for problem in () if as_json else problems if verbose else problems[:_LISTED]:
            results.line(problem)
        if not (verbose or as_json) and len(problems) > _LISTED:
            results.line(f"… and {len(problems) - _LISTED} more")
        for epoch in epochs:
            found = {**asdict(epoch), "complete": epoch.complete}
            results.line(json.dumps(found) if as_json else _line(epoch))
    if problems:
        return EXIT_DATA
    if not all(epoch.complete for epoch in epochs):
        return EXIT_FAILED
    return EXIT_SET_ASIDE if any(epoch.dropped for epoch in epochs) else EXIT_OK


def _line(epoch: EpochAudit) -> str:
    state = "wrong" if epoch.problems else "complete" if epoch.complete else "not complete"
    parts = [f"{epoch.used} of {counted(epoch.samples, 'sample')} used"]
    for number, what in (
        (epoch.left_out, "fill no batch"),
        (epoch.dropped, "left out, as they failed or transform dropped them"),
        (epoch.again, "undone by a later start"),
        (epoch.in_hand, "given, and not known to be used"),
        (len(epoch.problems), "missing, twice or wrong"),
    ):
        parts += [f"{number} {what}"] if number else []
    shares = [f"{printable(name)} {count} ({count / epoch.used:.2%})" for name, count in epoch.streams.items() if count]
    parts += [f"of streams {', '.join(shares)}"] if shares else []
    return f"epoch {epoch.epoch}: {state}: {', '.join(parts)}"
