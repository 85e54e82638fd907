"""The output of a container, kept line by line with its time, for everybody who asks for logs."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator

_MESSAGE_LINES, _MESSAGE_BYTES = 80, 2048


class ContainerLog:
    """Lines as they came; readers may follow until it is closed."""

    def __init__(self) -> None:
        self._lines: list[tuple[datetime.datetime, bytes]] = []
        self._changed = threading.Condition()
        self._closed = False

    def add(self, line: bytes) -> None:
        with self._changed:
            self._lines.append((datetime.datetime.now(datetime.timezone.utc), line))
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def tail_message(self) -> str:
        """What FallbackToLogsOnError puts into the status."""
        with self._changed:
            text = b"".join(line for _, line in self._lines[-_MESSAGE_LINES:])
        return text[-_MESSAGE_BYTES:].decode(errors="replace")

    def read(self, query: dict[str, str], gone: Callable[[], bool]) -> Iterator[bytes]:
        """As the query of pods/log says: follow, tailLines, sinceSeconds, sinceTime, timestamps, limitBytes."""
        stamped = query.get("timestamps") in ("true", "1")
        follow = query.get("follow") in ("true", "1")
        left = int(query["limitBytes"]) if query.get("limitBytes") else None
        for when, line in self._from(query, follow, gone):
            prefix = when.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode() if stamped else b""
            part = prefix + line
            if left is not None:
                part = part[:left]
                left -= len(part)
            yield part
            if left == 0:
                return

    def _from(
        self, query: dict[str, str], follow: bool, gone: Callable[[], bool]
    ) -> Iterator[tuple[datetime.datetime, bytes]]:
        with self._changed:
            lines = list(self._lines)
        seen = len(lines)
        if query.get("sinceSeconds"):
            first = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(
                seconds=int(query["sinceSeconds"])
            )
            lines = [one for one in lines if one[0] >= first]
        if query.get("sinceTime"):
            # The API server hands it to the kubelet without fractions of a second.
            since = datetime.datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).replace(microsecond=0)
            lines = [one for one in lines if one[0] >= since]
        if query.get("tailLines") is not None:
            count = int(query["tailLines"])
            lines = lines[-count:] if count else []
        yield from lines
        while follow and not gone():
            with self._changed:
                if len(self._lines) == seen and not self._closed:
                    self._changed.wait(0.3)
                fresh, over = self._lines[seen:], self._closed
            seen += len(fresh)
            yield from fresh
            if over and not fresh:
                return
