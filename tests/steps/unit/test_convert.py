"""Shards to record files and back, by the library and by the program."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tarkit
from tarkit.errors import (
    DataError,
    EncodeError,
    MissingInputError,
    RepeatedKeyError,
    TooLargeError,
    TruncatedError,
    UsageError,
)
from tarkit.formats import tfrecord
from tarkit.formats.example import BytesList, decode_example, encode_example, encode_sequence_example
from tarkit.formats.recordio import RecordWriter, read_records
from tarkit.formats.registry import (
    FORMATS,
    format_module,
    format_of,
    holds_rows,
    input_files,
    named_writer,
    read_named,
)
from tarkit.formats.sequencefile import PairWriter, read_pairs
from tarkit.formats.tally import Tally
from tarkit.steps.convert import VerifyError, convert
from tarkit.steps.encoding import Encoding, field_of_name, name_of_field

RECORDS = [name for name in FORMATS if not holds_rows(name)]
FORMS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
names = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.(jpg|cls|txt)", fullmatch=True)
files = st.lists(st.tuples(names, st.binary(max_size=700)), unique_by=lambda file: file[0], max_size=12)


def write_tar(path: Path, files: list[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    with tarfile.open(path, "w", format=form) as tar:
        folder = tarfile.TarInfo("images")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_600_000_000
            tar.addfile(info, io.BytesIO(content))
    return path.read_bytes()


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    with tarkit.TarWriter(f"{tmp_path}/in.tar") as sink:
        for number in range(20):
            sink.write({"__key__": f"k{number:02d}", "cls": number, "txt": "x" * number})
    return tmp_path / "in.tar"


@pytest.mark.parametrize("to", RECORDS)
@settings(max_examples=25)
@given(files=files, form=st.sampled_from(FORMS))
def test_a_tar_comes_back_byte_for_byte(
    to: str, tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, bytes]], form: int
) -> None:
    folder = tmp_path_factory.mktemp("convert")
    tar = write_tar(folder / "in.tar", sorted(files), form)
    convert(f"{folder}/in.tar", f"{folder}/records.{to}", to, Encoding(piece=True), verify=True)
    convert(f"{folder}/records.{to}", f"{folder}/out.tar", "tar", Encoding(piece=True), verify=True)
    assert (folder / "out.tar").read_bytes() == tar


@pytest.mark.parametrize("to", RECORDS)
@pytest.mark.parametrize(
    "encoding",
    [Encoding(), Encoding(field="txt"), Encoding(example=True), Encoding(piece=True)],
    ids=["default", "field", "example", "piece"],
)
def test_each_format_and_encoding_there_and_back(shard: Path, to: str, encoding: Encoding) -> None:
    folder = shard.parent
    tally = Tally()
    records = 40 if to == "har" and encoding.is_default else 20
    assert convert(str(shard), f"{folder}/r.{to}", to, encoding, verify=True) == records
    assert format_of(f"{folder}/r.{to}") == to
    assert convert(f"{folder}/r.{to}", f"{folder}/back.tar.gz", "tar", encoding, verify=True, tally=tally) == 20
    before, after = (list(tarkit.read_samples(str(path))) for path in (shard, folder / "back.tar.gz"))
    assert [sample["txt"] for sample in after] == [sample["txt"] for sample in before]
    if encoding.field is None or to not in ("recordio", "tfrecord"):
        assert [sample["__key__"] for sample in after] == [sample["__key__"] for sample in before]
    if encoding.field is None:
        assert [(sample["__key__"], sample["cls"]) for sample in after] == [
            (sample["__key__"], sample["cls"]) for sample in before
        ]


def test_records_are_what_other_programs_read(shard: Path) -> None:
    convert(str(shard), f"{shard.parent}/a", "recordio", Encoding(field="cls"))
    assert list(read_records(f"{shard.parent}/a")) == [b"%d" % number for number in range(20)]
    convert(str(shard), f"{shard.parent}/b", "recordio", Encoding(example=True))
    first = decode_example(next(read_records(f"{shard.parent}/b")))
    assert first == {"__key__": [b"k00"], "cls": [b"0"], "txt": [b""]}


def test_several_inputs_are_one_file(shard: Path) -> None:
    folder = shard.parent
    write_tar(folder / "more.tar", [("z.cls", b"1")])
    assert convert([str(shard), f"{folder}/more.tar"], f"{folder}/all.recordio", "recordio") == 21
    convert(f"{folder}/all.recordio", f"{folder}/all.tar", "tar")
    assert [sample["__key__"] for sample in tarkit.read_samples(f"{folder}/all.tar")][-2:] == ["k19", "z"]


@pytest.mark.parametrize("to", RECORDS)
def test_several_tars_come_back_as_one_archive(to: str, tmp_path: Path) -> None:
    """Most programs read nothing behind the first end mark."""
    names = [f"{number}.{field}" for number in range(6) for field in ("cls", "jpg")]
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", [(name, bytes(600)) for name in names[4 * number : 4 * number + 4]])
        convert(f"{tmp_path}/{number}.tar", f"{tmp_path}/{number}.{to}", to, Encoding(piece=True))
    convert(f"{tmp_path}/{{0..2}}.tar", f"{tmp_path}/all.{to}", to, Encoding(piece=True), verify=True)
    for inputs in (f"{tmp_path}/all.{to}", f"{tmp_path}/{{0..2}}.{to}"):
        assert convert(inputs, f"{tmp_path}/all.tar", "tar", Encoding(piece=True), verify=True) == 6
        with tarfile.open(tmp_path / "all.tar") as tar:
            assert [name for name in tar.getnames() if name != "images"] == names


def test_a_tar_of_several_archives_comes_back_byte_for_byte(tmp_path: Path) -> None:
    content = b"".join(write_tar(tmp_path / "x.tar", [(f"{number}.cls", b"1")]) for number in range(3))
    (tmp_path / "in.tar").write_bytes(content)
    convert(f"{tmp_path}/in.tar", f"{tmp_path}/a.recordio", "recordio")
    convert(f"{tmp_path}/a.recordio", f"{tmp_path}/out.tar", "tar")
    assert (tmp_path / "out.tar").read_bytes() == content


def test_samples_of_two_tars_are_never_one(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [("x.cls", b"1")])
    write_tar(tmp_path / "1.tar", [("x.jpg", b"2")])
    convert(f"{tmp_path}/{{0,1}}.tar", f"{tmp_path}/a.recordio", "recordio")
    with pytest.raises(RepeatedKeyError):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar")


def test_record_files_are_copied_to_one_another(shard: Path) -> None:
    folder = shard.parent
    convert(str(shard), f"{folder}/a.recordio", "recordio")
    assert convert(f"{folder}/a.recordio", f"{folder}/b.seq", "sequencefile", verify=True) == 20
    convert(f"{folder}/b.seq", f"{folder}/out.tar", "tar")
    assert (folder / "out.tar").read_bytes() == shard.read_bytes()
    tars = [write_tar(folder / "x.tar", [(f"{number}.cls", b"1")]) for number in range(2)]
    for number, tar in enumerate(tars):
        with RecordWriter(f"{folder}/{number}.recordio") as writer:
            writer.write(tar)
    convert(f"{folder}/{{0,1}}.recordio", f"{folder}/both.recordio", "recordio")
    assert list(read_records(f"{folder}/both.recordio")) == tars
    with pytest.raises(UsageError, match="records stay as they are; leave out --field and --example"):
        convert(f"{folder}/a.recordio", f"{folder}/c.seq", "sequencefile", Encoding(field="txt"))


def test_an_example_of_another_program(tmp_path: Path) -> None:
    examples: list[dict[str, Any]] = [
        {"image": b"raw", "label": 3, "scores": [0.5, 0.25], "nothing": None},
        {"__key__": b"own", "image": b""},
    ]
    with RecordWriter(f"{tmp_path}/a.recordio") as writer:
        for example in examples:
            writer.write(encode_example(example))
    convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar", Encoding(example=True), verify=True)
    first, second = tarkit.read_samples(f"{tmp_path}/a.tar")
    assert (first["__key__"], first["image"], json.loads(first["label.json"])) == ("000000000", b"raw", [3])
    assert json.loads(first["scores.json"]) == [0.5, 0.25] and first["nothing.json"] == b"null"
    assert (second["__key__"], second["image"]) == ("own", b"")


def examples(path: Path, *found: dict[str, Any]) -> str:
    with tfrecord.RecordWriter(f"{path}/a.tfrecord") as writer:
        for features in found:
            writer.write(encode_example(features))
    return f"{path}/a.tfrecord"


EXAMPLE = Encoding(example=True)
TYPED = Encoding(example=True, typed=True)
FEATURES: dict[str, Any] = {
    "image/encoded": BytesList([b"\xff\xd8"]),
    "image/object/bbox/xmin": array("f", [0.1, 0.5]),
    "image/object/class/label": array("q", [-1, 1 << 62]),
    "image/object/class/text": BytesList([b"dog", "\u00e9t\u00e9".encode()]),
    "a%2Fb": BytesList([b"1"]),
    "50%": BytesList([b""]),
    "nothing": None,
}


def test_examples_come_back(tmp_path: Path) -> None:
    """Also names with slashes, features of several values, of none, and without a kind."""
    source = examples(tmp_path, FEATURES, {"image/object/class/text": BytesList()})
    assert convert(source, f"{tmp_path}/a.tar", encoding=EXAMPLE, verify=True) == 2
    first, second = tarkit.read_samples(f"{tmp_path}/a.tar")
    assert {name: content for name, content in first.items() if not name.startswith("__")} == {
        "image%2Fencoded": b"\xff\xd8",
        "image%2Fobject%2Fbbox%2Fxmin.json": b"[0.10000000149011612, 0.5]",
        "image%2Fobject%2Fclass%2Flabel.json": b"[-1, 4611686018427387904]",
        "image%2Fobject%2Fclass%2Ftext.json": '["dog", "\u00e9t\u00e9"]'.encode(),
        "a%252Fb": b"1",
        "50%": b"",
        "nothing.json": b"null",
    }
    assert second["image%2Fobject%2Fclass%2Ftext.json"] == b"[]"
    convert(f"{tmp_path}/a.tar", f"{tmp_path}/b.tfrecord", encoding=TYPED, verify=True)
    back = [decode_example(record) for record in tfrecord.read_records(f"{tmp_path}/b.tfrecord")]
    assert [example.pop("__key__") for example in back] == [[b"000000000"], [b"000000001"]]
    assert back[0] == FEATURES and back[1] == {"image/object/class/text": None}
    # Without --typed, each field is bytes.
    convert(f"{tmp_path}/a.tar", f"{tmp_path}/c.tfrecord", encoding=EXAMPLE)
    plain = decode_example(next(tfrecord.read_records(f"{tmp_path}/c.tfrecord")))
    assert plain["image/object/class/label.json"] == [b"[-1, 4611686018427387904]"] and plain["image/encoded"]


@given(st.text(alphabet="%25F/a.", max_size=12))
def test_each_name_is_that_of_one_field(text: str) -> None:
    assert "/" not in field_of_name(text) and name_of_field(field_of_name(text)) == text
    field = text.replace("/", "")
    assert field_of_name(name_of_field(field)) == field


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"a": [b"1", b"\xff"]}, "feature a has 2 values of bytes, not all of them text"),
        ({"a": [0.5, float("nan")]}, "feature a has a number that JSON does not have"),
        ({"a/b": [1], "a/b.json": b"x"}, "two features become the field a%2Fb.json"),
    ],
)
def test_features_that_cannot_be_fields_are_refused_with_their_record(
    tmp_path: Path, features: dict[str, Any], words: str
) -> None:
    source = examples(tmp_path, {"a": b"1"}, features)
    with pytest.raises(
        DataError, match=rf"a\.tfrecord, key '000000001': {words}.*; say what the records are, with --f"
    ):
        convert(source, f"{tmp_path}/a.tar", encoding=EXAMPLE)
    assert not (tmp_path / "a.tar").exists()


@pytest.mark.parametrize("name", ["", "a\0b", "__x__"])
def test_a_name_that_no_field_can_have_is_refused_with_its_record(tmp_path: Path, name: str) -> None:
    with pytest.raises(EncodeError, match=r"a\.tfrecord, key '000000001': '.*' cannot be"):
        convert(examples(tmp_path, {"a": b"1"}, {name: b"1"}), f"{tmp_path}/a.tar", encoding=EXAMPLE)
    assert not (tmp_path / "a.tar").exists()


def test_a_sequence_example_is_named_and_can_be_kept_whole(tmp_path: Path) -> None:
    record = encode_sequence_example({"a": 1}, {"frames": [b"1", b"2"]})
    with RecordWriter(f"{tmp_path}/a.recordio") as writer:
        writer.write(record)
    with pytest.raises(DataError, match=r"is a tf.train.SequenceExample, whose lists of features \(frames\) cannot be"):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", encoding=EXAMPLE)
    convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", encoding=Encoding(field="seq"), verify=True)
    convert(f"{tmp_path}/a.tar", f"{tmp_path}/b.recordio", encoding=Encoding(field="seq"), verify=True)
    assert list(read_records(f"{tmp_path}/b.recordio")) == [record]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"a.json": b"{"}, "field 'a.json' cannot be decoded"),
        ({"a.json": b'{"a": 1}'}, "field a.json is neither null nor a list of texts, of integers or of floats"),
        ({"a.json": b"[1, 0.5]"}, "field a.json is neither null nor a list"),
        ({"a.json": b"[true]"}, "field a.json is neither null nor a list"),
        ({"a.json": b"[0.1]"}, "field a.json is neither null nor a list .* floats of 32 bits"),
        ({"a.json": b"[1e39]"}, "field a.json is neither null nor a list"),
        ({"a.json": b"[1e400]"}, "field a.json is neither null nor a list"),
        ({"a.json": b"[1]", "a": b"1"}, "two fields become the feature a"),
        ({"a.json": b"[9223372036854775808]"}, "feature 'a' cannot be written"),
    ],
)
def test_fields_that_are_not_values_of_a_feature(tmp_path: Path, fields: dict[str, bytes], words: str) -> None:
    with tarkit.TarWriter(f"{tmp_path}/a.tar", encoder=False) as sink:
        sink.write({"__key__": "k", **fields})
    with pytest.raises((DataError, EncodeError), match=rf"a\.tar, key 'k': {words}"):
        convert(f"{tmp_path}/a.tar", f"{tmp_path}/b.tfrecord", encoding=TYPED)


def test_records_that_are_not_pieces_of_a_tar(tmp_path: Path) -> None:
    with RecordWriter(f"{tmp_path}/a.recordio") as writer:
        writer.write(b"just some bytes")
    with pytest.raises(DataError, match=r"say what they are, with --field FIELD or --example"):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_sample_without_the_field(shard: Path) -> None:
    with pytest.raises(DataError, match=r"in\.tar, key 'k00': the sample has no field jpg; it has cls, txt"):
        convert(str(shard), f"{shard.parent}/a", "recordio", Encoding(field="jpg"))
    assert not (shard.parent / "a").exists()


def test_a_cut_input_publishes_nothing(shard: Path) -> None:
    (shard.parent / "cut.tar").write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(TruncatedError):
        convert(f"{shard.parent}/cut.tar", f"{shard.parent}/a", "recordio")
    assert not (shard.parent / "a").exists()


def test_damage_that_is_skipped_is_counted(shard: Path) -> None:
    folder = shard.parent
    convert(str(shard), f"{folder}/a.recordio", "recordio", Encoding(field="txt"))
    content = bytearray((folder / "a.recordio").read_bytes())
    content[30] ^= 1
    (folder / "a.recordio").write_bytes(content)
    with pytest.raises(DataError):
        convert(f"{folder}/a.recordio", f"{folder}/b.tar", "tar", Encoding(field="txt"))
    tally = Tally()
    assert (
        convert(f"{folder}/a.recordio", f"{folder}/b.tar", "tar", Encoding(field="txt"), on_damage="skip", tally=tally)
        == 0
    )
    assert tally.damage
    with pytest.raises(UsageError, match="pieces of a damaged tar are not the tar"):
        convert(str(shard), f"{folder}/c", "recordio", on_damage="skip")


def test_verify_finds_another_output(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def forgets_one(name: str, target: str) -> Iterator[Any]:
        calls = iter([False])
        with named_writer(name, target) as write:
            yield lambda key, content: write(key, content) if next(calls, True) else None

    monkeypatch.setattr("tarkit.steps.convert.named_writer", forgets_one)
    with pytest.raises(VerifyError, match="a: 20 records were written, and others are read back"):
        convert(str(shard), f"{shard.parent}/a", "recordio", verify=True)


def test_what_cannot_be_converted(shard: Path) -> None:
    with pytest.raises(UsageError, match=r"in\.tar is a tar already, and tarkit cat joins tars"):
        convert(str(shard), f"{shard.parent}/b.tar", "tar")
    with pytest.raises(UsageError, match=f"'excel' is not a format; formats are tar, {', '.join(FORMATS)}"):
        convert(str(shard), f"{shard.parent}/b", "excel")
    with pytest.raises(UsageError, match="only one of them"):
        Encoding(field="a", example=True)


def test_an_input_that_is_no_archive_is_named_without_its_password(shard: Path) -> None:
    url = "memory://me:c4n4ry@b/other.recordio"
    convert(str(shard), f"{shard.parent}/a.har", "har")
    convert(str(shard), url, "recordio")
    with pytest.raises(UsageError, match=r"^memory://b/other.recordio is not an archive of files"):
        convert([f"{shard.parent}/a.har", url], f"{shard.parent}/out.tar", "tar", Encoding(files=True))


def test_no_inputs_are_an_error(tmp_path: Path) -> None:
    """It was StopIteration, which a generator of the caller takes for its own end."""
    with pytest.raises(UsageError, match="name the inputs"):
        convert([], str(tmp_path / "out.recordio"), "recordio")
    assert not list(tmp_path.iterdir())


def test_every_format_is_known_by_its_first_bytes_and_by_its_name(shard: Path) -> None:
    for name in FORMATS:
        module = format_module(name)
        assert isinstance(module.SUFFIXES, tuple) and not module.looks_like(b"") and not module.looks_like(bytes(512))
        assert format_of(f"s3://bucket/nothing{module.SUFFIXES[0]}") == name
    assert format_of(str(shard)) == format_of("-") == "tar"
    for name in ("a.tar", "a.tar.zst", "a.tgz", "a.tzst", "a.tbz2", "a.txz"):
        assert format_of(f"s3://bucket/nothing/{name}") == "tar"
    for compression in (None, "gz", "zlib"):
        with tfrecord.RecordWriter(f"{shard.parent}/x", compression=compression) as writer:
            writer.write(bytes(376))  # A length that begins as zlib does.
        assert format_of(f"{shard.parent}/x") == "tfrecord"


def test_a_folder_is_its_data(shard: Path) -> None:
    folder = shard.parent / "records"
    folder.mkdir()
    for name in ("part-1", "part-0"):
        with RecordWriter(f"{folder}/{name}") as writer:
            writer.write(name.encode())
    (folder / "_SUCCESS").touch()
    tally = Tally()
    convert(str(folder), f"{shard.parent}/a", "sequencefile", tally=tally)
    assert [
        content for _, content in read_named("sequencefile", f"{shard.parent}/a", on_damage="error", tally=tally)
    ] == [
        b"part-0",
        b"part-1",
    ]
    assert tally.skipped == {"metadata": 1}
    (shard.parent / "empty").mkdir()
    with pytest.raises(MissingInputError):
        convert(f"{shard.parent}/empty", f"{shard.parent}/b", "sequencefile")


def test_an_archive_in_a_folder_is_one_file_and_links_to_folders_are_counted(shard: Path) -> None:
    folder = shard.parent / "archives"
    for name in ("b.har", "below/a.har"):
        with named_writer("har", f"{folder}/{name}") as write:
            write(f"{name}.txt", name.encode())
    (folder / "linked").symlink_to(folder / "below")
    os.mkfifo(folder / "pipe")
    tally = Tally()
    assert list(input_files([f"{folder}/"], tally)) == [f"{folder}/b.har", f"{folder}/below/a.har"]
    assert tally.skipped == {"linked-folder": 1, "not-a-file": 1}
    assert convert(str(folder), f"{shard.parent}/all.seq", "sequencefile") == 2


def test_an_archive_that_fails_leaves_no_folder(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    shard.write_bytes(shard.read_bytes()[:3000])
    assert main(["convert", str(shard), "-o", f"{shard.parent}/new.har", "--to", "har"]) == 65
    assert sorted(path.name for path in shard.parent.iterdir()) == [shard.name]
    assert "--on-damage skip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "to", "message"),
    [
        ("in.tar", "recordio", "in.tar has the name of a tar file, but would be recordio; rename the output"),
        ("x.tgz", "har", "x.tgz has the name of a tar file, but would be har"),
        ("x.rio", "tfrecord", "x.rio has the name of a recordio file, but would be tfrecord"),
        ("photos", "har", "photos: an archive is recognized by its name, which must end with .har"),
        ("x.rio", "excel", "'excel' is not a format"),
    ],
)
def test_an_output_whose_name_is_that_of_another_format(shard: Path, output: str, to: str, message: str) -> None:
    before = shard.read_bytes()
    with pytest.raises(UsageError, match=re.escape(message)):
        convert(str(shard), f"{shard.parent}/{output}", to)
    assert [path.read_bytes() for path in shard.parent.iterdir()] == [before]


def test_a_file_without_records_is_not_a_tar(tmp_path: Path) -> None:
    (tmp_path / "a.recordio").touch()
    with pytest.raises(TruncatedError, match=r"the stream is empty; a tar has at least .* the inputs have no records"):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar")
    assert convert(f"{tmp_path}/a.recordio", f"{tmp_path}/b.tar", "tar", Encoding(field="txt"), verify=True) == 0


def test_the_program(shard: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    monkeypatch.chdir(shard.parent)
    run: Callable[[str], int] = lambda words: main(["convert", *words.split()])  # noqa: E731
    assert run("in.tar -o a.recordio --to recordio --verify") == 0
    assert capsys.readouterr().err == "tarkit convert: 20 records; read back and compared\n"
    assert run("a.recordio -o b.tar --to tar -q") == 0
    assert (shard.parent / "b.tar").read_bytes() == shard.read_bytes()
    assert run("in.tar -o c --to recordio --from tar --field cls") == 0
    assert list(read_records("c")) == [b"%d" % number for number in range(20)]
    assert run("c -o - --to tar --verify") == 2 and run("in.tar -o x --to excel") == 2
    assert "- cannot be read again to verify it; name a file as the output" in capsys.readouterr().err
    assert run("nothing.tar -o x --to recordio") == 66


def test_pieces_that_make_a_tar_with_keys_twice(shard: Path) -> None:
    """As cat has it: what is published is a tar that readers take."""
    folder = shard.parent
    convert([str(shard), str(shard)], f"{folder}/a.recordio", "recordio")
    with pytest.raises(RepeatedKeyError, match="read with --on-repeated-key allow"):
        convert(f"{folder}/a.recordio", f"{folder}/a.tar", "tar")
    assert not (folder / "a.tar").exists()
    allow = Encoding(piece=True, on_repeated_key="allow")
    assert convert(f"{folder}/a.recordio", f"{folder}/a.tar", "tar", allow, verify=True) == 40
    with tarfile.open(folder / "a.tar") as tar, tarfile.open(shard) as once:
        assert tar.getnames() == once.getnames() * 2
    assert convert(f"{folder}/a.tar", f"{folder}/b.recordio", "recordio", allow) == 40


def test_a_feature_that_a_sample_cannot_have_is_not_dropped(tmp_path: Path) -> None:
    with RecordWriter(f"{tmp_path}/a.recordio") as writer:
        writer.write(encode_example({"__url__": b"http://x/1.jpg", "jpg": b"1"}))
    with pytest.raises(DataError, match=r"a\.recordio, key '000000000': a feature is called __url__"):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar", Encoding(example=True))


def test_an_empty_key_stays_between_record_files(tmp_path: Path) -> None:
    with PairWriter(f"{tmp_path}/a.seq") as pairs:
        for key in ("", "000000000", ""):
            pairs.write(key, b"1")
    convert(f"{tmp_path}/a.seq", f"{tmp_path}/b.seq", "sequencefile", verify=True)
    assert [key for key, _ in read_pairs(f"{tmp_path}/b.seq")] == ["", "000000000", ""]
    with pytest.raises(EncodeError, match="the key was written before"):
        convert(f"{tmp_path}/a.seq", f"{tmp_path}/a.tar", "tar", Encoding(field="txt"))


def test_a_record_that_is_not_an_example(tmp_path: Path) -> None:
    with RecordWriter(f"{tmp_path}/a.recordio") as writer:
        writer.write(b"not one")
    with pytest.raises(DataError, match=r"a\.recordio, key '000000000': .*; say what the records are, with --field"):
        convert(f"{tmp_path}/a.recordio", f"{tmp_path}/a.tar", "tar", Encoding(example=True))


def test_what_can_be_read_only_once(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is opened once; and what is written there cannot be verified."""
    from tarkit.cli.tarkit import main

    os.mkfifo(shard.parent / "pipe")
    writer = threading.Thread(target=lambda: (shard.parent / "pipe").write_bytes(shard.read_bytes()))
    writer.start()
    assert convert(f"{shard.parent}/pipe", f"{shard.parent}/a.recordio", "recordio", verify=True) == 20
    writer.join()
    for output in ("-", "pipe:cat", f"{shard.parent}/pipe"):
        with pytest.raises(UsageError, match="cannot be read again to verify it; name a file as the output"):
            convert(str(shard), output, "recordio", verify=True)
    assert main(["convert", "pipe:true", "-o", f"{shard.parent}/b.tar", "--to", "tar"]) == 2
    assert "if it is another format, say so with --from FORMAT" in capsys.readouterr().err


