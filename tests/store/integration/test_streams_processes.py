"""Streams of commands, of standard input and output, and of processes that are killed."""

from __future__ import annotations

import gc
import gzip
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from streamreading import read_all

from tarkit.errors import (
    CompressionError,
    StreamError,
    TarkitError,
    UsageError,
)
from tarkit.extras import MissingExtraError
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
from tarkit.store.retry import Retry

DATA = bytes(range(256)) * 1000
CANARY = "c4n4ry-t0k3n-0815"
ONCE = Retry(attempts=1)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def children() -> list[int]:
    """Processes of this one, but for the servers that other tests share."""
    return [pid for pid in all_children() if pid not in OTHERS]


@pytest.fixture(autouse=True)
def _note_other_children() -> None:
    OTHERS.clear()
    OTHERS.update(all_children())


OTHERS: set[int] = set()


def all_children() -> list[int]:
    own = str(os.getpid())
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[1] == own:
                found.append(int(entry))
    return found


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz", "lz4"])
def test_every_codec_by_name_and_by_magic(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tar.{suffix}"
    with open_publish(path) as out:
        for at in range(0, len(DATA), 777):
            assert out.write(DATA[at : at + 777]) == len(DATA[at : at + 777])
    assert out.bytes_written == len(DATA)
    assert path.stat().st_size < len(DATA) // 10
    with open_publish(tmp_path / f"b.tar.{suffix}") as out:
        out.write(DATA)
    if suffix != "gz":  # which cuts by the buffers that it is given
        assert (tmp_path / f"b.tar.{suffix}").read_bytes() == path.read_bytes(), "however it was written"
    anonymous = path.rename(tmp_path / "plain-name")
    with open_read(anonymous) as stream:
        assert stream.size_hint is None
    assert read_all(open_read(anonymous)) == DATA
    assert read_all(open_read(anonymous, compression=suffix)) == DATA
    assert read_all(open_read(f"pipe:cat {anonymous}")) == DATA
    assert read_all(open_read(io.BytesIO(anonymous.read_bytes()))) == DATA
    assert read_all(open_read(anonymous, compression=None)) == anonymous.read_bytes()
    with pytest.raises(CompressionError, match="does not begin"):
        read_all(open_read(anonymous, compression="bz2" if suffix != "bz2" else "gz"))


def test_permission_denied() -> None:
    code = textwrap.dedent(
        """
        import os, sys
        from tarkit.store.publish import open_publish
        from tarkit.store.read import open_read
        from tarkit.errors import StreamError
        import tarkit.store.publish
        os.chdir(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65534)
        for action in (open_read, open_publish):
            try:
                action("secret" if action is open_read else "other")
            except StreamError as error:
                print(error)
        """
    )
    # Not below pytest's own folder, which each start of pytest shuts to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "secret").write_bytes(b"x")
        Path(folder, "secret").chmod(0)
        os.chmod(folder, 0o555)
        run = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["secret: permission denied", "other: permission denied"], run.stderr


def run_python(code: str, shell: str = '"$0" -c "$1"', **options: object) -> subprocess.CompletedProcess[bytes]:
    command = ["bash", "-c", shell, sys.executable, textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


ECHO = """
import os
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
with open_read("-") as source, open_publish("-") as out:
    while data := source.read(5000):
        out.write(data)
os.fstat(0), os.fstat(1)
"""


def test_stdin_and_stdout(tmp_path: Path) -> None:
    assert run_python(ECHO, input=DATA).stdout == DATA
    assert run_python(ECHO, input=gzip.compress(DATA)).stdout == DATA
    path = tmp_path / "in"
    path.write_bytes(b"12345" + DATA)
    with open(path, "rb", buffering=0) as file:
        file.seek(5)
        assert run_python(ECHO, stdin=file).stdout == DATA


def test_stdin_or_stdout_closed() -> None:
    code = """
        import sys
        from tarkit.store.publish import open_publish
        from tarkit.store.read import open_read
        from tarkit.errors import StreamError
        for action in (open_read, open_publish):
            try:
                action("-")
            except StreamError as error:
                sys.stderr.write(str(error) + "\\n")
        """
    errors = run_python(code, '"$0" -c "$1" <&- >&-').stderr.decode().splitlines()
    assert errors == [
        "-: standard input cannot be read: Bad file descriptor",
        "-: standard output cannot be written: bad file descriptor",
    ]


def test_stdout_that_closes_early_is_a_broken_pipe() -> None:
    code = """
        from tarkit.store.publish import open_publish
        try:
            with open_publish("-") as out:
                while True:
                    out.write(bytes(1 << 20))
        except BrokenPipeError as error:
            import sys
            sys.stderr.write(type(error).__name__)
        """
    run = run_python(code, '"$0" -c "$1" | head -c 10')
    assert (run.stdout, run.stderr) == (bytes(10), b"OutputClosedError")


def test_a_reader_that_leaves_what_fits_into_the_named_pipe_is_an_error(tmp_path: Path) -> None:
    """All of it was written, but the rest is still in the pipe when the reader leaves."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with (
        subprocess.Popen(["head", "-c", "10", str(fifo)], stdout=subprocess.DEVNULL),
        pytest.raises(StreamError, match="fifo: its reader closed it before the end"),
        open_publish(str(fifo)) as out,
    ):
        out.write(bytes(10_240))
    with (
        subprocess.Popen(["head", "-c", "10240", str(fifo)], stdout=subprocess.DEVNULL),
        open_publish(str(fifo)) as out,
    ):
        out.write(bytes(10_240))


def test_stdout_on_a_terminal_is_refused() -> None:
    master, terminal = pty.openpty()
    code = "from tarkit.store.publish import open_publish\nopen_publish({!r})"
    try:
        for url in ("-", "/dev/stdout"):
            run = subprocess.run(
                [sys.executable, "-c", code.format(url)], stdout=terminal, stderr=subprocess.PIPE, check=False
            )
            assert b"UsageError: a tar is not written to a terminal" in run.stderr
    finally:
        os.close(master)
        os.close(terminal)


def test_dev_stdout_goes_on_where_others_stopped(tmp_path: Path) -> None:
    path = tmp_path / "out"
    code = (
        "from tarkit.store.publish import open_publish\nwith open_publish('/dev/stdout') as out: out.write(b'second')"
    )
    run_python(code, f'(echo first; "$0" -c "$1") > {path}')
    assert path.read_bytes() == b"first\nsecond"
    assert names(tmp_path) == ["out"]


def test_command_gives_bytes() -> None:
    assert read_all(open_read("pipe:seq 3")) == b"1\n2\n3\n"
    assert read_all(open_read("pipe:printf ''")) == b""
    # Talkative on stderr, and nothing on stdin.
    assert read_all(open_read("pipe:head -c 3000000 /dev/zero >&2; cat; echo done")) == b"done\n"
    with pytest.raises(UsageError, match="not allowed"):
        open_read("pipe:seq 3", allow_pipe=False)
    with pytest.raises(UsageError, match="is not a command"):
        open_read("pipe:  ")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo some data; seq 1 2 >&2; ls /nosuch-folder; exit 3", "exit status 3: 1 | 2 | ls: "),
        ("false | cat", "exit status 1"),
        ("kill -9 $$", "signal SIGKILL"),
        ("no-such-program-here", "exit status 127"),
        ("seq 100000 | head -n 1", "exit status 141; a command of the pipeline was stopped"),
    ],
)
def test_failing_command_is_an_error_even_if_bytes_came(command: str, message: str) -> None:
    with pytest.raises(StreamError) as caught:
        read_all(open_read(f"pipe:{command}", compression=None))
    assert f"the command failed with {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_failure_comes_again_and_passes_decompression(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(DATA))
    stream = open_read(f"pipe:cat {path}; exit 9")
    for _ in range(2):
        with pytest.raises(StreamError, match="exit status 9"):
            while stream.read(100_000):
                pass
    stream.close()


def test_sh_where_there_is_no_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert read_all(open_read("pipe:echo $((1 + 1))")) == b"2\n"
    with pytest.raises(StreamError, match="exit status 4"):
        read_all(open_read("pipe:exit 4"))


def test_shell_that_can_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/nowhere/bash")
    with pytest.raises(StreamError, match="/nowhere/bash cannot be started"):
        open_read("pipe:true")


def test_early_close_is_no_error_and_ends_the_whole_group() -> None:
    with open_read("pipe:sleep 1000 & echo $!; yes", compression=None) as stream:
        sleeper = int(stream.read(100).split()[0])
    assert wait_until_gone(sleeper)
    assert children() == []
    stream.close()


def test_command_that_ignores_term_is_killed() -> None:
    with open_read("pipe:trap '' TERM PIPE; echo $$; while :; do sleep 1; done", compression=None) as stream:
        pid = int(stream.read(100))
        start = time.monotonic()
    assert time.monotonic() - start < 60
    assert wait_until_gone(pid)
    assert children() == []


def test_forgotten_command_is_stopped() -> None:
    stream = open_read("pipe:echo $$; exec sleep 1000", compression=None)
    pid = int(stream.read(100))
    del stream
    gc.collect()
    assert wait_until_gone(pid)


@pytest.mark.filterwarnings("ignore:.*its writer was never closed:ResourceWarning")
@pytest.mark.parametrize("how", ["forgotten", "closed", "finished"])
@pytest.mark.parametrize("end", ["read", "write"])
def test_a_full_disk_under_what_a_command_printed_is_no_matter(end: str, how: str) -> None:
    """Its file's close() failed, and a traceback came out of the finalizer."""
    stream: Any = open_read("pipe:echo a", compression=None) if end == "read" else open_publish("pipe:cat >&2")
    command = stream._source if end == "read" else stream._sink
    os.close(command._stderr.fileno())
    if how == "finished":
        assert end != "read" or stream.read(100) + stream.read(100) == b"a\n"
        stream.close() if end == "read" else stream.commit()
    elif how == "closed":
        stream.close() if end == "read" else stream.discard()
    del stream, command
    gc.collect()


def test_300_commands_leave_no_zombie_and_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        stream = open_read(f"pipe:echo {number}", compression=None)
        if number % 3:
            assert read_all(stream) == b"%d\n" % number
        else:
            stream.close()
    assert children() == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_write_to_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAID", "no room")
    path = tmp_path / "out.gz"
    with open_publish(f"pipe:sleep 0.1; cat > {path}") as out:
        out.write(DATA)
        assert out.name == "pipe:sleep …"
    assert path.read_bytes() == DATA
    with (
        pytest.raises(StreamError, match="exit status 5: no room"),
        open_publish("pipe:cat >/dev/null; echo $SAID >&2; exit 5"),
    ):
        pass
    with pytest.raises(StreamError, match="stopped reading after"), open_publish("pipe:head -c 10 > /dev/null") as out:
        for _ in range(100):
            out.write(bytes(1 << 20))
    assert children() == []


@pytest.mark.parametrize(
    "command", ["true", "head -c 10 >/dev/null", "sleep 0.3; exit 0", "head -c 4096 | cat >/dev/null"]
)
def test_a_command_that_takes_only_a_part_of_what_fits_into_a_pipe(command: str) -> None:
    """Nothing was written in vain as far as the writer can see: the rest is still in the pipe when
    the command ends."""
    with (
        pytest.raises(StreamError, match=r"the command stopped reading after \d+ bytes") as caught,
        open_publish(f"pipe:{command}") as out,
    ):
        out.write(bytes(500_000))
    assert int(re.findall(r"after (\d+) bytes", str(caught.value))[0]) < 500_000
    assert children() == []


def test_a_command_that_takes_every_byte_and_does_not_wait_for_the_end_succeeds(tmp_path: Path) -> None:
    """As GNU tar does, which stops at the end mark of the archive."""
    for _ in range(3):
        with open_publish(f"pipe:sleep 0.05; head -c 500000 > {tmp_path / 'got'}") as out:
            out.write(bytes(500_000))
        assert (tmp_path / "got").stat().st_size == 500_000
    assert children() == []


def test_discard_kills_the_command_before_it_sees_an_end(tmp_path: Path) -> None:
    path = tmp_path / "finished"
    out = open_publish(f"pipe:cat > {tmp_path}/part; touch {path}")
    out.write(bytes(3 << 20))
    out.discard()
    time.sleep(0.1)
    assert not path.exists()
    assert children() == []


def test_a_forked_child_leaves_the_file_of_its_parent(tmp_path: Path) -> None:
    code = """
        import os, sys
        from tarkit.store.publish import open_publish
        out = open_publish(sys.stdin.readline())
        out.write(b"data")
        child = os.fork()
        if child == 0:
            del out
            sys.exit(0)
        os.waitpid(child, 0)
        out.commit()
        """
    path = tmp_path / "a"
    assert run_python(code, input=os.fsencode(path)).returncode == 0
    assert path.read_bytes() == b"data"


def test_kill_leaves_nothing_under_the_name_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    code = f"""
        import sys, time
        from tarkit.store.publish import open_publish
        out = open_publish({str(path)!r})
        out.write(bytes(3 << 20))
        sys.stdout.write("written\\n")
        sys.stdout.flush()
        time.sleep(100)
        """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    [temporary] = names(tmp_path)
    with open_publish(path) as out:
        assert temporary in names(tmp_path), "its writer is alive"
        out.write(b"whole")
    path.unlink()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert names(tmp_path) == [temporary]
    (tmp_path / ".b.tar.tarkit-00000000").write_bytes(b"of another name")
    with open_publish(path) as out:
        assert temporary not in names(tmp_path)
        out.write(b"whole")
    assert names(tmp_path) == [".b.tar.tarkit-00000000", "a.tar"]
    assert path.read_bytes() == b"whole"


def test_disk_full(tmp_path: Path) -> None:
    code = f"""
        import resource, signal, sys
        from tarkit.store.publish import open_publish
        from tarkit.errors import StreamError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_500_000, 2_500_000))
        out = open_publish({str(tmp_path / "a")!r}, compression=None)
        for action in (lambda: out.write(bytes(3 << 20)), lambda: out.write(b"x"), out.commit, out.close):
            try:
                action()
            except StreamError as error:
                print(error)
        """
    lines = run_python(code).stdout.decode().splitlines()
    assert lines == [f"{tmp_path}/a: file too large"] * 4
    assert names(tmp_path) == []


def test_protocols_without_a_library() -> None:
    with pytest.raises(UsageError, match="nope://a/b: unknown scheme 'nope'; a scheme is added"):
        open_read("nope://a/b")
    code = """
        import sys
        for name in ("s3fs", "gcsfs", "pyarrow", "hdfs_native", "paramiko"):
            sys.modules[name] = None
        from tarkit.store.publish import open_publish
        from tarkit.store.read import open_read
        for url in ("s3://b/a", "gs://b/a", "gcs://b/a", "hdfs://h/a", "sftp://h/a"):
            for action in (open_read, open_publish):
                try:
                    action(url)
                except Exception as error:
                    print(type(error).__name__, error)
        """
    lines = run_python(code).stdout.decode().splitlines()
    expected = [
        f"{MissingExtraError.__name__} {scheme}:// needs a library that is not installed: pip install {package} "
        f"(or tarkit with its extra {extra!r})"
        for scheme, package, extra in (
            ("s3", "s3fs", "s3"),
            ("gs", "gcsfs", "gcs"),
            ("gcs", "gcsfs", "gcs"),
            ("hdfs", "hdfs-native", "hdfs"),
        )
        for _ in range(2)
    ]
    assert lines[:8] == expected
    assert lines[8].startswith("UsageError sftp:// needs a library that is not installed: ")
    assert lines[8].endswith("; pip install paramiko")


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/a?X-Signature={CANARY}",
        f"http://user:{CANARY}@127.0.0.1:1/a",
        f"http://user:{CANARY}@127.0.0.1:x/a?sig={CANARY}",
        f"memory://none?token={CANARY}",
        f"nope://me:{CANARY}@host/a?b={CANARY}",
        f"filecache::nope://me:{CANARY}@host/a",
        f"pipe:cat /nowhere?token={CANARY}",
        f"pipe:echo failed with {CANARY} >&2; false",
        f"pipe:TOKEN={CANARY}; echo https://host/?t={CANARY} >&2; false",
    ],
)
def test_tokens_are_never_shown(url: str) -> None:
    with pytest.raises(TarkitError) as caught:
        read_all(open_read(url, retry=ONCE))
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value)
    assert "\n" not in str(caught.value)


def test_how_much_of_a_stream_was_read(tmp_path: Path) -> None:
    """Of the file, however it is compressed; nothing where the length is not known."""
    content = os.urandom(4 << 20)
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content, 1))
    fsspec.filesystem("memory").pipe("/part-read", content)
    for url in (str(plain), str(packed), "memory://part-read"):
        with open_read(url, read_ahead=0) as stream:
            assert stream.part_read() < 0.1
            left = 2 << 20
            while left:
                left -= len(stream.read(left))
            assert 0.4 < stream.part_read() < 0.9
            while stream.read(1 << 20):
                pass
            assert stream.part_read() == 1.0
        assert stream.part_read() == 0.0, "closed"
    for source in ("pipe:cat /dev/null", io.BytesIO(content)):
        with open_read(source) as stream:
            stream.read(10)
            assert stream.part_read() == 0.0
