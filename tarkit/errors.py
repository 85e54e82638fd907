"""Every exception that tarkit raises on purpose.

One base class, :class:`TarkitError`. Each class carries the exit code with which a program ends
because of it (the table is in ``docs/exit-codes.md``), and fields that say where things went wrong,
so that callers need not parse sentences. ``str()`` of an error is one line: what is wrong, where,
and what would be right.
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
    """One exit code for several failures: 75 if a retry may help one of them.

    Else the lowest, 1 last; 0 for none.
    """
    found = set(codes) - {EXIT_OK}
    if EXIT_TEMPORARY in found:
        return EXIT_TEMPORARY
    return min(found, key=lambda code: (code == EXIT_FAILED, code), default=EXIT_OK)


LINE = 2000
"""Characters of a line for people, or of an error; exceptions of libraries and names can have any
number.
"""


def shortened(text: str, most: int = LINE) -> str:
    """``text``, its middle left out if it has more than about ``most`` characters: what to do comes
    last.
    """
    if len(text) > most:
        # First: of a URL without its beginning, it could not be told what is secret in it.
        text = redact_text(text)
        # A traceback of another process: it ends with what is wrong.
        lines = text.strip().splitlines()
        if len(lines) > 2:
            text = f"{lines[0]} … {lines[-1]}"
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 5]}…({len(text)} characters)…{text[-(most // 5) :]}"


def printable(text: str) -> str:
    """``text`` on one line: control characters and undecodable bytes escaped, at most about 200
    characters of it.
    """
    return escaped(shortened(text, 200))


def escaped(text: str) -> str:
    """The text with everything escaped that a terminal would obey or cannot show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def quoted(spec: str) -> str:
    """What a user named, in quotes, as it may be shown: on one line, without secrets."""
    return repr(printable(redact(spec)))


def counted(number: int, one: str, many: str = "") -> str:
    """``1 sample``, ``2 samples``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def signal_name(number: int) -> str:
    """``SIGKILL``; or ``SIG40`` of those without a name, the real-time signals."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class TarkitError(Exception):
    """Base of everything raised on purpose."""

    exit_code = EXIT_FAILED

    def __str__(self) -> str:
        return shortened(super().__str__())


class UsageError(TarkitError, ValueError):
    """The caller asked for something that cannot be: a wrong option, argument or configuration."""

    exit_code = EXIT_USAGE


class LocatedError(TarkitError):
    """An error at a place.

    Fields that are not known are None.

    Args:
        reason: what is wrong, a phrase.
        url: the shard.
        offset: byte position of the member's header in the uncompressed archive.
        member: the member's name.
        key: the sample's key.
        hint: what would be right.
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
    """The input data is not what it should be."""

    exit_code = EXIT_DATA


class NotATarError(DataError):
    """The stream does not begin with a tar header."""


class CorruptHeaderError(DataError):
    """A member's header is damaged: bad checksum, size, or extended header."""


class CorruptRecordError(DataError):
    """A record of a record file, or the chunk or block that holds records, is damaged: a wrong
    checksum or length.
    """


class TruncatedError(DataError):
    """The stream ends before its end: inside a member or record, or without the end-of-archive
    mark.
    """


class UnsupportedMemberError(DataError):
    """A member whose content is not in the shard as plain bytes: a hard link, a sparse file.

    Attributes:
        kind: the word under which such members are counted where they are passed over.
    """

    kind = "unsupported"


class TooLargeError(DataError):
    """A sample or record, or the window of a compressed stream, has more bytes than the memory it
    may take.
    """


class MissingFieldError(DataError, KeyError):
    """A sample lacks a field that a step needs."""


class DuplicateFieldError(DataError):
    """Two members of one sample have the same field."""


class RepeatedKeyError(DataError):
    """A key comes back after another sample in the same shard: its files are not adjacent."""


class ReplacedError(DataError):
    """A source is not the one whose records were counted: what a task names are other records now."""


class StaleIndexError(DataError):
    """The index beside a shard is of another one, such as the one that this shard has replaced.
    url: of the shard.
    """


class CompressionError(DataError):
    """A compressed stream is damaged or cut short."""


class TransformError(DataError):
    """The caller's ``transform`` raised an exception for a sample.

    In the process of that, it is the ``__cause__``.
    """


class EncodeError(LocatedError, ValueError):
    """A value cannot be written: no encoder for it, or its key or field cannot be a member's name."""


class DecodeError(DataError):
    """A field's bytes cannot be decoded as its extension says."""


class MissingInputError(LocatedError, FileNotFoundError):
    """An input does not exist."""

    exit_code = EXIT_MISSING


class StreamError(LocatedError, OSError):
    """Reading or writing a stream failed, and trying again would not help."""


class TemporaryStreamError(StreamError):
    """Reading or writing a stream failed in a way that a later try may succeed."""

    exit_code = EXIT_TEMPORARY


class OutputClosedError(TarkitError, BrokenPipeError):
    """The reader of standard output has closed it: it has seen enough, so a program ends with
    success.

    Raised only where the data itself goes to standard output. Any other closed pipe or connection
    is an error.
    """

    exit_code = EXIT_OK

    def __init__(self, message: str = "the reader of standard output has closed it") -> None:
        super().__init__(message)


class GivenUpError(TemporaryStreamError):
    """Every attempt of one operation failed: to try once more right now would only repeat them.

    Attributes:
        answered: whether the store answered any of the last attempts; if not, nothing else of it
            can be had either.
    """

    answered = True


class AlreadyPublishedError(LocatedError, FileExistsError):
    """Something is under the final name already, and it was to be published only if nothing is.

    Nothing was changed. Whether that is a failure, or just means that someone else was faster, is
    for the caller to say.
    """


class CommandNotRunnableError(TarkitError):
    """The command itself cannot be run: not found (127) or not executable (126)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ClusterError(TarkitError):
    """The API server of a cluster refused what was asked of it.

    Args:
        status: of its answer, 0 if it is not known.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ClusterDeniedError(ClusterError):
    """The user is not known to a cluster (401), or may not ask (403): so nothing is known to have
    failed.
    """

    exit_code = EXIT_TEMPORARY


class NoSuchObjectError(ClusterError):
    """The object does not exist in the cluster, or no longer."""

    exit_code = EXIT_MISSING


class ClusterUnreachableError(TarkitError):
    """A cluster does not answer, or is too busy to.

    Args:
        status: of its answer, 0 if there was none.
    """

    exit_code = EXIT_TEMPORARY

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceLostError(TarkitError):
    """The shard service did not answer for as long as a client tries.

    What was not reported is handed out again.
    """

    exit_code = EXIT_TEMPORARY
