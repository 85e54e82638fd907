"""Dedup: what stays is what a plain computation keeps, whatever the slices and processes."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dedupruns import dedup, files_of, first_of_each, outputs_of, repeating_inputs, write_tar
from traced import traced_peak

from tarkit.errors import DataError, TarkitError, TemporaryStreamError, UsageError
from tarkit.exchange import dedup as dedup_module
from tarkit.exchange.dedup import Dedup
from tarkit.exchange.dedupslices import DedupSlice
from tarkit.exchange.digests import Digests, content_digest
from tarkit.exchange.exchange import SlicesFailedError, TooManyFailedError
from tarkit.exchange.filtering import DedupResult
from tarkit.extras import MissingExtraError


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return repeating_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize(
    ("by", "content"),
    [
        (("bin",), lambda fields: fields["bin"]),
        (("cls", "bin"), lambda fields: (fields["bin"], fields["cls"])),
        ((), lambda fields: tuple(sorted(fields.items()))),
    ],
)
def test_the_first_sample_of_each_content_stays(
    inputs: list[str], tmp_path: Path, by: tuple[str, ...], content: Callable[[dict[str, bytes]], object]
) -> None:
    result = dedup(inputs, tmp_path / "out", *by).run()
    wanted = first_of_each(inputs, content)
    assert outputs_of(inputs, tmp_path / "out") == wanted
    stays = sum(map(len, wanted))
    counts = result.counts
    assert 0 < stays < 237
    assert (counts.read, counts.out, counts.filtered, counts.failed) == (237, stays, 237 - stays, 0)
    assert result.dropped == {"duplicates": 237 - stays} and counts.exit_code == 0


def test_fields_are_compared_by_name_and_content(tmp_path: Path) -> None:
    samples = [
        ("a", {"x": b"12", "y": b"3"}), ("b", {"x": b"1", "y": b"23"}), ("c", {"x": b"3", "y": b"12"}),
        ("d", {"y": b"3", "x": b"12"}), ("e", {"x": b"12"}), ("f", {"y": b"12"}), ("g", {"z": b"12"}),
    ]  # fmt: skip
    urls = [write_tar(tmp_path / "in.tar", samples)]
    dedup(urls, tmp_path / "out").run()
    assert [key for key, _ in outputs_of(urls, tmp_path / "out")[0]] == ["a", "b", "c", "e", "f", "g"]


def test_a_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    from tarkit.store.fieldfile import FieldFile

    assert content_digest(FieldFile.keep([b"ab", b"c"])) == content_digest(b"abc")


def test_samples_without_the_field_fail_or_are_kept(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "one.tar", [("a", {"x": b"1"}), ("b", {"y": b"1"}), ("c", {"x": b"1"})])
    two = write_tar(tmp_path / "two.tar", [("d", {"y": b"1"}), ("e", {"x": b"2"})])
    result = dedup([one, two], tmp_path / "failed", "x").run()
    counts = result.counts
    assert (counts.read, counts.out, counts.filtered, counts.failed, counts.exit_code) == (5, 2, 1, 2, 3)
    assert outputs_of([one, two], tmp_path / "failed") == [[("a", {"x": b"1"})], [("e", {"x": b"2"})]]
    with tarfile.open(tmp_path / "failed" / "two.tar.failed.tar") as archive:
        assert archive.extractfile("d.__error__.txt").read() == b"without x; it has y\n"  # type: ignore[union-attr]
    result = dedup([one, two], tmp_path / "kept", "x", missing="keep").run()
    assert [key for shard in outputs_of([one, two], tmp_path / "kept") for key, _ in shard] == ["a", "b", "d", "e"]
    assert (result.counts.out, result.counts.exit_code, result.kept) == (4, 0, {"without x": 2})
    assert result.first_kept == {"without x": f"b of {one}"}


def test_a_field_that_no_sample_has_is_an_error(inputs: list[str], tmp_path: Path) -> None:
    with pytest.raises(TooManyFailedError, match=r"237 of 237 samples failed, the first: .*without jpg; it has bin"):
        dedup(inputs, tmp_path / "a", "jpg", max_errors="100%").run()
    with pytest.raises(DataError, match=r"no sample can be compared, the first: key 's0/n000': without jpg"):
        dedup(inputs, tmp_path / "b", "jpg", missing="keep").run()
    assert not [*tmp_path.glob("*/*.tar")]


def test_a_shard_of_nothing_but_duplicates_is_written_empty(tmp_path: Path) -> None:
    urls = [write_tar(tmp_path / f"{name}.tar", [(name, {"x": b"1"})]) for name in "abc"]
    result = dedup(urls, tmp_path / "out", "x").run()
    assert result.emptied == ["b.tar", "c.tar"]
    assert outputs_of(urls, tmp_path / "out") == [[("a", {"x": b"1"})], [], []]


def test_compressed_shards_and_members_of_no_sample(tmp_path: Path) -> None:
    samples = [("a", {"x": b"1"}), ("b", {"x": b"1"})]
    urls = [write_tar(tmp_path / "one.tar.gz", [*samples, ("._a", {"x": b"1"})])]
    result = dedup(urls, tmp_path / "out", "x").run()
    assert {*files_of(tmp_path / "out")} == {"one.tar.gz", "one.tar.gz.done.json"}
    with tarfile.open(tmp_path / "out" / "one.tar.gz", "r:gz") as archive:
        assert archive.getnames() == ["a.x"]
    assert sum(result.counts.met.skipped.values()) == 1


def test_a_second_run_does_nothing_and_one_with_a_list_only_lists(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = dedup(inputs, out, "bin", listing=str(tmp_path / "a.jsonl")).run()
    times = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    for listing in (None, str(tmp_path / "b.jsonl")):
        again = dedup(inputs, out, "bin", listing=listing).run()
        assert (again.done, again.done_before, again.counts.filtered) == (0, 5, first.counts.filtered)
        now = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if not path.name.startswith(".tarkit")}
        assert now.items() <= times.items()
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


class _Killed(BaseException):
    """Ends a run as a kill does: nothing is caught, and no record of a failure is written."""


def killed_after(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The ``number``-th publication of a record ends the run before or after it."""
    from tarkit.runs.donerecord import DoneRecord

    publish, count = DoneRecord.publish, iter(range(1000))

    def counted(record: DoneRecord, url: str) -> None:
        found = next(count)
        if found == number // 2:
            if number % 2:
                publish(record, url)
            raise _Killed
        publish(record, url)

    monkeypatch.setattr(DoneRecord, "publish", counted)


