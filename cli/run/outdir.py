"""``tarproc -O OUTDIR``: many shards in, as many out, resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tarkit.errors import StreamError, UsageError, printable
from tarkit.runs.work import Work
from tarkit.store.url import display_name

from ..shared.program import exit_code
from ..shared.results import missing_kinds, skipped_kinds
from .pipeline import large_members, samples_of, with_fields, writer_options
from .progress import Progress

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.runs.account import Policy
    from tarkit.runs.counts import Books
    from tarkit.runs.donerecord import DoneRecord
    from tarkit.runs.shards import Totals


class ShardProgress(Progress):
    """Also tells of shards. The books are those of one shard after the other."""

    _read = _failed = _missing = _done = _before = _begun = 0
    expected = 0
    """Shards of the whole run, 0 if that is not known."""

    def begin(self, tally: Tally) -> None:
        """One more shard is being read."""
        self._begun += 1
        self._tally = tally

    def text(self, read: int, failed: int) -> str:
        of = f" of {self.expected}" if self.expected else ""
        return f"{super().text(read, failed)}, {self._done + self._before}{of} shards done"

    def part(self, read: int) -> float | None:
        # What needs no work says nothing of how long the rest will take.
        to_do = self.expected - self._before - self._missing
        if to_do <= 0:
            return None
        at_hand = 0.0 if self._tally is None else self._tally.shards_read()
        return (max(0, self._begun - 1) + at_hand) / to_do

    def advanced(self, books: Books) -> None:
        """Show how far all shards together are."""
        if self.books is not None and books is not self.books:
            self._read += self.books.read
            self._failed += self.books.failed
        self.books = books
        self.show(self._read + books.read, self._failed + books.failed)

    def shard_missing(self, url: str) -> None:
        """An input does not exist. There may be 100,000 of them: one is told at once, the end counts them."""
        self._missing += 1
        self.show(self._read, self._failed)
        if self._missing == 1:
            self.say(f"{printable(display_name(url))}: there is no such file; missing shards are counted")

    def shard_skipped(self, output_url: str) -> None:
        """One was done before."""
        self._before += 1
        self.show(self._read, self._failed)
        if self.verbose:
            self.say(f"{printable(display_name(output_url))}: done before")

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        """One is published, or failed."""
        self._done += 1
        name = printable(display_name(output_url))
        if record.state != "done":
            self.say(f"{name}: failed: {record.error}")
        elif self.verbose or record.exit_code:
            self.say(f"{name}: {_balance(record.samples)}")


def _balance(samples: Mapping[str, int]) -> str:
    added = f" + added {samples['added']}" if samples["added"] else ""
    out, filtered, failed = samples["out"], samples["filtered"], samples["failed"]
    return f"in {samples['in']}{added} = out {out} + filtered {filtered} + failed {failed}"


def expected_outputs(options: Mapping[str, Any], inputs: list[str]) -> list[tuple[str, str]]:
    """Inputs with their outputs, of one slice if one is asked for.

    All names are looked at before the first shard is begun, and whatever the slice: a long run must not
    end with the last name being that of another shard, and two slices must not make the same output.
    """
    from tarkit.specs.outputnames import plan_outputs
    from tarkit.specs.shardspec import expand, parse_slice

    outdir, allow_pipe = options["outdir"], options["allow_pipe"]
    if options["slice"] is None:
        return list(plan_outputs(expand(inputs, allow_pipe_in_lists=allow_pipe), outdir))
    from tarkit.specs.inputslice import plan_slice

    index, count = parse_slice(_with_index(options["slice"]))
    wanted = options["list_sha256"]
    return plan_slice(inputs, outdir, index, count, list_sha256=wanted, allow_pipe_in_lists=allow_pipe)


def _with_index(piece: str) -> str:
    if "/" in piece:
        return piece
    index = os.environ.get("JOB_COMPLETION_INDEX")
    if index is None:
        raise UsageError(
            f"--slice {piece} says only how many slices there are; say I/W, or run where Kubernetes sets "
            "JOB_COMPLETION_INDEX"
        )
    return f"{index}/{piece}"


def work_of(options: Mapping[str, Any]) -> str:
    """Fingerprint of what is done to the samples."""
    return Work(**{name: value for name, value in options.items() if name != "scratch"}).fingerprint()


def shards_to_run(
    options: dict[str, Any], inputs: list[str], pool: Any, progress: ShardProgress, policy: Policy
) -> tuple[Totals, Callable[[], object]]:
    """What makes every shard of OUTDIR that is not done yet, with the totals that it fills."""
    from tarkit.runs.shards import ShardRun
    from tarkit.store.sinks import make_folder
    from tarkit.store.url import local_path

    def read(url: str, tally: Tally) -> Iterator[dict[str, Any]]:
        progress.begin(tally)
        return samples_of(options, [url], tally)

    outputs = expected_outputs(options, inputs)
    progress.expected = len(outputs)
    folder = local_path(options["outdir"])
    if folder is not None:
        try:
            make_folder(folder, f"-O {folder}")
        except StreamError as error:
            raise UsageError(str(error)) from None
    run = ShardRun(
        read,
        pool,
        policy=policy,
        reporter=progress,
        window=options["mem"],
        batch_size=options["batch"] or 1,
        writer_options=writer_options(options),
        work=work_of(options),
        version=version("tarkit"),
        open_shards=options["parallel"] or 1,
    )
    return run.totals, lambda: run.run(outputs)


def shards_to_retry(
    options: dict[str, Any], pool: Any, progress: ShardProgress, policy: Policy
) -> tuple[Totals, Callable[[], object]]:
    """What runs the failed samples of OUTDIR again, with the totals that it fills."""
    from tarkit.runs.retryfailed import RetryRun

    if options["slice"] is not None:
        raise UsageError("--slice takes a part of the inputs; --retry-failed has none")

    def prepare(samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return with_fields(options, samples, None)

    run = RetryRun(
        pool,
        prepare=prepare,
        policy=policy,
        reporter=progress,
        window=options["mem"],
        batch_size=options["batch"] or 1,
        writer_options=writer_options(options),
        work=work_of(options),
        large=large_members(options),
    )
    return run.totals, lambda: run.run(options["outdir"])


def totals_line(totals: Totals) -> str:
    """The shards and their samples in one line."""
    missing = f", missing {totals.missing}" if totals.missing else ""
    kinds = skipped_kinds(totals.skipped_members)
    lacking = missing_kinds(totals.missing_fields)
    return (
        f"shards: done {totals.done}, done before {totals.skipped}, failed {totals.failed}{missing}; "
        f"samples: {_balance(totals.books.as_dict())}"
        + (f"; skipped members: {kinds}" if kinds else "")
        + (f"; {lacking}" if lacking else "")
    )


def missing_line(totals: Totals) -> str | None:
    """How many inputs do not exist, with examples; None if all are there."""
    if not totals.missing:
        return None
    names = ", ".join(printable(name) for name in totals.missing_names)
    if totals.missing <= len(totals.missing_names):
        return f"{totals.missing} {'shard is' if totals.missing == 1 else 'shards are'} missing: {names}"
    return f"{totals.missing} shards are missing, for example {names}"


def shards_report(totals: Totals, inputs: list[str], outdir: str, seconds: float, error: BaseException | None) -> bytes:
    """The totals as a JSON document."""
    import json

    document = {
        "inputs": [display_name(each) for each in inputs],
        "outdir": display_name(outdir),
        "exit_code": totals.exit_code() if error is None else exit_code(error),
        "error": None if error is None else str(error) or type(error).__name__,
        "seconds": round(seconds, 3),
        "shards": {
            "done": totals.done,
            "done_before": totals.skipped,
            "failed": totals.failed,
            "missing": totals.missing,
        },
        "missing_examples": totals.missing_names,
        "samples": totals.books.as_dict(),
        "failures": totals.books.failures,
        "missing_fields": totals.missing_fields,
    }
    return json.dumps(document, indent=2).encode("utf-8") + b"\n"
