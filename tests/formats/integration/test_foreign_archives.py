"""Archives that other programs wrote read the same, and other programs read ours the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tarbuild import END, member, pax

from tarkit.errors import TruncatedError, UnsupportedMemberError
from tarkit.formats.tally import Tally
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.writer import TarWriter

DATA = Path(__file__).resolve().parents[1] / "data" / "foreign"
DEEP = "images/" + "/".join(["a-folder-of-forty-characters-in-its-name"] * 3)
LONG_KEY = "images/" + "long" * 30

# What every archive holds, in order. Contents are of sizes at which padding goes wrong.
SHORT = {
    "images/cat.cls": b"3\n",
    "images/cat.jpg": bytes(range(256)) * 2 + b"\xff",
    "images/dog.empty": b"",
    "images/dog.seg.png": b"\x89PNG\r\n\x1a\n" + bytes(504),
    "images/owl.json": b'{"a": 1}\n' * 57,
}
PREFIXED = {f"{DEEP}/fox.txt": b"only with a prefix, or more\n"}
UNICODE = {"images/\u00e9t\u00e9.txt": "\u00e9t\u00e9\n".encode()}
LONG = {f"{LONG_KEY}.txt": b"longer than a header\n", f"{LONG_KEY}.bin": b"\0\1\2"}
# Besides regular files: a folder first, then a symbolic link and a hard link, which have no
# content.
FOLDER, SYMLINK, HARDLINK = "images", "images/zz.link", "images/zz.hard"
LINKS = {"folder": 1, "symlink": 1, "hard-link": 1, "incomplete-sample": 1}
SIDECARS = {"images/._cat.jpg": b"\0\5\x16\7 resource fork", "._images": b"\0\5\x16\7"}

ALL = {**SHORT, **PREFIXED, **UNICODE, **LONG}
ASCII_USTAR = {**SHORT, **PREFIXED}
USTAR = {**SHORT, **PREFIXED, **UNICODE}

GNU = "tar --format={} -b 1 --mtime=@1700000000 --owner=0 --group=0 --numeric-owner --no-recursion -T LIST -cf OUT"
BSD = "bsdtar --format={} -b 1 --uid 0 --gid 0 --numeric-owner -n -T LIST -cf OUT"
PYTHON = f"python -c CODE {{}} OUT LIST  (CODE is PYTHON_CODE in {Path(__file__).name})"
GO = "go run archive.go {} OUT < LIST"

PYTHON_CODE = """
import sys, tarfile
with tarfile.open(sys.argv[2], "w", format=getattr(tarfile, sys.argv[1] + "_FORMAT")) as archive:
    for name in open(sys.argv[3], encoding="utf-8").read().split():
        archive.add(name, recursive=False)
