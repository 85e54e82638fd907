"""salvaged_samples saves exactly the whole samples, and reports each stretch between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tarbuild
from planted import SPAN, flipped, member, plain_samples, shard
from tarbuild import END

from tarkit.errors import RepeatedKeyError
from tarkit.formats.tally import Tally
from tarkit.steps.salvage import Lost, salvaged_samples

Change = Callable[[bytes], bytes]


def saved(path: Path, data: bytes) -> tuple[list[str], list[Lost]]:
    path.write_bytes(data)
    lost: list[Lost] = []
    return [sample["__key__"] for sample in salvaged_samples([str(path)], lost.append, tally=Tally())], lost


DAMAGE: dict[str, tuple[Change, str, list[tuple[int | None, int | None, str | None, str | None]]]] = {
    "nothing": (lambda data: data, "012345", []),
    "cut in a member": (lambda data: data[: 3 * SPAN + 512], "012", [(3 * SPAN, 3 * SPAN + 512, "a-2", None)]),
    "no end mark": (lambda data: data[: -len(END)], "01234", [(6 * SPAN, 6 * SPAN, "a-4", None)]),
    "a second header": (
        lambda data: flipped(data, 2 * SPAN + 1024),
        "0145",
        [(2 * SPAN + 1024, 3 * SPAN, "a-1", "a-4")],
    ),
    "a first header": (lambda data: flipped(data, 2 * SPAN), "0345", [(2 * SPAN, 2 * SPAN + 1024, "a-0", "a-3")]),
    "two headers": (
        lambda data: flipped(flipped(data, 0), 4 * SPAN + 1024),
        "123",
        [(0, 1024, None, "a-1"), (4 * SPAN + 1024, 5 * SPAN, "a-3", None)],
    ),
    "a hard link": (
        lambda data: data[:SPAN] + tarbuild.member(b"a-0.jpg", kind=b"1") + data[SPAN:],
        "12345",
        [(None, None, None, "a-1")],
    ),
    "not a tar": (lambda data: b"<html>" + data, "", [(0, None, None, None)]),
    "an empty file": (lambda data: b"", "", [(0, None, None, None)]),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_exactly_the_whole_samples_are_saved(tmp_path: Path, what: str) -> None:
    change, kept, stretches = DAMAGE[what]
    keys, lost = saved(tmp_path / "a.tar", change(shard(plain_samples("a", 6))))
    assert "".join(key[-1] for key in keys) == kept
    assert [(each.start, each.end, each.after, each.before) for each in lost] == stretches
    assert all(each.shard == str(tmp_path / "a.tar") and each.reason for each in lost)


def test_random_damage_never_alters_a_saved_sample(tmp_path: Path) -> None:
    chance = random.Random(5)
    samples = plain_samples("a", 30)
    whole = shard(samples)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            # In the headers, which have checksums; in contents no reader can see it.
            at = chance.randrange(30) * SPAN + chance.choice((0, 1024)) + chance.randrange(250)
            data[at] ^= 1 << chance.randrange(8)
        path = tmp_path / "a.tar"
        path.write_bytes(bytes(data))
        lost: list[Lost] = []
        kept = {
            sample.pop("__key__"): {name: value for name, value in sample.items() if name != "__url__"}
            for sample in salvaged_samples([str(path)], lost.append, tally=Tally())
        }
        assert lost and 18 <= len(kept) < 30
        assert all(samples[key] == fields for key, fields in kept.items())


def test_a_loss_is_a_line(tmp_path: Path) -> None:
    _, (lost,) = saved(tmp_path / "a.tar", flipped(shard(plain_samples("a", 4)), SPAN))
    place = f"{tmp_path}/a.tar: offset 2048 to 3072, between the beginning and key a-2: "
    assert str(lost) == f"{place}damaged header: its checksum does not match" and lost.samples == 2
    _, (lost,) = saved(tmp_path / "b.tar", PNG := b"\x89PNG\r\n\x1a\n" + bytes(600))
    assert str(lost).startswith(f"{tmp_path}/b.tar: offset 0 to the end, between the beginning and the end: not a tar")
    assert PNG


def test_a_repeated_key_is_an_error_or_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(shard({"a": {"x": b"1"}, "b": {"x": b"2"}}, end=b"") + member("a.x", b"3") + END)
    with pytest.raises(RepeatedKeyError):
        list(salvaged_samples([str(path)], print))
    assert len(list(salvaged_samples([str(path)], print, on_repeated_key="allow"))) == 3
