"""Output of ``tarkit serve`` and ``tarkit serve --watch``: progress and end of data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tarkit.errors import EXIT_OK, counted, printable
from tarkit.names.redaction import redact

from .meter import Meter
from .results import Results

if TYPE_CHECKING:
    from tarkit.service.progress import DataSetProgress

_NAME = "tarkit serve"


def progress_line(progress: list[DataSetProgress]) -> str:
    """Return the progress of all data sets in one line."""
    shown = [f"{printable(each.name)}: {each.standing}" for each in progress[:3]] + (["…"] if len(progress) > 3 else [])
    return ", ".join(shown) or "no data set was declared yet"


def show_outcome(progress: list[DataSetProgress], why: str = "too many shards are dead (--max-dead)") -> None:
    """Print the counts of each data set, and its dead shards, on standard output.

    Args:
        why: why data sets were aborted.
    """
    with Results(only_messages=True) as results:
        for each in progress:
            for dead in each.dead_shards:
                results.line(
                    f"dead {redact(dead.name)} {dead.start}-{dead.end} of epoch {dead.epoch}: {dead.reason} "
                    f"({counted(dead.errors, 'error')}, {counted(dead.losses, 'lost worker')})"
                )
            if each.dead > len(each.dead_shards):
                results.line(f"… and {each.dead - len(each.dead_shards)} more dead")
            left = each.todo + each.leased + (max(0, each.epochs - each.epoch) * each.shards)
            words = f"done {each.done}, dead {each.dead}" + (f", left {left}" if left else "")
            aborted = f"aborted, as {why}; " if each.aborted else ""
            words += f"; records done {each.records}; epochs begun {each.epoch}"
            results.line(f"{each.name}: {aborted}shards: {words}")


class ServiceProgress:
    """Reporter that prints the progress of ``tarkit serve``.

    A context manager.

    Attributes:
        code: the exit code, once the service has stopped.
        is_over: all data sets have ended.
    """

    def __init__(self, state: str, *, quiet: bool) -> None:
        self.code, self.is_over = EXIT_OK, False
        self._state = state
        self._why: tuple[str, ...] = ()
        self._meter = Meter(_NAME, quiet=quiet)

    def __enter__(self) -> ServiceProgress:
        from .clientretries import messages_shown

        self._shown = messages_shown("tarkit.service", self._meter.say)
        self._shown.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.__exit__(None, None, None)
        self._meter.close()

    def listening(self, address: str, http: str) -> None:
        """Print the address that the service listens on.

        Args:
            http: the address of the status page; "": none.
        """
        kept = "no state is kept" if self._state == "none" else f"state in {printable(self._state)}"
        self._meter.say(f"listening on {address}, {kept}" + (f", status on http://{http}/" if http else ""))

    def progressed(self, look: Callable[[], list[DataSetProgress]]) -> None:
        """Show the progress, periodically."""
        if self._meter.is_due():
            self._meter.show(progress_line(look()), None)

    def ended(self, seconds: float, before: bool) -> None:
        """Print that all data sets have ended, and what the service waits for.

        Args:
            before: they had ended before the service was started.
        """
        self.is_over = True
        answered = f"workers get this answer for {seconds:g} s"
        if before:
            state = printable(self._state)
            self._meter.say(
                f"in {state}, all data sets have ended before; {answered}; to begin anew, give another --state"
            )
        else:
            self._meter.say(f"all data sets have ended; {answered} at most")

    def deserted(self, seconds: float) -> None:
        """Print that no worker is left.

        The data sets are aborted: the exit code is 1.
        """
        self._why = (f"no worker has called for {seconds:g} s (--desertion)",)
        self._meter.say(f"{self._why[0]}, and records are left: the state is kept, and the same command resumes")

    def stopped(self, progress: list[DataSetProgress]) -> None:
        """Print the counts at the end of the service."""
        from tarkit.service.progress import outcome_code

        self.code = outcome_code(progress)
        self._meter.close()
        show_outcome(progress, *self._why)


_PATIENCE = 900.0
"""Seconds for which a named watcher waits for its service to start, or to come back."""


def watch_service(address: str, certificate: str | None, token: str | None, name: str, *, quiet: bool) -> int:
    """Show the progress of a service until its data sets have ended; return its exit code.

    Args:
        name: name of the watcher for which the service waits at its end; "": it does not wait.
    """
    from tarkit.service.connection import watched_progress
    from tarkit.service.progress import outcome_code

    from .clientretries import messages_shown

    found: list[DataSetProgress] = []
    with Meter(_NAME, quiet=quiet) as meter, messages_shown("tarkit.service", meter.say):
        patience = _PATIENCE if name else 60.0
        for found in watched_progress(address, certificate, token, patience=patience, watcher=name):
            if meter.is_due():
                meter.show(progress_line(found), None)
    show_outcome(found, "too many shards are dead (--max-dead), or no worker is left (--desertion)")
    return outcome_code(found)