def test_a_run_that_was_ended_anywhere_resumes_to_the_same_bytes(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = tmp_path / "gone.jsonl"
    dedup(inputs, tmp_path / "whole", "bin", listing=str(listing)).run()
    expected, lines = files_of(tmp_path / "whole"), listing.read_bytes()
    # Records of 2 slices, 2 parts and 5 outputs.
    for number in range(18):
        out = tmp_path / f"out-{number}"
        with monkeypatch.context() as patched:
            killed_after(patched, number)
            with pytest.raises(_Killed):
                dedup(inputs, out, "bin", slices=2).run()
        listing.unlink()
        dedup(inputs, out, "bin", listing=str(listing)).run()
        assert files_of(out) == expected, number
        assert listing.read_bytes() == lines


def test_nothing_but_the_list_is_written_by_a_dry_run(inputs: list[str], tmp_path: Path) -> None:
    result = dedup(inputs, tmp_path / "out", "bin", listing=str(tmp_path / "a.jsonl"), dry_run=True).run()
    assert not (tmp_path / "out").exists()
    real = dedup(inputs, tmp_path / "out", "bin", listing=str(tmp_path / "b.jsonl")).run()
    assert result.counts.as_dict() == real.counts.as_dict() and result.dropped == real.dropped
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_forced_run_that_was_ended_resumes_with_force_alone(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    dedup(inputs, out, "bin").run()
    dedup(inputs[1:], tmp_path / "new").run()
    with monkeypatch.context() as patched:
        killed_after(patched, 9)
        with pytest.raises(_Killed):
            dedup(inputs[1:], out, force=True, slices=2).run()
    with pytest.raises(UsageError, match=r"out has 1 shard of another run, such as in-0\.tar; .*--force"):
        dedup(inputs[1:], out).run()
    dedup(inputs[1:], out, force=True).run()
    assert files_of(out) == files_of(tmp_path / "new")


def test_shards_of_another_run_are_replaced_only_by_force(inputs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    dedup(inputs, out, "bin").run()
    with pytest.raises(UsageError, match=r"out has 5 shards of another run, such as in-0.tar; .*--force"):
        dedup(inputs, out).run()
    with pytest.raises(UsageError, match=r"out has 5 shards of another run"):
        dedup(inputs[:2], out, "bin").run()
    dedup(inputs[:2], out, force=True).run()
    dedup(inputs[:2], tmp_path / "new").run()
    assert files_of(out) == files_of(tmp_path / "new")
    assert len([*out.glob(".tarkit-run-*")]) == 1


@pytest.mark.parametrize("number", [3, 8, 12])
def test_marks_of_a_changed_input_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    urls = [write_tar(tmp_path / f"{name}.tar", [(name, {"x": b"1"})]) for name in "abc"]
    with monkeypatch.context() as patched:
        killed_after(patched, number)
        with pytest.raises(_Killed):
            dedup(urls, tmp_path / "out", "x", slices=3).run()
    write_tar(tmp_path / "b.tar", [("b", {"x": b"1"}), ("new", {"x": b"2"})])
    dedup(urls, tmp_path / "out", "x").run()
    assert [key for shard in outputs_of(urls, tmp_path / "out") for key, _ in shard] == ["a", "new"]


def test_marks_without_a_plan_are_replaced(inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the slower one of two runs leaves them, if it is killed."""
    with monkeypatch.context() as patched:
        killed_after(patched, 7)
        with pytest.raises(_Killed):
            dedup(inputs, tmp_path / "out", "bin", slices=2).run()
    work = tmp_path / "out" / "_exchange"
    (work / "plan.json").unlink()
    assert (work / "match-000001.tar.done.json").exists()
    dedup(inputs, tmp_path / "out", "bin").run()
    assert not work.exists()


def test_a_changed_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [write_tar(tmp_path / f"{name}.tar", [(name, {"x": b"1"})]) for name in "abc"]
    with monkeypatch.context() as patched:
        killed_after(patched, 13)
        with pytest.raises(_Killed):
            dedup(urls, tmp_path / "out", "x", slices=3).run()
    write_tar(tmp_path / "b.tar", [("b", {"x": b"1"}), ("new", {"x": b"2"})])
    with pytest.raises(UsageError, match=r"b.tar was changed since this exchange was begun, and shards .*--force"):
        dedup(urls, tmp_path / "out", "x").run()
    dedup(urls, tmp_path / "out", "x", force=True).run()
    assert [key for shard in outputs_of(urls, tmp_path / "out") for key, _ in shard] == ["a", "new"]


def test_an_input_that_changes_between_the_stages_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [write_tar(tmp_path / f"{name}.tar", [(name, {"x": name.encode()})]) for name in "ab"]
    found = Dedup.filter

    def changed(self: Dedup, *arguments: Any) -> DedupResult:
        write_tar(tmp_path / "b.tar", [("b", {"x": b"a"}), ("c", {"x": b"a"})])
        return found(self, *arguments)

    monkeypatch.setattr(dedup_module.Dedup, "filter", changed)
    with pytest.raises(TarkitError, match=r"b.tar: the input was changed after the exchange had begun"):
        dedup(urls, tmp_path / "out", "x").run()
    assert not (tmp_path / "out" / "b.tar").exists()


def test_a_damaged_input_ends_the_run_before_anything_is_written(inputs: list[str], tmp_path: Path) -> None:
    data = Path(inputs[0]).read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(data[:5000])
    with pytest.raises(SlicesFailedError, match=r"cut.tar") as caught:
        dedup([*inputs, str(cut)], tmp_path / "out", "bin", slices=6).run()
    assert caught.value.exit_code == 65
    assert not [*(tmp_path / "out").glob("*.tar")]


def test_a_damaged_file_of_marks_is_an_error(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        killed_after(patched, 7)
        with pytest.raises(_Killed):
            dedup(inputs, tmp_path / "out", "bin", slices=2).run()
    marks = tmp_path / "out" / "_exchange" / "match-000001.tar"
    data = bytearray(marks.read_bytes())
    data[700] ^= 1
    marks.write_bytes(data)
    with pytest.raises(TarkitError, match=r"match-000001.tar, .*a block has another checksum; remove it") as caught:
        dedup(inputs, tmp_path / "out", "bin").run()
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(
    ("by", "perceptual", "missing", "reason"),
    [
        (("a", "a"), None, "error", "'a,a' must be names of fields, each once"),
        (("a", ""), None, "error", "'a,' must be names of fields"),
        (("a",), "jpg", "error", "not by both"),
        ((), None, "drop", "missing"),
    ],
)
def test_options_that_are_not_valid(by: tuple[str, ...], perceptual: str | None, missing: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Digests(by, perceptual, missing)


def test_places_that_are_not_valid(inputs: list[str], tmp_path: Path) -> None:
    folder = Path(inputs[0]).parent
    with pytest.raises(UsageError, match=r"in-0.tar is in .*, a folder that will be replaced"):
        dedup(inputs, folder, "bin")
    with pytest.raises(UsageError, match=r"would both become in-0.tar"):
        dedup([inputs[0], write_tar(tmp_path / "in-0.tar", [])], tmp_path / "out", "bin")
    with pytest.raises(UsageError, match=r"in-0.tar is an input, and an output too"):
        dedup(inputs, tmp_path / "out", "bin", listing=inputs[0])
    with pytest.raises(UsageError, match=r"there are no input shards"):
        dedup([], tmp_path / "out", "bin")


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        urls = [
            write_tar(
                tmp_path / f"{count}-{first}.tar", [(f"{first + at}", {"x": b"%d" % (at % 300)}) for at in range(400)]
            )
            for first in range(0, count, 400)
        ]
        with traced_peak() as most:
            dedup(urls, tmp_path / f"out-{count}", "x", mem=500_000, index=False).run()
            return most()

    peak(400)
    assert peak(4000) < peak(1200) + 200_000


def test_the_library_of_perceptual_hashes_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imagehash", None)
    with pytest.raises(MissingExtraError, match=r"pip install imagehash .*'dedup'"):
        Digests((), "jpg")


def picture(seed: int, size: int = 64, format: str = "PNG", quality: int = 95) -> bytes:
    from PIL import Image

    draw = random.Random(seed)
    small = Image.new("L", (6, 6))
    small.putdata([draw.randrange(256) for _ in range(36)])
    stream = io.BytesIO()
    small.resize((size, size), Image.Resampling.BICUBIC).save(stream, format, quality=quality)
    return stream.getvalue()


def test_pictures_with_equal_hashes_are_equal_and_broken_ones_are_kept(tmp_path: Path) -> None:
    imagehash = pytest.importorskip("imagehash", reason="PERCEPTUAL HASHES ARE NOT TESTED: pip install imagehash")
    from PIL import Image

    contents = [
        picture(seed, size, kind) for size, kind in ((64, "PNG"), (64, "JPEG"), (200, "PNG")) for seed in (1, 2)
    ]
    contents += [contents[0][:90], contents[0][:90], b"not a picture", contents[0]]
    urls = [write_tar(tmp_path / "in.tar", [(f"{at}", {"img": each}) for at, each in enumerate(contents)])]
    seen, wanted = set(), []
    for at, content in enumerate(contents):
        try:
            found = str(imagehash.phash(Image.open(io.BytesIO(content))))
        except (OSError, SyntaxError):
            found = f"broken {at}"
        if found not in seen:
            wanted.append(f"{at}")
        seen.add(found)
    listing = tmp_path / "gone.jsonl"
    result = dedup(urls, tmp_path / "out", perceptual="img", listing=str(listing)).run()
    assert [key for key, _ in outputs_of(urls, tmp_path / "out")[0]] == wanted
    assert {"0", "1", "6", "7", "8"} <= {*wanted} and "9" not in wanted and len(wanted) < 9
    assert result.kept == {"not a picture that can be decoded": 3} and result.counts.exit_code == 0
    lines = [json.loads(line) for line in listing.read_text().splitlines()]
    assert {len(each["digest"]) for each in lines} == {16}


def slice_of(inputs: list[str], out: Path, **options: Any) -> DedupSlice:
    return DedupSlice(Digests(("bin",)), inputs, str(out), mem=1 << 26, **options)


def test_slices_of_the_stages_give_the_same_bytes(inputs: list[str], tmp_path: Path) -> None:
    dedup(inputs, tmp_path / "whole", "bin", listing=str(tmp_path / "a.jsonl")).run()
    out, listing = tmp_path / "out", tmp_path / "b.jsonl"
    made = slice_of(inputs, out, listing=str(listing))
    scattered = [made.scatter(number, 4) for number in range(4)]
    assert sum(each.counts.read for each in scattered) == 237
    assert made.scatter(2, 4).done_before == 1
    for number in range(3):
        made.match(number, 3)
    gathered = [made.gather(number, 2) for number in (1, 0)]
    assert sum(each.counts.read for each in gathered) == 237
    assert files_of(out) == files_of(tmp_path / "whole")
    assert listing.read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert not (out / "_exchange").exists()
    assert (made.gather(1, 2).done, made.gather(1, 2).done_before) == (0, len(inputs) - len(inputs) // 2)


def test_a_slice_waits_for_the_stage_before_and_names_what_is_missing(inputs: list[str], tmp_path: Path) -> None:
    made, waits = slice_of(inputs, tmp_path / "out"), list[float]()
    with pytest.raises(TemporaryStreamError, match=r"slice 0 has not made the plan yet; wait longer \(--wait"):
        made.scatter(1, 2)
    made.scatter(0, 2)
    with pytest.raises(TemporaryStreamError, match=r"1 slice of 2 not scattered yet \(1\)"):
        made.match(0, 2)
    made.scatter(1, 2)
    made.match(1, 2)
    now = iter(range(0, 1000, 30))
    made.wait, made.clock, made.sleep = 60, lambda: next(now), waits.append
    with pytest.raises(TemporaryStreamError, match=r"1 part of 2 not matched yet \(0\)"):
        made.gather(0, 1)
    assert len(waits) == 1
    assert not [*(tmp_path / "out").glob("*.tar")]


def test_slices_refuse_the_shards_of_another_run(inputs: list[str], tmp_path: Path) -> None:
    dedup(inputs, tmp_path / "out").run()
    with pytest.raises(UsageError, match=r"out has 5 shards of another run"):
        slice_of(inputs, tmp_path / "out").scatter(0, 2)


def test_a_slice_of_a_damaged_input_fails(inputs: list[str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(Path(inputs[0]).read_bytes()[:5000])
    made = slice_of([str(cut), *inputs[1:]], tmp_path / "out")
    with pytest.raises(SlicesFailedError, match=r"cut\.tar"):
        made.scatter(0, 2)
    made.scatter(1, 2)
    with pytest.raises(TemporaryStreamError, match=r"1 slice of 2 not scattered yet \(0\); one has failed: .*cut\.tar"):
        made.match(0, 1)


@pytest.mark.parametrize("end", ["", ".done.json", ".failed.tar", ".idx"])
def test_the_listing_is_not_a_file_of_an_output(inputs: list[str], tmp_path: Path, end: str) -> None:
    """The output would replace it without a word."""
    name = Path(inputs[0]).name
    name = f"{name.removesuffix('.tar')}.idx" if end == ".idx" else name + end
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="is a file of an output; name another one for the report"):
        dedup(inputs, tmp_path / "out", "bin", listing=str(tmp_path / "out" / name))
    dedup(inputs, tmp_path / "out", "bin", listing=str(tmp_path / "out" / "gone.jsonl"))
