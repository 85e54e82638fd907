"""A run file that was cut or changed is an error that names it; outputs are never wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, gathered, numbered_inputs, shards_of

from tarkit.errors import DataError, RepeatedKeyError, TarkitError
from tarkit.exchange import exchange as exchanges
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.scatter import Scatter


@pytest.fixture
def scattered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Path, dict[str, bytes]]:
    """Inputs, a folder with their run files, and the right outputs."""
    urls = numbered_inputs(tmp_path / "in", [6, 5, 4], most=900)
    exchange(urls, tmp_path / "right", slices=2, block_size=3000).run()
    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "_gather_all", lambda *_: (_ for _ in ()).throw(DataError("stop")))
        with pytest.raises(DataError, match="stop"):
            exchange(urls, tmp_path / "out", slices=2, block_size=3000).run()
    return urls, tmp_path / "out", files_of(tmp_path / "right")


def resumed(urls: list[str], out: Path) -> Exchange:
    return exchange(urls, out)


def assert_right_or_named(urls: list[str], out: Path, name: str, right: dict[str, bytes], moved: Path) -> bool:
    """Gather from a copy of the folder; return whether the damage was found."""
    shutil.rmtree(moved, ignore_errors=True)
    shutil.copytree(out, moved)
    try:
        resumed(urls, moved).run()
    except TarkitError as error:
        assert error.exit_code == 65, error
        assert str(moved / "_exchange" / name) in str(error)
        assert "\n" not in str(error)
        found = files_of(moved)
        assert all(found[each] == right[each] for each in found if not each.startswith("_exchange"))
        return True
    assert files_of(moved) == right
    return False


def test_one_byte_anywhere(scattered: tuple[list[str], Path, dict[str, bytes]], tmp_path: Path) -> None:
    urls, out, right = scattered
    path = out / "_exchange" / "run-000001.tar"
    good = path.read_bytes()
    record = json.loads((out / "_exchange" / "run-000001.tar.done.json").read_text())["output"]
    begin, length, _ = record["blocks"]
    keys = record["keys"][0]
    size = record["keys"][256] * 8
    draw = random.Random(1)
    places = {
        "samples": [*range(0, keys - 512, (keys - 512) // 40)],
        "keys": [*range(keys, keys + size, 3)],
        "blocks": [*range(begin, begin + length, 3)],
        "end": draw.sample(range(begin + length + 512, len(good)), 5),
    }
    for where, offsets in places.items():
        for offset in offsets:
            path.write_bytes(good[:offset] + bytes([good[offset] ^ 1 << draw.randrange(8)]) + good[offset + 1 :])
            found = assert_right_or_named(urls, out, path.name, right, tmp_path / "copy")
            assert found == (where != "end"), (where, offset)


def test_a_byte_of_the_data_is_found_when_it_is_gathered(scattered: tuple[list[str], Path, dict[str, bytes]]) -> None:
    urls, out, _ = scattered
    path = out / "_exchange" / "run-000000.tar"
    data = path.read_bytes()
    path.write_bytes(data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])
    with pytest.raises(DataError, match=r"run file is damaged.*its slice is made again"):
        resumed(urls, out).run()
    assert not [name for name in os.listdir(out) if name.endswith(".idx")]
    # The hint of the error works.
    path.unlink()
    path.with_name(path.name + ".done.json").unlink()
    resumed(urls, out).run()


def test_a_run_file_that_was_cut_is_made_again(scattered: tuple[list[str], Path, dict[str, bytes]]) -> None:
    urls, out, right = scattered
    path = out / "_exchange" / "run-000000.tar"
    path.write_bytes(path.read_bytes()[:-10_240])
    resumed(urls, out).run()
    assert files_of(out) == right


def test_a_record_without_its_run_file(scattered: tuple[list[str], Path, dict[str, bytes]]) -> None:
    urls, out, right = scattered
    (out / "_exchange" / "run-000001.tar").unlink()
    resumed(urls, out).run()
    assert files_of(out) == right


def test_a_run_file_without_its_record(
    scattered: tuple[list[str], Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls, out, right = scattered
    (out / "_exchange" / "run-000001.tar.done.json").unlink()
    made = []
    monkeypatch.setattr(Scatter, "run", lambda self, real=Scatter.run: made.append(self._name) or real(self))
    resumed(urls, out).run()
    assert made == ["run-000001.tar"]
    assert files_of(out) == right


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": "tarkit-exchange-1"}', b"[[[[", b'"x"', b"\xff"])
def test_a_plan_that_is_none(scattered: tuple[list[str], Path, dict[str, bytes]], text: bytes) -> None:
    urls, out, _ = scattered
    (out / "_exchange" / "plan.json").write_bytes(text)
    with pytest.raises(DataError, match=r"plan\.json.*not the plan of an exchange"):
        resumed(urls, out).run()
    assert shards_of(out) == []


def test_damage_of_keys_hides_no_repeated_key(tmp_path: Path) -> None:
    """Two shards with one key: each byte of its digest is needed to find it."""
    from exchangeruns import write_shard

    urls = [write_shard(tmp_path / f"{name}.tar", [("same", {name: b"1"})]) for name in ("a", "b")]
    for position in range(8):
        out = tmp_path / str(position)
        with pytest.raises(RepeatedKeyError), pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchanges, "remove_work", lambda folder: None)
            exchange(urls, out, slices=2, shards=1).run()
        path = out / "_exchange" / "run-000000.tar"
        offset = json.loads(path.with_name(path.name + ".done.json").read_text())["output"]["keys"][0] + position
        data = path.read_bytes()
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        with pytest.raises(DataError, match="run file is damaged"):
            exchange(urls, out, shards=1).run()
        assert gathered(out) == []
