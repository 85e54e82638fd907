"""What TarWriter writes comes back, here and elsewhere, or is refused.

The bytes are always the same.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tarbuild import BLOCK, members_of, samples_of

from tarkit.errors import EncodeError, StreamError, UsageError
from tarkit.formats.tar import headers
from tarkit.samples.read import read_samples
from tarkit.samples.sample import BOOKKEEPING, Sample
from tarkit.writer import TarWriter, default_mtime


@pytest.fixture(autouse=True)
def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def written(samples: list[Sample], **kw: Any) -> bytes:
    out = io.BytesIO()
    with TarWriter(out, **kw) as writer:
        for sample in samples:
            writer.write(sample)
    return out.getvalue()


def as_read(samples: list[Sample], url: str = "x.tar") -> list[Sample]:
    return [{**sample, "__url__": url} for sample in samples]


def by_tarfile(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


# ---- round trips

TEXT = st.text("ab_-é猫\udcfe \n:", min_size=1, max_size=70)
KEYS = st.lists(TEXT, min_size=1, max_size=5).map("/".join)
FIELDS = st.lists(TEXT, min_size=1, max_size=3).map(".".join)
CONTENT = st.one_of(st.binary(max_size=20), st.integers(0, 1600).map(bytes))
SAMPLES = st.lists(
    st.tuples(KEYS, st.dictionaries(FIELDS, CONTENT, min_size=1, max_size=4)),
    max_size=6,
    unique_by=lambda pair: pair[0],
)


@given(SAMPLES)
@example([("k" * 96, {"jpg": b"1"}), ("k" * 97, {"jpg": b"2"}), ("k" * 300, {"jpg": b"3"})])
@example([("d" * 155 + "/" + "k" * 96, {"jpg": b"1"}), ("d" * 156 + "/" + "k" * 96, {"jpg": b"2"})])
@example([("/" + "k" * 120, {"x": b""}), ("a//" + "k" * 97, {"x": b""})])
@example([("\u732b" * 40, {"jpg": b"1"})])
@example([("a", {"x": b"1" * 511}), ("b", {"x": b"2" * 512}), ("c", {"x": b"3" * 513})])
def test_round_trip(pairs: list[tuple[str, dict[str, bytes]]]) -> None:
    samples, accepted = [{"__key__": key, **fields} for key, fields in pairs], []
    out = io.BytesIO()
    with TarWriter(out) as writer:
        for sample in samples:
            try:
                writer.write(sample)
                accepted.append(sample)
            except EncodeError as error:
                assert _is_awkward(sample), error
    data = out.getvalue()
    assert len(data) % 10_240 == 0
    assert samples_of(data) == as_read(accepted)
    files = [(f"{s['__key__']}.{field}", s[field]) for s in accepted for field in sorted(s) if field != "__key__"]
    assert [item[:2] for item in members_of(data)] == files
    assert list(by_tarfile(data).items()) == files


def _is_awkward(sample: Sample) -> bool:
    """Text of which other text has the same bytes; or names that are taken by readers' rules."""
    names = [name for name in sample if name != "__key__"]
    same = all(
        t.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == t
        for t in [*sample.values(), *names]
        if isinstance(t, str)
    )
    first = sample["__key__"].partition("/")[0]
    taken = [n for n in names if n.startswith("__") and n.endswith("__")]
    return not same or bool(taken) or (first.startswith("__") and "/" in sample["__key__"]) or first.startswith("__")


SHOWN: list[Sample] = [
    {"__key__": "a", "cls": b"1", "jpg": bytes(range(256)) * 3},
    {"__key__": "dir/été", "cls": b"", "seg.png": b"x" * 512},
    {"__key__": "d" * 90 + "/" + "k" * 90, "txt": b"prefix\n"},
    {"__key__": "n" * 250, "txt": b"extended\n"},
    {"__key__": "new\nline", "txt": b"n"},
]