def test_files_of_an_archive_that_are_no_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    with named_writer("har", f"{tmp_path}/a.har") as write:
        for name in ("a.0.jpg", "a.1.jpg", "README"):
            write(name, name.encode())
    words = ["convert", f"{tmp_path}/a.har/", "-o", f"{tmp_path}/a.tar", "--to", "tar"]
    assert main(words) == 65 and "--skip-others" in capsys.readouterr().err
    words.append("--skip-others")
    assert main(words) == 65 and "--on-same-extension allow" in capsys.readouterr().err
    assert main([*words, "--on-same-extension", "allow"]) == 0
    assert capsys.readouterr().err == "tarkit convert: 1 record; skipped members: no-extension 1\n"


def test_every_format_is_in_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main

    assert main(["convert", "--help"]) == 0
    listed = re.search(r"FORMAT is ([^.]+)\.", capfd.readouterr().out)
    assert listed is not None and sorted(re.split(r", | or ", " ".join(listed[1].split()))) == sorted([*FORMATS, "tar"])


def test_mem_bounds_records_of_every_format(shard: Path) -> None:
    for name in FORMATS:
        convert(str(shard), f"{shard.parent}/a.{name}", name)
        encoding = Encoding("txt" if holds_rows(name) else None, mem=1)
        for output in ("b.tar", "b.recordio"):
            with pytest.raises(TooLargeError):
                convert(f"{shard.parent}/a.{name}", f"{shard.parent}/{output}", encoding=encoding)


