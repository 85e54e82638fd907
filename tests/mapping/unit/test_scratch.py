"""Samples as files and back, whatever their fields are called and whatever a command left.

Folders of dead runs.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.mapping import removal, scratch
from tarkit.mapping.openfolder import OutsideError
from tarkit.mapping.removal import Remover, remove_folder
from tarkit.mapping.scratch import PREFIX, FieldNameError, Rules, Scratch, collect, extract, sweep
from tarkit.samples.sample import Sample
from tarkit.store import temporary
from tarkit.store.fieldfile import PIECE, FieldFile


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "s"
    extract({"__key__": "d/k", "__url__": "x.tar", "cls": b"3", "seg.png": b""}, str(place), "sample")
    return place


def gathered(place: Path, /, **rules: object) -> tuple[list[Sample], list[str]]:
    return collect(str(place), {"__key__": "d/k"}, Rules(**rules))  # type: ignore[arg-type]


# ---- extraction


def test_extract(folder: Path) -> None:
    assert files_of(folder) == {
        "__key__": b"d/k",
        "__source__": b"x.tar",
        "sample.cls": b"3",
        "sample.seg.png": b"",
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    assert gathered(folder) == ([{"__key__": "d/k", "cls": b"3", "seg.png": b""}], [])


@pytest.mark.parametrize("field", ["a/b", "/etc/x", "../x", "x/..", "/", "a\0b", "n" * 300, "é" * 130, "\ud800"])
def test_fields_that_can_be_no_file(field: str, tmp_path: Path) -> None:
    with pytest.raises(FieldNameError, match="cannot be a file's name") as caught:
        extract({"__key__": "k", field: b"1"}, str(tmp_path / "s"), "sample")
    assert "\n" not in str(caught.value)
    assert "\0" not in str(caught.value)
    assert sorted(files_of(tmp_path / "s")) == ["__key__", "__source__"]
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize("field", ["..", "...", ".", "a b", "a\nb", "-rf", "$(id)", "*", "\udcff", "é", "n" * 200, "~"])
def test_odd_fields_come_back(field: str, tmp_path: Path) -> None:
    place = tmp_path / "s"
    sample = {"__key__": "k", field: b"1"}
    extract(sample, str(place), "sample")
    assert collect(str(place), sample, Rules()) == ([sample], [])
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize("key", ["../../k", "/abs/k", "k\n", "\n", "k\0", "\udcff", "k " * 2000])
def test_keys_are_content_and_never_paths(key: str, tmp_path: Path) -> None:
    place = tmp_path / "s"
    extract({"__key__": key, "x": b"1"}, str(place), "sample")
    assert collect(str(place), {"__key__": key}, Rules()) == ([{"__key__": key, "x": b"1"}], [])


def test_a_full_or_missing_disk_is_no_matter_of_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        extract({"__key__": "k", "x": b"1"}, str(tmp_path / "none" / "s"), "sample")
    (tmp_path / "s").mkdir()
    with pytest.raises(FileExistsError):
        extract({"__key__": "k", "x": b"1"}, str(tmp_path / "s"), "sample")


# ---- gathering


def test_links_are_followed_inside_and_nothing_else_is_read(folder: Path, tmp_path: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_bytes(b"deep")
    (folder / "sample.inner").symlink_to("sample.cls")
    (folder / "sample.chain").symlink_to("deep/er/../back")
    (folder / "deep" / "back").symlink_to("../sample.inner")
    (folder / "way").symlink_to("deep")
    (folder / "sample.way").symlink_to("./way//er/file")
    (folder / "sample.back").symlink_to(f"../{folder.name}/sample.cls")
    (folder / "sample.absolute").symlink_to(folder / "deep" / "er" / "file")
    (folder / "sample.hard").hardlink_to(folder / "sample.cls")
    (folder / "sample.dangling").symlink_to("none")
    (folder / "sample.loop").symlink_to("sample.loop")
    (folder / "sample.folderlink").symlink_to("deep")
    (folder / "sample.here").symlink_to(".")
    (folder / "sample.through").symlink_to("sample.cls/x")
    (folder / "sample.folder").mkdir()
    os.mkfifo(folder / "sample.fifo")
    (folder / "sample.to-fifo").symlink_to("sample.fifo")
    (made,), stray = gathered(folder)
    inside = {"inner": b"3", "back": b"3", "chain": b"3", "way": b"deep", "absolute": b"deep", "hard": b"3"}
    assert made == {"__key__": "d/k", "cls": b"3", "seg.png": b"", **inside}
    links = [f"sample.{name}" for name in ("dangling", "loop", "folderlink", "here", "through", "to-fifo")]
    others = ["sample.folder/ (a folder)", "sample.fifo (a FIFO)", "deep/ (a folder)", "way"]
    assert sorted(stray) == sorted([*(f"{link} (a link that leads to no file)" for link in links), *others])
    remove_folder(str(folder))
    assert os.listdir(tmp_path) == []


LINKS_OUTSIDE = {
    "absolute": "/etc/hostname",
    "relative": "../outside",
    "far": "../../../../../../../../etc/hostname",
    "through a folder": "d/../../outside",
    "through a link to a folder": "up/outside",
    "through two links": "d/first",
    "to a folder": "/etc",
    "to nothing": "/nowhere",
    "a name that begins alike": "FOLDER-2/secret",
    "of a process": "/proc/self/root/etc/hostname",
}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(("sample.x", target) for target in LINKS_OUTSIDE.values()),
        *((name, next(iter(LINKS_OUTSIDE.values()))) for name in ("__key__", "sample.__key__")),
    ],
)
def test_links_that_lead_outside_are_refused(folder: Path, target: str, name: str) -> None:
    """Such as a shard within a sample may hold: unpacked by a command, they would publish any file
    of the machine.
    """
    (folder.parent / "outside").write_bytes(b"secret")
    (folder.parent / "s-2").mkdir()
    (folder.parent / "s-2" / "secret").write_bytes(b"secret")
    (folder / "d").mkdir()
    (folder / "up").symlink_to("..")
    (folder / "d" / "first").symlink_to("../up/outside")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target.replace("FOLDER", str(folder)))
    with pytest.raises(OutsideError, match=f"^{name} is a link that leads out of the sample's folder$"):
        gathered(folder)
    opened = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    assert not [path for path in opened if path.startswith(str(folder.parent))]


def test_links_of_strays_are_not_even_looked_at(folder: Path) -> None:
    (folder / "note").symlink_to("/etc/hostname")
    (folder / "__source__").unlink()
    (folder / "__source__").symlink_to("/etc/hostname")
    assert gathered(folder)[1] == ["note"]


def test_a_link_in_the_place_of_the_folder(folder: Path) -> None:
    (folder.parent / "moved").symlink_to(folder)
    with pytest.raises(NotADirectoryError):
        collect(str(folder.parent / "moved"), {"__key__": "d/k"}, Rules())


def test_links_between_the_folders_of_a_sample(folder: Path) -> None:
    """The same for the samples of a batch: the command had them all."""
    (folder / "sub").mkdir()
    (folder / "sub" / "sample.up").symlink_to("../sample.cls")
    made, _ = gathered(folder, subdirs=True)
    assert made[1] == {"__key__": "d/k/sub", "up": b"3"}
    made, _ = collect(str(folder), {"__key__": "k"}, Rules(), "sub")
    assert made == [{"__key__": "k", "up": b"3"}]
    (folder / "sub" / "sample.up").unlink()
    (folder / "sub" / "sample.up").symlink_to("../../sample.cls")
    with pytest.raises(OutsideError, match=r"^sub/sample\.up is a link"):
        gathered(folder, subdirs=True)


def test_strays(folder: Path) -> None:
    for name in ("core", "sample.", "sample", ".sample.x", ".x", "Sample.x", "other.x"):
        (folder / name).write_bytes(b"1")
    named = "sample. (no field after the dot)"
    assert gathered(folder)[1] == sorted(["core", named, "sample", ".sample.x", ".x", "Sample.x", "other.x"])


@pytest.mark.parametrize(
    ("left", "key"),
    [
        (b"new", "new"),
        (b"new\n", "new"),
        (b"new\n\n", "new\n"),
        (b"new\r\n", "new\r"),
        (b" new ", " new "),
        (b"d/k\n", "d/k"),
        (b"\xff", "\udcff"),
        (None, "d/k"),
    ],
)
def test_the_key_that_a_command_left(left: bytes | None, key: str, folder: Path) -> None:
    if left is None:
        (folder / "__key__").unlink()
    else:
        (folder / "__key__").write_bytes(left)
    (made,), stray = gathered(folder)
    assert (made["__key__"], stray) == (key, [])


@pytest.mark.parametrize("left", [b"", b"\n"])
def test_an_empty_key_is_an_error(left: bytes, folder: Path) -> None:
    (folder / "__key__").write_bytes(left)
    with pytest.raises(ValueError, match="empty __key__"):
        gathered(folder)


@pytest.mark.parametrize(
    ("plain", "own", "key"),
    [
        (b"d/k", b"new\n", "new"),
        (b"d/k", b"d/k\n", "d/k"),
        (b"new", b"d/k", "new"),
        (b"new", b"new\n", "new"),
        (None, b"new", "new"),
    ],
)
def test_the_key_as_a_field(plain: bytes | None, own: bytes, key: str, folder: Path) -> None:
    """As tarp has it.

    It is the key, whatever --include and --exclude let through.
    """
    if plain is None:
        (folder / "__key__").unlink()
    else:
        (folder / "__key__").write_bytes(plain)
    (folder / "sample.__key__").write_bytes(own)
    assert gathered(folder, include=re.compile("cls")) == ([{"__key__": key, "cls": b"3"}], [])


def test_two_new_keys_are_an_error(folder: Path) -> None:
    (folder / "__key__").write_bytes(b"a")
    (folder / "sample.__key__").write_bytes(b"b")
    with pytest.raises(ValueError, match=r"two keys: 'a' in __key__, and 'b' in sample\.__key__"):
        gathered(folder)
    (folder / "__key__").write_bytes(b"d/k")
    (folder / "sample.__key__").write_bytes(b"\n")
    with pytest.raises(ValueError, match=r"empty sample\.__key__"):
        gathered(folder)


def test_keys_of_many_samples(folder: Path) -> None:
    """tarp's own example for its -m."""
    for number in range(3):
        (folder / f"sample-000{number}.__key__").write_bytes(b"%d-k\n" % number)
        (folder / f"sample-000{number}.txt").write_bytes(b"%d" % number)
    (folder / "sample-0003.__key__").write_bytes(b"no field")
    made, stray = gathered(folder, multi=True)
    assert [sample["__key__"] for sample in made] == ["d/k", "0-k", "1-k", "2-k"]
    assert stray == ["sample-0003.__key__"]


