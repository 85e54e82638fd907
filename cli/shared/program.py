"""Start and end of all programs: errors become one line and an exit code only here."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from tarkit.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TEMPORARY,
    EXIT_TERMINATED,
    EXIT_USAGE,
    OutputClosedError,
    StreamError,
    TarkitError,
    UsageError,
    escaped,
    shortened,
)
from tarkit.names.redaction import redact_text

from .completion import answer, format_values, values_in
from .signals import EndingSignals, Terminated

F = TypeVar("F", bound=Callable[..., Any])


def run_program(command: click.Command, name: str, argv: Sequence[str] | None = None) -> int:
    """Run a program, and return its exit code.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    _occupy_standard_streams()
    # What click prints goes the way of all other results.
    with EndingSignals() as signals, contextlib.redirect_stdout(_StandardOutput()):
        code = _run(command, name, argv, signals)
    if argv is None and (signals.came is not None or code == EXIT_TEMPORARY):
        from .clientretries import leave_waiting_threads

        leave_waiting_threads(code)
    return code


def _run(command: click.Command, name: str, argv: Sequence[str] | None, signals: EndingSignals) -> int:
    verbose = [False]
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if (offered := answer(command, name)) is not None:
            write_stdout(f"{offered}\n".encode())
            return EXIT_OK
        with command.make_context(name, list(words), obj=verbose) as context:
            # Not needed for --help, and logging takes a tenth of its time.
            from .clientretries import messages_shown

            with messages_shown("tarkit.retry", partial(say, name)):
                code = command.invoke(context)
        return code if isinstance(code, int) else EXIT_OK
    except click.exceptions.Exit as exit_request:
        if argv is None:
            # Nothing was opened: without this the interpreter looks through all objects when it
            # ends.
            gc.freeze()
        return exit_request.exit_code
    except SystemExit:
        raise
    except BaseException as problem:
        signals.arrived()
        # Whatever a signal turned into on its way.
        error = problem if signals.came is None else signals.came()
        if isinstance(error, click.UsageError) and error.ctx is None and isinstance(command, click.Group):
            # It comes from the parser of the verb: a name that is not one has its context.
            verb = [word for word in words[:1] if not word.startswith("-")]
            error.ctx = click.Context(command, info_name=" ".join([name, *verb]))
        if verbose[0] and not isinstance(error, OutputClosedError):
            import traceback

            lines = redact_text(traceback.format_exc(), words).rstrip("\n").split("\n")
            _say_lines("".join(f"{escaped(line)}\n" for line in lines))
        code, reason = _outcome(error, name)
        if isinstance(error, click.ClickException) and type(error).__name__ == "NoArgsIsHelpError":
            # The help, which is of many lines. Older releases of click have no such class, and
            # print it themselves.
            _say_lines(f"{error.format_message()}\n")
        elif not isinstance(error, OutputClosedError):
            # A message may repeat arguments of the program.
            say(name, redact_text(reason, words))
        return code


def _occupy_standard_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise a file that is opened later would get its number, and the output of commands would go
    to that file. The device is opened for the wrong direction, so that using it is still an error.
    """
    for fd, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            os.open(os.devnull, mode)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a program that ends with this error."""
    return _outcome(error, "")[0]


def _outcome(error: BaseException, name: str) -> tuple[int, str]:
    """Return the exit code and the reason of an error."""
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return EXIT_INTERRUPTED, "interrupted"
    if isinstance(error, Terminated):
        return EXIT_TERMINATED, "terminated"
    if isinstance(error, click.UsageError):
        path = name if error.ctx is None else error.ctx.command_path
        return EXIT_USAGE, f"{error.format_message()} (try '{path} --help')"
    if isinstance(error, click.ClickException):
        return EXIT_USAGE, error.format_message()
    if isinstance(error, TarkitError):
        return error.exit_code, str(error)
    if isinstance(error, MemoryError):
        return EXIT_FAILED, "out of memory"
    if isinstance(error, OSError):
        return EXIT_FAILED, f"{error.filename or 'system error'}: {error.strerror or error}"
    return EXIT_FAILED, f"unexpected {type(error).__name__}: {error}; this is a bug in tarkit, -v shows where"


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a hint for a mistyped name: ``did you mean split?``, or the list of valid names."""
    import difflib

    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"commands are {', '.join(dict.fromkeys(known))}"


def say(name: str, message: str) -> None:
    """Print one line of bounded length on stderr."""
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    _say_lines(f"{name}: {shortened(escaped(redact_text(text)))}\n")


def _say_lines(text: str) -> None:
    if sys.stderr is None:
        return
    # Where stderr cannot be written, no other place is left for the message.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        context.find_root().obj[0] = True
    return value


def version_option(function: F) -> F:
    """Add the option ``--version``.

    It is made for each command, since click's own option remembers the name of the first program
    that prints it.
    """
    return click.version_option(package_name="tarkit", message="%(prog)s %(version)s")(function)


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that gives a command several options, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


standard_options = option_group(
    click.option(
        "-v", "--verbose", is_flag=True, callback=_remember,
        help="Print more; for an error, also tarkit's traceback.",
    ),
    version_option,
)  # fmt: skip
"""Options of all commands. On an error, --verbose also shows the traceback."""


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
"""Option --quiet of the verbs that read samples."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, one object a line.")
"""Option --json of the verbs whose result may be parsed by a script."""


