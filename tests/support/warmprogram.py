"""Runs tarkit's programs in processes that are forked from one that has imported them: that is
quicker than a start.

The program's own main() has its own process, arguments, environment, folder and descriptors. What
Python does before main() is not repeated; tests of signals, of the start and of memory start the
program itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    "difflib", "importlib.metadata", "multiprocess.connection", "multiprocess.popen_fork",
    "tarkit.cli.rundisplay", "tarkit.cli.shared.clientretries", "tarkit.cli.shared.results",
    "tarkit.cli.shared.shardverb", "tarkit.cli.tarkit", "tarkit.cli.tarproc", "tarkit.formats.registry",
    "tarkit.mapping.pythonpool", "tarkit.mapping.shellpool", "tarkit.runs.process", "tarkit.runs.retryfailed",
    "tarkit.runs.shards", "tarkit.runs.trial", "tarkit.specs.inputslice", "tarkit.steps.shardsoutput",
    "tarkit.store.compression",
)  # fmt: skip
READ_AT_START = ("PYTHON", "FSSPEC_")
"""Beginnings of variables that Python and libraries read before main()."""
_started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether the environment has the variables of this process, as far as they are read before
    main().
    """
    return all(os.environ.get(name) == value for name, value in environment.items() if name.startswith(READ_AT_START))


def run(
    words: Sequence[str],
    folder: str | Path,
    environment: Mapping[str, str],
    given: bytes | None,
    seconds: float = 300,
    *,
    stdout: int | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """As subprocess.run(words, capture_output=True), of which the first is the name of a program of
    tarkit.

    Args:
        given: standard input, else it is /dev/null.
        stdout: an open file to write to; nothing of it is returned then.
    """
    helper, connection = _running()
    (input_read, input_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in range(3))
    with tempfile.TemporaryFile() as request, ThreadPoolExecutor(3) as threads:
        request.write(json.dumps([[*words], str(folder), {**environment}]).encode())
        request.seek(0)
        stdin = input_read if given is not None else os.open(os.devnull, os.O_RDONLY)
        out = out_write if stdout is None else stdout
        socket.send_fds(connection, [b"run"], [request.fileno(), stdin, out, err_write])
        for fd in {input_read, stdin, out_write, err_write}:
            os.close(fd)
        written = threads.submit(_write, input_write, given or b"")
        texts = [threads.submit(_read, fd) for fd in (out_read, err_read)]
        connection.settimeout(seconds)
        try:
            code = int(connection.recv(16))
        except TimeoutError:
            helper.kill()
            raise
        written.result()
        return subprocess.CompletedProcess(words, code, *(each.result() for each in texts))


def parent() -> int:
    """Process id of the process whose children the programs are."""
    return _running()[0].pid


def _running() -> tuple[subprocess.Popen[bytes], socket.socket]:
    if not _started or _started[-1][0].poll() is not None:
        _start()
    return _started[-1]


def _write(fd: int, data: bytes) -> None:
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except BrokenPipeError:
        pass


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _start() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        helper = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    _started.append((helper, ours))
    atexit.register(_stop, helper, ours)


def _stop(helper: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    helper.kill()
    helper.wait()


def serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request.

    In the child, the words are returned, and all else is as they want it.
    """
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    while True:
        word, fds, _, _ = socket.recv_fds(connection, 16, 4)
        if not word:
            return None
        pid = os.fork()
        if not pid:
            connection.close()
            return _become(*fds)
        for fd in fds:
            os.close(fd)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become(request: int, *streams: int) -> list[str]:
    with open(request) as file:
        words, folder, environment = json.load(file)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    return [*words]


def _end(code: int) -> NoReturn:
    """Exit as Python does, but for modules, which stay as they are.

    To take them apart copies the memory that is shared with the parent: that takes longer than
    many a program.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
    except OSError:
        traceback.print_exc()
        code = 120
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    found = serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        # The folder of this file is not on the program's path.
        del sys.path[0]
        sys.argv = found
        _end(importlib.import_module(f"tarkit.cli.{found[0]}").main())
