"""Streams by URL, both ways, with everything that can go wrong on the way."""

from __future__ import annotations

import errno
import fcntl
import gc
import gzip
import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from streamreading import read_all
from times import fast

from tarkit.errors import (
    CompressionError,
    DataError,
    GivenUpError,
    MissingInputError,
    OutputClosedError,
    StreamError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.store import temporary
from tarkit.store.fieldfile import FieldFile
from tarkit.store.local import FileReader
from tarkit.store.objects.place import open_sink
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.read import open_read

DATA = bytes(range(256)) * 1000


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# Reading files


def test_local_file_by_any_of_its_names(tmp_path: Path) -> None:
    path = tmp_path / "a b%41.tar"
    path.write_bytes(DATA)
    for url in (str(path), path, f"file://{path}", path.as_uri(), f"file://localhost{path}"):
        with open_read(url) as stream:
            assert stream.size_hint == len(DATA)
            assert read_all(stream) == DATA
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def _replace(path: Path) -> None:
    (path.parent / "new").write_bytes(b"2" * 10)
    os.replace(path.parent / "new", path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "changed while it was read;"),
        (
            lambda path: path.write_bytes(bytes(99 << 10)),
            r"changed while it was read: it had \d+ bytes, and has 101376",
        ),
        (lambda path: os.truncate(path, 7), r"changed while it was read: it had \d+ bytes, and has 7 now;"),
        (_replace, "replaced while it was read;"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_local_file_that_is_not_the_same_at_its_end(
    tmp_path: Path, change: Callable[[Path], object], said: str, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    with open_publish(path) as out:
        out.write(DATA)
    os.utime(path, ns=(1, 1))
    with pytest.raises(TemporaryStreamError, match=said) as caught, open_read(path) as stream:
        stream.read(10)
        change(path)
        read_all(stream)
    assert caught.value.url == str(path)


def test_a_file_that_is_standard_input_may_grow_and_may_not_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size, more in ((len(DATA), b""), (len(DATA), b"more"), (7, b"")):
        path.write_bytes(DATA)
        reader = FileReader(io.FileIO(path), name="-")
        head = reader.read(10)
        with open(path, "ab") as file:
            file.write(more)
        os.truncate(path, size + len(more))
        if size == 7:
            with pytest.raises(
                TemporaryStreamError, match=rf"^-: the file was changed .* {len(DATA)} bytes, and has 7 "
            ):
                reader.read(1 << 20)
        else:
            assert head + reader.read(1 << 30) + reader.read(1) == DATA + more
        reader.close()


def test_a_local_file_that_seems_damaged_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    os.utime(path, ns=(1, 1))
    with pytest.raises(TemporaryStreamError, match="changed while it was read"), open_read(path) as stream:
        stream.read(10)
        path.write_bytes(DATA)
        raise DataError("damaged")


def test_a_local_file_that_is_removed_or_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for change, may_be_replaced in ((Path.unlink, False), (_replace, True)):
        path.write_bytes(DATA)
        with open_read(path, may_be_replaced=may_be_replaced) as stream:
            head = stream.read(10)
            change(path)
            assert head + read_all(stream) == DATA


def test_a_program_changes_its_folder_while_a_local_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, content in ((tmp_path, DATA), (tmp_path / "b", b"another file of this name")):
        folder.mkdir(exist_ok=True)
        (folder / "a").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with open_read("a") as stream:
        monkeypatch.chdir("b")
        assert read_all(stream) == DATA


def test_cut_compressed_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.tgz"
    path.write_bytes(gzip.compress(DATA)[:-1])
    with pytest.raises(CompressionError, match="cut short") as caught:
        read_all(open_read(path))
    assert caught.value.url == str(path)
    path.write_bytes(b"")
    assert read_all(open_read(path)) == b""
    with pytest.raises(CompressionError, match="cut short"):
        read_all(open_read(path, compression="gz"))


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for url in (tmp_path / "none", f"{tmp_path}/file/below", f"file://{tmp_path}/none"):
        with pytest.raises(MissingInputError, match="no such file") as caught:
            open_read(url)
        assert caught.value.exit_code == 66
    for url in (str(tmp_path), f"file://{tmp_path}"):
        with pytest.raises(StreamError, match="is a directory"):
            open_read(url)
    with pytest.raises(UsageError, match="zero byte"):
        open_read("a\0b")
    with pytest.raises(UsageError, match="three slashes"):
        open_read("file://somewhere/a")
    with pytest.raises(UsageError, match="no compression 'rar'"):
        open_read(tmp_path / "file", compression="rar")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StreamError, match="symbolic links"):
        open_read(loop)


def test_file_objects_stay_open(tmp_path: Path) -> None:
    source = io.BytesIO(gzip.compress(DATA))
    assert read_all(open_read(source)) == DATA
    assert not source.closed
    (tmp_path / "x").write_bytes(b"\xff")
    with open(tmp_path / "x", encoding="utf-8") as text:
        for wrong in (io.StringIO("a"), text, b"bytes"):
            with pytest.raises(UsageError, match="it must be a path, a URL or a file open to read bytes"):
                open_read(wrong)  # type: ignore[arg-type]
    target = io.BytesIO()
    with open_publish(target, compression="gz") as out:
        out.write(DATA)
    assert gzip.decompress(target.getvalue()) == DATA
    with pytest.raises(UsageError, match="does not take bytes"), open_publish(io.StringIO()) as out:  # type: ignore[arg-type]
        out.write(b"x")
    full = open("/dev/full", "wb", buffering=0)
    with full, pytest.raises(StreamError, match="no space left"), open_publish(full) as out:
        out.write(b"x")


def test_named_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_all(open_read(fifo))), daemon=True)
    reader.start()
    with open_publish(fifo, compression="gz") as out:
        out.write(DATA)
    reader.join(120)
    assert got == [DATA]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert names(tmp_path) == ["fifo"]


