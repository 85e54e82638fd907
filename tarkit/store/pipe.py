"""Streams without name, length or identity: standard input and output, ``pipe:`` commands.

Commands are run by bash, in a process group of their own, and never left running.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from contextlib import ExitStack, suppress
from typing import IO, Any, cast

from tarkit.errors import StreamError, UsageError, printable, signal_name
from tarkit.store.childstart import signals_after_start
from tarkit.store.foreign import without_secrets
from tarkit.store.forks import Owner
from tarkit.store.local import FileReader
from tarkit.store.place import RawReader, Sink
from tarkit.store.retry import Retry
from tarkit.store.sinks import open_stdout, raise_write_error, wait_until_read, write_all
from tarkit.store.window import Window

_KEPT_STDERR = 2000
_GRACE = 2.0
_GRACE_AFTER_SHELL = 0.1
_PIPE_CAPACITY = 1 << 20


def open_read(url: str, name: str, retry: Retry) -> RawReader:
    """Open a copy of standard input, so that it can be closed; or the output of a command.

    Raises:
        StreamError: standard input is closed, or the command cannot be started.
    """
    if url != "-":
        return CommandReader(url, name)
    try:
        return FileReader(io.FileIO(os.dup(0), "r"), name=name)
    except OSError as error:
        raise StreamError(f"standard input cannot be read: {error.strerror}", url=name) from None


def open_sink(url: str, name: str, *, if_absent: bool, sync: bool) -> Sink:
    """Open standard output, or the input of a command.

    ``if_absent`` and ``sync`` do not apply to them.
    """
    return open_stdout() if url == "-" else CommandSink(url, name)


class _Command:
    """One running command.

    Args:
        url: ``pipe:`` and the command.
        name: URL for messages.
        end: stream that is a pipe to this process, ``stdin`` or ``stdout``.
    """

    def __init__(self, url: str, name: str, end: str) -> None:
        command = url[5:]
        if not command.strip() or "\0" in command:
            raise UsageError(f"{printable(name)} is not a command; pipe: is followed by one, like pipe:cat a.tar")
        self._url = url
        self._name = name
        self._owner = Owner()
        bash = shutil.which("bash")
        shell = [bash, "-o", "pipefail", "-c"] if bash else ["/bin/sh", "-c"]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, end: subprocess.PIPE}
        try:
            with ExitStack() as opened:
                # A file and not a pipe: a command with much output cannot block, and no process
                # that it leaves running can delay the end.
                self._stderr = opened.enter_context(tempfile.TemporaryFile())
                with signals_after_start():
                    self._process = subprocess.Popen(
                        [*shell, command], **streams, stderr=self._stderr, bufsize=0, start_new_session=True
                    )
                    self._finalizer = weakref.finalize(self, _kill, self._process, self._stderr, self._owner)
                    opened.callback(self._finalizer)
                opened.pop_all()
        except OSError as error:
            raise StreamError(f"{shell[0]} cannot be started: {error.strerror}", url=name) from None
        self._pipe = cast("io.FileIO", getattr(self._process, end))
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # A larger pipe needs fewer switches between the processes; a user above the limit for
            # pipes keeps the default.
            with suppress(OSError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_CAPACITY)

    def close(self) -> None:
        """Terminate the command and all processes that it started, and kill those that do not end.

        A second call does nothing.
        """
        self._finalizer()

    def _finish(self, written: int | None = None) -> None:
        """Wait for the end of the command.

        Args:
            written: number of bytes that the command read, if it did not read all; None: it read
                all.

        Raises:
            StreamError: the command failed, or stopped reading before the end.
        """
        if not self._pipe.closed:
            with suppress(BrokenPipeError):
                self._pipe.close()
        status = self._process.wait()
        self._finalizer.detach()
        try:
            if status == 0 and written is None:
                return
            said = without_secrets(_last_lines(self._stderr), self._url)
        finally:
            _close(self._stderr)
        how = f"exit status {status}" if status >= 0 else f"signal {signal_name(-status)}"
        reason = f"the command failed with {how}" if status else f"the command stopped reading after {written} bytes"
        hint = "a command of the pipeline was stopped, because the next one stopped reading" if status == 141 else None
        raise StreamError(f"{reason}: {said}" if said else reason, url=self._name, hint=hint)


def _last_lines(file: IO[bytes]) -> str:
    """Return up to three lines from the end of a file.

    The position of the file is not moved: processes that still write to it share it.
    """
    start = max(0, os.fstat(file.fileno()).st_size - _KEPT_STDERR)
    text = os.pread(file.fileno(), _KEPT_STDERR, start).decode("utf-8", "replace")
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-3:])


class CommandReader(_Command, Window):
    """The output of a command; its end counts only if the command succeeded."""

    size = None

    def __init__(self, url: str, name: str) -> None:
        _Command.__init__(self, url, name, "stdout")
        Window.__init__(self, self._output)
        self._ended = False

    def _output(self, count: int) -> bytes:
        self._owner.check(self._name)
        data = b"" if self._ended else self._pipe.read(count) or b""
        if not data and not self._ended:
            self._finish()
            self._ended = True
        return data


class CommandSink(_Command):
    """The input of a command, which must read everything and succeed."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name, "stdin")
        self._written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            write_all(self._pipe.fileno(), data)
        except BrokenPipeError:
            self._finish(self._written)
        except OSError as error:
            raise_write_error(error, self._name)
        self._written += memoryview(data).nbytes

    def commit(self) -> None:
        # Some of the bytes may still be in the pipe, even if the command succeeds.
        left = wait_until_read(self._pipe.fileno())
        self._finish(self._written - left if left else None)

    def discard(self) -> None:
        self.close()


def _kill(process: subprocess.Popen[bytes], stderr: IO[bytes], owner: Owner) -> None:
    # A forked child has a copy of this object, but the command belongs to the parent.
    if not owner.is_here():
        return
    _close(process.stdout)
    _signal(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    # Processes that the shell started may need a moment longer than the shell itself. The wait is
    # short, because the group never becomes empty where no process reaps orphans, as in many
    # containers.
    deadline = time.monotonic() + _GRACE_AFTER_SHELL
    while _signal(process, 0) and time.monotonic() < deadline:
        time.sleep(0.005)
    _signal(process, signal.SIGKILL)
    process.wait()
    # Closed last: an early end of its input would look to the command like the true end.
    _close(process.stdin)
    _close(stderr)


def _close(file: IO[bytes] | None) -> None:
    """Close a file whose content is not needed any more; ignore errors of its disk."""
    if file is not None:
        with suppress(OSError):
            file.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the group; return True if a process was left in it."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
