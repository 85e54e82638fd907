"""Lists with planned slices on servers, and read by programs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from httpserver import Fault, FaultServer
from podslices import names_of, slice_inputs, slice_of
from s3_client import s3_bucket

import tarkit
from tarkit.errors import DataError, TemporaryStreamError, UsageError
from tarkit.specs.inputslice import plan_slice
from tarkit.specs.shardspec import expand
from tarkit.specs.slicedlist import SUFFIX, even_counts, open_list, sha256_of, write_list
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, read_range
from tarkit.store.retry import Retry

if TYPE_CHECKING:
    from hdfs import Hdfs


OUT = "gs://out/d"
QUICK = Retry(attempts=3, base=0.0, cap=0.0, sleep=lambda seconds: None)


@pytest.fixture(params=["path", "file", "memory", "s3", "hdfs", "webhdfs"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a list is kept."""
    if request.param == "s3":
        with s3_bucket(request.getfixturevalue("s3_endpoint")) as bucket:
            yield bucket.url("shards.list")
        return
    if request.param in ("hdfs", "webhdfs"):
        pytest.importorskip("hdfs_native", reason="NO HDFS CLIENT: pip install hdfs-native")
        cluster: Hdfs = request.getfixturevalue("hdfs")
        yield f"{getattr(cluster, request.param)}/t-{uuid.uuid4().hex}/shards.list"
        return
    yield {
        "path": f"{tmp_path}/shards.list",
        "file": f"file://{tmp_path}/shards.list",
        "memory": f"memory://lists-{uuid.uuid4().hex}/shards.list",
    }[request.param]


def test_slices_of_a_list(url: str) -> None:
    names = names_of(100)
    made = write_list(url, iter(names), even_counts(100, 7), outdir=OUT)
    assert (made.n, made.w, made.checked) == (100, 7, True)
    found = open_list(url)
    assert found is not None
    assert (found.n, found.w, found.size, found.sha256) == (100, 7, sum(map(len, names)) + 100, made.sha256)
    assert [name for index in range(7) for name in slice_of(url, index)] == names
    spec = f"@{url}"
    assert list(expand(spec)) == names, "to everybody else it is a list like others"
    for w in (7, 5):
        assert [name for index in range(w) for name in slice_inputs([spec], index, w)] == names
        pairs = [pair for index in range(w) for pair in plan_slice([spec], OUT, index, w)[0]]
        assert pairs == [(name, f"{OUT}/{name.rpartition('/')[2]}") for name in names]
    for index in (-1, 7):
        with pytest.raises(UsageError, match="slices 0 to 6"):
            slice_of(url, index)


def test_a_list_that_was_changed(url: str) -> None:
    names = names_of(40)
    write_list(url, names, even_counts(40, 4), outdir=OUT)
    offsets = _get(f"{url}{SUFFIX}")
    # The same length, and another shard in slice 2; then another length.
    other = list(names)
    other[25] = other[25].replace("raw", "old")
    write_list(url, other, even_counts(40, 4), outdir=OUT)
    _put(f"{url}{SUFFIX}", offsets)
    assert slice_inputs([f"@{url}"], 1, 4) == names[10:20]
    with pytest.raises(DataError, match="slice 2 has changed; the list was changed"):
        slice_inputs([f"@{url}"], 2, 4)
    write_list(url, [*names, "s3://b/raw/more.tar"], even_counts(41, 4), outdir=OUT)
    _put(f"{url}{SUFFIX}", offsets)
    for index in range(4):
        with pytest.raises(DataError, match="make the manifest again"):
            slice_inputs([f"@{url}"], index, 4)


def _get(url: str) -> bytes:
    with open_read(url, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def _put(url: str, content: bytes) -> None:
    with open_publish(url, compression=None) as stream:
        stream.write(content)


def test_tarproc_takes_its_slice(tmp_path: Path) -> None:
    names = []
    for number in range(5):
        names.append(f"{tmp_path}/s{number}.tar")
        with tarkit.TarWriter(names[-1], encoder=False) as writer:
            writer.write({"__key__": f"k{number}", "x": b"1"})
    write_list(f"{tmp_path}/l", names, [1, 3, 1], outdir=f"{tmp_path}/out")
    program = [sys.executable, "-m", "tarkit.cli.tarproc", "-q", "-c", "true", "-O", f"{tmp_path}/out"]

    def made_by(piece: str, **env: str) -> list[str]:
        command = [*program, "--slice", piece, f"@{tmp_path}/l"]
        subprocess.run(command, env={**os.environ, **env}, check=True, stdin=subprocess.DEVNULL)
        found = sorted((tmp_path / "out").glob("*.tar"))
        shutil.rmtree(tmp_path / "out")
        return [path.name for path in found]

    assert made_by("0/3") == ["s0.tar"]
    assert made_by("3", JOB_COMPLETION_INDEX="1") == ["s1.tar", "s2.tar", "s3.tar"]
    assert made_by("2/3") == ["s4.tar"]
    # Planned for another number of slices, the list is shared out evenly.
    assert [made_by(f"{index}/2") for index in range(2)] == [["s0.tar", "s1.tar"], ["s2.tar", "s3.tar", "s4.tar"]]


def pinned_run(folder: Path, digest: str, index: int = 0) -> subprocess.CompletedProcess[str]:
    """tarproc over one of two slices of the list ``l``, which must be the one that was planned."""
    words = ["-q", "-c", "true", "-O", f"{folder}/out", "--slice", f"{index}/2", "--list-sha256", digest]
    command = [sys.executable, "-m", "tarkit.cli.tarproc", *words, f"@{folder}/l"]
    return subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL)


