"""Commands behind ``pipe:`` URLs: run by bash, in a process group of their own, never left behind."""

from __future__ import annotations

import array
import fcntl
import io
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import termios
import threading
import time
import urllib.parse
import weakref
from contextlib import suppress
from typing import BinaryIO, Literal, cast

from tarkit.errors import StreamError, UsageError, printable, signal_name
from tarkit.redaction import redact, redact_text, secrets_in

_KEPT_STDERR = 2000
_SHORTEST = 3
_LONG = 8
# Between words of a URL, and of a command, in which a path is one word.
_SEPARATORS = re.compile(r"[\s:/?#@&;=]+"), re.compile(r"[\s'\"`$=;|&()<>{}?:#@,]+")
_GRACE = 2.0
_GRACE_AFTER_SHELL = 0.1
_PIPE_CAPACITY = 1 << 20
_MOST_BEHIND = 10.0


def without_secrets(text: str, url: str) -> str:
    """A foreign message as it may be shown: one line, URLs redacted, secrets of ``url`` and parts of them taken out.

    Of a ``pipe:`` command, these are all its words of three characters or more, but for names of programs and files.
    """
    is_command = url.startswith("pipe:")
    text = text.replace(url, redact(url))
    for secret in sorted(_secret_words(url, is_command), key=len, reverse=True):
        # A short word of a command may be a part of many a longer one.
        alone = is_command and len(secret) < _LONG
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)" if alone else re.escape(secret), "…", text)
    return printable(redact_text(text).strip())


def _secret_words(url: str, is_command: bool) -> set[str]:
    words: set[str] = set()
    for part in secrets_in(url):
        for word in _shell_words(part.strip()) if is_command else (part, urllib.parse.unquote_plus(part)):
            words.update((word, *re.split(r"\s*[:=]\s*", word), *_SEPARATORS[is_command].split(word)))
    words |= {urllib.parse.quote(word, safe="") for word in words}
    return {word for word in words if len(word) >= _SHORTEST and not (is_command and _is_known(word))}


def _shell_words(command: str) -> list[str]:
    """A command, and its words without their quotes."""
    try:
        return [command, *shlex.split(command)]
    except ValueError:
        # A quote that is not closed.
        return [command]


def _is_known(word: str) -> bool:
    """Whether it is the name of a program or a file of this machine."""
    folder = os.path.dirname(word)
    return shutil.which(word) is not None or os.path.exists(word) or (folder != "/" and os.path.isdir(folder))


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
            raise StreamError(f"{shell[0]} can not be started: {error.strerror}", url=name) from None
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


def wait_until_read(pipe: int) -> int:
    """Wait until the readers of a pipe have taken everything that was written to it, or have all closed their end.

    Returns:
        How many bytes the readers have left in the pipe.
    """
    poll = select.poll()
    poll.register(pipe, 0)
    pause = 1.0
    # Without a mask, poll reports nothing but the error that the last reader has closed its end.
    while _bytes_in(pipe) and not poll.poll(pause):
        pause = min(100.0, pause * 2)
    # Counted again: a reader may take the rest and end during the poll.
    return _bytes_in(pipe)


def _bytes_in(pipe: int) -> int:
    """Bytes that were written to a pipe and not read yet; 0 where the system does not say."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]


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


def _shell() -> list[str]:
    if bash := shutil.which("bash"):
        return [bash, "-o", "pipefail", "-c"]
    return ["/bin/sh", "-c"]


class _Tail:
    """The last bytes of a pipe, drained by a thread, so that a talkative command can not block."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        # Closed here and not by whoever waits: something in the background may hold the other end for longer.
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
    # nobody reaps orphans, as in many containers, the group never gets empty.
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
    """Whether there still was somebody in the group to get the signal."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
