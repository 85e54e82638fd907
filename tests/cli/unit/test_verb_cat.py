"""tarkit cat: one shard out of several, bytes untouched, everything checked."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit import read_samples
from tarkit.errors import DataError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.raw import RawArchive, copied_members
from tarkit.samples.sample import in_sample
from tarkit.steps.join import concatenate
from tarkit.store.publish import open_publish

Run = Callable[..., Any]
FOREIGN = Path(__file__).resolve().parents[2] / "formats" / "data" / "foreign"


def member(name: str, content: bytes = b"x", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info, content


def tar_of(
    *members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.GNU_FORMAT, pax_headers: dict[str, str] | None = None
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, pax_headers=pax_headers) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def body(archive: bytes) -> bytes:
    """All but the end-of-archive mark and the padding: the last member must end in a byte that is
    not zero.
    """
    stripped = archive.rstrip(b"\0")
    return archive[: len(stripped) + -len(stripped) % 512]


def write(folder: Path, **archives: bytes) -> list[Path]:
    paths = []
    for name, content in archives.items():
        paths.append(folder / f"{name}.tar")
        paths[-1].write_bytes(content)
    return paths


def test_bytes_are_untouched_and_padded_to_a_record(run: Run, tmp_path: Path) -> None:
    one = tar_of(
        member("dir", b"", type=tarfile.DIRTYPE, mode=0o755),
        member("dir/a.txt", b"A" * 700, mtime=1234567890, uname="somebody", uid=7),
        member("dir/link", b"", type=tarfile.SYMTYPE, linkname="a.txt"),
        member("dir/a.cls", b"1"),
        member("README", b"of no sample"),
        member("x" * 150 + ".txt", b"long name"),
    )
    two = tar_of(member("b.txt", b"B", pax_headers={"mtime": "12.5", "comment": "hi"}), format=tarfile.PAX_FORMAT)
    paths = write(tmp_path, one=one, two=two)
    out = tmp_path / "out.tar"
    result = run("tarkit", "cat", *paths, "-o", out)
    assert result.code == 0
    joined = body(one) + body(two)
    assert out.read_bytes() == joined + bytes(1024) + bytes(-(len(joined) + 1024) % 10240)
    assert "3 samples of 2 shards" in result.stderr
    assert "copied, though no part of a sample: no-extension 1, symlink 1" in result.stderr
    assert run("tarkit", "cat", *paths, stdin=b"").stdout == out.read_bytes()
    with tarfile.open(out) as archive:
        assert [info.name for info in archive][:3] == ["dir", "dir/a.txt", "dir/link"]


def test_members_after_the_last_sample_arecopied_members(run: Run, tmp_path: Path) -> None:
    one = tar_of(member("a.txt"), member("LICENSE", b"text"))
    two = tar_of(member("NOTICE", b"text"))
    three = tar_of(member("b.txt"))
    result = run("tarkit", "cat", "-q", *write(tmp_path, one=one, two=two, three=three))
    assert result.stderr == ""
    assert body(result.stdout) == body(one) + body(two) + body(three)


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.tar")), ids=lambda path: path.stem)
def test_archives_of_other_programs(path: Path, tmp_path: Path) -> None:
    """What they hold is listed by Python's tarfile the same before and after, also what is no plain
    file.
    """
    out = tmp_path / "out.tar"
    before = list(read_samples(str(path), on_damage="skip"))
    with open_publish(str(out)) as stream:
        joined = concatenate([str(path)], stream)
    after = list(read_samples(str(out), on_damage="skip"))
    assert [{**sample, "__url__": ""} for sample in after] == [{**sample, "__url__": ""} for sample in before]
    assert joined.samples == len(before)
    with tarfile.open(path, ignore_zeros=True) as one, tarfile.open(out) as other:
        assert [info.get_info() for info in other] == [info.get_info() for info in one]


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.tar")), ids=lambda path: path.stem)
def test_with_on_damage_skip_only_whole_samples_of_files_arecopied_members(path: Path, tmp_path: Path) -> None:
    out, tally = tmp_path / "out.tar", Tally()
    before = list(read_samples(str(path), on_damage="skip"))
    with open_publish(str(out)) as stream:
        concatenate([str(path)], stream, on_damage="skip", tally=tally)
    assert [{**sample, "__url__": ""} for sample in read_samples(str(out))] == [
        {**sample, "__url__": ""} for sample in before
    ]
    assert tally.lost_anything == (path.stem != "cat-of-two")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["txt", "folder", "noext", "link"]), st.integers(0, 2000)), max_size=12),
    st.integers(0, 12),
    st.integers(1, 3000),
)
def test_any_archive_cut_in_two_is_joined_again(kinds: list[tuple[str, int]], cut: int, step: int) -> None:
    made = []
    for number, (kind, size) in enumerate(kinds):
        name = {"txt": f"{number}.txt", "noext": f"{number}", "folder": f"{number}d", "link": f"{number}l"}[kind]
        if kind in ("txt", "noext"):
            made.append(member(name, b"z" * size))
        else:
            made.append(member(name, b"", type=tarfile.DIRTYPE if kind == "folder" else tarfile.SYMTYPE, linkname="x"))
    whole = body(tar_of(*made))
    joined = b"".join(tar_of(*part) for part in (made[:cut], made[cut:]))
    source = io.BytesIO(joined)
    found = bytearray()
    archive = RawArchive(lambda count: source.read(min(step, count)), "x", in_sample(), Tally(), [], found.extend)
    assert sum(1 for name, _, _ in copied_members(archive) if name) == sum(
        kind in ("txt", "noext") for kind, _ in kinds
    )
    assert found == whole


@pytest.mark.parametrize("more", [[], ["--raw"]])
def test_an_output_that_is_one_of_the_inputs(run: Run, tmp_path: Path, more: list[str]) -> None:
    one, two = write(tmp_path, one=tar_of(member("a.txt")), two=tar_of(member("b.txt")))
    (tmp_path / "link").symlink_to(one)
    for output in (one, tmp_path / "link"):
        result = run("tarkit", "cat", two, one, "-o", output, *more)
        assert result.code == 2 and "one.tar is an input, and " in result.stderr
        assert [sample["__key__"] for sample in read_samples(str(one))] == ["a"]


@pytest.mark.parametrize(
    "words", ["tarkit cat", "tarkit cat --raw", "tarkit convert --to tar", "tarkit create", "tarproc -c true"]
)
def test_an_output_in_a_folder_that_is_missing(run: Run, tmp_path: Path, words: str) -> None:
    result = run(*words.split(), "gone.tar", "-o", tmp_path / "new" / "x.tar")
    assert result.code == 2 and f"the folder {tmp_path}/new is missing; make it" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_ending_behind_tar_that_is_not_known(run: Run, tmp_path: Path) -> None:
    result = run("tarkit", "cat", "gone.tar", "-o", tmp_path / "x.tar.foo")
    assert result.code == 2 and "x.tar.foo: .foo is not written; name it .tar" in result.stderr


def test_key_in_two_shards(run: Run, tmp_path: Path) -> None:
    paths = write(tmp_path, one=tar_of(member("a.txt"), member("b.txt")), two=tar_of(member("a.txt")))
    out = tmp_path / "out.tar"
    result = run("tarkit", "cat", *paths, "-o", out)
    assert (result.code, out.exists()) == (65, False)
    assert "two.tar, key 'a': the key is in" in result.stderr and "one.tar too" in result.stderr
    assert "--on-repeated-key" not in result.stderr, "no program reads what that makes, without the option"
    allowed = run("tarkit", "cat", *paths, "-o", out, "--on-repeated-key", "allow")
    assert allowed.code == 0
    assert [s["__key__"] for s in read_samples(str(out), on_repeated_key="allow")] == ["a", "b", "a"]


def test_key_that_comes_back_in_one_shard(run: Run, tmp_path: Path) -> None:
    (path,) = write(tmp_path, one=tar_of(member("a.txt"), member("b.txt"), member("a.cls")))
    result = run("tarkit", "cat", path)
    assert result.code == 65 and "comes back" in result.stderr
    allowed = run("tarkit", "cat", path, "--on-repeated-key", "allow")
    assert allowed.code == 0 and "keys that came back in their shard: 1" in allowed.stderr
    assert body(allowed.stdout) == body(path.read_bytes())


def test_duplicate_field(run: Run, tmp_path: Path) -> None:
    (path,) = write(tmp_path, one=tar_of(member("a.txt"), member("a.txt", b"y")))
    result = run("tarkit", "cat", path)
    assert (
        result.code == 65
        and "is twice in one sample" in result.stderr
        and "tarproc --on-duplicate-field" in result.stderr
    )


def test_far_reaching_global_header(run: Run, tmp_path: Path) -> None:
    far = tar_of(member("a.txt"), format=tarfile.PAX_FORMAT, pax_headers={"mtime": "5", "comment": "c"})
    harmless = tar_of(member("b.txt"), format=tarfile.PAX_FORMAT, pax_headers={"comment": "c0ffee"})
    plain = tar_of(member("c.txt"))
    first, second, third = write(tmp_path, far=far, harmless=harmless, plain=plain)
    for policy in ("error", "skip"):
        result = run("tarkit", "cat", first, third, "--on-damage", policy)
        assert result.code == 65
        assert "far.tar, offset 0: a global extended header sets mtime for all members after it" in result.stderr
    assert run("tarkit", "cat", second, third, first).code == 0
    assert body(run("tarkit", "cat", second, third).stdout) == body(harmless) + body(plain)
    assert body(run("tarkit", "cat", first).stdout) == body(far)
    # Two archives in one input are as good as two inputs.
    assert run("tarkit", "cat", "-", stdin=far + plain).code == 65
    assert run("tarkit", "cat", "-", stdin=plain + far).code == 0


def test_damage(run: Run, tmp_path: Path) -> None:
    broken = bytearray(tar_of(*(member(f"{number}.txt", b"n") for number in range(6)), member("folder")))
    broken[2 * 1024 + 150] ^= 0xFF
    (path,) = write(tmp_path, broken=bytes(broken))
    out = tmp_path / "out.tar"
    result = run("tarkit", "cat", path, "-o", out)
    assert (result.code, out.exists()) == (65, False)
    assert "offset 2048" in result.stderr
    result = run("tarkit", "cat", path, "-o", out, "--on-damage", "skip", "-q")
    assert result.code == 3
    assert "damage: 1 stretch, 1024 bytes lost" in result.stderr
    assert "sample-beside-damage 2" in result.stderr and "no-extension 1" in result.stderr
    # The samples on both sides of the damage may be halves.
    assert [sample["__key__"] for sample in read_samples(str(out))] == ["0", "4", "5"]


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    archive = tar_of(member("a.txt", b"a" * 600), member("b" * 120 + ".txt"), member("d", b"", type=tarfile.DIRTYPE))
    archive = body(archive)
    path = tmp_path / "cut.tar"
    for size in range(0, len(archive), 64):
        path.write_bytes(archive[:size])
        with pytest.raises(DataError), open_publish(io.BytesIO()) as stream:
            concatenate([str(path)], stream)
        skipped = Tally()
        if size >= 512:
            with open_publish(out := io.BytesIO()) as stream:
                concatenate([str(path)], stream, on_damage="skip", tally=skipped)
            assert skipped.damage
            assert len(out.getvalue()) % 10240 == 0


def test_another_key_rule(run: Run, tmp_path: Path) -> None:
    (path,) = write(tmp_path, one=tar_of(member("a.0.txt"), member("b.0.txt"), member("a.1.txt")))
    assert run("tarkit", "cat", path).code == 65
    assert run("tarkit", "cat", path, "--key-rule", "last-dot").code == 0
    assert run("tarkit", "cat", path, "--key-rule", "(x").code == 2