# Standard input and output


def test_publishing_costs_the_same_however_many_files_a_folder_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing a folder of 100,000 shards for each of them would be most of the time of a run."""
    now, listings = [1000.0], [0]
    scandir = os.scandir

    def listed(folder: str) -> Any:
        now[0] += 1
        listings[0] += 1
        return scandir(folder)

    monkeypatch.setattr("tarkit.store.temporary.LEFT_BEHIND", temporary.LeftBehind())
    monkeypatch.setattr("tarkit.store.temporary.time.monotonic", lambda: now[0])
    monkeypatch.setattr("tarkit.store.temporary.os.scandir", listed)
    other, early, late = (tmp_path / f".{name}.tarkit-0123abcd" for name in ("other", "99", "100"))
    for path in (other, early):
        path.write_bytes(b"of a run that was killed")
    for number in range(100):
        open_publish(str(tmp_path / str(number))).commit()
        now[0] += 1
    assert listings == [1], "for a hundred times as long as it took"
    now[0] += 1
    late.write_bytes(b"of a run that was killed meanwhile")
    open_publish(str(tmp_path / "100")).commit()
    assert listings == [2]
    assert sorted(path.name for path in tmp_path.glob(".*")) == [other.name]


def test_a_writer_that_is_killed_between_two_listings_is_cleaned_up_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.store.temporary.LEFT_BEHIND", temporary.LeftBehind())
    monkeypatch.setattr("tarkit.store.temporary._LISTING_SHARE", 10**9)
    left = tmp_path / ".a.tarkit-0123abcd"
    with left.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        open_publish(str(tmp_path / "a")).commit()
        assert left.exists(), "its writer is alive"
    open_publish(str(tmp_path / "a")).commit()
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("kind", ["a named pipe", "another descriptor", "a file object"])
def test_only_standard_output_may_be_closed_by_its_reader(kind: str, tmp_path: Path) -> None:
    """A named pipe is an output as a file is: a part of a tar in it is a failure, and
    no success.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(fifo, os.O_WRONLY)
    target: Any = {"a named pipe": str(fifo), "another descriptor": f"/dev/fd/{writing}"}.get(kind)
    with os.fdopen(writing, "wb", buffering=0) as file:
        stream = open_publish(file if target is None else target)
        os.close(reading)
        with pytest.raises(BrokenPipeError if target is None else StreamError) as caught:
            stream.write(bytes(1 << 20))
    assert not isinstance(caught.value, OutputClosedError)
    if target is not None:
        assert str(caught.value) == f"{target}: its reader closed it before the end"


