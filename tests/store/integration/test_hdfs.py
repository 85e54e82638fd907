"""hdfs:// and webhdfs:// against a real HDFS 3.3.6, whose DataNodes are killed in the middle of
things.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warmprogram
from waiting import wait_for

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError
from tarkit.specs.shardspec import expand
from tarkit.store.hdfs import place
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
from tarkit.store.resume import ResumingReader
from tarkit.store.retry import DEFAULT_RETRY, Retry

if TYPE_CHECKING:
    from hdfs import Hdfs

PATIENT = Retry(attempts=1000, base=0.2, cap=0.5, timeout=20.0)
SCHEMES = ("hdfs", "webhdfs")
CANARY = "CANARY-7f3a9c"


def open_hdfs(url: str, retry: Retry = DEFAULT_RETRY) -> ResumingReader:
    return place.open_read(url, url, retry)


def open_hdfs_sink(url: str, *, if_absent: bool = False, retry: Retry = DEFAULT_RETRY) -> place.HdfsSink:
    return place.open_sink(url, url, if_absent=if_absent, retry=retry)


@pytest.fixture
def folder(hdfs: Hdfs) -> str:
    """A path that nobody else uses."""
    pytest.importorskip("hdfs_native", reason="NO hdfs-native, HDFS IS NOT TESTED")
    return f"/t-{uuid.uuid4().hex[:8]}"


def base(hdfs: Hdfs, scheme: str) -> str:
    return hdfs.hdfs if scheme == "hdfs" else hdfs.webhdfs


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def put(url: str, data: bytes, **options: bool) -> None:
    with open_publish(url, compression=None, **options) as stream:  # type: ignore[arg-type]
        for start in range(0, len(data), 1 << 20):
            stream.write(data[start : start + (1 << 20)])


def get(url: str) -> bytes:
    with open_read(url, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def names(hdfs: Hdfs, folder: str, *, missing: bool = False) -> list[str]:
    """What the NameNode itself lists, temporary files as well.

    Args:
        missing: the folder may not be there yet.
    """
    url = f"{hdfs.namenode_http}/webhdfs/v1{urllib.parse.quote(folder)}?op=LISTSTATUS&user.name=root"
    try:
        answer = urllib.request.urlopen(url, timeout=120)
    except urllib.error.HTTPError as error:
        with error:
            if missing and error.code == 404:
                return []
        raise
    with answer:
        return sorted(item["pathSuffix"] for item in json.load(answer)["FileStatuses"]["FileStatus"])


def tarkit(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ["tarkit", *map(str, arguments)]
    done = warmprogram.run(words, os.getcwd(), {**os.environ, **environment}, None)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("writer", SCHEMES)
@pytest.mark.parametrize("reader", SCHEMES)
def test_each_scheme_reads_what_the_other_wrote(hdfs: Hdfs, folder: str, writer: str, reader: str) -> None:
    for size in (0, 1, 1 << 20, 5_000_001):
        path = f"{folder}/a b%20c#d?e+é-{size}.tar"
        put(base(hdfs, writer) + path, content(size))
        assert get(base(hdfs, reader) + path) == content(size)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_existing_file_is_replaced_in_one_step(hdfs: Hdfs, folder: str, scheme: str) -> None:
    url = f"{base(hdfs, scheme)}{folder}/a"
    put(url, b"old")
    with open_publish(url, compression=None) as stream:
        stream.write(b"new")
        assert get(url) == b"old"
    assert get(url) == b"new"
    assert names(hdfs, folder) == ["a"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_if_absent_and_discard(hdfs: Hdfs, folder: str, scheme: str) -> None:
    url = f"{base(hdfs, scheme)}{folder}/a"
    late = open_hdfs_sink(url, if_absent=True)
    late.write(b"late")
    put(url, b"first")
    with pytest.raises(AlreadyPublishedError):
        late.commit()
    late.discard()
    begun = open_hdfs_sink(url)
    begun.write(content(3_000_000))
    begun.discard()
    with pytest.raises(AlreadyPublishedError):
        open_hdfs_sink(url, if_absent=True)
    assert get(url) == b"first"
    assert names(hdfs, folder) == ["a"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_missing_folders_and_things_in_the_way(hdfs: Hdfs, folder: str, scheme: str) -> None:
    root = base(hdfs, scheme) + folder
    with pytest.raises(MissingInputError):
        get(f"{root}/none")
    put(f"{root}/d/a", b"1")
    with pytest.raises(StreamError, match="directory"):
        get(f"{root}/d")
    with pytest.raises(StreamError, match="directory"):
        put(f"{root}/d", b"1")
    with pytest.raises(StreamError, match="ParentNotDirectory"):
        put(f"{root}/d/a/b", b"1")
    # A folder comes into the way while the file is written: the rename fails, and says so.
    sink = open_hdfs_sink(f"{root}/x")
    put(f"{root}/x/inside", b"1")
    with pytest.raises(StreamError, match=r"must both be directories|is in the way"):
        sink.commit()
    sink.discard()
    assert names(hdfs, folder) == ["d", "x"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_patterns(hdfs: Hdfs, folder: str, scheme: str) -> None:
    root = base(hdfs, scheme) + folder
    for name in ("a-0.tar", "a-1.tar", "b/a-2.tar", ".a-3.tar"):
        put(f"{root}/{name}", b"1")
    assert list(expand(f"{root}/a-?.tar")) == [f"{root}/a-0.tar", f"{root}/a-1.tar"]
    assert list(expand(f"{root}/**/a-*.tar")) == [f"{root}/{name}" for name in ("a-0.tar", "a-1.tar", "b/a-2.tar")]
    with pytest.raises(MissingInputError):
        list(expand(f"{root}/*.zip"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_replaced_in_mid_read(hdfs: Hdfs, folder: str, scheme: str) -> None:
    url = f"{base(hdfs, scheme)}{folder}/a"
    put(url, content(5_000_000))
    reader = open_hdfs(url)
    reader.read(1000)
    time.sleep(0.01)
    put(url, content(5_000_000, seed=2))
    with pytest.raises(StreamError, match="changed while it was read"):
        while reader.read(1 << 20):
            pass
    reader.close()


@pytest.fixture
def mortal(hdfs: Hdfs) -> Iterator[Hdfs]:
    """The cluster, both of whose DataNodes live again afterwards."""
    yield hdfs
    hdfs.revive()


# In test_put_and_get_of_a_folder_while_a_datanode_dies it is the second one.
@pytest.mark.parametrize(
    ("victim", "writers"), [(0, SCHEMES), pytest.param(1, ("webhdfs",), marks=pytest.mark.elasticdl)]
)
def test_a_datanode_is_killed_in_mid_read_and_mid_write(
    mortal: Hdfs, folder: str, victim: int, writers: tuple[str, ...]
) -> None:
    data = content(20_000_000)
    roots = {scheme: base(mortal, scheme) + folder for scheme in SCHEMES}
    put(f"{mortal.hdfs}{folder}/a", data)
    put(f"{mortal.hdfs}{folder}/hdfs", b"old")
    put(f"{mortal.hdfs}{folder}/webhdfs", b"old")
    readers = {scheme: open_hdfs(f"{root}/a", PATIENT) for scheme, root in roots.items()}
    found = {scheme: bytearray(reader.read(100_000)) for scheme, reader in readers.items()}
    sinks = {scheme: open_hdfs_sink(f"{roots[scheme]}/{scheme}", retry=PATIENT) for scheme in writers}
    for sink in sinks.values():
        sink.write(data[:3_000_000])
    mortal.kill_datanode(victim)
    outcomes = dict.fromkeys(SCHEMES, b"old")
    for scheme in SCHEMES:
        while piece := readers[scheme].read(1 << 20):
            found[scheme] += piece
        readers[scheme].close()
        assert bytes(found[scheme]) == data
        # Opened while the NameNode still believes that it lives.
        again = open_hdfs(f"{roots[scheme]}/a", PATIENT)
        assert again.read(1000) == data[:1000]
        again.close()
        if scheme not in writers:
            continue
        outcomes[scheme] = data
        try:
            for start in range(3_000_000, len(data), 1 << 20):
                sinks[scheme].write(data[start : start + (1 << 20)])
            sinks[scheme].commit()
        except StreamError as error:
            # It may be the one DataNode that webhdfs:// writes to; hdfs:// goes on at another.
            assert str(error).startswith("webhdfs://")
            sinks[scheme].discard()
            outcomes[scheme] = b"old"
    mortal.revive()
    assert {scheme: get(f"{roots[scheme]}/{scheme}") for scheme in SCHEMES} == outcomes
    assert names(mortal, folder) == ["a", "hdfs", "webhdfs"]


def test_put_and_get_of_a_folder_while_a_datanode_dies(mortal: Hdfs, folder: str, tmp_path: Path) -> None:
    source = tmp_path / "in"
    for number in range(12):
        path = source / f"d{number % 3}" / f"shard-{number}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(2_000_000, number))

    def kill_in_the_middle() -> None:
        wait_for(lambda: names(mortal, f"{folder}/d0", missing=True))
        mortal.kill_datanode(1)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    done = tarkit("put", "-p", 3, source, mortal.webhdfs + folder)
    killer.join()
    failed = done.stderr.count("tarkit put: webhdfs://")
    assert (done.returncode == 0) == (failed == 0), done.stderr
    assert re.search(rf"\b{12 - failed} files?\b", done.stderr)
    mortal.revive()
    assert tarkit("put", "-p", 3, source, mortal.webhdfs + folder).returncode == 0
    done = tarkit("get", mortal.hdfs + folder, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    same = subprocess.run(["diff", "-r", source, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert same.returncode == 0, same.stdout


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_verbs(hdfs: Hdfs, folder: str, scheme: str, tmp_path: Path) -> None:
    root = base(hdfs, scheme) + folder
    (tmp_path / "a").write_bytes(content(2_000_000))
    (tmp_path / "b").write_bytes(b"b")
    assert tarkit("put", tmp_path / "a", tmp_path / "b", root + "/in/").returncode == 0
    assert tarkit("ls", root + "/in").stdout == "a\nb\n"
    (status,) = (json.loads(line) for line in tarkit("ls", "--json", root + "/in/a").stdout.splitlines())
    assert (status["type"], status["size"]) == ("file", 2_000_000)
    assert (status["checksum"] or "").startswith("MD5-of-") == (scheme == "webhdfs")
    # Kept, and a failure where the length differs.
    done = tarkit("put", "--no-clobber", tmp_path / "b", root + "/in/a")
    assert (done.returncode, "already exists with 2000000 bytes" in done.stderr) == (1, True)
    done = tarkit("put", "--no-clobber", tmp_path / "a", root + "/in/a")
    assert (done.returncode, "1 kept" in done.stderr) == (0, True)
    done = tarkit("put", tmp_path / "a", tmp_path / "missing", root + "/in/")
    assert (done.returncode, "1 file, " in done.stderr, "1 failed" in done.stderr) == (66, True, True)
    done = tarkit("rm", root + "/in")
    assert (done.returncode, "-r" in done.stderr) == (2, True)
    assert tarkit("rm", "-r", root + "/in").returncode == 0
    assert tarkit("rm", root + "/in").returncode == 66
    assert tarkit("rm", "-f", root + "/in").returncode == 0


def test_permission_denied_is_one_line(hdfs: Hdfs, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    for url in (hdfs.webhdfs.replace("root@", "alice@"), hdfs.hdfs):
        done = tarkit("put", "-q", tmp_path / "a", url + "/alice-may-not/a", HADOOP_USER_NAME="alice")
        first = done.stderr.splitlines()[0]
        assert (done.returncode, "permission denied: user=alice" in first) == (1, True), done.stderr
        assert "\tat " not in done.stderr


def test_a_token_is_never_shown(hdfs: Hdfs, folder: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    plain = hdfs.webhdfs.replace("root@", "")
    put(f"{hdfs.hdfs}{folder}/a", b"1")
    for path in ("/a", "/none"):
        for verb in ("ls", "rm"):
            done = tarkit(verb, "-v", f"{plain}{folder}{path}?delegation={CANARY}")
            assert CANARY not in done.stdout + done.stderr
    done = tarkit("put", tmp_path / "a", f"{plain}{folder}/x?delegation={CANARY}")
    assert CANARY not in done.stdout + done.stderr


FORKS = """
import os, sys
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, read_whole
url, contents = sys.argv[1], {name: name.encode() * 1000 for name in "abcdef"}

def check():
    for name in contents:
        assert read_whole(f"{url}/{name}", compression=None) == contents[name], name

for name in contents:
    with open_publish(f"{url}/{name}", compression=None) as out:
        out.write(contents[name])
check()
with open_read(f"{url}/a", compression=None) as stream, open_publish(f"{url}/z", compression=None) as out:
    stream.read(1)
    out.write(b"parent" * 1_000_000)
    children = []
    for number in range(4):
        children.append(os.fork())
        if not children[-1]:
            check()
            # This ends the parent's objects, too.
            sys.exit(10 + number)
    check()
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
check()
assert read_whole(f"{url}/z", compression=None) == b"parent" * 1_000_000
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_parent_and_children_that_it_forks_read_at_the_same_time(hdfs: Hdfs, folder: str, scheme: str) -> None:
    """All hold files of one length: what another process asked for would pass for what this one
    asked for.
    """
    command = [sys.executable, "-c", FORKS, f"{base(hdfs, scheme)}{folder}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[10, 11, 12, 13]\n", "")
