"""Processes that are forked in the middle of things: what they have of their parent, and what works
in them anew.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarkit.errors import StreamError
from tarkit.store import forks, temporary
from tarkit.store.objects import gcs
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read

if TYPE_CHECKING:
    from httpserver import FaultServer

DATA = bytes(range(256)) * 2000


def in_child(function: Callable[[], object]) -> None:
    """Run a function in a forked process; it returns.

    An exception in it is one here.
    """
    pid = os.fork()
    if not pid:
        code = 1
        try:
            function()
            code = 0
        except BaseException as error:
            os.write(2, f"in the forked process: {error!r}\n".encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def raises_about_fork(function: Callable[[], object]) -> None:
    with pytest.raises(StreamError, match="opened before this process was forked; open it in the new process"):
        function()


def test_a_child_takes_nothing_from_the_connection_of_its_parent(server: FaultServer) -> None:
    stream = open_read(server.put("f", DATA), compression=None, read_ahead=0)
    data = stream.read(10)

    def child() -> None:
        raises_about_fork(lambda: stream.read(100_000))
        stream.close()

    in_child(child)
    while piece := stream.read(100_000):
        data += piece
    assert data == DATA


def test_a_child_takes_nothing_from_the_command_of_its_parent() -> None:
    with open_read("pipe:printf abc; sleep 0.1; printf def", compression=None) as stream:
        data = stream.read(3)
        in_child(lambda: raises_about_fork(lambda: stream.read(3)))
        while piece := stream.read(3):
            data += piece
    assert data == b"abcdef"


@pytest.mark.parametrize("compression", [None, "gz"])
def test_a_child_takes_nothing_from_the_local_file_of_its_parent(tmp_path: Path, compression: str | None) -> None:
    (tmp_path / "f").write_bytes(DATA if compression is None else gzip.compress(os.urandom(1000) + DATA, 0))
    with open_read(tmp_path / "f", compression=compression) as stream:
        data = stream.read(1000)
        in_child(lambda: raises_about_fork(lambda: [stream.read(1000) for _ in range(len(DATA))]))
        while piece := stream.read(100_000):
            data += piece
    assert data[-len(DATA) :] == DATA


def test_a_child_publishes_nothing_of_what_its_parent_writes(tmp_path: Path) -> None:
    with open_publish(tmp_path / "a") as out:
        out.write(b"begun, ")

        def child() -> None:
            raises_about_fork(lambda: out.write(DATA * 5))
            out.discard()

        in_child(child)
        in_child(lambda: raises_about_fork(out.commit))
        # It leaves the with statement, as one does that ends with sys.exit().
        in_child(lambda: out.__exit__(SystemExit, None, None))
        assert not (tmp_path / "a").exists()
        out.write(b"and ended")
    assert (tmp_path / "a").read_bytes() == b"begun, and ended"


def test_a_child_does_not_wait_for_a_listing_of_another_thread(tmp_path: Path) -> None:
    with temporary.LEFT_BEHIND._lock:  # as a thread of the parent may, which the child does not have
        in_child(lambda: open_publish(tmp_path / "a").close())
    assert (tmp_path / "a").exists()


HDFS_NATIVE = {
    "__init__": """
        import os
        from ._internal import connections
        class WriteOptions: ...
        class Client:
            def __init__(self, url, settings):
                self.connections = connections
                connections.append(os.getpid())
            def __del__(self):
                if os.getpid() not in self.connections[-1:]:
                    os.write(1, b"what the parent uses was ended in a child; ")
    """,
    "_internal": "connections = []",
}
"""It has what matters of the library: a variable of the process, and clients whose end is one for
the parent, too.
"""


def run_with_hdfs_native(folder: Path, code: str) -> str:
    """What a program prints that has this library; it ends within seconds."""
    (folder / "hdfs_native").mkdir()
    for name, text in HDFS_NATIVE.items():
        (folder / "hdfs_native" / f"{name}.py").write_text(textwrap.dedent(text))
    head = "import os, sys\nfrom tarkit.store.hdfs import native\nfrom tarkit.store.retry import DEFAULT_RETRY\n"
    head += "client = lambda: native.NativeClient('hdfs://a:1', DEFAULT_RETRY)\n"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", head + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_each_process_of_a_line_of_forks_has_hdfs_connections_of_its_own(tmp_path: Path) -> None:
    code = """
        for process in "parent", "child", "grandchild":
            mine = client()
            print(process, len(mine._client.connections), mine._client.connections[-1] == os.getpid(), flush=True)
            if child := os.fork():
                os.waitpid(child, 0)
                break
            del mine  # in the child
        """
    assert run_with_hdfs_native(tmp_path, code) == "parent 1 True\nchild 1 True\ngrandchild 1 True\n"


def test_a_process_that_forks_before_it_uses_hdfs_needs_no_copy(tmp_path: Path) -> None:
    code = """
        if child := os.fork():
            os.waitpid(child, 0)
        client()
        print([name for name in sys.modules if name.startswith("hdfs_native_")], flush=True)
        """
    assert run_with_hdfs_native(tmp_path, code) == "[]\n[]\n"


def test_a_child_that_cannot_copy_the_hdfs_library_says_so(tmp_path: Path) -> None:
    code = """
        client()
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            native.shutil.copy = lambda *_: open("/dev/full", "w").write("-" * 100_000)
            try:
                client()
            except native.UsageError as error:
                print(error)
        """
    said = run_with_hdfs_native(tmp_path, code)
    assert "forked from one that used hdfs://" in said
    assert "No space left on device" in said
    assert "TMPDIR" in said


class Gcsfs:
    """The part of gcsfs that asks by gRPC."""

    def _request(self) -> None: ...

    _request.__wrapped__ = _request  # type: ignore[attr-defined]

    async def _get_bucket_type(self, bucket: str) -> str:
        return f"asked by gRPC about {bucket}"


def test_a_child_asks_gcs_nothing_by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    extended = pytest.importorskip("gcsfs.extended_gcsfs", reason="NO gcsfs, ITS FORKS ARE NOT TESTED")
    monkeypatch.setattr(forks, "_used", set())
    monkeypatch.setattr(forks, "_inherited", set())
    fs = gcs.without_retries(Gcsfs)()

    def answer() -> Any:
        with pytest.raises(StopIteration) as ended:
            fs._get_bucket_type("b").send(None)
        return ended.value.value

    assert answer() == "asked by gRPC about b"
    assert answer() == "asked by gRPC about b"
    monkeypatch.setattr(forks, "_inherited", {*forks._used})
    assert answer() is extended.BucketType.UNKNOWN
