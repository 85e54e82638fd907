"""Progress of a verb: a bar on a terminal, periodic lines otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tarkit.errors import counted

from .program import say

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.runs.progressbar import ProgressBar

_LINE_EVERY = 30.0  # seconds
_BAR_EVERY = 0.2


class Meter:
    """A display of a run's progress.

    A context manager; its methods may be called from several threads.

    Args:
        clock: function that returns seconds since any time.
    """

    def __init__(self, name: str, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._quiet = quiet
        self._clock = clock
        self._begin = clock()
        self._lock = threading.RLock()
        self._bar: ProgressBar | None = None
        if not quiet:
            from tarkit.runs.progressbar import ProgressBar, is_terminal

            self._bar = ProgressBar() if is_terminal() else None
        self._every = _LINE_EVERY if self._bar is None else _BAR_EVERY
        self._next = self._begin + self._every

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def is_due(self) -> bool:
        """Return True if it is time for the next output.

        The call is cheap enough to be made for each sample.
        """
        return not self._quiet and self._clock() >= self._next

    def show(self, text: str, part: float | None) -> None:
        """Show ``text`` and the completed part of the run: 0.0 to 1.0, or None if unknown."""
        part = None if part is None else min(1.0, max(0.0, part))
        with self._lock:
            now = self._clock()
            self._next = now + self._every
            if self._bar is None:
                say(self.name, f"{_share(part, now - self._begin)}{text}")
                return
            self._bar.show(text, part)

    def samples(self, shards: int | None, what: str = "") -> Callable[[int, float], None]:
        """Return a function that shows the numbers of samples and shards that were read so far.

        Args:
            shards: number of all shards, or None if unknown.
            what: name of the data set, before the numbers.
        """

        def show(samples: int, read: float) -> None:
            if self.is_due():
                self.show(f"{what}{samples} samples so far", read / shards if shards else None)

        return show

    def joined(self, tally: Tally) -> Callable[[int | None], None]:
        """Return a function of the number of all shards that shows the counts of a tally."""

        def show(shards: int | None) -> None:
            if self.is_due():
                part = tally.shards_read() / shards if shards else None
                self.show(f"{counted(tally.samples, 'sample')} so far", part)

        return show

    def say(self, message: str) -> None:
        """Print one line on stderr."""
        with self.hidden():
            say(self.name, message)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the progress bar while other text is printed."""
        with self._lock:
            if self._bar is not None:
                self._bar.clear()
            yield
            if self._bar is not None:
                self._bar.refresh()


def _share(part: float | None, seconds: float) -> str:
    if part is None:
        return ""
    if not part:
        return "0%; "
    from tqdm import tqdm

    return f"{part:.0%}, about {tqdm.format_interval(seconds * (1 - part) / part)} left; "
