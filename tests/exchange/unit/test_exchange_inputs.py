"""Inputs as people have them: odd names, compressed, concatenated, damaged, missing."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from exchangeruns import exchange, files_of, gathered, keys_of, left_in, numbered_inputs, shards_of, tar_of, write_shard
from tarbuild import END, member, pax

from tarkit.errors import MissingInputError, TarkitError, UsageError
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.plan import Plan
from tarkit.exchange.shuffle import Shuffle
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.store.publish import open_publish


@pytest.mark.parametrize("suffix", ["tar.gz", "tar.zst", "tgz", "tar.bz2"])
def test_compressed_inputs(tmp_path: Path, suffix: str) -> None:
    plain = numbered_inputs(tmp_path / "in", [5, 3])
    packed = []
    for url in plain:
        name = url.removesuffix("tar") + suffix
        with open_publish(name) as out:
            out.write(Path(url).read_bytes())
        packed.append(name)
    assert os.path.getsize(packed[0]) != os.path.getsize(plain[0])
    exchange(plain, tmp_path / "a", slices=2).run()
    exchange(packed, tmp_path / "b", slices=2).run()
    assert [path.read_bytes() for path in shards_of(tmp_path / "a")] == [
        path.read_bytes() for path in shards_of(tmp_path / "b")
    ]


def test_concatenated_archives_and_gzip_members(tmp_path: Path) -> None:
    one, two = (Path(url).read_bytes() for url in numbered_inputs(tmp_path / "in", [4, 5]))
    (tmp_path / "both.tar").write_bytes(one + two)
    (tmp_path / "both.tgz").write_bytes(gzip.compress(one) + gzip.compress(two))
    for name in ("both.tar", "both.tgz"):
        out = tmp_path / f"out-{name}"
        exchange([str(tmp_path / name)], out, shards=1).run()
        (path,) = shards_of(out)
        assert len(keys_of(out)) == 9
        # A reader that stops at the first end mark sees all of them, too.
        with tarfile.open(path) as archive:
            assert len(archive.getnames()) == 18


@pytest.mark.parametrize("last", [False, True])
def test_a_global_header_is_refused(tmp_path: Path, last: bool) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 2, 2])
    path = Path(urls[2 if last else 0])
    path.write_bytes(pax({b"mtime": b"77", b"uname": b"x"}, kind=b"g") + path.read_bytes())
    for slices in (1, 3):
        with pytest.raises(TarkitError, match="global extended header sets mtime, uname") as raised:
            exchange(urls, tmp_path / str(slices), slices=slices).run()
        assert str(path) in str(raised.value)
        assert shards_of(tmp_path / str(slices)) == []


def test_a_comment_for_all_members_is_left_out(tmp_path: Path) -> None:
    """As git archive writes it."""
    urls = numbered_inputs(tmp_path / "in", [3, 2])
    exchange(urls, tmp_path / "a").run()
    for url in urls:
        Path(url).write_bytes(pax({b"comment": b"commit"}, kind=b"g") + Path(url).read_bytes())
    exchange(urls, tmp_path / "b").run()
    assert gathered(tmp_path / "a") == gathered(tmp_path / "b")


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_attributes_survive(tmp_path: Path, format: int) -> None:
    samples = [
        (f"{'d' * 90}/{number:03d}{'n' * 120}é", {"cls": b"%d" % number, "bin": bytes(700)}) for number in range(6)
    ]
    url = write_shard(tmp_path / "in.tar", samples, format)
    exchange([url], tmp_path / "out", shards=2).run()
    assert sorted(sample for shard in gathered(tmp_path / "out") for sample in shard) == samples
    for path in shards_of(tmp_path / "out"):
        assert len(open_indexed(str(path))) == 3


NAMES = [
    "a b",
    "new\nline",
    "100%",
    "%20",
    "tab\tx",
    "d/e f",
    "ü",
    "bad\udcff",
    ".x/y",
    "./k",
    "carriage\rreturn",
    "q'\"\\",
]


@pytest.mark.parametrize("rekey", [False, True])
def test_odd_names(tmp_path: Path, rekey: bool) -> None:
    files = [(os.fsencode(name) + b".cls", b"%d" % number) for number, name in enumerate(NAMES)]
    path = tmp_path / "in.tar"
    path.write_bytes(b"".join(member(*file) for file in files) + END)
    plain = tmp_path / "plain.tar"
    plain.write_bytes(member(b"p.cls", b"") + END)
    exchange([str(path), str(plain)], tmp_path / "out", shards=3, rekey=rekey).run()
    prefix = "000000/" if rekey else ""
    found = {key: fields["cls"] for shard in gathered(tmp_path / "out") for key, fields in shard}
    assert found.pop("000001/p" if rekey else "p") == b""
    assert found == {f"{prefix}{name}": b"%d" % number for number, name in enumerate(NAMES)}
    for shard in shards_of(tmp_path / "out"):
        # The index that was written with the shard is the one that is made by reading it.
        assert shard.with_suffix(".idx").read_bytes() == build_index(str(shard)).encode()
        assert len(open_indexed(str(shard))) > 0


def test_members_of_no_sample_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(
        member(b"README", b"r") + member(b"a.cls", b"1") + member(b"._a.cls", b"x") + member(b"a.txt", b"2")
        + member(b"d/", kind=b"5") + member(b"__m__/x.json", b"{}") + END
    )  # fmt: skip
    result = exchange([str(path)], tmp_path / "out", shards=1).run()
    assert gathered(tmp_path / "out") == [[("a", {"cls": b"1", "txt": b"2"})]]
    assert result.counts.read == 1
    assert sum(result.counts.met.skipped.values()) == 4


def damage_header(data: bytes) -> bytes:
    return data[:2048] + b"\xff" + data[2049:]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:5000], damage_header, lambda data: b"", lambda data: b"not a tar" * 100],
    ids=["cut", "header", "empty", "text"],
)  # fmt: skip
def test_damage_is_found_before_anything_is_gathered(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4, 4])
    path = Path(urls[2])
    good = path.read_bytes()
    path.write_bytes(damage(good))
    run = exchange(urls, tmp_path / "out", slices=4)
    with pytest.raises(TarkitError) as raised:
        run.run()
    assert raised.value.exit_code == 65
    text = str(raised.value)
    assert str(path) in text and "offset" in text and "nothing was gathered" in text and "\n" not in text
    assert shards_of(tmp_path / "out") == []
    assert "run the same command again" in text
    path.write_bytes(good)
    exchange(urls, tmp_path / "out").run()
    assert len(keys_of(tmp_path / "out")) == 16


def test_two_damaged_slices(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 2, 2])
    for url in urls[1:]:
        Path(url).write_bytes(Path(url).read_bytes()[:700])
    with pytest.raises(TarkitError, match=r"in-001\.tar.*and 1 more slice") as raised:
        exchange(urls, tmp_path / "out", slices=3).run()
    assert raised.value.exit_code == 65


def test_a_missing_input(tmp_path: Path) -> None:
    urls = [*numbered_inputs(tmp_path / "in", [3]), str(tmp_path / "in" / "gone.tar")]
    with pytest.raises(MissingInputError, match=r"gone\.tar") as raised:
        exchange(urls, tmp_path / "out").run()
    assert raised.value.exit_code == 66
    assert not (tmp_path / "out").exists()


def test_an_input_that_can_be_read_only_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can be read only once"):
        exchange(["pipe:cat x.tar"], tmp_path / "out").run()


def test_inputs_in_the_folder_of_the_outputs(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3])
    for out, work in ((tmp_path / "in", None), (tmp_path / "out", tmp_path / "in")):
        with pytest.raises(UsageError):
            exchange(urls, out, work=work).run()
    assert os.listdir(tmp_path / "in") == ["in-000.tar"]


def test_an_input_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 3])
    seen: list[int] = []

    def check(self: Plan, shard: int, url: str, real: Callable[..., None] = Plan.check_identity) -> None:
        seen.append(shard)
        if seen.count(1) == 2:
            path = Path(url)
            path.with_name("new").write_bytes(path.read_bytes())
            path.with_name("new").replace(path)
        real(self, shard, url)

    monkeypatch.setattr(Plan, "check_identity", check)
    with pytest.raises(TarkitError, match=r"in-001\.tar.*changed after the exchange had begun") as raised:
        exchange(urls, tmp_path / "out").run()
    assert raised.value.exit_code == 75
    assert shards_of(tmp_path / "out") == []
    monkeypatch.undo()
    exchange(urls, tmp_path / "out").run()
    assert len(keys_of(tmp_path / "out")) == 6


def test_an_input_that_is_replaced_between_the_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gather does not need it: outputs are those of the plan. The next run is of other inputs."""
    urls = numbered_inputs(tmp_path / "in", [3, 3])
    exchange(urls, tmp_path / "right").run()

    def replaced(self: Exchange, *given: object, real: Callable[..., object] = Exchange._gather_all) -> object:
        write_shard(Path(urls[0]), [("other", {"cls": b""})])
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "_gather_all", replaced)
        exchange(urls, tmp_path / "out").run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    with pytest.raises(UsageError, match="of another run"):
        exchange(urls, tmp_path / "out").run()