def test_records_of_two_kinds_are_not_mixed(shard: Path) -> None:
    folder = shard.parent
    convert(str(shard), f"{folder}/a.recordio", "recordio")
    for inputs in ([str(shard), f"{folder}/a.recordio"], [f"{folder}/a.recordio", str(shard)]):
        with pytest.raises(UsageError, match="convert them apart, or with --piece"):
            convert(inputs, f"{folder}/b.seq", "sequencefile")
        assert convert(inputs, f"{folder}/b.seq", "sequencefile", Encoding(piece=True)) == 40


def test_an_output_is_not_an_input(shard: Path) -> None:
    folder = shard.parent
    assert convert(str(folder), f"{folder}/all.recordio", "recordio") == 20
    os.link(f"{folder}/all.recordio", f"{folder}/all.link")
    for name in (folder, f"{folder}/all.recordio", f"{folder}/all.link"):
        with pytest.raises(UsageError, match=r"all\.\w+ is an input, and .*; name another output"):
            convert(str(name), f"{folder}/all.recordio", "recordio", Encoding(piece=True))
    with pytest.raises(UsageError, match=r"\.foo is not written"):
        convert("gone.recordio", f"{folder}/x.tar.foo", "tar")


OTHERS = {
    b"<!DOCTYPE html><html><body>404</body></html>": "it looks like an HTML or XML page",
    b'{"a": 1}\n{"a": 2}\n': "it looks like JSON lines",
    b'{"a": 1}': "it looks like JSON, perhaps",
    "\u00e9crit \u00e0 la main\n".encode() * 50: "it looks like text beginning '\u00e9crit",
    b"\x89PNG\r\n" * 100: "it looks like a PNG image",
    b"\x93NUMPY" + bytes(range(256)): "it looks like a NumPy array",
}