def test_byte_for_byte_what_tarfile_writes() -> None:
    samples = [s for s in SHOWN if len(s["__key__"]) < 200]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for sample in samples:
            for field in sorted(set(sample) - {"__key__"}):
                info = tarfile.TarInfo(f"{sample['__key__']}.{field}")
                info.size, info.mode, info.mtime = len(sample[field]), 0o444, 0
                info.uname = info.gname = "bigdata"
                archive.addfile(info, io.BytesIO(sample[field]))
    theirs = bytearray(out.getvalue())
    for start in (match - 257 for match in range(257, len(theirs), BLOCK) if theirs[match : match + 5] == b"ustar"):
        # Python leaves the device numbers of regular files empty; GNU tar and pax write 0, and so
        # do we.
        theirs[start + 329 : start + 345] = b"0000000\0" * 2
        checksum = sum(theirs[start : start + 148]) + 8 * 0x20 + sum(theirs[start + 156 : start + BLOCK])
        theirs[start + 148 : start + 156] = b"%06o\0 " % checksum
    assert written(samples) == theirs


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    if importlib.util.find_spec("webdataset") is None:
        pytest.skip("webdataset is not installed (it is in the extra: test)")
    webdataset = importlib.import_module("webdataset")
    samples = [sample for sample in SHOWN if "\n" not in sample["__key__"]]
    ours, theirs = str(tmp_path / "ours.tar"), str(tmp_path / "theirs.tar")
    with TarWriter(ours) as writer:
        for sample in samples:
            writer.write(sample)
    found = [
        {name: value for name, value in sample.items() if name != "__local_path__"}
        for sample in webdataset.WebDataset(ours, shardshuffle=False)
    ]
    assert found == as_read(samples, ours)
    with webdataset.TarWriter(theirs) as writer:
        for sample in samples:
            writer.write(sample)
    gc.collect()
    assert list(read_samples(theirs)) == as_read(samples, theirs)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_same_bytes_as_webdataset_with_mtime_0(tmp_path: Path) -> None:
    if importlib.util.find_spec("webdataset") is None:
        pytest.skip("webdataset is not installed (it is in the extra: test)")
    webdataset = importlib.import_module("webdataset")
    path = str(tmp_path / "theirs.tar")
    with webdataset.TarWriter(path, mtime=0, format=tarfile.USTAR_FORMAT) as writer:
        for sample in SHOWN[:3]:
            writer.write(sample)
    gc.collect()
    assert by_tarfile(written(SHOWN[:3])) == by_tarfile(Path(path).read_bytes())


# ---- the same bytes, always


@pytest.mark.parametrize("text", ["0", "1700000000", "8589934591"])
def test_source_date_epoch(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    assert default_mtime() == int(text)
    with tarfile.open(fileobj=io.BytesIO(written(SHOWN[:1]))) as archive:
        assert {info.mtime for info in archive} == {int(text)}
    with tarfile.open(fileobj=io.BytesIO(written(SHOWN[:1], mtime=5))) as archive:
        assert {info.mtime for info in archive} == {5}


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "0x10", " 1", "8589934592", "9" * 30, "\u00b2"])
def test_a_source_date_epoch_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(UsageError, match=r"SOURCE_DATE_EPOCH|mtime"):
        TarWriter(io.BytesIO())


# ---- arguments


def test_owner_mode_and_time_are_those_asked_for() -> None:
    data = written(SHOWN, user="ü" * 15, group="g" * 31, mode=0o640, mtime=7.9)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            assert (info.uname, info.gname, info.mode, info.mtime) == ("ü" * 15, "g" * 31, 0o640, 7)
            assert (info.uid, info.gid, info.type) == (0, 0, tarfile.REGTYPE)