def test_many_tiny_samples_under_little_memory(tmp_path: Path) -> None:
    urls = [
        write_shard(tmp_path / f"{shard}.tar", [(f"{shard}-{n}", {"c": b""}) for n in range(800)]) for shard in (0, 1)
    ]
    for mem in (1 << 26, 30_000):
        exchange(urls, tmp_path / str(mem), Shuffle(1), mem=mem, shards=3).run()
    assert files_of(tmp_path / "30000") == files_of(tmp_path / str(1 << 26))


def test_samples_larger_than_the_memory(tmp_path: Path) -> None:
    urls = [write_shard(tmp_path / "in.tar", [(f"k{n}", {"bin": bytes([n]) * (90_000 * (n % 3))}) for n in range(12)])]
    for mem in (1 << 26, 20_000):
        exchange(urls, tmp_path / str(mem), Shuffle(1), mem=mem, shards=3).run()
    assert files_of(tmp_path / "20000") == files_of(tmp_path / str(1 << 26))


def test_a_sample_above_32_mib(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    large = member(b"b.bin", b"y" * (33 << 20))
    path.write_bytes(member(b"a.cls", b"1") + member(b"b.aaa", b"2") + large + member(b"c.cls", b"3") + END)
    exchange([str(path)], tmp_path / "out", Shuffle(2), shards=1, block_size=100_000).run()
    found = dict(gathered(tmp_path / "out")[0])
    assert {key: [*fields] for key, fields in found.items()} == {"a": ["cls"], "b": ["aaa", "bin"], "c": ["cls"]}
    assert found["b"] == {"aaa": b"2", "bin": b"y" * (33 << 20)}
    run = (tmp_path / "out" / "shard-000000.tar").read_bytes()
    assert large in run
    assert left_in(tmp_path) == []


def test_memory_as_a_store(tmp_path: Path) -> None:
    """Inputs, outputs and work folder in fsspec's memory: the same bytes as on a disk."""
    urls = numbered_inputs(tmp_path / "in", [5, 4, 6])
    exchange(urls, tmp_path / "out", slices=3).run()
    files = fsspec.filesystem("memory")
    files.store.clear()
    for url in urls:
        files.pipe(f"/in/{os.path.basename(url)}", Path(url).read_bytes())
    from tarkit.exchange.settings import ExchangeSettings

    Exchange(
        Shuffle(0), [f"memory://in/{os.path.basename(url)}" for url in urls], "memory://out", ExchangeSettings(shards=3)
    ).run()
    names = sorted(os.path.basename(name) for name in files.find("/"))
    assert [name for name in names if name.startswith("shard-") and name.endswith(".tar")] == [
        f"shard-{number:06d}.tar" for number in range(3)
    ]
    assert not [name for name in names if name.startswith(("run-", "plan"))]
    for path in shards_of(tmp_path / "out"):
        assert files.cat(f"/out/{path.name}") == path.read_bytes()
    files.store.clear()


def test_empty_archive_of_tarfile(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of([]))
    assert exchange([str(tmp_path / "in.tar")], tmp_path / "out", maxcount=3).run().outputs == 0


def test_a_damaged_index_beside_an_input_does_not_matter(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3])
    Path(urls[0]).with_suffix(".idx").write_text("nonsense")
    exchange(urls, tmp_path / "out").run()
    assert len(keys_of(tmp_path / "out")) == 3


def test_a_duplicate_field_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(member(b"a.cls", b"1") + member(b"a.cls", b"2") + END)
    with pytest.raises(TarkitError, match=r"in\.tar.*cls") as raised:
        exchange([str(tmp_path / "in.tar")], tmp_path / "out", shards=1).run()
    assert raised.value.exit_code == 65
