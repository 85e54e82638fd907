"""The functions of ``tarproc`` for Python: :func:`process`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tarkit.errors import EXIT_SET_ASIDE, MissingInputError, StreamError, TarkitError, UsageError, counted
from tarkit.mapping.shellrules import is_simple
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import FAILED_SUFFIX, failed_samples_url, plan_outputs, reject_pattern, written_index_url
from tarkit.names.redaction import redact
from tarkit.names.url import display_name, join, local_path
from tarkit.runs.account import Sinks, run_samples
from tarkit.runs.counts import Counts
from tarkit.runs.engine import Reporter, open_engine
from tarkit.runs.progressbar import is_notebook, is_terminal
from tarkit.runs.work import Function, Work, options
from tarkit.samples.sample import skip_reason
from tarkit.specs.manifest import check_manifest_name, remove_manifest, write_manifest
from tarkit.specs.outputcheck import check_other_than, check_pairs, check_tar_output
from tarkit.specs.shardspec import counted_shards, expand, spec_texts
from tarkit.store.entries import remove
from tarkit.store.publish import open_publish
from tarkit.store.sinks import make_folder

if TYPE_CHECKING:
    from tarkit.runs.runrecord import RunRecord
    from tarkit.runs.workoptions import WorkOptions
else:
    RunRecord = WorkOptions = Any  # for typing.get_type_hints

_DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(dev|proc/self)/fd/\d+")

StrPath = str | os.PathLike[str]


class ShardsFailedError(TarkitError):
    """Some shards of a run failed, or their inputs are missing; the others are published.

    Args:
        counts: counts of the whole run.
    """

    def __init__(self, counts: Counts) -> None:
        names = f", for example {', '.join(counts.missing_names)}" if counts.missing_names else ""
        super().__init__(
            f"{counts.shards_failed} shards failed (their done records say why), {counts.shards_missing} inputs are "
            f"missing{names}; {counts.shards_done + counts.shards_before} are done"
        )
        self.counts = counts
        self.exit_code = counts.exit_code


class EmptyResultError(TarkitError):
    """Samples came in, and none came out; what was published has no samples.

    Args:
        counts: counts of the whole run.
    """

    exit_code = EXIT_SET_ASIDE

    def __init__(self, work: Work, counts: Counts) -> None:
        samples = counted(counts.recorded_in or counts.read, "sample")
        place = "standard output" if work.output == "-" else display_name(str(work.outdir or work.output))
        why = "" if work.function is None else " (a function that returns None drops its sample)"
        super().__init__(
            f"{place}: {samples} came in, and none came out{why}; the output is published without samples; "
            "pass --allow-empty if that is meant"
        )
        self.counts = counts


@keywords_of(Work)
def process(
    inputs: Work | StrPath | Iterable[StrPath] = (),
    *,
    output: StrPath | None = None,
    outdir: StrPath | None = None,
    command: str | None = None,
    function: str | Function | None = None,
    parallel: int | None = None,
    progress: bool | None = None,
    reporter: Reporter | None = None,
    **options: Unpack[WorkOptions],
) -> Counts:
    """Run a command or a function over every sample of shards, as ``tarproc`` does.

    >>> shards = "train-{0000..0147}.tar"
    >>> tarkit.process(shards, outdir="grey", function=to_grey)  # doctest: +SKIP

    Args:
        inputs: paths, URLs or shard specs of the input shards; or a whole
            :class:`~tarkit.runs.work.Work`, whose fields the other arguments replace.
        output: path or URL of one shard for all samples.
        outdir: path or URL of a folder, which gets a shard for each input; shards that are done are
            skipped. Without ``output`` and ``outdir``, nothing is written.
        command: run by bash in each sample's folder; the sample fails if any part of it fails.
        function: called with each sample, a dict; it returns a dict, None to drop the sample, or
            several dicts. A callable, ``module:name`` or ``file.py:name``.
        parallel: commands or functions at once; the output is the same for any number. Default: 1.
        progress: show a bar on standard error, or in a notebook. Default: only if standard error is
            a terminal, or the program a notebook, and neither ``reporter`` nor ``quiet`` is given.
        reporter: object whose methods are called during the run. Default: one that does nothing.
        options: the other fields of Work, such as ``fields="jpg cls"`` and ``errors="skip"``; see
            :class:`~tarkit.runs.workoptions.WorkOptions`.

    Returns:
        The counts, which are printed as one line. Samples that failed are counted in
        ``counts.failed``; they are in the shard OUT.failed.tar.

    Raises:
        TypeError: an option does not exist.
        UsageError: an option has a wrong type or value, or does not go with another one.
        ShardsFailedError: with outdir, some shards could not be made; the others are published.
        EmptyResultError: samples came in, and none came out; the output is published.
            ``allow_empty=True`` accepts it.
        TooManyErrorsError: more samples failed than ``max_errors``, or all of them.
        TarkitError: an input is damaged or missing, an output cannot be written, and so on.
    """
    given = {"output": output, "outdir": outdir, "command": command, "function": function, "parallel": parallel}
    named: dict[str, Any] = {name: value for name, value in given.items() if value is not None} | {**options}
    named = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in named.items()}
    work = replace(inputs, **named) if isinstance(inputs, Work) else Work(inputs=tuple(spec_texts(inputs)), **named)
    if work.report is not None:
        raise UsageError("report= is an option of tarproc; process() returns the counts: write those")
    if progress and reporter is not None:
        raise UsageError("progress=True shows a bar, and reporter= shows what it likes: give one of them")
    if progress is None:
        progress = reporter is None and not work.quiet and (is_terminal() or is_notebook())
    if not progress:
        return _process(work, reporter or Reporter())
    from tarkit.runs.progress import BarReporter

    with closing(BarReporter(work)) as bar:
        return _process(work, bar)


def _process(work: Work, reporter: Reporter) -> Counts:
    once = work.has_callable and work.work_id is None
    work = with_work_id(work)
    counts = Counts()
    inputs = work_inputs(work)
    check_work(work)
    if work.outdir is None:
        _run_one_output(work, inputs, counts, reporter)
    elif work.retry_failed is None:
        outputs, record = _outputs(work, inputs, once=once)
        check_pairs(outputs)
        if work.manifest is not None:
            # That of an earlier run would list other shards as soon as the first one is published.
            remove_manifest(work.manifest)
        process_outputs(work, outputs, counts, reporter, record)
        if work.manifest is not None and not (counts.shards_failed or counts.shards_missing):
            _list_outputs(work, work.manifest, [output for _, output in outputs])
    else:
        from tarkit.runs.retryfailed import RetryRun

        with open_engine(work, reporter) as engine:
            RetryRun(engine, counts).run(work.outdir)
    conclude(work, counts)
    return counts


def conclude(work: Work, counts: Counts) -> None:
    """Finish a whole run: print where failed samples are, and check that samples came out.

    Raises:
        ShardsFailedError: shards have failed.
        EmptyResultError: samples came in and none came out.
    """
    if work.outdir is not None and counts.shards_with_failed:
        counts.failed_output = join(work.outdir, f"*{FAILED_SUFFIX}")
    if counts.shards_failed or counts.shards_missing:
        raise ShardsFailedError(counts)
    # A slice may be empty, as a shard may: of all slices, the done records have the sum.
    is_whole = work.slice is None and (work.output or work.outdir) is not None
    counts.empty = is_whole and not work.allow_empty and counts.nothing_came_out
    if counts.empty:
        raise EmptyResultError(work, counts)


def with_work_id(work: Work) -> Work:
    """Return the work, with a new ``work_id`` if it has a callable without one.

    With a new one, no shard counts as done before.
    """
    return replace(work, work_id=os.urandom(16).hex()) if work.has_callable and work.work_id is None else work


def check_work(work: Work) -> None:
    """Refuse options that conflict."""
    if [work.command, work.script, work.function, work.filter].count(None) != 3:
        raise UsageError("give one of -c COMMAND, -S SCRIPT, --map FUNCTION and --filter COMMAND")
    if work.shell_flags is not None and work.command is None and work.filter is None:
        raise UsageError("--shell-flags goes with -c or --filter: no shell runs a function or a script")
    if work.filter is not None:
        _check_filter(work, work.filter)
    if work.outdir is not None and work.output is not None:
        raise UsageError("give -o OUT for one output, or -O OUTDIR for one for each input")
    if work.output is not None:
        reject_pattern(work.output)
    if work.index:
        _check_index(work, "--index")
    if work.manifest is not None:
        _check_index(work, "--manifest")
        check_manifest_name(work.manifest)
        if work.outdir is None or work.slice is not None or work.retry_failed is not None:
            raise UsageError(
                "--manifest goes with -O, and without --slice and --retry-failed, which make a part of the shards; "
                "tarkit index --manifest lists them when all are made"
            )
    if work.list_sha256 is not None and work.slice is None:
        raise UsageError("--list-sha256 goes with --slice")
    if work.slice is not None and work.outdir is None:
        raise UsageError("--slice goes with -O OUTDIR")
    if work.slice is not None and work.retry_failed is not None:
        raise UsageError("--slice takes a part of the inputs; --retry-failed has none")
    if work.work_id is not None and work.outdir is None and not work.has_callable:
        raise UsageError("--work-id goes with -O OUTDIR: without done records it has no effect")
    if work.force and (work.outdir is None or work.retry_failed is not None):
        raise UsageError("--force goes with -O, and without --retry-failed, which leaves done samples as they are")
    if work.output is None and work.outdir is None:
        for given, flag, why in (
            (work.add_log, "--add-log", "no sample can hold it"),
            (work.require, "--require", "no fields come out"),
            (work.allow_empty, "--allow-empty", "nothing can come out"),
        ):
            if given:
                raise UsageError(f"{flag} goes with -o or -O: without an output {why}")
    field = work.add_log
    if field is not None and (skip_reason(f"k.{field}") is not None or "/" in field):
        raise UsageError(f"--add-log {field!r} cannot be a field's name")


def _check_filter(work: Work, command: str) -> None:
    for name in ("batch", "multi", "subdirs", "separator", "include", "exclude"):
        option = options()[name]
        if getattr(work, name) != option.default:
            raise UsageError(f"{option.name} does not go with --filter, which keeps or drops each sample as it is")
    if work.errors == "ignore":
        raise UsageError("--errors ignore does not go with --filter, whose exit code is the answer; take skip or keep")
    if work.shell_flags is None and os.path.basename(work.shell) != "bash" and not is_simple(command):
        raise UsageError(
            f"--filter with --shell {work.shell}: only bash can tell the status 1 of the last command from that of the "
            "others; write one simple command, or give --shell-flags"
        )


def _check_index(work: Work, option: str) -> None:
    if work.output is None and work.outdir is None:
        raise UsageError(f"{option} goes with -o or -O: without an output there is nothing that could have one")
    if work.on_repeated_key != "error":
        raise UsageError(f"{option} does not go with --on-repeated-key allow: a shard with repeated keys has no index")
    if work.output is not None:
        written_index_url(work.output)


def work_inputs(work: Work) -> tuple[str, ...]:
    """Return the inputs as given, checked against --retry-failed."""
    inputs, retry = work.inputs, work.retry_failed
    failed_url = None if work.output is None else failed_samples_url(work.output)
    failed = None if failed_url is None else os.path.abspath(failed_url)
    output = redact(str(work.output))
    if retry is None:
        if not inputs:
            raise UsageError("name the input shards")
        if any(os.path.abspath(each) == failed for each in inputs):
            raise UsageError(
                f"{redact(str(failed_url))} is where failed samples of -o {output} go; it cannot be an input too"
            )
        return inputs
    if work.outdir is not None and os.path.abspath(retry) != os.path.abspath(work.outdir):
        raise UsageError(f"with -O, --retry-failed names the same folder: --retry-failed {redact(work.outdir)}")
    if inputs:
        raise UsageError("--retry-failed takes the place of inputs; give one or the other")
    if os.path.abspath(retry) == failed:
        raise UsageError(
            f"-o {output} would be replaced by the retried samples alone; give another name, then join both with "
            "tarkit cat"
        )
    return (retry,)


def _run_one_output(work: Work, inputs: Sequence[str], counts: Counts, reporter: Reporter) -> None:
    """Make one output of all inputs, or none."""
    if work.output is not None:
        check_tar_output(work.output)
    failed_output = _failed_target(work)
    outputs = [output for output in (work.output, failed_output) if output is not None]
    check_other_than(outputs, [*work.files().values(), *filter(None, [work.script])])
    shards, number = counted_shards(
        inputs, allow_pipe_in_lists=work.allow_pipe, outputs=outputs, must_exist=work.count is None
    )
    with open_engine(work, reporter) as engine:
        sinks = Sinks(work.output, failed_output, engine.writer_options)
        reporter.started(counts, number, failed_are_kept=failed_output is not None)
        # Closed here: a traceback that is kept keeps generators too, and they the input.
        with closing(engine.read(shards, counts.met)) as samples:
            run_samples(samples, sinks, engine, counts)
        if failed_output is not None and counts.failed:
            counts.failed_output = failed_output
        elif failed_output is not None:
            _remove_stale(failed_output, reporter)


def _outputs(work: Work, inputs: Sequence[str], *, once: bool) -> tuple[list[tuple[str, str]], RunRecord]:
    """Return each input with its own output, and the record of the whole run.

    Args:
        once: see ``record_of``.
    """
    from tarkit.runs.runrecord import record_of
    from tarkit.specs.inputslice import all_inputs, parse_slice, plan_slice

    outdir, allow_pipe = str(work.outdir), work.allow_pipe
    # All names are looked at before the first shard is begun, and whatever the slice: a long run
    # must not end with the last name being that of another shard, and two slices must not make the
    # same output.
    if work.slice is None:
        outputs = list(plan_outputs(expand(inputs, allow_pipe_in_lists=allow_pipe), outdir))
        return outputs, record_of(work, all_inputs(inputs, [url for url, _ in outputs]), once=once)
    index, count = parse_slice(with_index(work.slice))
    outputs, asked = plan_slice(
        inputs, outdir, index, count, list_sha256=work.list_sha256, allow_pipe_in_lists=allow_pipe
    )
    return outputs, record_of(work, asked, count, once=once)


def _list_outputs(work: Work, manifest: str, outputs: Sequence[str]) -> None:
    """Index the shards, including those that were made before, and list them in a manifest."""
    from tarkit.samples.indexing import index_all

    listed = []
    for outcome in index_all(outputs, parallel=work.parallel or 1, listed=True, rule=work.key_rule):
        if outcome.error is not None:
            raise outcome.error
        listed += [] if outcome.listed is None else [outcome.listed]
    write_manifest(manifest, listed)


def process_outputs(
    work: Work, outputs: Sequence[tuple[str, str]], counts: Counts, reporter: Reporter, record: RunRecord | None = None
) -> None:
    """Make each output that is not done.

    :func:`tarkit.names.outputnames.plan_outputs` pairs outputs with inputs.

    Args:
        counts: filled, also with the shards that fail, which raise nothing.
        record: record to write before the first of them; None if another process, which may see
            other files, has written it.

    Raises:
        TarkitError: a wrong option, a function that cannot be loaded, and so on.
    """
    from importlib.metadata import version

    from tarkit.runs.shards import ShardRun
    from tarkit.runs.usedfiles import used_files

    folder = local_path(str(work.outdir))
    with open_engine(work, reporter) as engine:
        if folder is not None:
            try:
                make_folder(folder, display_name(folder))
            except StreamError as error:
                raise UsageError(f"-O {error}") from None
        if record is not None:
            record.publish(str(work.outdir), time.time())
        reporter.started(counts, len(outputs), failed_are_kept=work.errors != "skip")
        files = used_files(work) if record is None else record.files
        ShardRun(engine, counts, work.fingerprint(), version("tarkit"), files).run(outputs)


def with_index(piece: str) -> str:
    """Return I/W for W alone: with the number that Kubernetes or Slurm gives to this process.

    Raises:
        UsageError: neither has set one.
    """
    if "/" in piece:
        return piece
    if (index := os.environ.get("JOB_COMPLETION_INDEX")) is not None:
        return f"{index}/{piece}"
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{_slurm_index(piece)}/{piece}"
    raise UsageError(
        f"--slice {piece} says only how many slices there are; write I/W, or run where Kubernetes sets "
        "JOB_COMPLETION_INDEX, or Slurm SLURM_ARRAY_TASK_ID"
    )


def _slurm_index(piece: str) -> int:
    """Return the number of this task among those of its array, from 0."""
    names = ("ID", "COUNT", "MIN", "MAX", "STEP")
    texts = [os.environ.get(f"SLURM_ARRAY_TASK_{name}", "1" if name == "STEP" else "") for name in names]
    if not all(text.isdecimal() for text in texts):
        raise UsageError(f"SLURM_ARRAY_TASK_ID, _COUNT, _MIN, _MAX and _STEP are {', '.join(texts)}; write --slice I/W")
    task, count, least, most, step = map(int, texts)
    # A list of IDs, as after a few tasks failed: which slice each was is not known.
    if str(count) != piece or not step or list(range(least, most + 1, step))[count - 1 : count] != [most]:
        raise UsageError(
            f"--slice {piece}: this array has {count} tasks, {least} to {most}; it must have {piece}, at equal "
            f"distances, or write I/W, such as --slice $SLURM_ARRAY_TASK_ID/{piece} for IDs from 0"
        )
    return (task - least) // step


def _failed_target(work: Work) -> str | None:
    """Return the name of the shard for failed samples.

    None if the output has no place beside it, or if no such shard is wanted.
    """
    output = work.output
    if output is None or output == "-" or work.errors == "skip":
        return None
    if output.startswith("pipe:") or _DESCRIPTOR.fullmatch(output):
        return None
    path = local_path(output)
    if path is not None and os.path.exists(path) and not os.path.isfile(path):
        return None
    return failed_samples_url(output)


def _remove_stale(failed_output: str, reporter: Reporter) -> None:
    """Remove the failed samples of an earlier run from beside an output that has none."""
    path = local_path(failed_output)
    if path is not None:
        # Opening it removes what a run that was killed left of it under a temporary name.
        open_publish(path, compression=None).discard()
    try:
        remove(failed_output)
    except MissingInputError:
        return
    reporter.noted(f"removed {display_name(failed_output)} of an earlier run: no sample failed now")