"""

# Archive -> the command that wrote it, and the files that it holds. Run in a folder that holds
# ALL; LIST is a file of the names, one a line; NAMES are the names themselves; OUT is the archive.
ARCHIVES: dict[str, tuple[str, dict[str, bytes]]] = {
    "gnutar-v7.tar": (GNU.format("v7"), SHORT),
    "gnutar-oldgnu.tar": (GNU.format("oldgnu"), ALL),
    "gnutar-gnu.tar": (GNU.format("gnu"), ALL),
    "gnutar-ustar.tar": (GNU.format("ustar"), USTAR),
    "gnutar-posix.tar": (GNU.format("posix"), ALL),
    "gnutar-defaults.tar": ("tar --no-recursion -T LIST -cf OUT", ALL),
    "bsdtar-v7.tar": (BSD.format("v7tar"), SHORT),
    "bsdtar-ustar.tar": (BSD.format("ustar"), USTAR),
    "bsdtar-pax.tar": (BSD.format("pax"), ALL),
    "bsdtar-gnutar.tar": (BSD.format("gnutar"), ALL),
    "bsdtar-defaults.tar": ("bsdtar -n -T LIST -cf OUT", ALL),
    "python-ustar.tar": (PYTHON.format("USTAR"), USTAR),
    "python-gnu.tar": (PYTHON.format("GNU"), ALL),
    "python-pax.tar": (PYTHON.format("PAX"), ALL),
    "go-ustar.tar": (GO.format("ustar"), ASCII_USTAR),
    "go-pax.tar": (GO.format("pax"), ALL),
    "go-gnu.tar": (GO.format("gnu"), ALL),
    "busybox.tar": ("busybox tar --no-recursion -cf OUT NAMES", ALL),
}
# Read by this reader, but made of others or with something besides.
SPECIAL = {
    "bsdtar-sidecars.tar": BSD.format("ustar") + "  (LIST also names images/._cat.jpg and ._images)",
    "cat-of-two.tar": "cat a.tar b.tar > OUT  (a: GNU tar, gnu, of images/cat.*; b: bsdtar, pax, of the rest)",
    "gnutar-sparse.tar": "tar --format=gnu --sparse -cf OUT hole.bin  (1 MiB hole, then 'end')",
    "gnutar-sparse-pax.tar": "tar --format=posix --sparse -cf OUT hole.bin  (1 MiB hole, then 'end')",
}


def samples_of(files: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
    """The samples that a dict of files should give, in order: (key, fields)."""
    found: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        folder, _, base = name.rpartition("/")
        stem, _, field = base.partition(".")
        found.setdefault(f"{folder}/{stem}", {})[field] = content
    return list(found.items())


def plain(samples: Iterator[Sample]) -> list[tuple[str, dict[str, bytes]]]:
    return [(s["__key__"], {name: value for name, value in s.items() if not name.startswith("__")}) for s in samples]


def check(archive: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(UnsupportedMemberError, match=f"member '{HARDLINK}': a hard link.*--hard-dereference"):
        list(read_samples(str(archive)))
    tally = Tally()
    assert plain(read_samples(str(archive), on_damage="skip", tally=tally)) == samples_of(files)
    assert tally.members == len(files)
    assert tally.skipped == LINKS
    assert tally.damage == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds ALL, the folder, the links and the sidecars, all of one time."""
    return make_tree(tmp_path_factory.mktemp("tree"))


def make_tree(root: Path) -> Path:
    for name, content in {**ALL, **SIDECARS}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / SYMLINK).symlink_to("cat.jpg")
    os.link(root / "images/cat.jpg", root / HARDLINK)
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    return root


def need(program: str) -> None:
    """Skip the test, saying why, if this program is not here."""
    if program == "python":
        return
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")
    if program == "tar":
        version = subprocess.run(["tar", "--version"], capture_output=True, text=True, check=False).stdout
        if "GNU tar" not in version:
            pytest.skip(f"tar on this machine is not GNU tar but {version.splitlines()[:1]}")


def write(name: str, command: str, tree: Path, files: dict[str, bytes], out: Path) -> None:
    """Write one archive with the program that its command names."""
    names = [FOLDER, *files, SYMLINK, HARDLINK]
    listing = out.with_suffix(".list")
    listing.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    program, *words = command.partition("  (")[0].partition(" <")[0].split()
    places = {
        "OUT": [str(out)],
        "LIST": [str(listing)],
        "NAMES": names,
        "CODE": [PYTHON_CODE],
        "archive.go": [str(DATA / "archive.go")],
    }
    argv = [sys.executable if program == "python" else program]
    for word in words:
        argv += places.get(word, [word])
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        argv, cwd=tree, env=environment, input=listing.read_bytes(), capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{name}: {done.stderr.decode()}"


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_a_stored_archive_reads_as_all_others(name: str) -> None:
    check(DATA / name, ARCHIVES[name][1])


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_an_archive_written_here_reads_as_all_others(name: str, tree: Path, tmp_path: Path) -> None:
    command, files = ARCHIVES[name]
    program = command.split()[0]
    need(program)
    write(name, command, tree, files, tmp_path / name)
    check(tmp_path / name, files)


def test_files_of_macos_are_skipped_and_counted() -> None:
    tally = Tally()
    path = str(DATA / "bsdtar-sidecars.tar")
    assert plain(read_samples(path, on_damage="skip", tally=tally)) == samples_of(SHORT)
    assert tally.skipped == {**LINKS, "macos-sidecar": 2}


def test_archives_one_after_the_other_are_all_read() -> None:
    tally = Tally()
    assert plain(read_samples(str(DATA / "cat-of-two.tar"), tally=tally)) == samples_of(ALL)
    assert tally.members == len(ALL)
    with tarfile.open(DATA / "cat-of-two.tar") as archive:
        assert len(archive.getnames()) < len(ALL), "tarfile by itself stops at the first end mark"