@pytest.mark.parametrize("field", ["__mask__", "__url__", "__a.b__", "____"])
def test_metadata_that_a_command_leaves_is_refused(field: str, folder: Path) -> None:
    """Written, no reader would give it back."""
    (folder / f"sample.{field}").write_bytes(b"1")
    with pytest.raises(ValueError, match=rf"'sample\.{re.escape(field)}' cannot be a field: .*; call it 'sample\.\w"):
        gathered(folder)
    assert gathered(folder, exclude=re.compile("__"))[0] == [{"__key__": "d/k", "cls": b"3", "seg.png": b""}]


def test_a_key_that_is_no_file(folder: Path) -> None:
    (folder / "__key__").unlink()
    (folder / "__key__").mkdir()
    (made,), stray = gathered(folder)
    assert (made["__key__"], stray) == ("d/k", ["__key__/ (a folder)"])
    (folder / "__key__").rmdir()
    os.mkfifo(folder / "__key__")
    assert gathered(folder)[1] == ["__key__ (a FIFO)"]


def test_a_large_field_goes_from_file_to_file(tmp_path: Path) -> None:
    """What a command does to its copy changes nothing in the original.

    What it leaves outlives the folder.
    """
    original = FieldFile.keep([b"x" * PIECE, bytes(PIECE), b"y"], str(tmp_path))
    place = tmp_path / "s"
    extract({"__key__": "k", "bin": original, "cls": b"3"}, str(place), "sample")
    assert (place / "sample.bin").read_bytes() == original.read()
    with open(place / "sample.bin", "r+b") as file:
        file.write(b"changed")
    assert original.read().startswith(b"xxxxxxx")
    ((sample,), _) = gathered(place, large=PIECE)
    remove_folder(str(place))
    assert isinstance(sample["bin"], FieldFile)
    assert sample["bin"].read() == b"changed" + original.read()[7:]
    assert sample["cls"] == b"3"