dry_run_option = click.option("--dry-run", is_flag=True, help="Check and count everything, but write nothing.")
"""Option --dry-run of the verbs that write files."""


source_format_option = click.option(
    "--from", "source_format", metavar="FORMAT", shell_complete=format_values,
    help="Format of the input.  [default: by its name, else by its first bytes]",
)  # fmt: skip
"""Option --from of the verbs that read files of several formats."""


def dry_run_notes() -> list[str]:
    """Return the phrase for the summary of a run with --dry-run."""
    is_dry = click.get_current_context().params.get("dry_run")
    return ["nothing was written (--dry-run)"] if is_dry else []


def refuse_mixed_output(output: str, as_json: bool) -> None:
    """Raise a usage error if samples and the result as JSON would both go to standard output."""
    if as_json and output == "-":
        raise UsageError("--json and the output would both go to standard output; name a file with -o")


class Seconds(click.FloatRange):
    """A number of seconds from 0 on, without nan, which click's range would accept."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(0, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a time.", param, ctx)
        return found


def work_option(name: str, **changes: Any) -> Callable[[F], F]:
    """Return the option of tarproc that fills a field of :class:`tarkit.runs.work.Work`.

    It means the same in all programs.
    """
    from tarkit.runs import work

    option = work.options()[name]
    number = click.IntRange(option.least, option.most)
    types = {work.INTEGER: number, work.SECONDS: Seconds(min_open=True), work.BYTES: size}
    default = option.default if option.default in (None, "", False) else option.text(option.default)
    arguments: dict[str, Any] = {"help": option.help, "default": default, "show_default": bool(default)}
    if name == "key_rule":
        arguments["shell_complete"] = values_in("tarkit.samples.sample", "KEY_RULES")
    if option.kind == work.FLAG:
        arguments["is_flag"] = True
    else:
        arguments["metavar"] = option.metavar
        arguments["type"] = click.Choice(option.choices) if option.choices else types.get(option.kind, str)
    return click.option(*option.flags, name, **{**arguments, **changes})


def work_options(*names: str) -> Callable[[F], F]:
    """Return a decorator that adds fields of ``Work`` as options, in the given order."""

    def decorated(function: F) -> F:
        # Here, so that the table is loaded only for a command that has some of them.
        return option_group(*map(work_option, names))(function)

    return decorated


gathering_options = option_group(
    click.option("--skip-others", is_flag=True, help="Leave out files that do not belong to a sample, and count them."),
    click.option(
        "--on-same-extension", type=click.Choice(["error", "allow"]), default="error", show_default=True,
        help="If files of a sample have the same last extension, such as a.0.jpg and a.1.jpg: stop, or accept that.",
    ),
)  # fmt: skip
"""Options for making samples of files: the policies for other files and for equal extensions."""


def reject_options(names: Collection[str], reason: str) -> None:
    """Raise a usage error if an option is given that would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and option.name in names:
            raise UsageError(f"{option.opts[0]} {reason}")


def is_default(name: str) -> bool:
    """Return True if a parameter of the command has its default."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def names_in(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    """Split the value of an option that takes names separated by commas; a callback of click."""
    return None if text is None else [name.strip() for name in text.split(",")]


def size(text: str | int) -> int:
    """Return the number of bytes of a text such as 500k, 128M or 2G (powers of 1024)."""
    from tarkit.runs.work import parse_size

    try:
        return parse_size(str(text))
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def refuse_terminal_input(urls: Sequence[str]) -> None:
    """Raise a usage error if standard input is an input and a terminal.

    Otherwise the program would wait for a tar to be typed.
    """
    if "-" in urls and os.isatty(0):
        raise UsageError("no input: name a shard, or pipe one in")


class _StandardOutput(io.TextIOBase):
    """``sys.stdout`` without a buffer of its own, which Python could fail to flush at exit."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        write_stdout(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def isatty(self) -> bool:
        return os.isatty(1)


def write_stdout(data: bytes) -> None:
    """Write all of the data to standard output.

    Raises:
        OutputClosedError: the reader closed standard output.
        StreamError: standard output was closed from the start, or its disk is full.
    """
    try:
        _write_all(1, data)
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        raise _not_written(1, error) from None


def write_message(fd: int, data: bytes) -> bool:
    """Print progress of a run whose result goes to a different stream.

    Return False if the descriptor is closed.

    Raises:
        StreamError: the disk is full.
    """
    try:
        _write_all(fd, data)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EBADF):
            raise _not_written(fd, error) from None
        return False
    return True


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _not_written(fd: int, error: OSError) -> StreamError:
    return StreamError(f"standard {'output' if fd == 1 else 'error'} cannot be written: {error.strerror}")
