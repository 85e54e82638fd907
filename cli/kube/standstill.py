"""Who waits for a Job of which nothing runs is told why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tarkit.errors import TarkitError

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobview import JobView

IDLE_SECONDS = 30.0
_LONGEST_PAUSE = 300.0
_MOST = 3


class Standstill:
    """Looks into it once no pod has run for a while, now and then, and says what is new.

    say: told a line. clock: seconds from anywhere.
    """

    def __init__(self, cluster: Cluster, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._say = say
        self._clock = clock
        self._pause = IDLE_SECONDS
        self._next: float | None = None
        self._ended = -1
        self._told: object = ()

    def see(self, jobs: list[tuple[dict[str, Any], JobView]]) -> None:
        """How Jobs stand now; of several, the first that has not ended is looked into."""
        ended = sum(view.done + view.failed + view.finished for _, view in jobs)
        waiting = [job for job, view in jobs if not view.finished]
        if not waiting or any(view.running for _, view in jobs) or ended != self._ended:
            # Pods may be so short that none is seen to run.
            self._ended, self._next, self._pause, self._told = ended, None, IDLE_SECONDS, ()
        now = self._clock()
        if self._next is None:
            self._next = now + self._pause
        elif waiting and now >= self._next:
            if self._look(waiting[0]):
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            self._next = self._clock() + self._pause

    def _look(self, job: dict[str, Any]) -> bool:
        """Whether there is a reason; it is told if it is another one than before."""
        from tarkit.k8s.cluster.failures import normalised
        from tarkit.k8s.cluster.jobstatus import look
        from tarkit.k8s.cluster.surroundings import ask_around

        from .jobtext import status_lines

        try:
            around = ask_around(self._cluster, [job], siblings=())
            (found,) = look([job], around, now=time.time(), read_records=lambda job: None)
        except TarkitError:
            # What was asked for is to wait; who cannot be asked why is waited for all the same.
            return False
        if found.view is not None and found.view.running:
            # Its pods run, and are not ready.
            return False
        # Of what may not be read there is nothing to tell.
        reasons = found.reasons = [each for each in found.reasons if each.kind not in ("finished", "unknown")]
        # Pods' own names and numbers in a sentence do not make it another one.
        told = [(each.kind, normalised(re.sub(r"-[a-z0-9]{5}\b", "", each.text))) for each in reasons]
        if told != self._told and reasons:
            for line in [line for line in status_lines(found) if line.startswith("not running:")][:_MOST]:
                self._say(f"{found.name}: {line}")
            self._told = told
        return bool(reasons)
