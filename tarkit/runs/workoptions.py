"""The keyword arguments of :func:`tarkit.process`, for type checkers and editors."""

from __future__ import annotations

import os
from typing import TypedDict

from tarkit.runs.work import Function


class WorkOptions(TypedDict, total=False):
    """Options of a run, all of which may be left out: fields of :class:`~tarkit.runs.work.Work`.

    Each is the long option of tarproc with the same name.

    Attributes:
        slice: with outdir, make the outputs of one slice of the inputs: ``"I/W"`` is slice I, from
            0, of W slices; ``"W"`` takes I from the variable JOB_COMPLETION_INDEX of Kubernetes, or
            those of a Slurm array (SLURM_ARRAY_TASK_ID, _COUNT, _MIN, _MAX, _STEP).
        list_sha256: with slice, SHA-256 in hex of the planned list of inputs; another list is an
            error.
        script: path of a script to run in each sample's folder, in place of ``command``.
        interpreter: program that runs the script. Default: ``bash``.
        filter: shell command that decides about each sample: exit code 0 keeps it as it is, 1 drops
            it, any other fails it.
        shell: program that runs the command. Default: ``bash``.
        shell_flags: flags of the shell before ``-c``. Default: errexit and pipefail; with ``""``,
            only the last status counts.
        setup: function that is called once in each process; ``function`` gets its result as second
            argument.
        count: number of samples after which to stop. Default: all.
        fields: names of fields, separated by blanks or commas; samples have only these. Default:
            all fields.
        fieldmode: ``ignore`` counts samples that lack one of ``fields``; ``error`` stops at the
            first. A field that no sample has is always an error. Default: ``ignore``.
        base: files in a sample's folder are called BASE.FIELD. Default: ``sample``.
        multi: files with another base than ``base`` are samples of their own. Default: False.
        subdirs: folders that the command makes are samples of their own. Default: False.
        separator: text between key and base, or between key and folder, in the keys of such
            samples. Default: none; ``/`` for folders.
        include: regular expression; only files that match go to the output. Default: all.
        exclude: regular expression; files that match do not go to the output. Default: none.
        require: fields that each sample must have in the output, such as ``"jpg|png,cls"``; a
            sample without them fails. Default: none.
        allow_empty: accept an output without samples. Default: False, which raises
            EmptyResultError.
        batch: number of samples for one call, each in a folder of its own. Default: 1.
        timeout: seconds that one call may take. Default: no limit.
        add_log: field in which each sample keeps what the command printed (stdout, then stderr).
            Default: none.
        errors: treatment of a failed sample: ``keep`` it in OUT.failed.tar, ``skip`` it, ``ignore``
            the exit code, or ``abort`` the run. Default: ``keep``.
        max_errors: largest number of samples that may fail, as text: ``"N"`` or ``"P%"``. Default:
            ``"100"``.
        force: with outdir, make all shards again, also those that are done. Default: False.
        work_id: with outdir, a name for the work, which is part of its fingerprint. Shards that
            were made under the same name count as done; a callable without a name has none that
            are.
        retry_failed: path or URL of an OUT.failed.tar or OUTDIR, whose failed samples are the
            input.
        mem: largest size in bytes of the samples held in memory; with ``function``, a larger sample
            fails. Default: 128 MiB.
        working_dir: new folder for the samples' folders, which is removed at the end. Default: a
            temporary folder.
        mtime: time stamp of all members, seconds since 1970. Default: SOURCE_DATE_EPOCH, or 0.
        format: headers for names and sizes that do not fit a plain header: ``pax``, ``gnu`` (for
            busybox), or ``ustar``, which refuses them. Default: ``pax``.
        index: write an index beside each output shard. Default: False.
        manifest: with outdir, path of a ``.json`` file; when all shards are made, they are indexed
            and listed there.
        report: path of a file to which tarproc writes the counts as JSON. An error here.
        quiet: no progress, and no counts from tarproc.
        key_rule: how a member's name splits into key and field: ``first-dot``, ``last-dot``, or a
            regular expression with two groups. Default: ``first-dot``.
        on_duplicate_field: two files of one sample have the same field: ``error``, or keep the
            ``first`` or ``last`` and count it. Default: ``error``.
        on_repeated_key: a key comes back later in a shard: ``error``, or ``allow``, which takes
            each series of adjacent files as a sample. Default: ``error``.
        on_damage: a shard is damaged: ``error``, or ``skip`` to the next valid header and count
            what was lost. Default: ``error``.
        allow_pipe: run ``pipe:`` commands that an ``@list`` names. Default: False, which runs only
            those that are given here.
        verbose: report more from tarproc. No effect in Python.
    """

    slice: str | None
    list_sha256: str | None
    script: str | os.PathLike[str] | None
    interpreter: str
    filter: str | None
    shell: str
    shell_flags: str | None
    setup: str | Function | None
    count: int | None
    fields: str | None
    fieldmode: str
    base: str
    multi: bool
    subdirs: bool
    separator: str
    include: str | None
    exclude: str | None
    require: str | None
    allow_empty: bool
    batch: int | None
    timeout: float | None
    add_log: str | None
    errors: str
    max_errors: str
    force: bool
    work_id: str | None
    retry_failed: str | os.PathLike[str] | None
    mem: int
    working_dir: str | os.PathLike[str] | None
    mtime: int | None
    format: str
    index: bool
    manifest: str | os.PathLike[str] | None
    report: str | os.PathLike[str] | None
    quiet: bool
    key_rule: str
    on_duplicate_field: str
    on_repeated_key: str
    on_damage: str
    allow_pipe: bool
    verbose: bool
