"""Samples drawn at random: exactly as many, uniformly, and the same again for the same seed."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples
from tarkit.errors import DataError, TemporaryStreamError, UsageError
from tarkit.formats.tally import Tally
from tarkit.steps import drawing
from tarkit.steps.drawing import draw_fraction, draw_number
from tarkit.steps.parts import hash_share


def shards_of(folder: Path, counts: list[int], *, index: bool = False, begin: int = 0) -> list[str]:
    names = []
    for count in counts:
        names.append(str(folder / f"{len(names)}.tar"))
        with TarWriter(names[-1], index=index) as writer:
            for number in range(begin, begin + count):
                writer.write({"__key__": f"{number:05d}", "txt": f"text {number}"})
        begin += count
    return names


def keys(samples: Any) -> list[str]:
    return [sample["__key__"] for sample in samples]


def test_the_share_of_a_key_is_blake2b(tmp_path: Path) -> None:
    digest = hashlib.blake2b(b"salt\0" + b"k\xff", digest_size=8).digest()
    assert hash_share("salt", "k\udcff") == pytest.approx(int.from_bytes(digest, "big") / 2**64, abs=1e-15)
    assert all(0 <= hash_share("s", str(number)) < 1 for number in range(1000))


def test_a_fraction_does_not_depend_on_the_cut(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, many = shards_of(tmp_path / "a", [10_000]), shards_of(tmp_path / "b", [1, 4999, 5000])
    drawn = keys(draw_fraction(one, 0.1))
    assert drawn == keys(draw_fraction(many, 0.1)) == sorted(drawn)
    assert 900 < len(drawn) < 1100, "seven standard deviations are 210"
    assert {*keys(draw_fraction(one, 0.03))} < {*drawn}
    assert 50 < len({*drawn} & {*keys(draw_fraction(one, 0.1, seed=1))}) < 160, "seeds are independent"
    assert keys(draw_fraction(one, 1)) == keys(read_samples(one))
    for wrong in (0, -0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="above 0 and at most 1"):
            next(draw_fraction(one, wrong))


def test_a_number_is_exact_ordered_and_the_same_by_all_ways(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    plain, indexed = shards_of(tmp_path, [300, 0, 500, 200]), shards_of(tmp_path / "i", [300, 0, 500, 200], index=True)
    every = keys(read_samples(plain))
    for number in (1, 7, 40, 999, 1000):
        drawn = keys(draw_number(plain, number))
        assert len(drawn) == number and drawn == sorted(drawn)
        tally = Tally()
        assert drawn == keys(draw_number(indexed, number, tally=tally, parallel=2)) and tally.samples == 1000
        assert drawn == keys(draw_number(plain, number, on_damage="skip")), "in one pass"
        assert drawn == keys(draw_number(plain, number, select=iter)), "in one pass"
    assert drawn == every
    assert keys(draw_number(plain, 20, seed=1)) != keys(draw_number(plain, 20))
    for ways in ({}, {"select": iter}):
        with pytest.raises(UsageError, match="--number is 1001, of only 1000 samples"):
            list(draw_number(plain, 1001, **ways))


def test_a_number_is_uniform(tmp_path: Path) -> None:
    names = shards_of(tmp_path, [4, 6])
    seen = Counter(key for seed in range(500) for key in keys(draw_number(names, 3, seed=seed)))
    assert len(seen) == 10 and all(100 < count < 200 for count in seen.values()), "150 each, deviation 10"
    few = Counter(
        key
        for seed in range(500)
        for key in keys(drawing._reservoir(iter({"__key__": str(n)} for n in range(10)), 3, random.Random(seed)))
    )
    assert len(few) == 10 and all(100 < count < 200 for count in few.values())


def test_what_is_selected_first_is_what_is_drawn_from(tmp_path: Path) -> None:
    names = shards_of(tmp_path, [100])
    odd = keys(draw_number(names, 10, select=lambda each: (one for one in each if int(one["__key__"]) % 2)))
    assert len(odd) == 10 and all(int(key) % 2 for key in odd)


def test_what_does_not_fit_into_memory_is_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = shards_of(tmp_path, [100])
    monkeypatch.setattr(drawing, "SampleRoom", lambda: real(limit=100))
    from tarkit.store.fieldfile import SampleRoom as real

    drawn = list(draw_number(names, 30, select=iter))
    assert sum(not isinstance(sample["txt"], bytes) for sample in drawn) > 20
    with TarWriter(str(tmp_path / "o.tar"), encoder=False) as writer:
        for sample in drawn:
            writer.write(sample)
    assert [(s["__key__"], s["txt"]) for s in read_samples(str(tmp_path / "o.tar"))] == [
        (s["__key__"], s["txt"]) for s in draw_number(names, 30)
    ]


def test_a_shard_that_is_damaged_or_replaced(tmp_path: Path) -> None:
    names = shards_of(tmp_path, [100, 100])
    drawn = draw_number(names, 50)
    assert next(drawn)
    with TarWriter(names[1]) as writer:
        writer.write({"__key__": "1", "txt": ""})
    with pytest.raises(TemporaryStreamError, match=r"1\.tar: was replaced while it was read: it had 100 samples"):
        list(drawn)
    (tmp_path / "1.tar").write_bytes((tmp_path / "0.tar").read_bytes()[:5000])
    with pytest.raises(DataError, match=r"1\.tar"):
        list(draw_number(names, 1))


def test_a_stale_index_is_named_and_not_used(tmp_path: Path) -> None:
    names = shards_of(tmp_path, [100], index=True)
    index = (tmp_path / "0.idx").read_bytes()
    shards_of(tmp_path, [200])
    (tmp_path / "0.idx").write_bytes(index)
    for draw in (
        lambda stale: draw_fraction(names, 0.1, stale=stale),
        lambda stale: draw_number(names, 5, stale=stale),
    ):
        stale: list[str] = []
        assert keys(draw(stale)) and stale == [str(tmp_path / "0.idx")]
    assert len(keys(draw_number(names, 150))) == 150