@pytest.mark.parametrize(
    "kw",
    [
        {"user": "u" * 32},
        {"group": "ü" * 16},
        {"mtime": -1},
        {"mtime": 8**11},
        {"mtime": float("nan")},
        {"mtime": float("inf")},
        {"mode": -1},
        {"mode": 0o10000000},
        {"format": "zip"},
        {"format": 99},
        {"compress": "rar"},
        {"encoder": 5},
        {"encoder": {"a.b": bytes}},
        {"on_repeated_key": "first"},
        {"rule": "("},
        {"rule": "(a)"},
    ],
    ids=str,
)
def test_arguments_that_can_not_be(kw: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        TarWriter(tmp_path / "x.tar", **kw)
    assert list(tmp_path.iterdir()) == []


MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ", "zst": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}


@pytest.mark.parametrize(
    ("name", "compress", "magic"),
    [
        ("x.tar", None, None),
        ("x.tar", False, None),
        ("x.tar", True, "gz"),
        ("x.tgz", None, "gz"),
        ("x.tgz", False, None),
        ("x.tar.gz", "zst", "zst"),
        *((f"x.tar.{codec}", None, codec) for codec in MAGIC),
        *(("x.tar", codec, codec) for codec in MAGIC),
    ],
)
def test_compression(name: str, compress: bool | str | None, magic: str | None, tmp_path: Path) -> None:
    path = tmp_path / name
    with TarWriter(path, compress=compress) as writer:
        for sample in SHOWN:
            writer.write(sample)
    data = path.read_bytes()
    assert data.startswith(MAGIC[magic] if magic else b"a.cls")
    assert list(read_samples(str(path))) == as_read(SHOWN, str(path))


def test_sizes_of_8_gib_and_names_of_any_length_through_headers_alone() -> None:
    template = headers.HeaderTemplate(mode=0o444, mtime=0, user="u", group="g")
    for name, size in [(b"a.x", 8**11), (b"n" * 300, 5), (b"n" * 300, 2**40), (b"d/" * 70 + b"a.x", 8**12)]:
        records = {"path": name, "size": b"%d" % size}
        header = headers.encode_pax(name, records) + template.encode(name[:100], min(size, headers.MAX_SIZE))
        with tarfile.open(fileobj=io.BytesIO(header)) as archive:
            info = archive.next()
        assert info is not None
        assert (info.name.encode(), info.size) == (name, size)
        content = header[BLOCK:-BLOCK].rstrip(b"\0")
        assert headers.parse_pax(content) == records
    assert template.encode_any(b"a", 8**11 - 1) == template.encode(b"a", 8**11 - 1)
    assert len(template.encode_any(b"a", 8**11)) == 3 * BLOCK
    for name, size in [(b"a", 8**11), (b"a", -1), (b"n" * 101, 0)]:
        with pytest.raises(ValueError, match="does not fit"):
            template.encode(name, size)


def test_headers_of_more_sizes_and_checksums_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_MOST_KEPT", 3)
    out = io.BytesIO()
    sizes = [0, 1, 7, 8, 511, 512, 4000, 1, 8, 4000]
    with TarWriter(out, encoder=False, user="no other test") as writer:
        for number, size in enumerate(sizes):
            writer.write({"__key__": f"{10**number}", "x": bytes(size)})
        template = writer._template
    assert (len(template.middles), len(template.ends)) == (3, 3)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        assert [member.size for member in archive] == sizes


def test_numbers_that_are_equal_and_of_another_type_are_refused_as_before() -> None:
    TarWriter(io.BytesIO(), mode=292).discard()
    with pytest.raises(UsageError, match=r"mode 292\.0 or mtime None cannot be in a header"):
        TarWriter(io.BytesIO(), mode=292.0)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([b"/", b"a" * 50, b"b" * 99, b"c"]), max_size=8).map(b"".join))
def test_a_split_name_comes_together_again(name: bytes) -> None:
    parts = headers.split_name(name)
    if parts is None:
        assert len(name) > 100
        return
    prefix, base = parts
    assert (prefix + b"/" + base if prefix else base) == name
    assert len(prefix) <= 155
    assert len(base) <= 100


@given(st.integers(1, 12_000))
def test_the_length_of_a_pax_record_counts_itself(length: int) -> None:
    records = {"path": b"n" * length, "comment": b"=\n= "}
    content = headers.encode_pax(b"n", records)[BLOCK:]
    assert headers.parse_pax(content) == records


# ---- refusals


@pytest.fixture
def writer() -> Iterator[tuple[TarWriter, io.BytesIO]]:
    out = io.BytesIO()
    with TarWriter(out, encoder=False) as opened:
        opened.write({"__key__": "before", "x": b"1"})
        yield opened, out
        opened.write({"__key__": "after", "x": b"1"})
    assert [sample["__key__"] for sample in samples_of(out.getvalue())] == ["before", "after"]
    assert opened.samples == 2
    assert opened.bytes_written == 2