@pytest.mark.parametrize("content", OTHERS)
def test_a_file_of_another_format_is_named_for_what_it_is(tmp_path: Path, content: bytes) -> None:
    """It was a tar already, or its first error became that the inputs have no records."""
    (tmp_path / "x").write_bytes(content)
    write_tar(tmp_path / "a.tar", [("a.cls", b"1")])
    with RecordWriter(f"{tmp_path}/b.recordio") as writer:
        writer.write(b"1")
    readings: list[tuple[list[str], str, str | None]] = [(["x"], "out.tar", None), (["x"], "out.recordio", None)]
    readings += [(["x", "b.recordio"], "out.seq", None), (["b.recordio", "x"], "out.seq", None)]
    readings += [(["x"], "out.tar", name) for name in ("recordio", "tfrecord", "sequencefile")]
    for inputs, output, source in readings:
        with pytest.raises(DataError, match=re.escape(OTHERS[content])) as caught:
            convert([f"{tmp_path}/{name}" for name in inputs], f"{tmp_path}/{output}", source_format=source)
        assert str(caught.value).startswith(f"{tmp_path}/x, offset 0: ")
        assert "no records" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.recordio", "x"]


def test_a_damaged_file_that_looks_like_no_other_format_keeps_its_advice(tmp_path: Path) -> None:
    with tfrecord.RecordWriter(f"{tmp_path}/a.tfrecord") as writer:
        writer.write(b"1" * 300)
    content = bytearray((tmp_path / "a.tfrecord").read_bytes())
    content[9] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(DataError, match=r"not a TFRecord file; .* read it with --on-damage skip") as caught:
        convert(f"{tmp_path}/a.tfrecord", f"{tmp_path}/a.recordio")
    assert "begins with" not in str(caught.value) and "looks like" not in str(caught.value)