def test_a_named_pipe_that_is_open_to_read_and_write_is_read_later(tmp_path: Path) -> None:
    """As by bash with ``exec 3<>fifo``: its own process reads it once the writer is done."""
    os.mkfifo(tmp_path / "fifo")
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    with open(fifo, "rb", buffering=0) as file:
        with open_publish(f"/dev/fd/{fifo}") as out:
            out.write(bytes(4096))
        assert file.read(8192) == bytes(4096)


def test_devices_are_written_not_replaced() -> None:
    with open_publish("/dev/null") as out:
        out.write(DATA)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(StreamError, match="/dev/full: no space left on device"), open_publish("/dev/full") as out:
        out.write(DATA)


# Commands


# Publishing files


def test_nothing_before_commit_and_nothing_left_after(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for sync in (True, False):
        out = open_publish(path, sync=sync)
        out.write(bytearray(b"abc"))
        out.write(memoryview(b"defdef")[::2])
        out.write(memoryview(DATA * 9).cast("I"))
        assert out.bytes_written == 6 + 9 * len(DATA)
        [temporary] = names(tmp_path)
        assert temporary.startswith(".a.tar.tarkit-")
        out.commit()
        out.commit()
        out.close()
        assert path.read_bytes() == b"abcdfe" + DATA * 9
        assert names(tmp_path) == ["a.tar"]
        path.unlink()
    with pytest.raises(StreamError, match="was committed, so it cannot be written to"):
        out.write(b"x")


def test_discard_on_exception_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), open_publish(path) as out:
        out.write(DATA * 9)
        raise KeyError
    out.discard()
    out.close()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.tar"]
    with pytest.raises(StreamError, match="was discarded, so it cannot be published"):
        out.commit()


def test_forgotten_stream_publishes_nothing(tmp_path: Path) -> None:
    out: PublishStream | None = open_publish(tmp_path / "a.tar")
    assert out is not None
    out.write(DATA * 9)
    with pytest.warns(ResourceWarning, match="a.tar: its writer was never closed, so it is not published"):
        out = None
        gc.collect()
    assert names(tmp_path) == []


@contextmanager
def failing_close() -> Iterator[None]:
    """Network file systems, and quotas, have that."""
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "close", close)
        yield


@pytest.mark.parametrize("sync", [True, False])
def test_what_a_disk_reports_only_at_close_keeps_the_file_from_its_name(tmp_path: Path, sync: bool) -> None:
    """The file had its name, and the exit code was 1."""
    (tmp_path / "a.tar").write_bytes(b"old")
    out = open_publish(tmp_path / "a.tar", sync=sync)
    out.write(DATA)
    with failing_close(), pytest.raises(StreamError, match="no space left on device"):
        out.commit()
    assert names(tmp_path) == ["a.tar"] and (tmp_path / "a.tar").read_bytes() == b"old"


@pytest.mark.filterwarnings("ignore:.*its writer was never closed:ResourceWarning")
def test_a_close_that_fails_in_the_cleaning_up_is_no_traceback(tmp_path: Path) -> None:
    out: PublishStream | None = open_publish(tmp_path / "a.tar")
    path = str(tmp_path / "b.tar")
    temporary.create_locked(path)
    field: FieldFile | None = FieldFile.at(path)
    with failing_close():
        out = field = None
        gc.collect()
        temporary._close_in_child()
    assert out is field is None and names(tmp_path) == ["b.tar"] and not temporary._held