def test_a_large_file_with_another_name_is_read_before_the_next_command_can_change_it(
    folder: Path, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    for later in (b"later" * 1000, b"cut"):
        big.write_bytes(b"first" * 1000)
        (folder / "sample.bin").unlink(missing_ok=True)
        os.link(big, folder / "sample.bin")
        ((sample,), _) = gathered(folder, large=1000)
        with open(big, "r+b") as file:
            file.write(later)
            file.truncate()
        assert isinstance(sample["bin"], FieldFile) and sample["bin"].read() == b"first" * 1000


def test_many_files_are_neither_held_nor_open_together(folder: Path) -> None:
    for number in range(800):
        (folder / f"sample.{number:04}").write_bytes(b"%04d" % number * 250)
    with limited_to(200):
        ((sample,), _) = gathered(folder, large=10_000)
        remove_folder(str(folder))
        values = {field: value for field, value in sample.items() if field.isdigit()}
        assert sum(len(value) for value in values.values() if isinstance(value, bytes)) <= 20_000
        read = {field: value.read() if isinstance(value, FieldFile) else value for field, value in values.items()}
    assert read == {f"{number:04}": b"%04d" % number * 250 for number in range(800)}


@contextmanager
def limited_to(files: int) -> Iterator[None]:
    """So many files can be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_key_of_megabytes_is_an_error(folder: Path) -> None:
    (folder / "__key__").write_bytes(b"k" * (PIECE + 1))
    with pytest.raises(ValueError, match=f"a __key__ of {PIECE + 1} bytes"):
        gathered(folder)


def test_all_removed_is_filtered(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    assert gathered(folder) == ([], [])
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        gathered(folder)


def test_multi(folder: Path) -> None:
    for name in ("sample-0.x", "sample-1.x", "left.y", "left.z", "nofield"):
        (folder / name).write_bytes(name.encode())
    made, stray = gathered(folder, multi=True)
    assert stray == ["nofield"]
    assert [sample["__key__"] for sample in made] == ["d/kleft", "d/k", "d/k-0", "d/k-1"]
    assert made[0] == {"__key__": "d/kleft", "y": b"left.y", "z": b"left.z"}
    made, _ = gathered(folder, multi=True, separator="_")
    assert [sample["__key__"] for sample in made] == ["d/k_left", "d/k", "d/k_-0", "d/k_-1"]


def test_multi_never_gives_one_key_twice(folder: Path) -> None:
    for name in ("sample0.x", "0.x"):
        (folder / name).write_bytes(b"1")
    with pytest.raises(ValueError, match="the same key"):
        gathered(folder, multi=True)


def test_subdirs(folder: Path) -> None:
    for name in ("b", "a"):
        (folder / name / "deeper").mkdir(parents=True)
        (folder / name / "sample.x").write_bytes(name.encode())
        (folder / name / "note").write_bytes(b"")
    (folder / "empty").mkdir()
    assert gathered(folder)[1] == ["a/ (a folder)", "b/ (a folder)", "empty/ (a folder)"]
    (folder / "a" / "__key__").write_bytes(b"mine\n")
    made, stray = gathered(folder, subdirs=True)
    assert [sample["__key__"] for sample in made] == ["d/k", "mine", "d/k/b"]
    assert stray == ["a/note", "a/deeper/ (a folder)", "b/note", "b/deeper/ (a folder)"]
    assert [s["__key__"] for s in gathered(folder, subdirs=True, separator="-")[0]] == ["d/k", "mine", "d/k-b"]


def test_include_and_exclude(folder: Path) -> None:
    def fields(**rules: object) -> set[str]:
        return {field for sample in gathered(folder, **rules)[0] for field in sample} - {"__key__"}

    assert fields(include=re.compile(r"\.cls\Z")) == {"cls"}
    assert fields(exclude=re.compile("png")) == {"cls"}
    assert fields(include=re.compile("sample"), exclude=re.compile("cls")) == {"seg.png"}
    assert fields(include=re.compile("none")) == set()
    assert gathered(folder, include=re.compile("none"))[1] == []


def test_remove_whatever_is_there(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x").write_bytes(b"")
    (folder / "deep" / "er").chmod(0o500)
    (folder / "deep").chmod(0o000)
    remove_folder(str(folder))
    assert not folder.exists()
    remove_folder(str(folder))


def test_remove_does_not_go_through_a_link(folder: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "x").write_bytes(b"1")
    shutil.rmtree(folder)
    folder.symlink_to(keep)
    remove_folder(str(folder))
    assert not folder.is_symlink()
    assert files_of(keep) == {"x": b"1"}


# ---- the scratch folder


def test_a_scratch_folder_is_private_locked_and_gone_afterwards(tmp_path: Path) -> None:
    with Scratch(str(tmp_path)) as scratch:
        place = Path(scratch.path)
        assert place.parent == tmp_path
        assert place.stat().st_mode & 0o777 == 0o700
        sweep(str(tmp_path))
        with open(place / "lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (place / "deep" / "er").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_one_s_own(tmp_path: Path) -> None:
    with Scratch(path=str(tmp_path / "w-{pid}")) as scratch:
        assert scratch.path == str(tmp_path / f"w-{os.getpid()}")
        with pytest.raises(UsageError, match="exists"):
            Scratch(path=str(tmp_path / "w-{pid}"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StreamError, match="no scratch folder"):
        Scratch(path=str(tmp_path / "none" / "w"))
    with pytest.raises(StreamError, match="no scratch folder"):
        Scratch(str(tmp_path / "none"))


def test_a_folder_that_vanishes_meanwhile_keeps_no_other_from_being_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{PREFIX}{number}").mkdir()
        (tmp_path / f"{PREFIX}{number}" / "lock").write_bytes(b"")
    real = os.scandir

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        if path == str(tmp_path):
            shutil.rmtree(found[0].path)
        yield iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(scratch.os, "scandir", scandir)
        sweep(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_killed_while_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock goes last, so that the next run knows whose folder it is."""
    run = scratch.Scratch(str(tmp_path))
    for number in range(20):
        folder = Path(run.path) / f"s{number}"
        folder.mkdir()
        (folder / "sample.txt").write_text("x")
    removed: list[str] = []

    def killed(folder: str) -> None:
        removed.append(folder)
        if len(removed) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scratch, "remove_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            run.__exit__()
    temporary.close_locked(run._lock, run._unborn)
    scratch.sweep(str(tmp_path))
    assert os.listdir(tmp_path) == []


# ---- removal in a thread


def test_removals_are_bounded_and_their_errors_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    removed: list[str] = []

    def slowly(folder: str) -> None:
        gate.wait()
        if folder.endswith("bad"):
            raise ValueError(folder)
        removed.append(folder)

    monkeypatch.setattr(removal, "remove_folder", slowly)
    with Remover() as remover:
        assert remover.wait_for_one() is False
        for number in range(64):
            remover.add(str(number))
        assert removed == []
        # The next one waits for the first.
        threading.Timer(0.05, gate.set).start()
        remover.add("bad")
        assert removed[0] == "0"
        with pytest.raises(ValueError, match="bad"):
            while remover.wait_for_one():
                pass
        remover.add("last")
    assert removed == [*map(str, range(64)), "last"]
