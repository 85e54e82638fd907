"""The process of a :mod:`tarkit.mapping.pythonpool`: loads the function, and maps samples."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, BinaryIO

from tarkit.errors import UsageError
from tarkit.mapping.frames import HEAD, MARK, check_mark, pack, unpack, unsent
from tarkit.mapping.mappererrors import AnswerError, one_line, traceback_text, why_not_callable
from tarkit.mapping.output import IN_MEMORY, PrintFiles
from tarkit.samples.codecs import encode_sample
from tarkit.samples.sample import Sample, is_bookkeeping
from tarkit.store.allocator import keep_freed_memory

READY = "ready"
MAX_PIECES = 16
_HIGH = 1024
_OWN_FILES = 16

FunctionSpec = str | Callable[..., Any]


def serve(
    connection: Any,
    forked: bool,
    parent: int,
    scratch: str,
    function: FunctionSpec,
    setup: FunctionSpec | None,
    batched: bool,
) -> None:
    """Answer batches until the parent has ended; the loop of a worker process.

    Args:
        forked: this process has copies of the descriptors that the parent has open.
        parent: the parent's process id.
    """
    fd = _moved_up(os.dup(connection.fileno()))
    connection.close()
    if forked and os.getpid() != parent:
        _disable_inherited(fd)
    # The parent's handlers were copied by a fork, and are not for this process.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    where = print_files(scratch, os.getpid())
    files = [_PrintedTo(1, where.out), _PrintedTo(2, where.err)]
    _empty_input()
    keep_freed_memory()
    pid = os.getpid()
    try:
        mapper = load(function)
        state = load(setup)() if setup is not None else None
    except Exception as error:
        _send(fd, pid, f"the mapper cannot be loaded: {one_line(error)}")
        return
    extra = () if state is None else (state,)
    named = ("a list of samples" if batched else "a sample", None), *(("the result of setup", each) for each in extra)
    _send(fd, pid, why_not_callable(mapper, *named) or READY)
    incoming = open(fd, "rb", 256 * 1024, closefd=False)
    while (message := _receive(incoming)) is not None:
        ticket, batch = message
        del message
        # Held, since the mapper may change the samples that it is given, and what is let go gives
        # its id away.
        originals = [dict(sample) for sample in batch]
        made: list[list[Sample]] = []
        problem = None
        try:
            made = _run(mapper, extra, batch, batched)
        except Exception as error:
            problem = isinstance(error, AnswerError), one_line(error), traceback_text(error, __file__)
        _flush()
        printed = [file.take(ticket) for file in files]
        header = pid, ticket, [len(samples) for samples in made], printed, problem
        known = [{id(value): name for name, value in sample.items()} for sample in originals]
        repeated = (names for samples, names in zip(made, known, strict=False) for _ in samples)
        _send(fd, pid, header, (sample for samples in made for sample in samples), repeated)


def _disable_inherited(kept: int) -> None:
    """Make the parent's files, sockets and pipes unusable, except the standard streams and one.

    A mapper that writes to them would write to the run's output, or to another mapper; and if a
    mapper keeps the parent's sockets open, no process notices the parent's death. Their numbers
    stay in use: objects of the parent that are dropped here close them, and would otherwise close a
    new file of the mapper.

    Other descriptors stay: a library with threads, such as gRPC, ends the process if a mapper forks
    and the descriptors for its events (eventfd, epoll) are closed.
    """
    reading, unusable = os.pipe()
    os.close(reading)
    for number in map(int, os.listdir("/dev/fd")):
        # The number under which the folder itself was read is closed by now.
        if number > 2 and number not in (kept, unusable) and _leads_outside(number):
            os.dup2(unusable, number, inheritable=False)
    os.close(unusable)


def _leads_outside(number: int) -> bool:
    """Return True if a descriptor is open, and is a file, a socket, a pipe or a device."""
    try:
        return stat.S_IFMT(os.fstat(number).st_mode) != 0
    except OSError:
        return False


def _moved_up(number: int) -> int:
    """Duplicate a descriptor to a high number, which a mapper does not close by accident."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = (min(limit, _HIGH) if limit > 0 else _HIGH) - _OWN_FILES
    try:
        high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        return number
    # Of two numbers of the same file, this one has nothing to report.
    with suppress(OSError):
        os.close(number)
    return high


def load(spec: FunctionSpec) -> Callable[..., Any]:
    """Return the function that ``module:name`` or ``file.py:name`` names.

    Raises:
        UsageError: the module or function does not exist.
    """
    if callable(spec):
        return spec
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{spec!r} must be module:function or file.py:function")
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"{place} has no function {name!r}")
    function: Callable[..., Any] = found
    return function


