"""ShardWriter: each shard whole or not there, none too large, and the hook called for each."""

from __future__ import annotations

import gc
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tarkit.errors import EncodeError, StreamError, UsageError
from tarkit.formats.har import HarWriter
from tarkit.formats.recordio import RecordWriter
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.manifest import read_manifest
from tarkit.store.publish import open_publish
from tarkit.writer import ShardWriter


def sample(number: int, size: int = 10) -> Sample:
    return {"__key__": f"k{number:03d}", "x": bytes(size)}


def keys(folder: Path) -> dict[str, list[str]]:
    return {path.name: [s["__key__"] for s in read_samples(str(path))] for path in sorted(folder.iterdir())}


def test_maxcount(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%03d.tar"), maxcount=2, start_shard=7) as writer:
        for number in range(5):
            assert writer.write(sample(number)) == 10
    assert keys(tmp_path) == {"s-007.tar": ["k000", "k001"], "s-008.tar": ["k002", "k003"], "s-009.tar": ["k004"]}
    assert writer.total == 5
    assert writer.shards == [str(tmp_path / name) for name in keys(tmp_path)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([40, 40, 20, 1], [3, 1]),
        ([50, 50, 50], [2, 1]),
        ([51, 50], [1, 1]),
        ([500, 1, 1], [1, 2]),
        ([1, 500, 1], [1, 1, 1]),
        ([0, 0, 0], [3]),
    ],
)
def test_maxsize(sizes: list[int], expected: list[int], tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%03d.tar"), maxsize=100) as writer:
        for number, size in enumerate(sizes):
            writer.write(sample(number, size))
    assert [len(found) for found in keys(tmp_path).values()] == expected


def test_maxsize_holds_for_what_is_encoded_too(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%03d.tar"), maxsize=100) as writer:
        for number in range(2):
            writer.write({"__key__": f"{number}", "txt": "t" * 60})
    assert [len(found) for found in keys(tmp_path).values()] == [1, 1]


def test_no_samples_make_no_shard(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%03d.tar")):
        pass
    assert keys(tmp_path) == {}


def test_post_is_called_once_for_each_whole_shard(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def post(name: str) -> None:
        seen.append((Path(name).name, len(list(read_samples(name)))))

    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=2, post=post) as writer:
        for number in range(5):
            writer.write(sample(number))
            assert len(seen) == number // 2
    assert seen == [("s-0.tar", 2), ("s-1.tar", 2), ("s-2.tar", 1)]


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_an_exception_of_post_ends_the_writing(fails_at: int, tmp_path: Path) -> None:
    def post(name: str) -> None:
        if name.endswith(f"-{fails_at}.tar"):
            raise RuntimeError("upload failed")

    with (
        pytest.raises(RuntimeError, match="upload failed"),
        ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=1, post=post) as writer,
    ):
        for number in range(3):
            writer.write(sample(number))
    # The shard was published before the hook was called; none was begun after it.
    assert list(keys(tmp_path)) == [f"s-{number}.tar" for number in range(fails_at + 1)]
    assert writer.shards == [str(tmp_path / name) for name in keys(tmp_path)]


def test_an_exception_keeps_finished_shards_and_leaves_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(KeyError), ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=2) as writer:
        for number in range(3):
            writer.write(sample(number, 2_000_000))
        raise KeyError("mine")
    assert keys(tmp_path) == {"s-0.tar": ["k000", "k001"]}
    assert writer.shards == [str(tmp_path / "s-0.tar")]


def test_discard_keeps_finished_shards(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=1)
    writer.write(sample(0))
    writer.write(sample(1))
    writer.discard()
    writer.discard()
    writer.close()
    assert list(keys(tmp_path)) == ["s-0.tar"]


def test_a_refused_sample_changes_nothing(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=2) as writer:
        writer.write(sample(0))
        with pytest.raises(EncodeError):
            writer.write({"__key__": "a.b", "x": b""})
        writer.write(sample(1))
    assert keys(tmp_path) == {"s-0.tar": ["k000", "k001"]}
    assert writer.total == 2


def test_a_refused_sample_begins_no_shard(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=1) as writer:
        writer.write(sample(0))
        with pytest.raises(EncodeError):
            writer.write({"__key__": "a.b", "x": b""})
    assert list(keys(tmp_path)) == ["s-0.tar"]


def test_opener(tmp_path: Path) -> None:
    opened: list[BinaryIO] = []

    def opener(name: str) -> BinaryIO:
        opened.append(open(name, "wb"))
        return opened[-1]

    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=1, opener=opener) as writer:
        writer.write(sample(0))
        writer.write(sample(1))
        assert [file.closed for file in opened] == [True, False]
    assert keys(tmp_path) == {"s-0.tar": ["k000"], "s-1.tar": ["k001"]}
    assert all(file.closed for file in opened)
    with pytest.raises(KeyError), ShardWriter(str(tmp_path / "t-%d.tar"), opener=opener) as writer:
        writer.write(sample(0))
        raise KeyError
    assert all(file.closed for file in opened)


