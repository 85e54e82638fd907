"""The exceptions that tarkit raises on purpose.

They have one base class, :class:`TarkitError`. Each class has the exit code of a program that ends
because of it (the table is in ``docs/exit-codes.md``), and fields with the place of the error, so
that callers need not parse sentences. ``str()`` of an error is one line: the problem, its place,
and what the user can do.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarkit.names.redaction import redact, redact_text

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SET_ASIDE = 3
EXIT_DATA = 65
EXIT_MISSING = 66
EXIT_TEMPORARY = 75
EXIT_CANNOT_RUN = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def exit_code_of_all(codes: Iterable[int]) -> int:
    """Choose one exit code for several failures: 75 if a retry may help one of them.

    Otherwise the lowest code, with 1 after all others; 0 if there are no failures.
    """
    found = set(codes) - {EXIT_OK}
    if EXIT_TEMPORARY in found:
        return EXIT_TEMPORARY
    return min(found, key=lambda code: (code == EXIT_FAILED, code), default=EXIT_OK)


LINE = 2000
"""Largest number of characters of a line for the user, or of an error.

Exceptions of libraries, and names, have no limit of their own.
"""
_LONGEST = 1 << 15
"""Number of characters at each end of a text that are searched for secrets; no URL is longer."""


def shortened(text: str, most: int = LINE) -> str:
    """Shorten ``text`` to about ``most`` characters by leaving out its middle.

    The end is kept, because messages end with advice.
    """
    length = len(text)
    if length > most:
        # Redact first: in a URL without its beginning, secrets cannot be recognized.
        text = redact_text(text if length <= 2 * _LONGEST else f"{text[:_LONGEST]}…{text[-_LONGEST:]}")
        # The last line of another process's traceback is the error itself.
        lines = text.strip().splitlines()
        if len(lines) > 2:
            text = f"{lines[0]} … {lines[-1]}"
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 5]}…({length} characters)…{text[-(most // 5) :]}"


def printable(text: str) -> str:
    """Return the start and end of ``text``, about 200 characters, escaped and on one line."""
    return escaped(shortened(text, 200))


def escaped(text: str) -> str:
    """Escape all characters that control a terminal or that it cannot show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def quoted(spec: str) -> str:
    """Quote a spec from the user for a message: on one line, without secrets."""
    return repr(printable(redact(spec)))


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun in singular or plural: ``1 sample``, ``2 samples``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def signal_name(number: int) -> str:
    """Return a signal's name, ``SIGKILL``, or ``SIG40`` for a real-time signal without a name."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class TarkitError(Exception):
    """Base class of all exceptions that tarkit raises on purpose."""

    exit_code = EXIT_FAILED

    def __str__(self) -> str:
        return shortened(super().__str__())


class UsageError(TarkitError, ValueError):
    """The caller passed an option, argument or configuration that is not valid."""

    exit_code = EXIT_USAGE


class LocatedError(TarkitError):
    """An error with the place where it occurred.

    Fields that are not known are None.

    Args:
        reason: what is wrong, a phrase.
        url: URL of the shard.
        offset: byte position of the member's header in the uncompressed archive.
        member: name of the member.
        key: key of the sample.
        hint: what the user can do.
    """

    def __init__(
        self,
        reason: str,
        *,
        url: str | None = None,
        offset: int | None = None,
        member: str | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.url = url
        self.offset = offset
        self.member = member
        self.key = key
        self.hint = hint

    def __str__(self) -> str:
        parts = []
        if self.url is not None:
            parts.append(printable(redact(self.url)))
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        if self.member is not None:
            parts.append(f"member {printable(self.member)!r}")
        if self.key is not None:
            parts.append(f"key {printable(self.key)!r}")
        reason = shortened(self.reason, LINE // 2)
        text = f"{', '.join(parts)}: {reason}" if parts else reason
        return shortened(f"{text}; {self.hint}" if self.hint else text)


class DataError(LocatedError, ValueError):
    """The input data is damaged or not valid."""

    exit_code = EXIT_DATA


class NotATarError(DataError):
    """The stream does not begin with a tar header."""


class CorruptHeaderError(DataError):
    """A member's header is damaged: bad checksum, size, or extended header."""