@pytest.mark.parametrize("name", ["gnutar-sparse.tar", "gnutar-sparse-pax.tar"])
def test_a_sparse_file_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedMemberError, match=r"member 'hole.bin': a sparse file.*without tar --sparse"):
        list(read_samples(str(DATA / name)))
    tally = Tally()
    assert list(read_samples(str(DATA / name), on_damage="skip", tally=tally)) == []
    assert tally.skipped == {"sparse": 1, "incomplete-sample": 1}


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Three samples whose labels are one file, a symbolic link, a FIFO, and a file of a hole of 1
    MiB.
    """
    folder = tmp_path / "linked"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"{number}.jpg").write_bytes(b"photo")
    (folder / "1.cls").write_bytes(b"7")
    os.link(folder / "1.cls", folder / "2.cls")
    os.link(folder / "1.cls", folder / "3.cls")
    (folder / "4.link").symlink_to("1.cls")
    os.mkfifo(folder / "5.fifo")
    with open(folder / "6.hole", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(b"end")
    return folder


LINKED_NAMES = ["1.cls", "1.jpg", "2.cls", "2.jpg", "3.cls", "3.jpg", "4.link", "5.fifo"]


@pytest.mark.parametrize(
    "command",
    [
        "tar --format=gnu -cf",
        "tar --format=posix -cf",
        "tar --format=v7 -cf",
        "bsdtar -cf",
        "bsdtar --format=gnutar -cf",
        "busybox tar -cf",
    ],
)
def test_hard_links_lose_no_label_in_silence(command: str, linked: Path, tmp_path: Path) -> None:
    need(command.split(maxsplit=1)[0])
    # v7 has no FIFOs, and what a busybox does with one depends on its release.
    names = LINKED_NAMES[: None if "v7" not in command and "busybox" not in command else -1]
    subprocess.run([*command.split(), str(tmp_path / "x.tar"), *names], cwd=linked, check=True, timeout=60)
    with pytest.raises(UnsupportedMemberError, match=r"member '2.cls': a hard link"):
        list(read_samples(str(tmp_path / "x.tar")))
    tally = Tally()
    kept = plain(read_samples(str(tmp_path / "x.tar"), on_damage="skip", tally=tally))
    assert kept == [("1", {"cls": b"7", "jpg": b"photo"})]
    fifo = {"fifo": 1} if "5.fifo" in names else {}
    assert tally.skipped == {"hard-link": 2, "incomplete-sample": 2, "symlink": 1, **fifo}


def test_with_the_option_that_is_named_all_labels_are_there(linked: Path, tmp_path: Path) -> None:
    run("tar", "--hard-dereference", "-C", str(linked), "-cf", str(tmp_path / "x.tar"), *LINKED_NAMES)
    assert [sample["cls"] for sample in read_samples(str(tmp_path / "x.tar"))] == [b"7"] * 3


def test_sparse_files_of_bsdtar_and_the_option_that_is_named(linked: Path, tmp_path: Path) -> None:
    run("bsdtar", "-C", str(linked), "-cf", str(tmp_path / "sparse.tar"), "6.hole")
    run("bsdtar", "--no-read-sparse", "-C", str(linked), "-cf", str(tmp_path / "whole.tar"), "6.hole")
    ((_, fields),) = plain(read_samples(str(tmp_path / "whole.tar")))
    assert fields == {"hole": bytes(1 << 20) + b"end"}
    with tarfile.open(tmp_path / "sparse.tar") as archive:
        if not archive.getmembers()[0].issparse():
            pytest.skip("the file system of this machine reports no holes")
    with pytest.raises(UnsupportedMemberError, match=r"member '6.hole': a sparse file.*--no-read-sparse"):
        list(read_samples(str(tmp_path / "sparse.tar")))


def test_a_volume_label_and_the_rest_of_a_file_on_another_volume(tmp_path: Path) -> None:
    need("tar")
    (tmp_path / "1.bin").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "2.cls").write_bytes(b"2")
    volumes = ["-f", str(tmp_path / "one.tar"), "-f", str(tmp_path / "two.tar"), "-f", str(tmp_path / "three.tar")]
    command = ["tar", "-M", "-L", "20", "-V", "label", "-c", *volumes, "-C", str(tmp_path), "1.bin", "2.cls"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=60)
    with pytest.raises(TruncatedError, match=r"member '1\.bin'"):
        list(read_samples(str(tmp_path / "one.tar")))
    with pytest.raises(UnsupportedMemberError, match=r"member '1\.bin': the rest of a file.*--multi-volume"):
        list(read_samples(str(tmp_path / "two.tar")))
    tally = Tally()
    kept = plain(read_samples(str(tmp_path / "two.tar"), on_damage="skip", tally=tally))
    assert kept == [("2", {"cls": b"2"})]
    assert tally.skipped == {"continuation": 1, "incomplete-sample": 1, "metadata": 1}


def test_a_hard_link_with_content_is_read_as_bsdtar_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(
        member(b"1.cls", b"content")
        + pax({b"mtime": b"1.5"})
        + member(b"2.cls", b"content", kind=b"1")
        + member(b"3.cls", b"3")
        + END
    )
    assert [sample["cls"] for sample in read_samples(str(path))] == [b"content", b"content", b"3"]
    assert run("bsdtar", "-tf", str(path)).split() == ["1.cls", "2.cls", "3.cls"]


def test_the_page_of_origins_names_every_archive_and_its_command() -> None:
    page = (DATA / "README.md").read_text(encoding="utf-8")
    stored = {path.name for path in DATA.glob("*.tar")}
    assert stored == {*ARCHIVES, *SPECIAL}
    commands = {name: command for name, (command, _) in ARCHIVES.items()} | SPECIAL
    for name, command in commands.items():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1 and f"`{command}`" in rows[0], f"{name}: {command}"


# ---- archives of ours, read by other programs

OURS: list[dict[str, object]] = [
    {"__key__": "images/cat", "jpg": bytes(range(256)) * 3, "cls": b"3\n", "seg.png": b""},
    {"__key__": DEEP + "/fox", "txt": b"a name that needs the prefix\n"},
    {"__key__": LONG_KEY, "txt": b"a name that needs an extended header\n", "bin": bytes(1024)},
    {"__key__": "images/\u00e9t\u00e9", "txt": b"x" * 511},
]
OUR_FILES = {f"{s['__key__']}.{f}": s[f] for s in OURS for f in sorted(s) if f != "__key__"}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    path = tmp_path / "ours.tar"
    with TarWriter(str(path)) as writer:
        for sample in OURS:
            writer.write(sample)
    return path


def run(program: str, *arguments: str) -> str:
    need(program)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def with_tar(archive: Path, folder: Path) -> list[str]:
    run("tar", "-xf", str(archive), "-C", str(folder))
    return run("tar", "--quoting-style=literal", "-tf", str(archive)).splitlines()


def with_bsdtar(archive: Path, folder: Path) -> list[str]:
    run("bsdtar", "-xf", str(archive), "-C", str(folder))
    return run("bsdtar", "-tf", str(archive)).splitlines()


def with_python(archive: Path, folder: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        names = opened.getnames()
        for member in opened:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = opened.extractfile(member)
            assert content is not None
            path.write_bytes(content.read())
    return names


@pytest.mark.parametrize("reader", [with_tar, with_bsdtar, with_python])
def test_other_programs_read_what_tarkit_writes(
    reader: Callable[[Path, Path], list[str]], ours: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert reader(ours, folder) == list(OUR_FILES)
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert found == OUR_FILES


def test_gnu_tar_and_bsdtar_list_the_same_owner_mode_and_time(ours: Path) -> None:
    for line in run("tar", "--full-time", "-tvf", str(ours)).splitlines():
        mode, owner, _, day, time, *_ = line.split()
        assert (mode, owner, day, time) == ("-r--r--r--", "bigdata/bigdata", "1970-01-01", "00:00:00")
    for line in run("bsdtar", "-tvf", str(ours)).splitlines():
        mode, _, user, group, *_ = line.split()
        assert (mode, user, group) == ("-r--r--r--", "bigdata", "bigdata")


def test_reading_back_what_tarkit_wrote_gives_the_same_samples(ours: Path) -> None:
    assert plain(read_samples(str(ours))) == samples_of({n: c for n, c in OUR_FILES.items() if isinstance(c, bytes)})
