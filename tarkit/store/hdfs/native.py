"""HDFS by its own protocol, without Java: the library hdfs-native, behind the calls of an HdfsClient."""

from __future__ import annotations

import io
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, UsageError, library, printable
from tarkit.store.foreign import without_secrets
from tarkit.store.hdfs.client import HdfsClient, HdfsWriter, Status, raise_java
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped, Retry
from tarkit.store.window import Window

_RPC_ERROR = re.compile(r'RPCError\("([\w.$]+)", "(.*)', re.DOTALL)
# The library tries a NameNode 15 times within three minutes. That is right for a pair of which one takes over;
# a URL that names one NameNode by its port has our own patience as well.
_ONE_NAMENODE = {"dfs.client.failover.max.attempts": "2", "dfs.client.failover.sleep.base.millis": "200"}


class NativeClient(HdfsClient):
    """A cluster by hdfs://HOST:PORT, by a name service of hdfs-site.xml, or by fs.defaultFS (hdfs:///PATH)."""

    def __init__(self, url: str, retry: Retry) -> None:
        self.retry = retry
        parts = urllib.parse.urlsplit(url)
        self._prefix = f"{parts.scheme}://{parts.netloc}"
        if "@" in parts.netloc:
            raise UsageError(
                f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}: the user of hdfs:// is who runs the program, "
                "HADOOP_USER_NAME, or the Kerberos ticket; webhdfs:// takes USER@"
            )
        module = library("hdfs_native", f"{parts.scheme}://", "hdfs")
        self._options: Any = module.WriteOptions
        try:
            port = parts.port
            client = module.Client(self._prefix if parts.netloc else None, _ONE_NAMENODE if port else None)
        except Exception as error:
            said = without_secrets(str(error), url)
            raise UsageError(f"{printable(self._prefix)} is not a cluster that can be reached: {said}") from None
        self._client: Any = client

    def shown(self, path: str) -> str:
        return self._prefix + path

    def status(self, path: str) -> Status:
        return _status(self.call(path, self._client.get_file_info, path))

    def listing(self, path: str) -> list[Status]:
        return [_status(item) for item in self.call(path, lambda: list(self._client.list_status(path, False)))]

    def checksum(self, path: str) -> None:
        return None

    def open(self, path: str, offset: int, size: int) -> Body:
        file = self.call(path, self._client.read, path)
        return _NativeBody(self, path, self.call(path, file.read_range_stream, offset, size - offset))

    def create(self, path: str) -> HdfsWriter:
        options = self._options(overwrite=True, create_parent=True)
        return _NativeWriter(self, path, self.call(path, self._client.create, path, options))

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self.call(target, self._client.rename, source, target, overwrite)

    def delete(self, path: str, recursive: bool) -> bool:
        return bool(self.call(path, self._client.delete, path, recursive))

    def call(self, path: str, function: Any, *arguments: Any) -> Any:
        """A call of the library, whose errors become ours."""
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
                raise AlreadyPublishedError("is there already", url=name) from None
            if match := _RPC_ERROR.match(text):
                raise_java(match[1], match[2].split("\\n", 1)[0].removesuffix('")'), name, name)
            # What is left speaks of connections and blocks: OSError, and RuntimeError with Rust's names.
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
            # The NameNode answered; it is the blocks of this file that cannot be had.
            drop.answered = True
            raise

    def close(self) -> None:
        self._pieces = iter(())


class _NativeWriter:
    def __init__(self, client: NativeClient, path: str, file: Any) -> None:
        self._client = client
        self._path = path
        self._file = file

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._client.call(self._path, self._file.write, bytes(data))

    def close(self) -> None:
        self._client.call(self._path, self._file.close)

    def abort(self) -> None:
        # The file's own close() would finish it, now or when it is collected; and what is deleted cannot be finished.
        io.RawIOBase.close(self._file)
