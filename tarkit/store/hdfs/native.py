"""Call HDFS by its own protocol, without Java, through the library hdfs-native.

The library is not made for forks: it keeps open connections to DataNodes in a variable of the
process, for 3 seconds. Parent and child would send their requests on the same connection, and wait
forever or read each other's answers. So a forked process loads the library once more, from a copy
of its file, because for the same file the system's loader returns the loaded library.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
import urllib.parse
import weakref
from collections.abc import Iterator
from typing import Any

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, UsageError, printable
from tarkit.extras import library
from tarkit.store.foreign import without_secrets
from tarkit.store.forks import Owner, is_inherited
from tarkit.store.hdfs.client import HdfsClient, HdfsWriter, Status, raise_java
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped, Retry
from tarkit.store.window import Window

_RPC_ERROR = re.compile(r'RPCError\("([\w.$]+)", "(.*)', re.DOTALL)
# The library tries a NameNode 15 times within three minutes. That is right for a pair of NameNodes
# with failover; for a URL that names one NameNode by its port, tarkit's own retries are enough.
_ONE_NAMENODE = {"dfs.client.failover.max.attempts": "2", "dfs.client.failover.sleep.base.millis": "200"}


_kept: set[Any] = set()
"""Clients and files of the library that must not be deleted. In this process, those in use; those
of the parent process, forever. Deleting one waits for threads, which stay with the parent in a
fork, and finishes a file that the parent writes.
"""


def _keep(item: Any, owner: object) -> None:
    """Keep an object of the library as long as its owner exists.

    A reference in the thread that uses it is not enough: in a forked process the references of
    other threads are dropped before any code of tarkit runs.
    """
    _kept.add(item)
    weakref.finalize(owner, _forget, item, Owner())


def _forget(item: Any, process: Owner) -> None:
    if process.is_here():
        _kept.discard(item)


def _after_fork() -> None:
    _library.cache_clear()
    for item in _kept:
        # Also when the interpreter ends and clears its modules.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _library() -> Any:
    """Return hdfs-native; in a forked process a separate copy, if the parent has used it, too.

    Raises:
        MissingExtraError: hdfs-native is not installed.
        UsageError: no copy can be made.
    """
    module = library("hdfs_native", "hdfs://", "hdfs")
    if not is_inherited("hdfs_native"):
        return module
    name = f"hdfs_native_{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="tarkit-") as folder:
            shutil.copy(sys.modules["hdfs_native._internal"].__file__ or "", folder)
            spec: Any = importlib.util.spec_from_file_location(
                name, module.__file__, submodule_search_locations=[folder]
            )
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    except (OSError, ImportError) as error:
        raise UsageError(
            "this process was forked from one that used hdfs://, and needs a copy of the library hdfs-native, which "
            f"cannot be loaded from {tempfile.gettempdir()} ({printable(str(error))}): set TMPDIR to a folder on a "
            "disk with room that may hold programs, start the process with 'spawn' or 'forkserver', or use webhdfs://"
        ) from None
    return module


class NativeClient(HdfsClient):
    """A client of a cluster by hdfs://HOST:PORT, by a name service, or by fs.defaultFS.

    Name services are those of hdfs-site.xml; fs.defaultFS is used for hdfs:///PATH.
    """

    on_loss = (
        " at a DataNode that the NameNode reports as live; hdfs-native tries no other, but webhdfs:// does; "
        "RUST_LOG=hdfs_native=debug shows which it is"
    )

    def __init__(self, url: str, retry: Retry) -> None:
        self.retry = retry
        parts = urllib.parse.urlsplit(url)
        self._prefix = f"{parts.scheme}://{parts.netloc}"
        if "@" in parts.netloc:
            raise UsageError(
                f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}: the user of hdfs:// is that of the program, "
                "HADOOP_USER_NAME, or the Kerberos ticket; webhdfs:// takes USER@"
            )
        module = _library()
        self._options: Any = module.WriteOptions
        try:
            port = parts.port
            client = module.Client(self._prefix if parts.netloc else None, _ONE_NAMENODE if port else None)
        except Exception as error:
            said = without_secrets(str(error), url)
            raise UsageError(f"{printable(self._prefix)} is not a cluster that can be reached: {said}") from None
        self._client: Any = client
        _keep(client, self)

    def shown(self, path: str) -> str:
        return self._prefix + path

    def status(self, path: str) -> Status:
        return _status(self.call(path, self._client.get_file_info, path))

    def listing(self, path: str) -> list[Status]:
        return [_status(item) for item in self.call(path, lambda: list(self._client.list_status(path, False)))]

    def checksum(self, path: str) -> None:
        return None

    def open(self, path: str, offset: int, stop: int) -> Body:
        file = self.call(path, self._client.read, path)
        return _NativeBody(self, path, self.call(path, file.read_range_stream, offset, stop - offset))

    def create(self, path: str) -> HdfsWriter:
        options = self._options(overwrite=True, create_parent=True)
        return _NativeWriter(self, path, self.call(path, self._client.create, path, options))

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self.call(target, self._client.rename, source, target, overwrite)

    def delete(self, path: str, recursive: bool) -> bool:
        return bool(self.call(path, self._client.delete, path, recursive))

    def call(self, path: str, function: Any, *arguments: Any) -> Any:
        """Call the library, and convert its errors."""
        try:
            return function(*arguments)
        except Exception as error:
            name = self.shown(path)
            text = str(error)
            if isinstance(error, FileNotFoundError):
                if "not a file" in text:
                    raise StreamError("is a directory, not a file", url=name) from None
                raise MissingInputError("no such file", url=name) from None
            if isinstance(error, FileExistsError):
                raise AlreadyPublishedError("already exists", url=name) from None
            if match := _RPC_ERROR.match(text):
                raise_java(match[1], match[2].split("\\n", 1)[0].removesuffix('")'), name, name)
            # The other errors are about connections and blocks: OSError, and RuntimeError with
            # Rust's names.
            said = without_secrets(text.partition("\n")[0], name) or type(error).__name__
            raise Dropped(said, answered=False) from None


def _status(item: Any) -> Status:
    name = item.path.rstrip("/").rpartition("/")[2]
    return Status(name, item.isdir, item.length, item.modification_time, 0)


class _NativeBody(Window, Body):
    def __init__(self, client: NativeClient, path: str, pieces: Iterator[bytes]) -> None:
        super().__init__(self._piece)
        self._client = client
        self._path = path
        self._pieces = pieces

    def _piece(self, _count: int) -> bytes:
        try:
            return bytes(self._client.call(self._path, next, self._pieces, b""))
        except Dropped as drop:
            # The NameNode answered; the blocks of this file cannot be read.
            drop.answered = True
            raise

    def close(self) -> None:
        self._pieces = iter(())


class _NativeWriter:
    def __init__(self, client: NativeClient, path: str, file: Any) -> None:
        self._client = client
        self._path = path
        self._file = file
        _keep(file, self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._client.call(self._path, self._file.write, bytes(data))

    def close(self) -> None:
        self._client.call(self._path, self._file.close)

    def abort(self) -> None:
        # The file's own close() would finish it, now or at garbage collection; a deleted file
        # cannot be finished.
        io.RawIOBase.close(self._file)
