"""tarkit's reader in webdataset's own pipelines."""

from __future__ import annotations

import gc
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainshards import copy_shard, write_shards

from tarkit.errors import CorruptHeaderError, DuplicateFieldError, MissingInputError, RepeatedKeyError, UsageError
from tarkit.formats.tally import Tally

wds = pytest.importorskip("webdataset", reason="webdataset is not installed (pip install webdataset)")
pytest.importorskip("numpy", reason="arrays need NumPy")

from tarkit.trainers.webdataset import WebDataset, tarfile_to_samples  # noqa: E402

COUNTS = (30, 0, 25, 17)


def left_open(test: Any) -> Any:
    """webdataset's own reader leaves files open."""
    ignored = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    return pytest.mark.filterwarnings(*ignored)(pytest.mark.usefixtures("_collected")(test))


@pytest.fixture
def _collected() -> Iterator[None]:
    """What is left open is collected in the test that made it, so that no other test is blamed."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    return write_shards(folder, COUNTS, lambda shard, number: {"cls": number % 10, "JSON": b'{"n": 1}'})


def write_tar(path: Path, *members: tuple[str, bytes]) -> str:
    """An archive made by Python's tarfile."""
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


def keys(samples: Any) -> list[str]:
    return [sample["__key__"] for sample in samples]


@left_open
def test_the_samples_are_those_of_webdataset(shards: str) -> None:
    def without_paths(samples: Any) -> list[dict[str, Any]]:
        return [{name: value for name, value in each.items() if name != "__local_path__"} for each in samples]

    theirs = without_paths(wds.WebDataset(shards, shardshuffle=False))
    assert without_paths(WebDataset(shards, shardshuffle=False)) == theirs
    assert len(theirs) == sum(COUNTS) and theirs[0]["json"] == b'{"n": 1}', "names of fields are in lower case"
    steps = (wds.SimpleShardList(shards), wds.split_by_worker)
    assert without_paths(wds.DataPipeline(*steps, tarfile_to_samples())) == theirs
    made = []
    for kind in (wds.WebDataset, WebDataset):
        batches = kind(shards, shardshuffle=False).decode().to_tuple("__key__", "cls").batched(8)
        made.append([[list(column) for column in batch] for batch in batches])
    assert made[0] == made[1]


@left_open
def test_files_are_renamed_and_then_selected_as_by_webdataset(shards: str) -> None:
    def rename(name: str) -> str:
        return name.replace(".cls", ".class")

    options = {"shardshuffle": False, "rename_files": rename, "select_files": lambda name: name.endswith(".class")}
    found = [set(sample) - {"__local_path__"} for sample in WebDataset(shards, **options)]
    assert found == [set(sample) - {"__local_path__"} for sample in wds.WebDataset(shards, **options)]
    assert found[0] == {"__key__", "__url__", "class"}


def test_damage_and_repeated_keys_are_errors(shards: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptHeaderError, match=r"s-0\.tar, offset \d+: "):
        list(WebDataset(copy_shard(shards.replace("{0..3}", "0"), tmp_path, 9 * 1024), shardshuffle=False))
    torn = write_tar(tmp_path / "torn.tar", ("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"))
    with pytest.raises(RepeatedKeyError, match=r"torn\.tar.* key 'a'"):
        list(WebDataset(torn, shardshuffle=False))
    assert keys(WebDataset(torn, shardshuffle=False, on_repeated_key="allow")) == ["a", "b", "a"]
    twice = write_tar(tmp_path / "twice.tar", ("a.jpg", b"1"), ("a.JPG", b"2"))
    with pytest.raises(DuplicateFieldError, match=r"twice\.tar.*jpg"):
        list(WebDataset(twice, shardshuffle=False))


def test_a_handler_passes_over_a_shard_and_it_is_logged(
    shards: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    urls = [str(tmp_path / "none.tar"), shards.replace("{0..3}", "3")]
    with pytest.raises(MissingInputError, match=r"none\.tar"):
        list(WebDataset(urls, shardshuffle=False))
    assert list(WebDataset(urls, shardshuffle=False, handler=wds.ignore_and_stop, empty_check=False)) == []
    assert not caplog.records
    assert len(list(WebDataset(urls, shardshuffle=False, handler=wds.ignore_and_continue))) == COUNTS[3]
    assert "the rest of a shard is left out, as the handler says: " in caplog.text and "none.tar" in caplog.text


def test_a_wrong_argument_does_not_go_to_the_handler(shards: str) -> None:
    with pytest.raises(UsageError, match="on_damage is 'none'"):
        list(WebDataset(shards, shardshuffle=False, handler=wds.ignore_and_continue, on_damage="none"))
    with pytest.raises(UsageError, match="two groups"):
        WebDataset(shards, shardshuffle=False, handler=wds.ignore_and_continue, rule="(a)")
    with pytest.raises(TypeError, match="nonsense"):
        WebDataset(shards, shardshuffle=False, nonsense=1)


def test_policies_reach_the_reader(shards: str) -> None:
    tally = Tally()
    assert len(list(WebDataset(shards, shardshuffle=False, tally=tally))) == sum(COUNTS)
    assert tally.shards == len(COUNTS) and tally.samples == sum(COUNTS)