def refused_as_another(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert done.returncode == 65, done.stderr
    assert f"{folder}/l: is not the list that was planned" in done.stderr
    assert "make the manifest again" in done.stderr
    assert not (folder / "out").exists()


def four_shards(folder: Path) -> list[str]:
    names = [f"{folder}/s{number}.tar" for number in range(4)]
    for number, name in enumerate(names):
        with tarkit.TarWriter(name, encoder=False) as writer:
            writer.write({"__key__": f"k{number}", "x": b"1"})
    return names


def test_a_list_without_planned_slices_that_changed_is_refused(tmp_path: Path) -> None:
    names = four_shards(tmp_path)
    (tmp_path / "l").write_text("# comments and patterns are not names\n" + f"{tmp_path}/s{{0..3}}.tar\n")
    # What anybody computes of the names: one a line.
    digest = hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()
    assert sha256_of(names) == digest
    for index in range(2):
        assert pinned_run(tmp_path, digest, index).returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == [f"s{number}.tar" for number in range(4)]
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "l").write_text(f"{tmp_path}/s{{1..3}}.tar\n")
    refused_as_another(pinned_run(tmp_path, digest), tmp_path)
    # Slices that were planned in the meantime are others.
    write_list(f"{tmp_path}/l", names, [3, 1], outdir=f"{tmp_path}/out")
    refused_as_another(pinned_run(tmp_path, digest), tmp_path)


def test_a_planned_list_that_lost_its_offsets_or_got_others_is_refused(tmp_path: Path) -> None:
    names = four_shards(tmp_path)
    made = write_list(f"{tmp_path}/l", names, [3, 1], outdir=f"{tmp_path}/out")
    offsets = tmp_path / f"l{SUFFIX}"
    found = open_list(f"{tmp_path}/l")
    assert found is not None
    assert made.offsets_sha256 == found.offsets_sha256 == hashlib.sha256(offsets.read_bytes()).hexdigest()
    assert pinned_run(tmp_path, made.offsets_sha256).returncode == 0
    assert len(list((tmp_path / "out").glob("*.tar"))) == 3
    shutil.rmtree(tmp_path / "out")
    # Cut evenly, the slices of some pods would overlap those of the others, or leave shards to
    # nobody.
    offsets.unlink()
    refused_as_another(pinned_run(tmp_path, made.offsets_sha256), tmp_path)
    write_list(f"{tmp_path}/l", names, [2, 2], outdir=f"{tmp_path}/out")
    refused_as_another(pinned_run(tmp_path, made.offsets_sha256), tmp_path)


def test_a_digest_of_the_list_is_of_slices_alone(tmp_path: Path) -> None:
    for words in (["-O", f"{tmp_path}/out"], ["-o", f"{tmp_path}/o.tar"]):
        command = [sys.executable, "-m", "tarkit.cli.tarproc", "-c", "true", *words, "--list-sha256", "0" * 64]
        done = subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, "--list-sha256 goes with --slice" in done.stderr) == (2, True), done.stderr


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


@pytest.fixture
def served(server: FaultServer, tmp_path: Path) -> Callable[..., str]:
    """``served(*faults, **how)``: the URL of a list of 4000 names in 10 slices, whose list is
    served so.
    """
    path = f"{tmp_path}/l"
    write_list(path, names_of(4000), even_counts(4000, 10), outdir=OUT)

    def serve(*faults: Fault, **how: object) -> str:
        server.put(f"l{SUFFIX}", Path(f"{path}{SUFFIX}").read_bytes())
        return server.put("l", Path(path).read_bytes(), *faults, **how)

    return serve


def test_a_pod_asks_for_its_part_only(server: FaultServer, served: Callable[..., str]) -> None:
    url = served()
    assert slice_inputs([f"@{url}"], 5, 10) == names_of(4000)[2000:2400]
    asked = server.asked("l")
    start, stop = (sum(len(name) + 1 for name in names_of(4000)[:count]) for count in (2000, 2400))
    assert [headers.get("Range") for headers in asked] == [f"bytes={start}-{stop - 1}"]


@pytest.mark.parametrize("kind", ["cut", "reset", "status", "drop", "no-range", "part", "drip"])
def test_a_bad_connection(kind: str, served: Callable[..., str]) -> None:
    url = served(Fault(), Fault(kind, 40_000, 503))
    found = open_list(url)
    assert found is not None
    start, stop = found.borders[5], found.borders[6]
    data = read_range(url, start, stop, size=found.size, retry=QUICK)
    assert data.decode().split() == names_of(4000)[2000:2400]


def test_a_server_that_never_answers_well(served: Callable[..., str]) -> None:
    url = served(always=Fault("status", 0, 503))
    with pytest.raises(TemporaryStreamError, match="3 attempts"):
        read_range(url, 5, 9, size=99, retry=QUICK)


def test_a_server_that_gives_no_marks(served: Callable[..., str]) -> None:
    url = served(etag="")
    assert slice_inputs([f"@{url}"], 5, 10) == names_of(4000)[2000:2400]


def test_a_server_that_forbids_what_is_not_there(server: FaultServer) -> None:
    url = server.put("alone", b"/a.tar\n/b.tar\n")
    server.put(f"alone{SUFFIX}", b"", always=Fault("status", 0, 403))
    assert slice_inputs([f"@{url}"], 1, 2) == ["/b.tar"]


def test_a_list_behind_a_query_has_no_neighbours(server: FaultServer) -> None:
    url = server.put("l", b"/a.tar\n/b.tar\n")
    assert open_list(f"{url}?token=x") is None
    assert server.requests == []
