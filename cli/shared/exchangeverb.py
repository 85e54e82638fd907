"""The frame of the verbs that need all samples at once: options, stages, progress and summary."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import UsageError, counted
from tarkit.names.redaction import redact
from tarkit.names.url import join

from .program import Seconds, dry_run_notes, dry_run_option, is_default, option_group, reject_options, size, work_option
from .series import maxcount_option, shard_count_option
from .shardverb import VerbRun, shard_verb

if TYPE_CHECKING:
    from tarkit.exchange.exchange import Exchange, Result
    from tarkit.exchange.placing import Placement
    from tarkit.exchange.settings import ExchangeSettings
    from tarkit.exchange.step import Step

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = (
    "shard_count",
    "maxcount",
    "maxsize",
    "number_keys",
    "on_repeated_key",
    "index",
    "mtime",
    "format",
    "max_errors",
)
_FRAME = ("outdir", "work", "mem", "force", "dry_run", "stage", "stage_slice", "wait")
_MOST_PROCESSES = 8
"""Default of -p, unless there are fewer processors."""
_KEYS = """
    A key that two samples have is an error that names both: as neighbours they would be read as
    one sample.
"""
_HOW = """
    The inputs are read once; their samples go, sorted, into run files in --work, which need as much
    space as the inputs without compression (--dry-run prints it), and from these into the shards
    DIR/shard-000000.tar, ... The result is the same for every -p. A run that was killed is finished
    by the same command; the run files are removed at its end.

    A sample that fails is kept in DIR/shard-NNNNNN.tar.failed.tar, and the exit code is 3. Members
    that belong to no sample are left out and counted.

    A cluster runs each stage in slices: --stage scatter --slice I/W for all I, then --stage gather
    with any number of slices; kubetpl prints such Jobs.