@pytest.mark.parametrize(
    "key",
    [
        None, 5, b"bytes", "", "a.b", "d/a.b", "a/", "/", "._a", "d/._a", ".hidden", "__meta__/a", "a\0b", "..", "a/..",
        "\ud800", "\udcc3\udca9", "d/.", "before",
    ],
)  # fmt: skip
def test_keys_that_would_not_come_back(key: object, writer: tuple[TarWriter, io.BytesIO]) -> None:
    with pytest.raises(EncodeError) as caught:
        writer[0].write({"__key__": key, "x": b"1"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["", "a/b", "/", "a\0b", "\ud800", "\udcc3\udca9", "a.\udcc3\udca9"])
def test_fields_that_would_not_come_back(field: str, writer: tuple[TarWriter, io.BytesIO]) -> None:
    with pytest.raises(EncodeError):
        writer[0].write({"__key__": "k", "a": b"never seen", field: b"1"})


@pytest.mark.parametrize("sample", [{"x": b"1"}, {"__key__": "k"}, {"__key__": "k", "__url__": "u"}])
def test_samples_that_would_leave_no_trace(sample: Sample, writer: tuple[TarWriter, io.BytesIO]) -> None:
    with pytest.raises(EncodeError):
        writer[0].write(sample)


@pytest.mark.parametrize("value", ["text", 5, None, 1.5, [b"x"], {"a": 1}])
def test_values_that_are_no_bytes(value: object, writer: tuple[TarWriter, io.BytesIO]) -> None:
    with pytest.raises(EncodeError, match="not bytes"):
        writer[0].write({"__key__": "k", "a": b"never seen", "b": value})
    # The key of a refused sample may be used again.
    with pytest.raises(EncodeError, match="not bytes"):
        writer[0].write({"__key__": "k", "a": b"never seen", "b": value})


def test_repeated_keys() -> None:
    twice = [{"__key__": "a", "x": b"1"}, {"__key__": "b", "x": b"2"}, {"__key__": "a", "x": b"3"}]
    with pytest.raises(EncodeError, match="written before"):
        written(twice)
    assert samples_of(written(twice, on_repeated_key="allow"), on_repeated_key="allow") == as_read(twice)
    with pytest.raises(UsageError, match="on_repeated_key"):
        TarWriter(io.BytesIO(), on_repeated_key="last")


def test_another_rule_lets_other_keys_come_back() -> None:
    samples = [{"__key__": "v1.2", "jpg": b"1"}]
    data = written(samples, rule="last-dot")
    assert [name for name, _, _ in members_of(data)] == ["v1.2.jpg"]
    with pytest.raises(EncodeError, match=r"read back as key 'v1.2.seg' and field 'png'"):
        written([{"__key__": "v1.2", "seg.png": b"1"}], rule="last-dot")


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize("value", [b"5", "5", 5, None])
@pytest.mark.parametrize("field", ["__mask__", "____", "_____", "__a\nb__"])
def test_metadata_that_no_reader_added_is_refused_by_name(field: str, value: object, encoder: bool) -> None:
    out = io.BytesIO()
    with TarWriter(out, encoder=encoder) as opened:
        opened.write({"__key__": "k", "x": b"1"})
        with pytest.raises(EncodeError, match=r"key 'l': '__.*__' cannot be a field: .*; call it '\w") as caught:
            opened.write({"__key__": "l", "x": b"2", field: value})
        assert "\n" not in str(caught.value)
    assert by_tarfile(out.getvalue()) == {"k.x": b"1"}


@pytest.mark.parametrize("field", ["___", "__", "__x", "x__", "_x_", "__x__.png", "_"])
def test_other_underscores_are_fields(field: str) -> None:
    assert samples_of(written([{"__key__": "k", field: b"1"}])) == as_read([{"__key__": "k", field: b"1"}])


def test_what_readers_add_to_a_sample_is_left_out() -> None:
    sample = dict.fromkeys(BOOKKEEPING, "text") | {"__key__": "k", "x": b"1"}
    assert by_tarfile(written([sample])) == {"k.x": b"1"}


def test_metadata_that_a_key_rule_would_give_back_as_a_field_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"'a.__m__' would be read back as key 'a' and field '__'"):
        written([{"__key__": "a", "x": b"1", "__m__": b"2"}], keep_meta=True, rule=r"(.+)\.(..?).*")


