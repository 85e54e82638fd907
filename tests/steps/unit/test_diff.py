"""Two data sets: keys of one only, fields that differ, repeated keys, order; not their shards."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter
from tarkit.errors import DataError, StreamError
from tarkit.steps import diff
from tarkit.steps.diff import Difference, compare

Samples = list[tuple[str, dict[str, bytes]]]


def shards(folder: Path, samples: Samples, parts: int = 1) -> list[str]:
    names = []
    for part in range(parts):
        names.append(str(folder / f"s-{len(list(folder.iterdir()))}.tar"))
        with TarWriter(names[-1], encoder=False, on_repeated_key="allow") as writer:
            for key, fields in samples[part * len(samples) // parts : (part + 1) * len(samples) // parts]:
                writer.write({"__key__": key, **fields})
    return names


def differences(folder: Path, a: Samples, b: Samples, **options: Any) -> list[Difference]:
    return list(compare(shards(folder, a), shards(folder, b), on_repeated_key="allow", **options))


def test_equal_data_sets_however_they_are_sharded(tmp_path: Path) -> None:
    samples = [(f"{number:03}", {"jpg": bytes([number]), "cls": b"1"}) for number in range(50)]
    others = [(key, dict(reversed(fields.items()))) for key, fields in reversed(samples)]
    counts = Counter[str]()
    seen: list[tuple[int, float]] = []

    def progress(*numbers: Any) -> None:
        seen.append(numbers)

    assert not [*compare(shards(tmp_path, samples, 3), shards(tmp_path, others, 7), counts=counts, progress=progress)]
    assert counts == {"equal": 50} and [samples for samples, _ in seen] == [*range(1, 101)]
    assert differences(tmp_path, [], []) == []


def test_keys_and_fields(tmp_path: Path) -> None:
    a = [("x", {"jpg": b"12", "cls": b"1"}), ("only\udcff", {"a": b""}), ("same", {"a": b"1"}), ("z", {"t": b"1"})]
    b = [("new", {"a": b"1"}), ("same", {"a": b"1"}), ("x", {"jpg": b"13", "cls": b"12"}), ("z", {"u": b"", "t": b"1"})]
    counts = Counter[str]()
    assert differences(tmp_path, a, b, counts=counts) == [
        Difference("only-b", "new", {"a": (None, 1)}, (None, 0)),
        Difference("only-a", "only\udcff", {"a": (0, None)}, (1, None)),
        Difference("differs", "x", {"cls": (1, 2), "jpg": (2, 2)}, (0, 2)),
        Difference("differs", "z", {"u": (None, 0)}, (3, 3)),
    ]
    assert counts == {"equal": 1, "differs": 2, "only-a": 1, "only-b": 1}


def test_it_finds_what_a_comparison_of_dicts_finds(tmp_path: Path) -> None:
    chance = random.Random(5)
    a = [(str(key), {"x": b"%d" % chance.randrange(3)}) for key in chance.sample(range(300), 200)]
    b = [(str(key), {"x": b"%d" % chance.randrange(3)}) for key in chance.sample(range(300), 200)]
    of_a, of_b = dict(a), dict(b)
    found = {each.key: each.kind for each in differences(tmp_path, a, b)}
    assert {key for key, kind in found.items() if kind == "only-a"} == of_a.keys() - of_b.keys()
    assert {key for key, kind in found.items() if kind == "only-b"} == of_b.keys() - of_a.keys()
    differ = {key for key in of_a.keys() & of_b.keys() if of_a[key] != of_b[key]}
    assert {key for key, kind in found.items() if kind == "differs"} == differ and differ


def test_repeated_keys_are_compared_in_their_order(tmp_path: Path) -> None:
    a = [("k", {"x": b"1"}), ("o", {"x": b""}), ("k", {"x": b"2"}), ("p", {"x": b""}), ("k", {"x": b"3"})]
    b = [("k", {"x": b"1"}), ("o", {"x": b""}), ("k", {"x": b"22"}), ("p", {"x": b""})]
    assert differences(tmp_path, a, b) == [
        Difference("differs", "k", {"x": (1, 2)}, (2, 2)),
        Difference("only-a", "k", {"x": (1, None)}, (4, None)),
    ]


def test_order_is_compared_if_asked_for(tmp_path: Path) -> None:
    a = [(key, {"x": b"1"}) for key in "abcdef"]
    b = [(key, {"x": b"1"}) for key in "acdbfe"]
    assert differences(tmp_path, a, b) == []
    counts = Counter[str]()
    assert differences(tmp_path, a, b, order=True, counts=counts) == [Difference("order", "c", {}, (2, 1))]
    assert counts == {"equal": 6, "order": 1}
    left_out = [sample for sample in a if sample[0] != "b"]
    assert [found.kind for found in differences(tmp_path, a, left_out, order=True)] == ["only-a"]


def test_large_contents_are_digested_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = [("k", {"x": bytes(1 << 20), "y": b"1" * 900, "z": bytes(1 << 20)})]
    whole = differences(tmp_path, a, a)
    monkeypatch.setattr(diff._DigestLarge, "member_limit", 1000)
    monkeypatch.setattr(diff._DigestLarge, "sample_limit", 2000)
    taken: list[str] = []
    take = diff._DigestLarge.take
    monkeypatch.setattr(diff._DigestLarge, "take", lambda *args: taken.append(args[2]) or take(*args))
    assert differences(tmp_path, a, a) == whole == [] and taken == ["k.x", "k.z"] * 2
    taken.clear()
    assert differences(tmp_path, a, a, select=lambda samples: samples) == [] and taken == [], "a choice looks into them"
    b = [("k", {**a[0][1], "z": bytes((1 << 20) - 1) + b"1"})]
    assert [found.fields for found in differences(tmp_path, a, b)] == [{"z": (1 << 20, 1 << 20)}]


def test_samples_can_be_chosen(tmp_path: Path) -> None:
    a, b = [("k", {"x": b"1", "json": b"1"})], [("k", {"x": b"1", "json": b"2"})]

    def without(samples: Any) -> Any:
        return ({name: value for name, value in sample.items() if name != "json"} for sample in samples)

    assert differences(tmp_path, a, b, select=without) == []


def test_more_samples_than_memory_holds_are_sorted_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "_TABLES", diff._TABLES.replace("-65536", "-64"))
    a = [(f"{number:05}", {"x": b"1"}) for number in range(3000)]
    b = [(key, {"x": b"1"} if key != "01234" else {"x": b"2"}) for key, _ in reversed(a)]
    assert [found.key for found in differences(tmp_path, a, b)] == ["01234"]


def test_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = shards(tmp_path, [("k", {"x": b"1"})])
    (cut,) = shards(tmp_path, [("k", {"x": b"1"})])
    Path(cut).write_bytes(Path(cut).read_bytes()[:1000])
    with pytest.raises(DataError, match="cut"):
        list(compare([name], [cut]))

    class Full:
        def executescript(self, text: str) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        def close(self) -> None:
            pass

    monkeypatch.setattr(sqlite3, "connect", lambda name: Full())
    with pytest.raises(StreamError, match="database or disk is full; set TMPDIR to a folder on a disk with room"):
        list(compare([name], [name]))