def test_a_folder_that_is_missing_is_made_and_one_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "new" / "s-%d.tar")) as writer:
        writer.write(sample(0))
    assert writer.shards == [str(tmp_path / "new" / "s-0.tar")]
    with pytest.raises(StreamError), ShardWriter(str(tmp_path / "new" / "s-0.tar" / "s-%d.tar")) as writer:
        writer.write(sample(0))


def test_verbose_says_which_shard_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=1, verbose=1) as writer:
        writer.write(sample(0))
        writer.write(sample(1))
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split()[-3:] for line in said.err.splitlines()] == [
        ["after", "0", "samples"],
        ["after", "1", "samples"],
    ]


@pytest.mark.parametrize(
    "kw",
    [
        *[{"maxcount": value} for value in (0, -1, None, "9", float("nan"))],
        *[{"maxsize": value} for value in (0, -1, 0.5, None, "1G", float("nan"))],
        *[{"pattern": value} for value in ("no-number.tar", "%d-%d.tar", "%s.tar", "100%.tar", "")],
        *[{"start_shard": value} for value in (-1, 1.5, "0", None, True)],
        *[{"post": "mv {}"}, {"opener": "gzip"}, {"verbose": "yes"}],
        *[{"compress": "rar"}, {"compress": 7}, {"format": "v7"}, {"format": 9}, {"encoder": "json"}],
        *[{"encoder": {"a.b": bytes}}, {"rule": "("}, {"on_repeated_key": "last"}],
        *[{"mtime": -1}, {"mtime": "now"}, {"mode": -1}, {"mode": "r"}, {"user": "u" * 32}, {"user": 5}, {"group": 5}],
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_fails_in_the_constructor(kw: dict[str, Any], tmp_path: Path) -> None:
    pattern = kw.pop("pattern", "s-%d.tar")
    with pytest.raises(UsageError) as caught:
        ShardWriter(f"{tmp_path}/{pattern}", **kw)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://h/s-%d.tar", "HTTPS://h/s-%d.tar", "s4://b/s-%d.tar"])
def test_a_place_that_cannot_be_written_to_fails_in_the_constructor(url: str) -> None:
    with pytest.raises(UsageError):
        ShardWriter(url)
    ShardWriter(url, opener=lambda name: io.BytesIO())


def test_arguments_are_passed_on(tmp_path: Path) -> None:
    with (
        pytest.raises(EncodeError, match="not bytes"),
        ShardWriter(str(tmp_path / "s-%d.tar"), encoder=False, user="me") as writer,
    ):
        writer.write({"__key__": "a", "x": b"1"})
        writer.write({"__key__": "b", "x": "text"})
    assert keys(tmp_path) == {}


def test_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "d.json"
    with ShardWriter(str(tmp_path / "s-%d.tar"), maxcount=2, manifest=str(manifest), keep_meta=True) as writer:
        for number in range(3):
            writer.write(sample(number))
            assert not manifest.exists()
        writer.write({"__key__": "m", "__meta__": b"x"})
    writer.close()
    found = read_manifest(str(manifest))
    assert [shard.nsamples for shard in found] == [2, 1]
    for shard in found:
        data = Path(shard.url).read_bytes()
        assert (shard.filesize, shard.md5sum) == (len(data), hashlib.md5(data).hexdigest())


def test_a_manifest_of_an_earlier_series_does_not_outlive_its_shards(tmp_path: Path) -> None:
    manifest = tmp_path / "d.json"
    options = {"maxcount": 1, "manifest": str(manifest)}
    with ShardWriter(str(tmp_path / "s-%d.tar"), **options) as writer:
        writer.write(sample(0))
    before = manifest.read_bytes()
    with pytest.raises(KeyError), ShardWriter(str(tmp_path / "s-%d.tar"), **options) as writer:
        writer.write(sample(1))
        raise KeyError
    assert manifest.read_bytes() == before, "no shard was replaced"
    with pytest.raises(KeyError), ShardWriter(str(tmp_path / "s-%d.tar"), **options) as writer:
        writer.write(sample(1))
        writer.write(sample(2))
        raise KeyError
    assert not manifest.exists()


def test_what_has_no_manifest(tmp_path: Path) -> None:
    for options, message in (
        ({"manifest": "d.txt"}, "the name of a manifest ends in .json"),
        ({"manifest": "d.json", "opener": open}, "no index can be written"),
        ({"manifest": "d.json", "compress": "gz"}, "with an index, its name must say that"),
        ({"manifest": "d.json", "on_repeated_key": "allow"}, "a shard with repeated keys has no index"),
    ):
        with pytest.raises(UsageError, match=message):
            ShardWriter(str(tmp_path / "s-%d.tar"), **options)
    with ShardWriter(str(tmp_path / "s-%d.tar"), manifest=str(tmp_path / "d.json")):
        pass
    assert '"shardlist": []' in (tmp_path / "d.json").read_text()


def test_a_writer_that_is_forgotten_says_what_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was collected without a word, and the shard was not there."""
    made: list[tuple[str, Callable[[], object]]] = [
        ("x-2.tar", lambda: _written(ShardWriter(f"{tmp_path}/x-%d.tar", maxcount=2), *map(sample, range(5)))),
        ("x.tar", lambda: _written(TarWriter(str(tmp_path / "x.tar")), sample(0))),
        ("x.rec", lambda: _written(RecordWriter(tmp_path / "x.rec"), b"1")),
        ("x.har/part-0", lambda: HarWriter(tmp_path / "x.har").write("a", b"1")),
        ("x.json", lambda: _written(open_publish(tmp_path / "x.json"), b"1")),
    ]
    for (name, forget), what in zip(made, ("1 sample", "1 sample", "1 record", "1 file", "it"), strict=True):
        with pytest.warns(ResourceWarning, match="never closed"):
            forget()
        said = f"{tmp_path}/{name}: its writer was never closed, so {what} is not published; call close()"
        assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["x-0.tar", "x-1.tar"]


def _written(writer: Any, *samples: Any) -> None:
    for each in samples:
        writer.write(each)


def test_a_writer_that_was_ended_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for end in (ShardWriter.close, ShardWriter.discard):
        writer = ShardWriter(f"{tmp_path}/x-%d.tar")
        writer.write(sample(0))
        end(writer)
    with pytest.raises(KeyError), ShardWriter(f"{tmp_path}/y-%d.tar") as writer:
        writer.write(sample(0))
        raise KeyError
    with pytest.raises(ValueError, match="unsupported"):
        TarWriter(io.BytesIO(), checksum="md77")
    del writer
    gc.collect()
    assert capsys.readouterr().err == ""