def test_keep_meta() -> None:
    sample = {"__key__": "a", "__url__": "s3://b/x.tar", "__n__": b"5", "x": b"1"}
    kept = {"a.__n__": b"5", "a.__url__": b"s3://b/x.tar", "a.x": b"1"}
    assert by_tarfile(written([sample], keep_meta=True)) == kept


@pytest.mark.parametrize("field", ["__a/b.c__", "__a\0__"])
def test_metadata_fields_that_would_become_another_sample(field: str) -> None:
    with pytest.raises(EncodeError):
        written([{"__key__": "a", "x": b"1", field: b"2"}], keep_meta=True)


# ---- all or nothing


def test_write_all_is_all_or_nothing(writer: tuple[TarWriter, io.BytesIO]) -> None:
    good = [{"__key__": "k1", "x": b"1"}, {"__key__": "k2", "x": b"2"}]
    bad: list[list[Sample]] = [
        [*good, {"__key__": "a.b", "x": b"1"}],
        [*good, good[0]],
        [*good, {"__key__": "before", "x": b"1"}],
        [*good, {"__key__": "k3", "x": 5}],
        [{}, *good],
    ]
    for samples in bad:
        with pytest.raises(EncodeError):
            writer[0].write_all(samples)
    assert writer[0].write_all([]) == 0


def test_write_all_forgets_keys_that_an_encoder_made() -> None:
    def renamed(sample: Sample) -> Sample:
        return {**sample, "__key__": "new-" + sample["__key__"]}

    out = io.BytesIO()
    with TarWriter(out, encoder=renamed) as opened:
        with pytest.raises(EncodeError):
            opened.write_all([{"__key__": "a", "x": b"1"}, {"__key__": "b", "x": 5}])
        opened.write_all([{"__key__": "a", "x": b"1"}])
    assert [sample["__key__"] for sample in samples_of(out.getvalue())] == ["new-a"]


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), TarWriter(tmp_path / "x.tar") as opened:
        opened.write({"__key__": "a", "x": bytes(3_000_000)})
        raise KeyError("mine")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.tar").write_bytes(b"older")
    with pytest.raises(EncodeError), TarWriter(tmp_path / "x.tar") as opened:
        opened.write({"__key__": "", "x": b""})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.tar", b"older")]


@pytest.mark.parametrize("end", ["close", "discard"])
def test_nothing_can_be_written_after_the_end(end: str) -> None:
    opened = TarWriter(io.BytesIO())
    getattr(opened, end)()
    for write in (lambda: opened.write({"__key__": "a", "x": b"1"}), lambda: opened.write_all([SHOWN[0]])):
        with pytest.raises(StreamError, match="closed"):
            write()
    assert opened.samples == 0


def test_an_open_file_stays_open(tmp_path: Path) -> None:
    with open(tmp_path / "x.tar", "wb") as file:
        with TarWriter(file) as opened:
            opened.write(SHOWN[0])
        assert not file.closed
        assert file.tell() == 10_240


@pytest.mark.parametrize("size", [100_000, 262_143, 262_144, 5_000_000])
def test_little_is_held_back(size: int) -> None:
    """Whatever the sizes of the fields, what was written is on its way."""
    out = io.BytesIO()
    with TarWriter(out, encoder=False) as opened:
        for number in range(8):
            opened.write({"__key__": f"{number}", **{f"f{field}": bytes(size) for field in range(5)}})
            assert opened.bytes_written - out.tell() < 2_500_000
    assert len(samples_of(out.getvalue())) == 8


def test_other_kinds_of_bytes() -> None:
    values = {"a": bytearray(b"12"), "b": memoryview(b"34"), "c": memoryview(b"5x6x")[::2]}
    for encoder in (True, False, None):
        data = written([{"__key__": "k", **values}], encoder=encoder)
        assert by_tarfile(data) == {"k.a": b"12", "k.b": b"34", "k.c": b"56"}