def _load_file(path: str) -> ModuleType:
    name = os.path.basename(path)[:-3]
    # Once for mapper and setup, which may share what stands at the top of the file.
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == os.path.abspath(path):
        return known
    spec = importlib.util.spec_from_file_location(
        name, os.path.abspath(path), loader=_Source(name, os.path.abspath(path))
    )
    if not os.path.exists(path) or spec is None or spec.loader is None:
        raise UsageError(f"the file {path!r} does not exist")
    # What stands beside it can be imported, as in a script that is run.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


class _Source(SourceFileLoader):
    """A loader of a source file, which ignores its bytecode.

    The bytecode may be of an earlier version with the same length and second.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"the module {error.name!r} does not exist") from None


def print_files(scratch: str, pid: int) -> PrintFiles:
    """Return the files for the output of the process ``pid``."""
    return PrintFiles(os.path.join(scratch, f"worker-{pid}"))


class _PrintedTo:
    """A file for all output of this process and its children to a standard stream."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._open()
        # What was standing in Python's own buffer at a fork is the parent's to write.
        setattr(sys, "stdout" if fd == 1 else "stderr", open(fd, "w", buffering=1, closefd=False))

    def _open(self) -> None:
        self._file = _moved_up(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        os.dup2(self._file, self._fd)

    def take(self, number: int) -> bytes | str:
        """Return the output since the last call: bytes, or for much output the name of a file."""
        size = os.fstat(self._file).st_size
        if size > IN_MEMORY:
            path = f"{self._path}-{number}"
            os.rename(self._path, path)
            os.close(self._file)
            self._open()
            return path
        if not size:
            return b""
        text = os.pread(self._file, size, 0)
        os.ftruncate(self._file, 0)
        return text


def _empty_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The mapper may have closed it, or put something of its own in its place.
        if not getattr(stream, "closed", True):
            stream.flush()


def _run(mapper: Callable[..., Any], extra: tuple[Any, ...], batch: list[Sample], batched: bool) -> list[list[Sample]]:
    if not batched:
        key = batch[0]["__key__"]
        return [as_samples(mapper(batch[0], *extra), key)]
    keys = [sample["__key__"] for sample in batch]
    answer = mapper(batch, *extra)
    if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping)):
        raise AnswerError(f"with --batch, a mapper returns a list of answers, not {type(answer).__name__}")
    answers = list(answer)
    if len(answers) != len(keys):
        raise AnswerError(f"the mapper got {len(keys)} samples and gave {len(answers)} answers")
    return [as_samples(answer, key) for answer, key in zip(answers, keys, strict=True)]


def as_samples(answer: object, key: str) -> list[Sample]:
    """Convert a mapper's result to samples whose fields are bytes."""
    if answer is None:
        return []
    if isinstance(answer, Mapping):
        return [_as_sample(answer, key)]
    if isinstance(answer, Iterable) and not isinstance(answer, (str, bytes)):
        return [_as_sample(each, key) for each in answer]
    raise AnswerError(f"a mapper returns a dict, None or several dicts, not {type(answer).__name__}")


def _as_sample(answer: object, key: str) -> Sample:
    if not isinstance(answer, Mapping):
        raise AnswerError(f"a mapper returns a dict, None or several dicts; among several was {type(answer).__name__}")
    sample: Sample = {"__key__": _text(answer.get("__key__", key), "__key__")}
    for name, value in answer.items():
        name = _text(name, "a field's name")
        if not is_bookkeeping(name):
            sample[name] = value
    if all(type(value) is bytes for name, value in sample.items() if name != "__key__"):
        return sample
    encoded = encode_sample(sample)
    return {name: value if name == "__key__" else bytes(value) for name, value in encoded.items()}


def _text(value: object, what: str) -> str:
    """Return a plain str, the only kind of text that can be sent.

    NumPy's strings, for example, have their own class.
    """
    if isinstance(value, str):
        return str.__str__(value)
    raise AnswerError(f"{what} is a str, not {type(value).__name__}")


def _send(fd: int, pid: int, header: Any, *samples: Iterable[Any]) -> None:
    if os.getpid() != pid:
        # The parent has this process's socket, too: a second answer would be taken for that to
        # another sample.
        os.write(2, b"a process that the mapper forked came back from it and is ended; end it with os._exit()\n")
        os._exit(1)
    rest = pack(header, *samples)
    while rest:
        rest = unsent(rest, os.writev(fd, rest[:MAX_PIECES]))


def _receive(stream: BinaryIO) -> tuple[Any, list[Sample]] | None:
    content = partial(_read, stream)
    try:
        mark, length, _ = HEAD.unpack(content(HEAD.size))
        check_mark(mark)
        message = unpack(content(length), content)
        check_mark(content(len(MARK)))
        return message
    except EOFError:
        return None


def _read(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