def test_permission_bits(tmp_path: Path) -> None:
    path = tmp_path / "a"
    old = os.umask(0o027)
    try:
        open_publish(path).commit()
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        open_publish(path).commit()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_symlink_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/a")
    for content in (b"one", b"two"):
        with open_publish(link) as out:
            out.write(content)
            assert names(tmp_path) == ["link", "there"]
        assert link.is_symlink()
        assert (tmp_path / "there" / "a").read_bytes() == content


def test_the_folder_is_made(tmp_path: Path) -> None:
    """As in stores, where there are no folders; and as put, get and tarproc -O do."""
    (tmp_path / "link").symlink_to("new/er")
    for path in ("some/where/a", "link/b"):
        with open_publish(tmp_path / path) as out:
            out.write(b"x")
        assert (tmp_path / path).read_bytes() == b"x"
    with open_publish(f"file://{tmp_path}/p/q") as out:
        out.discard()
    assert os.listdir(tmp_path / "p") == []


def test_a_url_with_one_slash_is_no_folder_to_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3:/bucket/a.tar", "http:/user:PASSWORD@host/a", "hdfs:/a"):
        with pytest.raises(UsageError, match="a URL has two slashes") as caught:
            open_publish(url)
        assert "PASSWORD" not in str(caught.value) and os.listdir() == []
    for path in ("./s3:/bucket/a.tar", "s3:/bucket/b.tar", "C:/a", "a:b/c"):
        with open_publish(path) as out:
            out.write(b"x")


def test_long_names(tmp_path: Path) -> None:
    for name in ("n" * 255, "ü" * 127):
        with open_publish(tmp_path / name) as out:
            out.write(b"x")
        assert (tmp_path / name).read_bytes() == b"x"
    with pytest.raises(StreamError, match="file name too long"):
        open_publish(tmp_path / ("n" * 256))


def test_targets_that_can_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "none" / "a"):
        with pytest.raises(StreamError, match=r"not a directory|the folder .* cannot be made: "):
            open_publish(path)
    for url in (tmp_path, f"{tmp_path}/new/"):
        with pytest.raises(StreamError, match="is a directory"):
            open_publish(url)
    for url in ("http://example.org/a", "https://example.org/a"):
        with pytest.raises(UsageError, match=r"https?:// cannot be written to"):
            open_publish(url)
    assert names(tmp_path) == ["file"]


