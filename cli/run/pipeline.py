"""From tarproc's options to the parts of a run: the command, the samples, the pool, the policies."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tarkit.errors import CommandNotRunnableError, UsageError


def command_of(options: dict[str, Any]) -> str | None:
    """The shell command, or None for a Python function."""
    given = [name for name in ("command", "script", "function") if options[name] is not None]
    if len(given) != 1:
        raise UsageError("give one of -c COMMAND, -S SCRIPT and --map FUNCTION")
    if options["setup"] and not options["function"]:
        raise UsageError("--setup goes with --map")
    import shlex
    import shutil

    script = options["script"]
    if script is None:
        return options["command"] if options["command"] is not None else None
    if os.path.exists(script):
        return f"exec {options['interpreter']} {shlex.quote(os.path.abspath(script))}"
    found = shutil.which(script)
    if found is None:
        raise CommandNotRunnableError(f"script {script!r} is neither a file nor a program on the path", 127)
    return f"exec {shlex.quote(found)}"


def policy_of(options: dict[str, Any]) -> Any:
    """What to do with failures."""
    from tarkit.runs.account import Policy
    from tarkit.runs.counts import Limit
    from tarkit.samples.sample import skip_reason

    field = options["add_log"]
    if field is not None and options["output"] is None and options["outdir"] is None:
        raise UsageError("--add-log goes with -o or -O: without output there is no sample to keep it in")
    if field is not None and (skip_reason(f"k.{field}") is not None or "/" in field):
        raise UsageError(f"--add-log {field!r} can not be a field's name")
    return Policy(options["errors"], Limit.parse(options["max_errors"]), field)


def writer_options(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of TarWriter."""
    return {
        "mtime": options["mtime"],
        "format": options["format"],
        "rule": options["key_rule"],
        "on_repeated_key": options["on_repeated_key"],
    }


def open_pool(options: dict[str, Any], command: str | None, scratch: str) -> Any:
    """What runs the command or function; to be used in a with statement."""
    slots = max(1, options["parallel"] or 1)
    if command is None:
        from tarkit.mapping.pythonpool import PythonPool

        setup = options["setup"]
        if setup and ":" not in setup:
            setup = f"{options['function'].rpartition(':')[0]}:{setup}"
        return PythonPool(
            options["function"],
            scratch,
            setup=setup,
            slots=slots,
            batched=options["batch"] is not None,
            timeout=options["timeout"],
            mem=options["mem"],
        )
    from tarkit.mapping.scratch import Rules
    from tarkit.mapping.shellpool import ShellPool

    rules = Rules(
        options["base"],
        options["multi"],
        options["subdirs"],
        options["separator"],
        _pattern(options["include"], "--include"),
        _pattern(options["exclude"], "--exclude"),
        _large_field(options),
    )
    if "/" in options["base"] or "." in options["base"] or not options["base"]:
        raise UsageError(f"--base {options['base']!r} must be a file name without a dot")
    return ShellPool(
        command,
        scratch,
        slots=slots,
        shell=options["shell"],
        timeout=options["timeout"],
        rules=rules if options["output"] is not None or options["outdir"] is not None else None,
        base=options["base"],
        batched=options["batch"] is not None,
        ignore_status=options["errors"] == "ignore",
    )


def _pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is no regular expression: {error}") from None


def samples_of(options: dict[str, Any], shards: Iterable[str], tally: Any) -> Iterator[dict[str, Any]]:
    """The samples of some shards, by their names, as the options want them."""
    from tarkit.runs.stream import without_reports
    from tarkit.samples.read import read_samples

    retry = options["retry_failed"] is not None
    samples: Iterator[dict[str, Any]] = read_samples(
        shards,
        rule=options["key_rule"],
        on_duplicate_field=options["on_duplicate_field"],
        on_repeated_key="allow" if retry else options["on_repeated_key"],
        on_damage=options["on_damage"],
        tally=tally,
        literal=True,
        large=large_members(options),
    )
    if retry:
        samples = without_reports(samples)
    if options["count"] is not None:
        samples = itertools.islice(samples, options["count"])
    return with_fields(options, samples, tally)


def large_members(options: dict[str, Any]) -> Any:
    """What is kept in files of the scratch folder: for a command what is large, for a function what exceeds --mem."""
    from tarkit.formats.fieldfile import LARGE
    from tarkit.formats.tar.large import KeepInFiles

    if options["function"] is None:
        return KeepInFiles(options["scratch"], _large_field(options), 2 * _large_field(options))
    limit = max(LARGE, options["mem"])
    return KeepInFiles(options["scratch"], limit, limit)


def _large_field(options: dict[str, Any]) -> int:
    """Bytes above which a field goes from file to file; few of them are at work at once, since each is open."""
    from tarkit.formats.fieldfile import LARGE

    return int(max(LARGE, options["mem"] // 16))


def with_fields(options: dict[str, Any], samples: Iterator[dict[str, Any]], tally: Any) -> Iterator[dict[str, Any]]:
    """The samples with only the fields that are wanted."""
    from tarkit.samples.transforms import keep_fields

    if options["fields"] is None:
        return samples
    wanted = [field for field in re.split(r"[\s,]+", options["fields"]) if field]
    missing = options["fieldmode"]
    if missing == "ignore" and options["retry_failed"] is not None:
        # The samples that failed may be just those that lack a field.
        missing = "allow"
    return keep_fields(samples, wanted, missing=missing, tally=tally)
