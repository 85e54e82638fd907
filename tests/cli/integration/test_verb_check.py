"""tarkit check: lines, JSON, exit codes, bad keys, damage of decoders, streams, stores."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted import flipped, member, picture, plain_samples, shard

from tarkit import read_samples
from tarkit.steps.findings import KINDS
from tarkit.steps.selection import Selection

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_pictures(prefix: str, count: int = 6) -> dict[str, dict[str, bytes]]:
    found = plain_samples(prefix, count)
    return {key: {**fields, "jpg": picture("JPEG", quality=50 + n)} for n, (key, fields) in enumerate(found.items())}


def test_a_clean_shard(run: Run, folder: Path) -> None:
    Path("a.tar").write_bytes(shard(with_pictures("a")))
    result = run("tarkit", "check", "a.tar", "--decode", "--require", "jpg|png,cls", "--repeated-contents")
    assert (result.code, result.stdout) == (0, b"")
    assert result.stderr == "tarkit check: 1 shard, 6 samples; 0 findings\n"
    assert run("tarkit", "check", "-q", "-", stdin=Path("a.tar").read_bytes()) == (0, b"", "")


def test_the_lines_and_the_exit_code(run: Run, folder: Path) -> None:
    samples = with_pictures("a")
    samples["a-2"]["jpg"] = samples["a-2"]["jpg"][:-2]
    samples["a-3"]["jpg"] += b"x"
    samples["a-4"]["heic"] = b"?"
    data = shard(samples)
    Path("a.tar").write_bytes(data)
    at = {key: data.index(f"{key}.jpg".encode()) for key in samples}
    result = run("tarkit", "check", "a.tar", "--decode", "--bad-keys", "bad.txt")
    assert result.code == 65
    assert result.lines == [
        f"a.tar: key a-2, jpg, offset {at['a-2']}: no end of image",
        f"a.tar: key a-3, jpg, offset {at['a-3']}: warning: 1 byte behind the end of the content",
    ]
    assert result.stderr == (
        "tarkit check: 1 shard, 6 samples; 1 finding (picture 1); 1 warning (trailing-bytes 1); "
        "1 content not checked (.heic: no check exists 1); bad.txt lists 1 key\n"
    )
    assert Path("bad.txt").read_text() == "a-2\n"
    first, second = map(json.loads, run("tarkit", "check", "a.tar", "--decode", "--json").lines)
    assert first == {
        "shard": "a.tar", "kind": "picture", "message": "no end of image", "key": "a-2", "field": "jpg",
        "member": "a-2.jpg", "offset": at["a-2"], "is_warning": False,
    }  # fmt: skip
    assert second["is_warning"]


def test_warnings_alone_are_success(run: Run, folder: Path) -> None:
    Path("a.tar").write_bytes(shard({"a": {"txt": b""}}))
    result = run("tarkit", "check", "a.tar")
    assert (result.code, result.lines) == (0, ["a.tar: key a, txt, offset 0: warning: it has 0 bytes"])


def test_bad_keys_are_what_selecting_drops(run: Run, folder: Path) -> None:
    samples = with_pictures("a", 9)
    samples["a-2"]["jpg"] = b"<html>"
    del samples["a-3"]["cls"]
    samples["a-8"]["json"] = b"{"
    data = shard(samples)
    Path("a.tar").write_bytes(flipped(data, data.index(b"a-5.jpg")))
    words = ("--require", "cls", "--decode", "-p", "2")
    assert run("tarkit", "check", "a.tar", *words, "--bad-keys", "bad.txt").code == 65
    assert Path("bad.txt").read_text().split() == ["a-2", "a-3", "a-5", "a-6", "a-8"]
    with Selection(without_keys="bad.txt") as selection:
        kept = [each["__key__"] for each in selection.select(read_samples("a.tar", on_damage="skip"))]
    assert kept == ["a-0", "a-1", "a-4", "a-7"] and selection.unknown_keys["without_keys"][0] == 2


def test_a_decoder_that_crashes_fails_one_sample(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the decoder ends, as with an error in a library in C."""
    samples = with_pictures("a")
    samples["a-1"]["jpg"] = picture("JPEG", comment=b"CRASH")
    Path("a.tar").write_bytes(shard(samples))
    Path("simplejpeg.py").write_text(
        "import os\n"
        "def decode_jpeg_header(data):\n"
        "    if b'CRASH' in data:\n"
        "        os.kill(os.getpid(), 11)\n"
        "    return 8, 8\n"
        "def decode_jpeg(data, **options):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "simplejpeg", raising=False)
    result = run("tarkit", "check", "a.tar", "--decode", "-p", "2", "--bad-keys", "bad.txt")
    assert result.code == 65
    (line,) = result.lines
    assert line.startswith("a.tar: key a-1, jpg, offset ") and line.endswith("process was killed by SIGSEGV")
    assert Path("bad.txt").read_text() == "a-1\n"
    assert "6 samples; 1 finding (crash 1)" in result.stderr


def test_libraries_that_are_not_installed_are_counted(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("simplejpeg", "soundfile", "PIL.Image", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    fields = {"jpg": picture("JPEG"), "png": picture("PNG"), "flac": b"fLaC", "npy": b"\x93NUMPY"}
    Path("a.tar").write_bytes(shard({"a": fields}))
    result = run("tarkit", "check", "a.tar", "--decode")
    assert (result.code, result.stdout) == (0, b"")
    for reason in (
        "JPEG data (pip install simplejpeg) 1",
        "pictures (pip install pillow",
        "arrays (pip install pillow",
        "audio that is not WAV (pip install soundfile) 1",
    ):
        assert reason in result.stderr


@pytest.mark.parametrize("frames", [100, 40])
def test_sound_through_soundfile(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, frames: int) -> None:
    """A substitute for the library, which has its names and is not installed for the tests."""
    Path("soundfile.py").write_text(
        "class SoundFile:\n"
        f"    frames, left = 100, {frames}\n"
        "    def __init__(self, file):\n"
        "        if file.read(4) != b'fLaC': raise RuntimeError('Format not recognised.')\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *_): pass\n"
        "    def read(self, most, dtype):\n"
        "        taken = min(self.left, 30)\n"
        "        self.left -= taken\n"
        "        return [0] * taken\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "soundfile", raising=False)
    Path("a.tar").write_bytes(shard({"a": {"flac": b"fLaC"}, "b": {"MP3": b"?"}}))
    lines = run("tarkit", "check", "a.tar", "--decode").lines
    cut = ["a.tar: key a, flac, offset 0: cut: by its header it has 100 frames, and 40 can be read"]
    assert lines == cut * (frames == 40) + ["a.tar: key b, MP3, offset 1024: Format not recognised."]


def test_the_number_of_processes_does_not_change_the_lines(run: Run, folder: Path) -> None:
    samples = with_pictures("a", 40)
    for number, fields in enumerate(samples.values()):
        if number % 3 == 0:
            fields["jpg"] = fields["jpg"][:-2]
        if number % 5 == 0:
            fields["json"] = b"{"
    Path("a.tar").write_bytes(shard(samples))
    Path("b.tar").write_bytes(shard(with_pictures("b", 3)) + b"x" * 600)
    one, three = (run("tarkit", "check", "a.tar", "b.tar", "--decode", "-p", n).lines for n in ("1", "3"))
    assert one == three and len(one) == 14 + 8 + 1


def test_the_shards_of_a_manifest(run: Run, folder: Path) -> None:
    for name in "ab":
        Path(f"{name}.tar").write_bytes(shard(plain_samples(name)))
    assert run("tarkit", "index", "a.tar", "b.tar", "--manifest", "dataset.json").code == 0
    result = run("tarkit", "check", "--manifest", "dataset.json")
    assert (result.code, result.stderr) == (0, "tarkit check: 2 shards, 8 samples; 0 findings\n")
    Path("b.tar").write_bytes(shard(plain_samples("b", 3)))
    result = run("tarkit", "check", "--manifest", "dataset.json")
    assert result.code == 65 and [line.partition(":")[0] for line in result.lines] == ["b.tar", "b.tar"]
    assert "says 4 samples, and the shard has 3; says 9216 bytes, and the shard has 7168; says " in result.lines[1]


def test_usage_errors(run: Run, folder: Path) -> None:
    for words, message in (
        ([], "name the shards"),
        (["a.tar", "-p", "2"], "-p goes with --decode"),
        (["a.tar", "--require", ","], "names no field"),
        (["a.tar", "--bad-keys", "-"], "--bad-keys takes a file"),
    ):
        result = run("tarkit", "check", *words)
        assert (result.code, result.stdout) == (2, b"") and message in result.stderr, words


def test_input_that_is_missing_or_no_tar(run: Run, folder: Path) -> None:
    Path("a.tar").write_bytes(shard(plain_samples("a")))
    result = run("tarkit", "check", "no.tar", "a.tar")
    assert (result.code, result.lines) == (66, ["no.tar: no such file"])
    assert "4 samples; 1 finding (unreadable 1)" in result.stderr
    result = run("tarkit", "check", "-", stdin=b"<html>not found</html>")
    assert result.code == 65 and result.lines[0].startswith("-: offset 0: not a tar: ")
    assert run("tarkit", "check", "-", stdin=b"").code == 65


def test_a_reader_that_goes_away_is_success_and_the_list_is_written(spawn: Run, folder: Path) -> None:
    Path("a.tar").write_bytes(shard({f"{n}": {"txt": b""} for n in range(3000)}))
    for more, code in (([], 0), (["--require", "cls", "--bad-keys", "bad.txt"], 65)):
        reading, writing = os.pipe()
        os.close(reading)
        result = spawn("tarkit", "check", "a.tar", *more, stdout=writing)
        os.close(writing)
        assert (result.code, "bug" in result.stderr) == (code, False)
    assert len(Path("bad.txt").read_text().split()) == 3000


def test_the_help_lists_all_kinds(run: Run) -> None:
    text = run("tarkit", "check", "--help").stdout.decode()
    assert all(f"  {kind} " in text for kind in KINDS)


def test_other_key_rules_and_members_outside_of_samples(run: Run, folder: Path) -> None:
    Path("a.tar").write_bytes(
        member("d/a.b.cls", b"1") + member("README", b"x") + member("._x.jpg", b"x") + shard({"d/a.c": {"cls": b"1"}})
    )
    result = run("tarkit", "check", "a.tar", "--key-rule", "last-dot", "--require", "cls")
    assert (result.code, result.stdout) == (0, b"")
    assert "2 samples; 0 findings; skipped members: macos-sidecar 1, no-extension 1" in result.stderr