def test_temporary_name_already_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = iter((b"aaaa", b"aaaa", b"bbbb"))
    monkeypatch.setattr(os, "urandom", lambda count: next(random))
    with open_publish(tmp_path / "a") as first, open_publish(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"


def test_file_taken_for_stale_between_open_and_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, taken = fcntl.flock, []

    def flock(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not taken:
            taken.extend(names(tmp_path))
            os.unlink(tmp_path / taken[0])
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with open_publish(tmp_path / "a") as out:
        out.write(b"x")
    assert len(taken) == 1
    assert names(tmp_path) == ["a"]


def test_commit_that_fails_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StreamError, match="a: input/output error"), open_publish(tmp_path / "a") as out:
        out.write(b"x")
    assert names(tmp_path) == []


# Storage that fsspec reaches


def test_memory_both_ways(memory: MemoryFileSystem) -> None:
    with open_publish("memory://bucket/a.tar.gz") as out:
        out.write(DATA)
        assert not memory.exists("/bucket/a.tar.gz")
    assert gzip.decompress(memory.cat("/bucket/a.tar.gz")) == DATA
    assert read_all(open_read("memory://bucket/a.tar.gz")) == DATA
    with pytest.raises(KeyError), open_publish("memory://bucket/b") as out:
        out.write(DATA)
        raise KeyError
    assert memory.ls("/bucket", detail=False) == ["/bucket/a.tar.gz"]
    with pytest.raises(MissingInputError, match="memory://bucket/none: no such file"):
        open_read("memory://bucket/none")
    with pytest.raises(StreamError, match="is a directory"):
        open_read("memory://bucket")


def test_length_is_verified(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/a", DATA)
    stream = open_read("memory://a")
    memory.store["/a"].truncate(1000)
    with pytest.raises(StreamError, match="changed while it was read: its size is different") as caught:
        read_all(stream)
    assert caught.value.offset == 1000
    monkeypatch.setattr(memory, "put_file", lambda local, remote: memory.pipe(remote, b"half"))
    with (
        pytest.raises(TemporaryStreamError, match="7 bytes were sent, but 4 arrived"),
        open_publish("memory://b") as out,
    ):
        out.write(b"content")


def test_an_upload_that_is_not_there_afterwards_is_an_error(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish() -> None:
        with PublishStream(open_sink("memory://b", "memory://b", retry=fast()), "memory://b", None) as out:
            out.write(b"content")

    # The move is answered, but what was moved is gone; or it was answered too late, and is done
    # already.
    monkeypatch.setattr(memory, "mv", lambda source, target: memory.rm_file(source))
    with pytest.raises(GivenUpError, match="7 bytes were sent, but no file exists; failed after 8 attempts"):
        publish()
    assert not memory.store

    def moved_but_silent(source: str, target: str) -> None:
        if memory.exists(source):
            memory.store[target] = memory.store.pop(source)
            raise ConnectionResetError
        raise FileNotFoundError(source)

    monkeypatch.setattr(memory, "mv", moved_but_silent)
    publish()
    assert memory.cat("/b") == b"content"


@pytest.mark.parametrize(
    ("sentence", "module", "package"),
    [
        ('SMB requires "smbprotocol" or "smbprotocol[kerberos]" installed', "smbclient", "smbprotocol"),
        ("Please install adlfs and use the `az://` protocol instead.", "adlfs", "adlfs"),
        ("Please install lakefs-spec to access LakeFSFileSystem", "lakefs_spec", "lakefs-spec"),
        ("This only runs in a pyscript context", "pyodide", None),
    ],
)
def test_the_package_of_a_library_that_is_not_installed_is_named(
    sentence: str, module: str, package: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(protocol: str) -> None:
        raise ImportError(sentence) from ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    with pytest.raises(UsageError) as caught:
        open_read("smb://h/x")
    how = f"; pip install {package}" if package else ""
    assert str(caught.value) == f"smb:// needs a library that is not installed: {sentence.rstrip('.')}{how}"


@pytest.mark.parametrize(
    "url",
    ["s3://me:pa/ss@b/k", "s3://me:pw@b/k", "s3://me@b/k", "S3A://me:pw@b/k", "gs://me:pw@b/k", "gcs://me@b/k",
     "abfs://me:pw@b/k", "az://me:pw@b/k", "filecache::s3://me:pw@b/k"],
)  # fmt: skip
def test_a_store_whose_urls_have_no_credentials_refuses_them_and_shows_none(url: str) -> None:
    for action in (open_read, open_publish):
        with pytest.raises(UsageError, match=r"takes no user or password in its URL") as caught:
            action(url)
        assert "me" not in str(caught.value).partition("takes")[0] and "pw" not in str(caught.value)


def test_an_arn_and_a_container_of_an_account_are_no_credentials() -> None:
    from tarkit.store.objects.filesystem import _CREDENTIALS

    arn = "s3://arn:aws:s3:us-west-2:123456789012:accesspoint/mine/a.tar"
    for url in (
        arn,
        "abfs://box@account.dfs.core.windows.net/a",
        "s3://b/a@b:c",
        "sftp://me:pw@h/k",
        "smb://me:pw@h/k",
    ):
        assert not _CREDENTIALS.search(url)
