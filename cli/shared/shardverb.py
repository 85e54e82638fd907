"""The frame of the verbs that read shards: common options, progress, summary and exit code."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, counted
from tarkit.names.redaction import redact

from .meter import Meter
from .program import (
    dry_run_notes,
    json_option,
    option_group,
    quiet_option,
    refuse_terminal_input,
    say,
    standard_options,
    work_option,
    work_options,
)
from .results import Results, exit_code_of
from .sections import LongHelp
from .selection import selected, selection_of, selection_options
from .series import OUTPUT, counts_of, open_shards, phrase_of

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.samples.read import ReadOptions
    from tarkit.samples.sample import Sample
    from tarkit.steps.select import SelectedShards
    from tarkit.steps.selection import Selection
    from tarkit.steps.shardsoutput import OutputOptions, ShardsOutput

_POLICIES = ("on_duplicate_field", "on_repeated_key", "on_damage")
READER = ("key_rule", *_POLICIES, "allow_pipe")
"""Options of :class:`tarkit.runs.work.Work` for reading shards."""
JOINER = ("key_rule", "on_repeated_key", "on_damage", "allow_pipe")
"""Those of the verbs that copy the bytes of members."""
_INPUT = "a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, "
_EMPTY = "Accept a selection of no sample: do not exit with 3."

against_option = functools.partial(
    click.option,
    "--against",
    metavar="SHARD",
    multiple=True,
    help="Shards of the data set B, to compare with.  [repeatable]",
)
"""Option --against of the verbs that compare two data sets."""
outdir_option = click.option(
    "-O", "--outdir", metavar="DIR", help="Folder or URL for a shard of the same name for each SHARD."
)
"""Option --outdir of the verbs that write a shard for each input."""
number_option = click.option(
    "-n", "number", type=click.IntRange(0), metavar="N", help="Read only the first N samples or records."
)
"""Option -n of the verbs that look into shards."""
seed_option = click.option(
    "--seed", "draw_seed", type=int, default=0, show_default=True, help="Another seed draws another result."
)
"""Option --seed of the verbs that draw at random."""


@dataclass
class VerbRun:
    """A run of a verb: its common options, and what it has counted so far.

    Attributes:
        name: name of the program, for messages.
        inputs: the inputs as given, or ``-``.
        reading: key rule, policies and tally for :func:`tarkit.samples.read.read_samples`.
        selection: the samples that the options select.
        series: options of :func:`tarkit.cli.shared.series.shards_options`.
        total: number of the shards of :meth:`shards`, or None if unknown.
        found: with --json, entries of the object that is printed at the end; nothing if empty.
        notes: phrases of the summary, before those on the selection and on losses.
        skipped: noun for the skipped members.
        is_quiet: True if only losses are printed.
        is_verbose: True if all errors are printed.
        allow_pipe: True if a list may have ``pipe:`` commands.
        allow_empty: True if a selection of no sample is a success.
    """

    name: str
    inputs: Sequence[str]
    as_json: bool
    is_quiet: bool
    is_verbose: bool
    allow_pipe: bool
    allow_empty: bool
    tally: Tally
    reading: ReadOptions
    selection: Selection
    meter: Meter
    results: Results
    series: OutputOptions
    total: int | None = None
    found: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: str = "skipped members"
    _outputs: list[ShardsOutput] = field(default_factory=list)

    @property
    def chosen(self) -> Selection | None:
        """The selection, or None if all samples are selected as they are."""
        return self.selection if self.selection.selects else None

    def joining(self, output: str | None) -> dict[str, Any]:
        """Return options for :func:`tarkit.steps.select.select_one`.

        Args:
            output: the output; if that is ``-``, no progress is shown.
        """
        from tarkit.samples.sample import key_rule

        rule = key_rule(self.reading["rule"])
        progress = {} if output == "-" else {"progress": self.meter.joined(self.tally)}
        return {**self.reading, "rule": rule, "allow_pipe_in_lists": self.allow_pipe, **progress}

    def shards(self, specs: Sequence[str] = (), outputs: Sequence[str] = (), must_exist: bool = False) -> Iterator[str]:
        """Return the names of the shards of the inputs or of other specs, for the given outputs."""
        from tarkit.specs.shardspec import counted_shards

        found, self.total = counted_shards(
            specs or self.inputs, allow_pipe_in_lists=self.allow_pipe, outputs=outputs, must_exist=must_exist
        )
        return found

    def samples(self, names: Iterable[str], *, in_place: bool = False) -> Iterator[Sample]:
        """Read the samples of shards, all of them; large fields are kept in files."""
        from tarkit.formats.tar.large import KeepInFiles
        from tarkit.samples.read import read_samples

        return read_samples(names, literal=True, split=True, large=KeepInFiles(), in_place=in_place, **self.reading)

    def part(self) -> float | None:
        """Return the part of the shards that was read, or None if unknown."""
        return self.tally.shards_read() / self.total if self.total else None

    def write(
        self,
        output: str,
        samples: Iterable[Sample] | Callable[[ShardsOutput], Iterable[Sample]],
        names: Collection[str],
        count: int | None = None,
    ) -> None:
        """Write samples as a shard or a series of shards, which the summary counts.

        It counts those of several calls together.

        Args:
            output: path or URL, ``-``, or a pattern such as ``out-%06d.tar``.
            samples: the samples, or a function that returns them for the opened output.
            names: names of the inputs, none of which may be an output.
            count: number of the samples, if it is known.
        """
        policies: Any = {name: self.reading[name] for name in ("rule", "on_repeated_key") if name in self.reading}
        with open_shards(
            self.name, output, self.meter, self.results, lambda _: names, **policies, **self.series
        ) as shards:
            self._outputs.append(shards)
            for sample in samples(shards) if callable(samples) else samples:
                shards.write(sample)
                if self.meter.is_due():
                    where = f", {counted(len(shards.shards), 'shard')} written" if shards.is_series else ""
                    total = sum(each.total for each in self._outputs)
                    part = total / count if count else self.part()
                    self.meter.show(f"{counted(total, 'sample')} so far{where}", part)
            self.selection.check()
        self.found |= counts_of(*self._outputs)

    def note_joined(self, made: SelectedShards, dry_run: bool) -> None:
        """Note what a verb wrote that copies samples with the bytes of their members."""
        made_of = f"{counted(made.samples, 'sample')} of {counted(made.read, 'shard')}, {made.size} bytes of tar"
        self.notes += [made_of, *dry_run_notes()]
        if self.tally.reopened:
            self.notes.append(f"keys that came back in their shard: {self.tally.reopened}")
        if made.removed:
            verb = "would remove" if dry_run else "removed"
            self.notes.append(f"{verb} {counted(len(made.removed), 'shard')} of an earlier run")
        self.found = {
            "samples": made.samples, "bytes": made.size,
            "shards": [*map(redact, made.shards)], "removed": [*map(redact, made.removed)],
            "dropped": self.selection.dropped,
            "unknown_keys": {name: number for name, (number, _) in self.selection.unknown_keys.items()},
        }  # fmt: skip

    def print_found(self) -> None:
        """With --json, print the object of the result."""
        if self.as_json and self.found:
            self.results.line(json.dumps(self.found))

    def summary(self, code: int) -> tuple[int, str]:
        """Return the exit code, and the summary if it is to be printed."""
        is_empty = self.selection.selects and not self.selection.kept and not self.allow_empty
        lost = EXIT_SET_ASIDE if is_empty else exit_code_of(self.tally)
        written = [phrase_of(*self._outputs)] if self._outputs else []
        phrases = [*written, *self.notes, *selected(self.selection), *self.tally.phrases(skipped=self.skipped)]
        return code or lost, "; ".join(phrases) if lost or not self.is_quiet else ""


def shard_verb(
    name: str,
    *,
    epilog: str,
    inputs: str | None = "[SHARD]...",
    default: Sequence[str] = ("-",),
    parallel: tuple[int, str] | None = None,
    selects: bool = True,
    reader: Sequence[str] = READER,
    may_be_empty: bool = True,
    is_described: bool = True,
    reads_twice: bool = False,
    only_messages: bool = False,
    cls: type[click.Command] = LongHelp,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes the command of a verb, with the options common to such verbs.

    The function gets a :class:`VerbRun` and the verb's own options, which come first in the help.
    It returns an exit code, or None: 0, or 3 if something was lost. A common option that the verb
    defines itself is not added.

    Args:
        epilog: end of the help: examples.
        inputs: the arguments in the usage line; None: an option or argument ``inputs`` of the verb.
        default: the inputs if there are none.
        parallel: default and help of --parallel.
        selects: True to add the options that select samples.
        reader: options for reading shards.
        may_be_empty: False if a selection without samples ends with 3 without --allow-empty.
        is_described: True to end the help with a paragraph on the forms of the inputs.
        reads_twice: True if the inputs must be files or objects, and cannot be streams.
        only_messages: True if standard output has only messages, see :class:`Results`.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        own: list[click.Parameter] = function.__dict__.pop("__click_params__", [])
        taken = {parameter.name for parameter in own}

        @functools.wraps(function)
        def call(*, inputs: Sequence[str], quiet: bool, verbose: bool, **options: Any) -> int:
            from tarkit.formats.tally import Tally

            given = inputs or default
            refuse_terminal_input(given)
            tally, program = Tally(), f"tarkit {name}"
            reading: Any = {"tally": tally}
            reading |= {policy: options.pop(policy) for policy in _POLICIES if policy in reader}
            if "key_rule" in reader:
                reading["rule"] = options.pop("key_rule")
            series: Any = {each: options.pop(each) for each in OUTPUT if {"maxcount", "manifest"} <= taken}
            as_json, allow_pipe = options.pop("as_json"), options.pop("allow_pipe", False)
            allow_empty = options.pop("allow_empty", True)
            with (
                selection_of(options) as selection,
                Meter(program, quiet=quiet) as meter,
                Results(only_messages=only_messages) as results,
            ):
                run = VerbRun(
                    program, given, as_json, quiet, verbose, allow_pipe, allow_empty, tally, reading,
                    selection, meter, results, series,
                )  # fmt: skip
                code = function(run, **options) or EXIT_OK
                run.print_found()
            code, summary = run.summary(code)
            if summary:
                say(program, summary)
            return code

        common: list[Callable[[Any], Any]] = []
        if parallel is not None:
            number = click.IntRange(1)
            common.append(
                click.option("-p", "--parallel", type=number, default=parallel[0], show_default=True, help=parallel[1])
            )
        common += [json_option, quiet_option]
        common += [selection_options] if selects else []
        common += [] if may_be_empty else [work_option("allow_empty", help=_EMPTY)]
        option_group(*common, work_options(*reader), standard_options)(call)
        added = [each for each in call.__dict__["__click_params__"] if each.name not in taken]
        call.__dict__["__click_params__"] = [*added, *own]
        if inputs is not None:
            click.argument("inputs", metavar=inputs, nargs=-1, required=not inputs.startswith("["))(call)
        text = inspect.cleandoc(function.__doc__ or "")
        if is_described:
            word = "SHARD" if inputs is None else inputs.strip("[].")
            last = "or dataset.json (a manifest)" if reads_twice else "dataset.json (a manifest), or -"
            end = " (the default)." if inputs == f"[{word}]..." and default else "."
            text += f"\n\n{word} is {_INPUT}{last}{end}"
        return click.command(name, cls=cls, help=text, epilog=epilog)(call)

    return decorate
