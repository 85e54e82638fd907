"""Shuffle in one pass: every sample once, in an order that the seed and the buffer decide."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from dedupruns import dedup, files_of, of_webdataset, write_tar
from tarbuild import pax

from tarkit.errors import DataError, RepeatedKeyError, StreamError, UsageError
from tarkit.exchange import blockshuffle
from tarkit.exchange.blockshuffle import Blocks, BlockShuffle
from tarkit.exchange.exchange import SlicesFailedError
from tarkit.exchange.settings import ExchangeSettings

COUNTS = (40, 0, 25, 35)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("inputs")
    return [
        write_tar(
            folder / f"in-{shard}.tar",
            [(f"s{shard}/n{number:03d}", {"bin": b"%d" % number * 300, "cls": b"1"}) for number in range(count)],
            mtime=shard,
        )
        for shard, count in enumerate(COUNTS)
    ]


def shuffle(urls: list[str], out: Path, seed: int = 1, buffer: int = 30, **options: Any) -> BlockShuffle:
    own = {name: options.pop(name) for name in ("mem", "force") if name in options}
    if not {"shards", "maxcount", "maxsize"} & options.keys():
        options["maxcount"] = 30
    return BlockShuffle(Blocks(seed, buffer), urls, str(out), ExchangeSettings(**options), **own)


def shards_of(out: Path) -> list[list[str]]:
    return [[key for key, _ in of_webdataset(path)] for path in sorted(out.glob("shard-*.tar"))]


def keys_of(out: Path) -> list[str]:
    return [key for shard in shards_of(out) for key in shard]


def test_every_sample_comes_once_with_its_bytes(inputs: list[str], tmp_path: Path) -> None:
    result = shuffle(inputs, tmp_path / "out").run()
    found = [each for path in sorted((tmp_path / "out").glob("*.tar")) for each in of_webdataset(path)]
    given = [each for url in inputs for each in of_webdataset(url)]
    assert found != given and sorted(found) == sorted(given)
    assert (result.outputs, result.done, result.counts.read, result.counts.out) == (4, 4, 100, 100)
    assert [*map(len, shards_of(tmp_path / "out"))] == [30, 30, 30, 10]
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as archive:
        assert all(info.mtime == int(info.name[1]) for info in archive)
    assert (tmp_path / "out" / "shard-000003.idx").exists()


def test_the_seed_decides_the_order(inputs: list[str], tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shuffle(inputs, tmp_path / name, seed).run()
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert keys_of(tmp_path / "a") != keys_of(tmp_path / "c")


def test_a_buffer_of_one_shuffles_shards_alone(inputs: list[str], tmp_path: Path) -> None:
    orders = set()
    for seed in range(8):
        out = tmp_path / str(seed)
        shuffle(inputs, out, seed, buffer=1).run()
        keys = keys_of(out)
        shards = [*dict.fromkeys(key[:2] for key in keys)]
        assert keys == [f"{shard}/n{number:03d}" for shard in shards for number in range(COUNTS[int(shard[1])])]
        orders.add(tuple(shards))
    assert len(orders) > 2


def test_a_sample_leaves_the_buffer_at_a_random_time(inputs: list[str], tmp_path: Path) -> None:
    shuffle(inputs, tmp_path / "read", 3, buffer=1).run()
    shuffle(inputs, tmp_path / "out", 3, buffer=20).run()
    turn = {key: number for number, key in enumerate(keys_of(tmp_path / "read"))}
    turns = [turn[key] for key in keys_of(tmp_path / "out")]
    # A sample is at most 19 places before its turn, and after it for a time that has no limit.
    assert max(number - place for place, number in enumerate(turns)) == 19
    assert sum(number != place for place, number in enumerate(turns)) > 80


def test_the_memory_bounds_the_buffer(inputs: list[str], tmp_path: Path) -> None:
    # Room for two samples, of 2,048 bytes or 3,072 and what they take beside them.
    shuffle(inputs, tmp_path / "read", 4, buffer=1).run()
    shuffle(inputs, tmp_path / "small", 4, buffer=1000, mem=12_000).run()
    turn = {key: number for number, key in enumerate(keys_of(tmp_path / "read"))}
    turns = [turn[key] for key in keys_of(tmp_path / "small")]
    assert turns != sorted(turns) and max(number - place for place, number in enumerate(turns)) <= 3


def test_shards_of_equal_length_and_of_a_size(inputs: list[str], tmp_path: Path) -> None:
    shuffle(inputs, tmp_path / "even", shards=7).run()
    assert sorted(map(len, shards_of(tmp_path / "even"))) == [14] * 5 + [15] * 2
    shuffle(inputs, tmp_path / "sized", maxsize=50_000).run()
    assert len(shards_of(tmp_path / "sized")) > 3
    assert all(path.stat().st_size <= 50_000 + 10240 for path in (tmp_path / "sized").glob("*.tar"))
    with pytest.raises(UsageError, match=r"100 samples cannot fill 101 shards"):
        shuffle(inputs, tmp_path / "many", shards=101).run()


def test_equal_keys_in_an_output_are_an_error_that_names_both_shards(tmp_path: Path) -> None:
    urls = [write_tar(tmp_path / f"{name}.tar", [("k", {"x": name.encode()})]) for name in "ab"]
    with pytest.raises(RepeatedKeyError, match=r"[ab]\.tar, key 'k': the key is in .*[ab]\.tar too; --rekey") as caught:
        shuffle(urls, tmp_path / "out").run()
    assert {"a.tar", "b.tar"} <= {*str(caught.value).replace("/", " ").replace(",", " ").split()}
    assert not [*(tmp_path / "out").glob("*")]
    shuffle(urls, tmp_path / "rekeyed", rekey=True).run()
    assert sorted(keys_of(tmp_path / "rekeyed")) == ["000000/k", "000001/k"]
    shuffle(urls, tmp_path / "allowed", on_repeated_key="allow").run()
    with tarfile.open(tmp_path / "allowed" / "shard-000000.tar", ignore_zeros=True) as archive:
        assert archive.getnames() == ["k.x", "k.x"]


def test_a_second_run_does_nothing_and_another_needs_force(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = shuffle(inputs, out).run()
    again = shuffle(inputs, out).run()
    assert (again.done, again.done_before, again.size) == (0, 4, first.size)
    for options in ({"seed": 2}, {"buffer": 9}, {"mem": 10_000}):
        with pytest.raises(UsageError, match=r"out has 4 shards of another run, .*--force"):
            shuffle(inputs, out, **options).run()
    shuffle(inputs, out, seed=2, maxcount=50, force=True).run()
    shuffle(inputs, tmp_path / "new", seed=2, maxcount=50).run()
    assert files_of(out) == files_of(tmp_path / "new")


def test_a_run_that_ended_early_begins_anew_by_force(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shuffle(inputs, tmp_path / "read", buffer=1).run()
    last = next(url for url in inputs if keys_of(tmp_path / "read")[-1][1] == url[-5])
    cut = write_tar(tmp_path / Path(last).name, of_webdataset(last))
    Path(cut).write_bytes(Path(cut).read_bytes()[:9000])
    with pytest.raises(DataError, match=Path(cut).name):
        shuffle([cut if url == last else url for url in inputs], out, buffer=5).run()
    assert [*map(len, shards_of(out))] == [30, 30]
    assert not [path for path in out.iterdir() if path.name.startswith(".tarkit")]
    with pytest.raises(UsageError, match=r"out has 2 shards of another run"):
        shuffle(inputs, out).run()
    shuffle(inputs, out, force=True).run()
    shuffle(inputs, tmp_path / "new").run()
    assert files_of(out) == files_of(tmp_path / "new")


def test_samples_that_were_not_counted_are_an_error(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockshuffle, "count_shards", lambda urls, **_: [*blockshuffle_counts(urls)][:-1])
    with pytest.raises(StreamError, match=r"65 samples were counted, and 100 came"):
        shuffle(inputs, tmp_path / "out", shards=5).run()


def blockshuffle_counts(urls: list[str]) -> Any:
    from tarkit.steps.counting import count_shards

    return count_shards(urls)


def test_a_header_for_all_members_after_it_is_refused(tmp_path: Path) -> None:
    url = write_tar(tmp_path / "in.tar", [("a", {"x": b"1"})])
    Path(url).write_bytes(pax({b"mtime": b"1"}, kind=b"g") + Path(url).read_bytes())
    with pytest.raises(DataError, match=r"in\.tar, offset 0: a global extended header sets mtime"):
        shuffle([url], tmp_path / "out").run()
    with pytest.raises(SlicesFailedError, match=r"in\.tar, offset 0: a global extended header sets mtime"):
        dedup([url], tmp_path / "unique", "x").run()


def test_a_buffer_must_hold_a_sample() -> None:
    with pytest.raises(UsageError, match=r"the buffer is of 0 samples"):
        Blocks(1, 0)
