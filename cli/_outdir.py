"""``tarproc -O OUTDIR``: many shards in, as many out, resumable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tarkit.errors import UsageError, printable
from tarkit.sources import display_name

from ._pipeline import prepared, samples_of, writer_options
from ._progress import Progress

if TYPE_CHECKING:
    from tarkit.donerecord import DoneRecord
    from tarkit.run import Policy
    from tarkit.sample import Tally
    from tarkit.shardrun import Totals

# Options that change what comes out; all others (how many at once, how much memory) do not.
_WORK = (
    "command",
    "mapper",
    "setup",
    "interpreter",
    "shell",
    "fields",
    "fieldmode",
    "base",
    "multi",
    "subdirs",
    "separator",
    "include",
    "exclude",
    "batch",
    "add_log",
    "errors",
    "mtime",
    "count",
    "key_rule",
    "on_duplicate_field",
    "on_repeated_key",
    "on_damage",
)


class ShardProgress(Progress):
    """Also tells of shards."""

    def shard_skipped(self, output_url: str) -> None:
        """One was done before."""
        if self.verbose:
            self.say(f"{printable(display_name(output_url))}: done before")

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        """One is published, or failed."""
        name = printable(display_name(output_url))
        if record.state != "done":
            self.say(f"{name}: failed: {record.error}")
        elif self.verbose or record.exit_code:
            samples = record.samples
            self.say(f"{name}: in {samples['in']} = out {samples['out']} + failed {samples['failed']} …")


def expected_outputs(
    inputs: list[str], outdir: str, piece: str | None, allow_pipe: bool = False
) -> Iterator[tuple[str, str]]:
    """Inputs with their outputs, of one slice if one is asked for."""
    from tarkit.shardrun import plan_outputs
    from tarkit.shards import expand, parse_slice, take_slice

    if piece is None:
        return plan_outputs(expand(inputs, allow_pipe_in_lists=allow_pipe), outdir)
    index, pieces = parse_slice(_with_index(piece))
    urls = list(expand(inputs, allow_pipe_in_lists=allow_pipe))
    wanted = take_slice(len(urls), index, pieces)
    # All names are looked at, so that two slices can not make the same output.
    return iter([pair for number, pair in enumerate(plan_outputs(urls, outdir)) if number in wanted])


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
    """Fingerprint of what is done to the samples: options, and the content of scripts."""
    from tarkit.donerecord import fingerprint

    work = {name: options[name] for name in _WORK}
    work["script"] = _content(options["script"])
    if options["mapper"] is not None and options["mapper"].rpartition(":")[0].endswith(".py"):
        work["mapper_file"] = _content(options["mapper"].rpartition(":")[0])
    return fingerprint(work)


def _content(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read().decode("latin-1")
    except OSError:
        # A program on the path, or a mistake that is reported where the script is started.
        return path


def run_shards(
    options: dict[str, Any], inputs: list[str], pool: Any, progress: ShardProgress, policy: Policy
) -> Totals:
    """Make every shard of OUTDIR that is not done yet."""
    from tarkit.shardrun import ShardRun
    from tarkit.sources import local_path

    def read(url: str, tally: Tally) -> Iterator[dict[str, Any]]:
        return samples_of(options, [url], tally)

    folder = local_path(options["outdir"])
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
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
        open_shards=options["parallel"],
    )
    return run.run(expected_outputs(inputs, options["outdir"], options["slice"], options["allow_pipe"]))


def retry_shards(options: dict[str, Any], pool: Any, progress: ShardProgress, policy: Policy) -> Totals:
    """Run the failed samples of OUTDIR again."""
    from tarkit.retryrun import RetryRun

    def prepare(samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return prepared(options, samples)

    run = RetryRun(
        pool,
        prepare=prepare,
        policy=policy,
        reporter=progress,
        window=options["mem"],
        batch_size=options["batch"] or 1,
        writer_options=writer_options(options),
        work=work_of(options),
    )
    return run.run(options["outdir"])


def totals_line(totals: Totals) -> str:
    """The shards and their samples in one line."""
    books = totals.books
    added = f" + added {books.added}" if books.added else ""
    return (
        f"shards: done {totals.done}, done before {totals.skipped}, failed {totals.failed}; samples: in {books.read}"
        f"{added} = out {books.out} + filtered {books.filtered} + failed {books.failed}"
    )


def shards_report(totals: Totals, inputs: list[str], outdir: str, seconds: float) -> bytes:
    """The totals as a JSON document."""
    import json

    document = {
        "inputs": [display_name(each) for each in inputs],
        "outdir": display_name(outdir),
        "exit_code": totals.exit_code(),
        "seconds": round(seconds, 3),
        "shards": {"done": totals.done, "done_before": totals.skipped, "failed": totals.failed},
        "samples": totals.books.as_dict(),
        "failures": totals.books.failures,
    }
    return json.dumps(document, indent=2).encode("utf-8") + b"\n"
