"""Streams, which have no name, length or identity: standard input and output, and commands behind ``pipe:`` URLs.

Commands are run by bash, in a process group of their own, and never left behind.
"""

from __future__ import annotations

import fcntl
import io
import os
import select
import shutil
import signal
import subprocess
import threading
import time
import weakref
from contextlib import suppress
from typing import BinaryIO, Literal, cast

from tarkit.errors import StreamError, UsageError, printable, signal_name
from tarkit.store.foreign import without_secrets
from tarkit.store.local import FileReader
from tarkit.store.place import RawReader, Sink
from tarkit.store.retry import Retry
from tarkit.store.sinks import open_stdout, raise_write_error, wait_until_read, write_all

_KEPT_STDERR = 2000
_GRACE = 2.0
_GRACE_AFTER_SHELL = 0.1
_PIPE_CAPACITY = 1 << 20
_MOST_BEHIND = 10.0


def open_read(url: str, name: str, retry: Retry) -> RawReader:
    """A copy of standard input, so that closing it does no harm; or the output of a command.

    Raises:
        StreamError: standard input is closed, or the command cannot be started.
    """
    if url != "-":
        return CommandReader(url, name)
    try:
        return FileReader(io.FileIO(os.dup(0), "r"))
    except OSError as error:
        raise StreamError(f"standard input cannot be read: {error.strerror}", url=name) from None


def open_sink(url: str, name: str, *, if_absent: bool, sync: bool) -> Sink:
    """Standard output, or the input of a command. They have no name that could be absent."""
    return open_stdout() if url == "-" else CommandSink(Command(url, name, "write"), name)


class Command:
    """One running command. ``direction`` "read" is its output to us, "write" our output to it."""

    def __init__(self, url: str, name: str, direction: Literal["read", "write"]) -> None:
        command = url[5:]
        if not command.strip() or "\0" in command:
            raise UsageError(f"{printable(name)} is not a command; pipe: is followed by one, like pipe:cat a.tar")
        self._url = url
        self._name = name
        shell = _shell()
        try:
            self._process = subprocess.Popen(
                [*shell, command],
                stdin=subprocess.PIPE if direction == "write" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if direction == "read" else None,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise StreamError(f"{shell[0]} cannot be started: {error.strerror}", url=name) from None
        self.pipe = cast("io.FileIO", self._process.stdout if direction == "read" else self._process.stdin)
        self._stderr = _Tail(cast("BinaryIO", self._process.stderr))
        self._finalizer = weakref.finalize(self, _kill, self._process, self._stderr, os.getpid())
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # Fewer switches between us and the command; a user over the limit for pipes keeps the default.
            with suppress(OSError):
                fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, _PIPE_CAPACITY)

    def stop(self) -> None:
        """Terminate the command and all that it started; kill what does not go. Again: nothing."""
        self._finalizer()

    def finish_input(self, written: int) -> None:
        """Wait until the command has taken all ``written`` bytes, some of which may still be in the pipe, and its end.

        Raises:
            StreamError: as ``finish``; also of a command that succeeded, but left something in the pipe.
        """
        left = wait_until_read(self.pipe.fileno())
        self.finish(written - left if left else None)

    def finish(self, written: int | None = None) -> None:
        """Wait for the end of the command.

        Raises:
            StreamError: it failed; or, if ``written`` bytes were all that it took, it stopped reading.
        """
        if not self.pipe.closed:
            with suppress(BrokenPipeError):
                self.pipe.close()
        status = self._process.wait()
        self._stderr.close()
        self._finalizer.detach()
        if status == 0 and written is None:
            return
        how = f"exit status {status}" if status >= 0 else f"signal {signal_name(-status)}"
        said = without_secrets(self._stderr.text(), self._url)
        reason = f"the command failed with {how}" if status else f"the command stopped reading after {written} bytes"
        hint = "a command in the middle was stopped since the next one read no further" if status == 141 else None
        raise StreamError(f"{reason}: {said}" if said else reason, url=self._name, hint=hint)


class CommandReader:
    """The output of a command; its end is only an end if the command succeeded."""

    size = None

    def __init__(self, url: str, name: str) -> None:
        self._command = Command(url, name, "read")
        self._failure: StreamError | None = None
        self._done = False

    def read(self, count: int) -> bytes:
        if self._done:
            if self._failure is not None:
                raise self._failure
            return b""
        data = self._command.pipe.read(count)
        if not data:
            self._done = True
            try:
                self._command.finish()
            except StreamError as failure:
                self._failure = failure
                raise
        return data or b""

    def close(self) -> None:
        self._command.stop()


class CommandSink:
    """The input of a command. It must take everything, and succeed."""

    def __init__(self, command: Command, name: str) -> None:
        self._command = command
        self._name = name
        self._written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            write_all(self._command.pipe.fileno(), data)
        except BrokenPipeError:
            self._command.finish(self._written)
        except OSError as error:
            raise_write_error(error, self._name)
        self._written += memoryview(data).nbytes

    def commit(self) -> None:
        self._command.finish_input(self._written)

    def discard(self) -> None:
        self._command.stop()


def _shell() -> list[str]:
    if bash := shutil.which("bash"):
        return [bash, "-o", "pipefail", "-c"]
    return ["/bin/sh", "-c"]


class _Tail:
    """The last bytes of a pipe, drained by a thread, so that a talkative command cannot block."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        # Closed here and not by the thread that waits: something in the background may hold the other end for longer.
        with self._pipe, suppress(OSError):
            while data := self._pipe.read(65536):
                self._kept = (self._kept + data)[-_KEPT_STDERR:]

    def close(self) -> None:
        """Wait for its end; not for long if something in the background holds the pipe, and says nothing."""
        end = time.monotonic() + _MOST_BEHIND
        self._thread.join(timeout=1.0)
        # On a busy machine the thread may not have had its turn.
        while self._thread.is_alive() and self._is_behind() and time.monotonic() < end:
            self._thread.join(timeout=0.02)

    def _is_behind(self) -> bool:
        """Whether there is something to read, be it the end."""
        poll = select.poll()
        try:
            poll.register(self._pipe.fileno(), select.POLLIN)
        except ValueError:
            return False  # closed meanwhile
        return bool(poll.poll(0))

    def text(self) -> str:
        """The last lines, up to three."""
        lines = [line.strip() for line in self._kept.decode("utf-8", "replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:])


def _kill(process: subprocess.Popen[bytes], stderr: _Tail, owner: int) -> None:
    # A forked child has a copy of this object, but the command is not its own.
    if os.getpid() != owner:
        return
    if process.stdout:
        process.stdout.close()
    _signal(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    # What the shell started may want a moment longer than the shell itself. Not a long one: where
    # no process reaps orphans, as in many containers, the group never gets empty.
    deadline = time.monotonic() + _GRACE_AFTER_SHELL
    while _signal(process, 0) and time.monotonic() < deadline:
        time.sleep(0.005)
    _signal(process, signal.SIGKILL)
    process.wait()
    if process.stdin:
        # Not before: an early end of its input would look to the command like the true one.
        process.stdin.close()
    stderr.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether a process was left in the group to get the signal."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
