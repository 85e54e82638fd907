"""WebDataset: programs written for webdataset, run on tarkit."""

from __future__ import annotations

import gc
import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from tarkit.errors import DataError, DecodeError, MissingInputError, UsageError
from tarkit.formats.tally import Tally
from tarkit.samples.dataset import WebDataset
from tarkit.samples.read import read_samples

HAS_WEBDATASET = importlib.util.find_spec("webdataset") is not None


def picture(number: int, format_name: str = "jpeg") -> bytes:
    stream = io.BytesIO()
    PIL.Image.new("RGB", (8, 6), (number * 20, 100, 50)).save(stream, format_name)
    return stream.getvalue()


def write_shard(path: Path, numbers: range) -> None:
    """A shard made by tarfile, not by tarkit."""
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for number in numbers:
            fields = {"cls": b"%d" % number, "jpg": picture(number), "json": b'{"n": %d}' % number, "pyd": b"not read"}
            for field, data in fields.items():
                info = tarfile.TarInfo(f"k{number}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for shard in range(3):
        write_shard(tmp_path / f"t-{shard}.tgz", range(shard * 4, shard * 4 + 4))
    return str(tmp_path / "t-{0..2}.tgz")


NOTEBOOK_CELL = """
import sys, argparse
from tarkit.samples.dataset import WebDataset
from tarkit.writer import TarWriter

parser = argparse.ArgumentParser("convert jpg to png in imagenet-style databases")
parser.add_argument("--count", type=int, default=999999999)
parser.add_argument("input"); parser.add_argument("output")
args = parser.parse_args()

sink = TarWriter(args.output)
for i, (key, image, cls) in enumerate(WebDataset(args.input, extensions="__key__ jpg cls")):
    if i%1000==0: print(i, key, file=sys.stderr)
    if i>=args.count: break
    sink.write(dict(__key__=key, ppm=image[SLICE], cls=cls ))
sink.close()
"""


def run_cell(folder: Path, index: str) -> subprocess.CompletedProcess[str]:
    (folder / "mapper.py").write_text(NOTEBOOK_CELL.replace("SLICE", index))
    command = [
        sys.executable,
        str(folder / "mapper.py"),
        "--count",
        "3",
        str(folder / "t-0.tgz"),
        str(folder / "o.tar"),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_notebook_cell_runs(shards: str, tmp_path: Path) -> None:
    done = run_cell(tmp_path, ":, :, :3")
    assert (done.returncode, done.stderr) == (0, "0 k0\n")
    with tarfile.open(tmp_path / "o.tar") as archive:
        assert archive.getnames() == ["k0.cls", "k0.ppm", "k1.cls", "k1.ppm", "k2.cls", "k2.ppm"]
        image = archive.extractfile("k2.ppm")
        assert image is not None
        expected = np.asarray(PIL.Image.open(io.BytesIO(picture(2))))
        assert np.array_equal(np.asarray(PIL.Image.open(io.BytesIO(image.read()))), expected)


def test_the_notebook_slices_an_axis_that_no_image_has(shards: str, tmp_path: Path) -> None:
    # The published cell says image[:, :, :2, :]; an image has three axes in every version of webdataset.
    done = run_cell(tmp_path, ":, :, :2, :")
    assert done.returncode == 1
    assert "IndexError: too many indices" in done.stderr


def test_old_style_tuples(shards: str) -> None:
    dataset = WebDataset(shards, extensions="__key__ png;jpg cls")
    for _ in range(2):
        items = list(dataset)
        assert [(key, cls) for key, _, cls in items] == [(f"k{n}", n) for n in range(12)]
    image = items[3][1]
    assert (image.dtype, image.shape) == (np.float32, (6, 8, 3))
    assert np.array_equal(image, np.asarray(PIL.Image.open(io.BytesIO(picture(3)))).astype(np.float32) / 255)


def test_old_style_decoders(shards: str) -> None:
    (raw,) = WebDataset(shards, extensions="jpg cls", decoder=None).take(1)
    assert raw == (picture(0), b"0")
    ((image,),) = WebDataset(shards, extensions="jpg", decoder="l8").take(1)
    assert (image.dtype, image.shape) == (np.uint8, (6, 8))


def test_decoding_a_field_that_no_sample_has_is_an_error(shards: str) -> None:
    """Else it stays bytes, and nothing says so."""
    with pytest.raises(DataError, match="no sample has the field 'sjon' that was asked for; the samples have cls, "):
        list(WebDataset(shards).decode(only="cls sjon"))
    assert list(WebDataset(shards).decode(only="").take(1)) == list(WebDataset(shards).take(1))


def test_without_steps_it_gives_raw_samples(shards: str) -> None:
    assert list(WebDataset(shards)) == list(read_samples(shards))


def test_fluid_style(shards: str) -> None:
    base = WebDataset(shards, shardshuffle=False)
    dataset = (
        base.decode("pil", only="jpg cls json")
        .rename(image="png;jpg")
        .select(lambda sample: sample["cls"] % 2 == 0)
        .map_dict(json=lambda value: value["n"])
        .to_tuple("image", "cls", "json")
        .map(lambda item: (item[0].mode, *item[1:]) if item[1] != 4 else None)
        .shuffle(3, seed=5)
    )
    first = list(dataset)
    dataset.set_epoch(0)
    assert first == list(dataset)
    assert sorted(first) == [("RGB", n, n) for n in (0, 2, 6, 8, 10)]
    assert len(list(base)) == 12


def test_map_gives_the_key_to_a_dict_without_one(shards: str) -> None:
    assert list(WebDataset(shards).map(lambda sample: {"n": sample["cls"]}).take(1)) == [{"__key__": "k0", "n": b"0"}]
    renamed = WebDataset(shards).map(lambda sample: {"__key__": "new"}).take(1)
    assert list(renamed) == [{"__key__": "new"}]


def test_slices(shards: str) -> None:
    keys = WebDataset(shards).to_tuple("__key__")
    assert list(keys.slice(2)) == list(keys.take(2)) == [("k0",), ("k1",)]
    assert list(keys.slice(1, 8, 3)) == [("k1",), ("k4",), ("k7",)]
    assert [len(list(keys.slice(9, None))), len(list(keys.take(0)))] == [3, 0]


def test_shuffles_take_the_seed_of_the_data_set(shards: str) -> None:
    dataset = WebDataset(shards, shardshuffle=3, seed=4).to_tuple("__key__")
    order = list(dataset)
    assert order != list(dataset)
    dataset.set_epoch(0)
    assert order == list(dataset)
    assert order != list(WebDataset(shards).to_tuple("__key__"))
    assert sorted(order) == sorted(WebDataset(shards).to_tuple("__key__"))
    whole = [[(f"k{n}",) for n in range(start, start + 4)] for start in (0, 4, 8)]
    assert sorted(order[n : n + 4] for n in (0, 4, 8)) == sorted(whole)
    assert list(dataset.shuffle(5)) == list(dataset.shuffle(5, seed=4))
    dataset.set_epoch(0)
    assert list(dataset.shuffle(0)) == order


def test_without_a_seed_a_fresh_one_is_logged(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    dataset = WebDataset(shards, shardshuffle=3).shuffle(5).to_tuple("__key__")
    assert [record.getMessage() for record in caplog.records] == [
        f"shardshuffle: no seed was given; seed={dataset.seed} gives this order again"
    ]
    again = WebDataset(shards, shardshuffle=3, seed=dataset.seed).shuffle(5).to_tuple("__key__")
    assert list(again) == list(dataset)
    assert WebDataset(shards).shuffle(5).seed != dataset.seed


def test_an_iterator_of_urls_serves_every_iteration(shards: str, tmp_path: Path) -> None:
    dataset = WebDataset(str(tmp_path / f"t-{n}.tgz") for n in range(2))
    assert [len(list(dataset)), len(list(dataset))] == [8, 8]


def test_policies_reach_the_reader(shards: str) -> None:
    tally = Tally()
    keys = [key for (key,) in WebDataset(shards, tally=tally, rule=r"k(\d+)\.(cls)").to_tuple("__key__")]
    assert keys == [str(n) for n in range(12)]
    assert tally.samples == 12
    assert sum(tally.skipped.values()) == 36


def test_errors_from_the_data(shards: str, tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match="key 'k0': field 'pyd' is not decoded"):
        list(WebDataset(shards).decode())
    with pytest.raises(
        DataError, match="key 'k0': to_tuple: the sample has no field 'png'; it has cls, jpg, json, pyd"
    ):
        list(WebDataset(shards, extensions="png"))
    with pytest.raises(MissingInputError):
        list(WebDataset(str(tmp_path / "none.tar")))


def test_an_empty_data_set(tmp_path: Path) -> None:
    write_shard(tmp_path / "e.tar", range(0))
    with pytest.raises(DataError, match=r"e\.tar: the data set has no samples; empty_check=False"):
        list(WebDataset(tmp_path / "e.tar"))
    with pytest.raises(DataError) as caught:
        list(WebDataset([str(tmp_path / "e.tar")]))
    assert str(caught.value) == "the data set has no samples; empty_check=False accepts that"
    assert list(WebDataset(tmp_path / "e.tar", empty_check=False)) == []


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"mode": "keep"}, "None reads every shard once"),
        ({"repeat": True}, "call its repeat"),
        ({"repeat": 1}, "call its repeat"),
        ({"cache_size": 10**9}, "cache_size=1000000000 needs cache_dir"),
        ({"url_to_name": str}, "parts of shards have names of their own"),
        ({"workersplitter": "split_by_worker"}, "must be a function or None"),
        ({"verbose": True}, "Tally"),
        ({"shardshuffle": -1, "seed": 1}, "1 or more"),
        ({"colour": 1}, "no argument 'colour'"),
        ({"decoder": "torchrgb16"}, "torchrgb16"),
        ({"extensions": " "}, "no fields"),
    ],
)
def test_arguments_that_are_not_taken(argument: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        WebDataset("x.tar", **argument)


def test_arguments_that_ask_for_nothing() -> None:
    WebDataset("x.tar", handler=None, resampled=False, repeat=False, cache_size=-1, verbose=False, shardshuffle=None)
    WebDataset("x.tar", shardshuffle=True, detshuffle=True, seed=1)


def test_steps_check_their_arguments_where_they_are_written() -> None:
    dataset = WebDataset("x.tar")
    with pytest.raises(UsageError, match="buffer is -1"):
        dataset.shuffle(-1, seed=1)
    with pytest.raises(UsageError, match="decoded to 'rgb16'"):
        dataset.decode("rgb16")
    with pytest.raises(UsageError, match="no fields"):
        dataset.to_tuple()
    with pytest.raises(UsageError, match="metadata"):
        dataset.rename(__key__="txt")
    with pytest.raises(UsageError, match="count is -1"):
        dataset.take(-1)
    for bounds in ((), (1, 2, 3, 4), (-1,)):
        with pytest.raises(UsageError, match="slice"):
            dataset.slice(*bounds)


@pytest.mark.skipif(not HAS_WEBDATASET, reason="webdataset is not installed (pip install webdataset)")
@pytest.mark.filterwarnings(r"ignore:.*theirs\.tar:pytest.PytestUnraisableExceptionWarning")  # it closes no shard
def test_the_same_program_on_both_libraries(tmp_path: Path) -> None:
    import webdataset

    with tarfile.open(tmp_path / "ours.tar", "w") as archive:
        for number in range(9):
            for field, data in {"cls": b"%d" % number, "jpg": picture(number)}.items():
                info = tarfile.TarInfo(f"dir/k{number}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    def program(library: Any, name: str) -> list[Any]:
        dataset = library.WebDataset(str(tmp_path / name), shardshuffle=False)
        dataset = dataset.decode("rgb8").rename(image="png;jpg").select(lambda sample: sample["cls"] != 4)
        dataset = dataset.to_tuple("__key__", "image", "cls").map(lambda item: (item[0], item[1].tolist(), item[2]))
        return list(dataset.slice(1, 6))

    shutil.copy(tmp_path / "ours.tar", tmp_path / "theirs.tar")
    ours = program(sys.modules["tarkit.samples.dataset"], "ours.tar")
    assert ours == program(webdataset, "theirs.tar")
    gc.collect()  # so that what a library left open is reported here
    assert [item[2] for item in ours] == [1, 2, 3, 5, 6]