"""
"""End of the help of all these verbs."""
_CUTS = ("shard_count", "maxcount", "maxsize")

index_option = click.option(
    "--index/--no-index", default=True, help="Write the index of each shard beside it.  [default: yes]"
)


def stage_options(*stages: str, held: str) -> Callable[[F], F]:
    """Return a decorator that gives a command the options for memory, work folder and stages.

    Args:
        stages: names of the stages.
        held: what memory holds, for the help.
    """
    return option_group(
        click.option("--work", metavar="DIR", help="Folder or URL for run files.  [default: _exchange in -O DIR]"),
        click.option("--mem", type=size, default="1G", show_default=True, help=f"Memory for {held}, of all processes."),
        click.option("--force", is_flag=True, help="Replace shards of another run in DIR; remove its run files."),
        dry_run_option,
        click.option("--stage", type=click.Choice(stages), help="Run one slice of one stage, as on a cluster."),
        click.option(
            "--slice", "stage_slice", metavar="I/W", help="Slice I of W; W alone: I is JOB_COMPLETION_INDEX."
        ),
        click.option(
            "--wait", type=Seconds(), default=0, show_default=True, metavar="SECONDS",
            help="With --stage, wait for the slices of the stage before.",
        ),
    )  # fmt: skip


def slice_of_stage(stage: str | None, stage_slice: str | None) -> tuple[int, int]:
    """Return number and count of the slices of :func:`stage_options`; (0, 1) without a stage.

    Raises:
        UsageError: options do not go together.
    """
    if (stage is None) != (stage_slice is None):
        raise UsageError("--stage and --slice go together: the stage, and I/W for slice I of W")
    reject_options([] if stage else ["wait"], "goes with --stage")
    reject_options(["dry_run", "force"] if stage else [], "does not go with --stage")
    if stage_slice is None:
        return 0, 1
    from tarkit.runs.process import with_index
    from tarkit.specs.inputslice import parse_slice

    return parse_slice(with_index(stage_slice))


_options = option_group(
    click.option("-O", "--outdir", metavar="DIR", required=True, help="Folder or URL for the shards."),
    shard_count_option,
    maxcount_option,
    click.option("--maxsize", type=size, metavar="SIZE", help="Most bytes of tar in a shard."),
    click.option("--rekey", "number_keys", is_flag=True, help="Put the number of its SHARD before a key: 000012/KEY."),
    work_option(
        "on_repeated_key",
        help="If samples of several SHARDs have the same key: stop, or write each of them, as samples of their own.",
    ),
    index_option,
    work_option("mtime"),
    work_option("format"),
    work_option("max_errors"),
    stage_options("scatter", "gather", held="samples"),
)


placing_options = option_group(
    click.option(
        "--to", "to_map", metavar="MAP",
        help="Put each sample into the shard that a table names: FILE:KEYCOLUMN:OUTPUTCOLUMN, or FILE with columns "
        "key and output; the file is .csv, .tsv, .jsonl or .parquet.",
    ),
    click.option(
        "--unlisted", type=click.Choice(["error", "skip"]), default="error", show_default=True,
        help="A key that MAP does not list: report it, or leave the sample out.",
    ),
)  # fmt: skip
"""Options of the verbs whose samples a table can place in outputs."""


def placement_of(to_map: str | None, unlisted: str) -> Placement | None:
    """Return the table of :data:`placing_options`, or None without one."""
    from tarkit.exchange.placing import Placement

    if to_map is None:
        reject_options(["unlisted"], "goes with --to")
        return None
    return Placement(to_map, unlisted)


@dataclass
class ExchangeVerb:
    """The options of a verb's exchange.

    Attributes:
        run: the run of the verb.
        parallel: number of processes.
        options: values of the common options by name.
    """

    run: VerbRun
    parallel: int
    options: dict[str, Any]

    def names(self, specs: Sequence[str]) -> list[str]:
        """Return the names of the shards of some specs."""
        return [*self.run.shards(specs)]

    def do(self, step: Step, urls: Sequence[str]) -> int | None:
        """Run the exchange of a step, as the options say, and note its result."""
        from tarkit.exchange.slices import ExchangeSlice

        options = self.options
        number, slices = slice_of_stage(options["stage"], options["stage_slice"])
        exchange = ExchangeSlice(
            step, urls, options["outdir"], self._settings(step), work=options["work"], parallel=self.parallel,
            mem=options["mem"], force=options["force"], report=self._report,
        )  # fmt: skip
        exchange.wait = options["wait"]
        if options["dry_run"]:
            self._note_forecast(exchange)
            return None
        if options["stage"] is None:
            result = exchange.run()
        else:
            result = (exchange.scatter if options["stage"] == "scatter" else exchange.gather)(number, slices)
        note_result(self.run, result, options["outdir"], "run file" if options["stage"] == "scatter" else "shard")
        if options["stage"] is None:
            unmatched = step.unmatched(result.counts)
            self.run.notes += [f"{what}: {number}" for what, number in unmatched.items()]
            self.run.found |= {"unmatched": unmatched}
        # A sample that failed in a scatter is not lost: the gather writes it, and ends with 3.
        return None if options["stage"] == "scatter" else result.counts.exit_code

    def do_once(self, kind: type[Exchange], step: Step, urls: Sequence[str], option: str) -> int | None:
        """Run an exchange of one pass, without stages, and note its result.

        Args:
            kind: class of the exchange.
            option: the option that asks for it.
        """
        stages = ["work", "stage", "stage_slice", "wait", "parallel"]
        reject_options(stages, f"does not go with {option}, which has one pass and no run files")
        options = self.options
        exchange = kind(
            step, urls, options["outdir"], self._settings(step),
            mem=options["mem"], force=options["force"], report=self._report,
        )  # fmt: skip
        if options["dry_run"]:
            self._note_forecast(exchange)
            return None
        result = exchange.run()
        note_result(self.run, result, options["outdir"], "shard")
        return result.counts.exit_code

    def _note_forecast(self, exchange: Exchange) -> None:
        from tarkit.exchange.forecast import forecast

        found = forecast(exchange)
        self.run.notes += [found.line(), *dry_run_notes()]
        self.run.found |= found.as_dict()

    def _settings(self, step: Step) -> ExchangeSettings:
        from tarkit.exchange.settings import ExchangeSettings

        found = {name: self.options[name] for name in _SETTINGS}
        if step.outputs:
            reject_options(_CUTS, "does not go with --to, which names the shards")
        # --rekey is not that of the verbs that select, which takes a text.
        found["rekey"], found["shards"] = found.pop("number_keys"), found.pop("shard_count")
        if is_default("maxcount") and (found["shards"] or found["maxsize"] or step.outputs):
            found["maxcount"] = None
        return ExchangeSettings(key_rule=str(self.run.reading["rule"]), **found)

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.run.meter.is_due():
            what = {"scatter": "slices scattered", "read": "shards read"}.get(stage, "shards gathered")
            part = done / total if total else None
            self.run.meter.show(f"{done} of {total} {what}", part)


def note_result(run: VerbRun, result: Result, outdir: str, unit: str) -> None:
    """Note the result of an exchange, or of a slice of a stage.

    Args:
        outdir: path or URL of the folder of the outputs.
        unit: what was made: shard, run file, or nothing by a dry run.
    """
    counts = result.counts
    before = f", {result.done_before} done before" if result.done_before else ""
    made = f"{counted(result.done, unit)}{before}, {result.size} bytes; " if unit else ""
    run.notes.append(f"{made}samples: {counts.sum_of_samples()}")
    if counts.failed and unit == "shard":
        run.notes.append(f"failed samples are in {redact(join(outdir, '*.failed.tar'))}")
    # What a step counts in addition to what it drops may have the same name, and number.
    run.notes += [f"{reason}: {number}" for reason, number in sorted({**result.dropped, **result.noted}.items())]
    run.notes += counts.met.phrases()
    run.found |= {
        "shards": result.outputs, "done": result.done, "done_before": result.done_before, "bytes": result.size,
        "samples": counts.as_dict(), "dropped": dict(result.dropped), "outdir": redact(outdir),
        "skipped_members": counts.met.skipped, **({"noted": dict(result.noted)} if result.noted else {}),
    }  # fmt: skip


def exchange_verb(name: str, keys: str = _KEYS, **frame: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes the command of a verb, with the options of an exchange.

    The function gets an :class:`ExchangeVerb` and the verb's own options, and calls its method
    ``do``.

    Args:
        keys: paragraph of the help on equal keys.
        frame: options of :func:`tarkit.cli.shared.shardverb.shard_verb`.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        def call(run: VerbRun, parallel: int, **options: Any) -> int | None:
            common = {each: options.pop(each) for each in (*_SETTINGS, *_FRAME)}
            return function(ExchangeVerb(run, parallel, common), **options)

        call.__doc__ = "\n\n".join(map(inspect.cleandoc, filter(None, [function.__doc__, keys, _HOW])))
        call.__dict__["__click_params__"] = function.__dict__.pop("__click_params__", [])
        own = call.__dict__["__click_params__"]
        _options(call)
        added = call.__dict__["__click_params__"]
        call.__dict__["__click_params__"] = [each for each in added if each not in own] + own
        processors = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
        parallel = (processors, "Number of processes; the output is the same.")
        common: dict[str, Any] = {"inputs": "SHARD...", "reader": ("key_rule", "allow_pipe"), "selects": False}
        return shard_verb(name, only_messages=True, reads_twice=True, parallel=parallel, **common | frame)(call)

    return decorate