def test_a_file_of_a_format_that_is_read_as_another_is_named(shard: Path) -> None:
    convert(str(shard), f"{shard.parent}/a.recordio")
    with pytest.raises(DataError, match="it looks like recordio; name its format, with --from recordio"):
        convert(f"{shard.parent}/a.recordio", f"{shard.parent}/b.seq", source_format="tfrecord")
    with pytest.raises(DataError, match="it looks like tar; name its format, with --from tar"):
        convert(str(shard), f"{shard.parent}/b.tfrecord", source_format="sequencefile")


def test_the_first_error_of_an_input_is_not_replaced_by_a_guess(tmp_path: Path) -> None:
    """It was: these records are not pieces of a tar."""
    write_tar(tmp_path / "a.tar", [(f"{number}.cls", b"1") for number in range(3)])
    convert(f"{tmp_path}/a.tar", f"{tmp_path}/a.tfrecord")
    content = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / "a.tfrecord").write_bytes(content[:-1])
    with pytest.raises(TruncatedError, match=r"a\.tfrecord, offset .*: record 2: the file ends inside .*; fetch the"):
        convert(f"{tmp_path}/a.tfrecord", f"{tmp_path}/b.tar")


@pytest.mark.parametrize("output", ["a.recordio", "a.tfrecord", "a.seq", "a.har"])
def test_the_format_follows_the_name_of_the_output(shard: Path, output: str) -> None:
    convert(str(shard), f"{shard.parent}/{output}")
    assert format_of(f"{shard.parent}/{output}") == format_of(f"s3://b/{output}") != "tar"
    convert(f"{shard.parent}/{output}", f"{shard.parent}/back.tar.gz")
    assert len(list(tarkit.read_samples(f"{shard.parent}/back.tar.gz"))) == 20
    with pytest.raises(UsageError, match="records does not end as a file of a format does; name it with --to FORMAT"):
        convert(str(shard), f"{shard.parent}/records")