class CorruptRecordError(DataError):
    """A record, or the chunk or block that holds it, has a wrong checksum or length."""


class TruncatedError(DataError):
    """The stream ends inside a member or record, or without the end-of-archive mark."""


class UnsupportedMemberError(DataError):
    """A member's content is not in the shard as plain bytes: a hard link, a sparse file.

    Attributes:
        kind: the reason under which such members are counted when they are skipped.
    """

    kind = "unsupported"


class TooLargeError(DataError):
    """A sample, record or compression window needs more memory than its limit."""


class MissingFieldError(DataError, KeyError):
    """A sample lacks a field that a step needs."""


class DuplicateFieldError(DataError):
    """Two members of one sample have the same field."""


class RepeatedKeyError(DataError):
    """A key comes back after another sample in the same shard: its files are not adjacent."""


class ReplacedError(DataError):
    """A source was replaced after its records were counted, so a task names other records."""


class StaleIndexError(DataError):
    """The index beside a shard was made for a different shard, such as the one it replaced.

    Its ``url`` is the URL of the shard.
    """


class CompressionError(DataError):
    """A compressed stream is damaged or cut short."""


class TransformError(DataError):
    """The caller's ``transform`` raised an exception for a sample.

    In the process that ran it, that exception is the ``__cause__``.
    """


class EncodeError(LocatedError, ValueError):
    """A value has no encoder, or its key or field is not valid as a member's name."""


class DecodeError(DataError):
    """A field's bytes are not valid for the codec of its extension."""


class MissingInputError(LocatedError, FileNotFoundError):
    """An input does not exist."""

    exit_code = EXIT_MISSING


class StreamError(LocatedError, OSError):
    """Reading or writing a stream failed, and a retry would not help."""


class TemporaryStreamError(StreamError):
    """Reading or writing a stream failed, and a later retry may succeed."""

    exit_code = EXIT_TEMPORARY


class OutputClosedError(TarkitError, BrokenPipeError):
    """The reader of standard output, such as ``head``, has closed it.

    A program ends with success then: the reader needs no more. Raised only where the data itself
    goes to standard output. Any other closed pipe or connection is an error.
    """

    exit_code = EXIT_OK

    def __init__(self, message: str = "the reader of standard output has closed it") -> None:
        super().__init__(message)


class GivenUpError(TemporaryStreamError):
    """Every attempt of an operation failed, so an immediate retry would fail too.

    Attributes:
        answered: True if the store answered one of the last attempts; if not, no other request to
            it can succeed either.
    """

    answered = True


class AlreadyPublishedError(LocatedError, FileExistsError):
    """The final name exists already, and the output was to be published only if it does not.

    Nothing was changed. The caller decides if that is a failure, or if another process was faster.
    """


class CommandNotRunnableError(TarkitError):
    """The command cannot be run: not found (127) or not executable (126)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ClusterError(TarkitError):
    """The API server of a cluster refused a request.

    Args:
        status: HTTP status of its answer, 0 if it is not known.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ClusterDeniedError(ClusterError):
    """The cluster does not know the user (401) or denies the request (403).

    The state of a job is not known then: it may still succeed.
    """

    exit_code = EXIT_TEMPORARY


class NoSuchObjectError(ClusterError):
    """The object does not exist in the cluster, or was deleted."""

    exit_code = EXIT_MISSING


class ClusterUnreachableError(TarkitError):
    """A cluster does not answer, or is too busy to answer.

    Args:
        status: HTTP status of its answer, 0 if there was none.
    """

    exit_code = EXIT_TEMPORARY

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceLostError(TarkitError):
    """The shard service did not answer within the time that a client retries.

    Records that were not reported are handed out again.
    """

    exit_code = EXIT_TEMPORARY
