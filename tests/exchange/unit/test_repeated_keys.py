"""Equal keys in different inputs never become one sample without an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from exchangeruns import exchange, files_of, gathered, keys_of, left_in, numbered_inputs, shards_of, write_shard

from tarkit.errors import RepeatedKeyError, UsageError
from tarkit.exchange import keys
from tarkit.exchange.exchange import SlicesFailedError
from tarkit.exchange.positions import PlaceOf, ordinal
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.step import Step
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.read import read_samples


def two_with_one_key(folder: Path, others: int = 0) -> list[str]:
    """Two shards that share the key 000000, with other fields, among other keys."""
    urls = []
    for number, field in enumerate(("jpg", "txt")):
        samples: list[tuple[str, dict[str, bytes]]] = [("000000", {field: b"content %d" % number})]
        samples += [(f"{number}-{other:04d}", {"cls": b"%d" % other}) for other in range(others)]
        urls.append(write_shard(folder / f"{field}.tar", samples))
    return urls


@pytest.mark.parametrize("seed", range(20))
def test_two_shards_with_the_same_key(tmp_path: Path, seed: int) -> None:
    urls = two_with_one_key(tmp_path)
    with pytest.raises(RepeatedKeyError) as raised:
        exchange(urls, tmp_path / "out", Shuffle(seed), shards=1, slices=1 + seed % 2).run()
    text = str(raised.value)
    assert urls[0] in text and urls[1] in text and "000000" in text and "--rekey" in text and "\n" not in text
    assert text.index(urls[1]) < text.index(urls[0]), "the second one repeats the key of the first"
    assert shards_of(tmp_path / "out") == []


@pytest.mark.parametrize("slices", [1, 2, 5])
def test_one_repeated_key_among_many(tmp_path: Path, slices: int) -> None:
    urls = numbered_inputs(tmp_path / "in", [60] * 5)
    urls[3] = write_shard(tmp_path / "in" / "again.tar", [("x", {"cls": b""}), ("s01/n0059", {"png": b""})])
    with pytest.raises(RepeatedKeyError) as raised:
        exchange(urls, tmp_path / "out", shards=3, slices=slices).run()
    assert "s01/n0059" in str(raised.value)
    assert urls[1] in str(raised.value) and urls[3] in str(raised.value)


def test_different_keys_may_have_the_same_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_digest", lambda key: b"12345678")
    urls = numbered_inputs(tmp_path / "in", [4, 5])
    exchange(urls, tmp_path / "out", shards=2, slices=2).run()
    assert len({*keys_of(tmp_path / "out")}) == 9
    with pytest.raises(RepeatedKeyError, match="000000"):
        exchange(two_with_one_key(tmp_path, 3), tmp_path / "twice", shards=2, slices=2).run()


@pytest.mark.parametrize("seed", range(20))
def test_allowed_they_stay_samples_of_their_own(tmp_path: Path, seed: int) -> None:
    urls = two_with_one_key(tmp_path, others=seed % 3)
    out = tmp_path / "out"
    exchange(urls, out, Shuffle(seed), shards=1, on_repeated_key="allow", slices=2).run()
    (path,) = shards_of(out)
    samples = [*read_samples(str(path), on_repeated_key="allow")]
    assert len(samples) == 2 + 2 * (seed % 3)
    found = {field for sample in samples if sample["__key__"] == "000000" for field in sample if field[0] != "_"}
    assert found == {"jpg", "txt"}
    assert not [*out.glob("*.idx")]


def test_rekey(tmp_path: Path) -> None:
    urls = two_with_one_key(tmp_path, others=2)
    out = tmp_path / "out"
    exchange(urls, out, shards=2, rekey=True).run()
    wanted = {f"{number:06d}/{key}" for number in (0, 1) for key in ("000000", f"{number}-0000", f"{number}-0001")}
    assert Counter(keys_of(out)) == Counter(wanted)
    fields = {key: fields for shard in gathered(out) for key, fields in shard}
    assert fields["000000/000000"] == {"jpg": b"content 0"} and fields["000001/000000"] == {"txt": b"content 1"}
    assert sum(len(open_indexed(str(path))) for path in shards_of(out)) == 6


def test_rekey_does_not_depend_on_slices(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 0, 4, 2])
    for slices in (1, 4):
        exchange(urls, tmp_path / str(slices), shards=2, rekey=True, slices=slices).run()
    assert files_of(tmp_path / "1") == files_of(tmp_path / "4")


def test_rekey_with_a_key_rule_that_reads_the_new_names_differently(tmp_path: Path) -> None:
    urls = [write_shard(tmp_path / "a.tar", [("ab", {"cls": b"1"})])]
    with pytest.raises(SlicesFailedError, match="would not be field"):
        exchange(urls, tmp_path / "out", shards=1, rekey=True, key_rule=r"([a-z]+)\.(.*)").run()
    assert shards_of(tmp_path / "out") == []


def test_rekey_and_allow_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rekey"):
        exchange([], tmp_path / "out", rekey=True, on_repeated_key="allow")


def test_a_key_that_comes_back_in_one_shard_is_an_error_in_any_case(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [("a", {"cls": b"1"}), ("b", {"cls": b"2"}), ("a", {"txt": b"3"})])
    for options in ({}, {"rekey": True}):
        with pytest.raises(SlicesFailedError, match=r"a\.tar.*nothing was gathered") as raised:
            exchange([path], tmp_path / str(len(options)), shards=1, **options).run()
        assert raised.value.exit_code == 65


class Failing(Step):
    """A step by which all samples with a jpg have no position."""

    name: ClassVar[str] = "failing"

    def place_of(self, shard: int) -> PlaceOf:
        def position(sample: Any, number: int) -> bytes:
            if sample.content("jpg") is not None:
                raise ValueError("it is a \u00e9picture")
            return b"\1" + ordinal(shard, number)

        return position


def test_failed_samples_have_their_keys_compared(tmp_path: Path) -> None:
    with pytest.raises(RepeatedKeyError) as raised:
        exchange(two_with_one_key(tmp_path, 1), tmp_path / "out", Failing(), shards=1, slices=2).run()
    assert "txt.tar" in str(raised.value) and "jpg.tar" in str(raised.value)


def test_failed_samples_are_kept_beside_the_last_output(tmp_path: Path) -> None:
    samples = [(f"k{number}", {"jpg" if number in (2, 5) else "cls": b"%d" % number}) for number in range(9)]
    url = write_shard(tmp_path / "a.tar", samples)
    result = exchange([url], tmp_path / "out", Failing(), maxcount=4).run()
    assert (result.counts.read, result.counts.out, result.counts.failed, result.counts.exit_code) == (9, 7, 2, 3)
    kept = [sample for path in sorted((tmp_path / "out").glob("*.failed.tar")) for sample in read_samples(str(path))]
    assert [(sample["__key__"], sample["jpg"]) for sample in kept] == [("k2", b"2"), ("k5", b"5")]
    assert keys_of(tmp_path / "out") == ["k0", "k1", "k3", "k4", "k6", "k7", "k8"]
    assert left_in(tmp_path / "out") == []


def test_too_many_failed_samples(tmp_path: Path) -> None:
    samples = [(f"k{number}", {"jpg" if number < 5 else "cls": b""}) for number in range(9)]
    url = write_shard(tmp_path / "a.tar", samples)
    with pytest.raises(Exception, match=r"5 of 9 samples failed.*key 'k0': it is a épicture.*--max-errors is 4"):
        exchange([url], tmp_path / "out", Failing(), maxcount=4, max_errors="4").run()
    assert shards_of(tmp_path / "out") == []
