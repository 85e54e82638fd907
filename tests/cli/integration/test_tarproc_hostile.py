"""Commands and shards that do what they should not."""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tarproc_support import TARPROC, Bench, contents, numbered, one_line


def _only_k1(command: str) -> str:
    return f"if [ $(cat sample.cls) = 1 ]; then {command}; fi"


def _files(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with its mode and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


def test_100_megabytes_of_output(bench: Bench) -> None:
    """They are shown whole, and not held in memory."""
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=open('shown', 'wb'))\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    command = _only_k1("head -c 100000000 /dev/zero")
    done = subprocess.run(
        [sys.executable, "-c", script, TARPROC, "-q", "-c", command, "in.tar", "-o", "out.tar"],
        cwd=bench.path,
        env=bench.env,
        stdout=subprocess.PIPE,
        check=True,
    )
    code, kilobytes = map(int, done.stdout.split())
    assert code == 0 and kilobytes < 150_000
    assert (bench.path / "shown").stat().st_size == 100_000_000
    assert bench.leftovers() == [] and len(bench.members()) == 6


def test_output_that_waits_is_in_the_window(bench: Bench) -> None:
    """While the first command is slow, what the others print does not pile up in memory."""
    bench.shard(numbered(600))
    command = "read n < sample.cls || true; [ $n != 0 ] || sleep 2; printf %0300000d 0"
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, TARPROC, "-q", "-c", command, "in.tar", "-p", "4", "--mem", "16M"],
        cwd=bench.path,
        env=bench.env,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert int(done.stdout) < 120_000


def test_folder_in_whose_place_is_a_link(bench: Bench) -> None:
    """What the link points to is not removed with the sample's folder."""
    precious = bench.path / "precious"
    precious.mkdir()
    (precious / "file").write_text("still here")
    command = _only_k1(f'd="$PWD"; cd /; rm -r "$d"; ln -s {precious} "$d"')
    done = bench.run("-c", command, "in.tar", "-o", "out.tar")
    assert done.returncode in (0, 3)
    assert (precious / "file").read_text() == "still here"
    assert (precious.stat().st_mode & 0o777) == 0o755


def test_scratch_is_deleted(bench: Bench) -> None:
    bench.shard(numbered(50))
    # Again and again, also after an error: the next sample is extracted there meanwhile.
    command = _only_k1('d=$(dirname "$PWD"); cd /; while [ -e "$d" ]; do rm -rf "$d" || true; done')
    done = bench.run("-c", command, "in.tar", "-o", "out.tar")
    assert done.returncode == 1
    assert sorted(os.listdir(bench.path)) == ["in.tar"]
    assert b"cannot be extracted" in done.stderr and len(done.stderr.splitlines()) <= 2


def test_odd_field_names(bench: Bench) -> None:
    names = ["a\nb", "größe", "日本", "x" * 240, "UPPER.lower", " ", "-n", "*", "'\"", "a=b", "\\"]
    script = "import os\n" + "".join(f"open('sample.' + {name!r}, 'w').write('!')\n" for name in names)
    (bench.path / "write.py").write_text(script)
    done = bench.run("-S", "write.py", "--interpreter", sys.executable, "in.tar", "-o", "out.tar", "--count", "1")
    assert done.returncode == 0, done.stderr
    assert set(bench.members()) == {f"k0.{name}" for name in (*names, "cls", "dat")}
    done = bench.run("-c", "ls | wc -l", "out.tar", "-o", "again.tar")
    assert done.returncode == 0 and bench.members("again.tar") == bench.members()


def test_field_name_that_is_not_unicode(bench: Bench) -> None:
    done = bench.run("-c", "printf x > $'sample.\\377'", "in.tar", "-o", "out.tar", "--count", "1")
    assert done.returncode == 0, done.stderr
    done = bench.run("-c", "cat $'sample.\\377'", "out.tar")
    assert done.stdout == b"x"


def test_what_is_left_besides_files(bench: Bench) -> None:
    command = (
        "mkdir d e; touch d/file; mkfifo sample.fifo; ln -s nowhere sample.dangling; "
        "ln -s d sample.folder; ln -s sample.cls sample.link; touch other"
    )
    done = bench.run("-v", "-c", command, "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 0
    assert {name for name in bench.members() if name.startswith("k0.")} == {"k0.cls", "k0.dat", "k0.link"}
    assert b"left in its folder, but not part of the output" in done.stderr
    assert b"sample.fifo (a FIFO)" in done.stderr and b"sample.dangling (a link that leads to no file)" in done.stderr
    # Of each sample: d, e, two links, the pipe and the file.
    assert bench.report()["stray_files"] == 3 * 6


@pytest.mark.parametrize("target", ["/proc/self/root{0}/secret", "{0}/secret", "../../../run/secret"])
def test_an_unpacked_link_publishes_no_other_file(bench: Bench, target: str) -> None:
    (bench.path / "secret").write_bytes(b"secret")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("sample.new")
        info.type, info.linkname = tarfile.SYMTYPE, target.format(bench.path)
        archive.addfile(info)
    bench.shard([("k0", {"tar": buffer.getvalue()}), ("k1", {"txt": b"good"})])
    command = "if [ -e sample.tar ]; then tar xf sample.tar && cat sample.new; fi"
    done = bench.run("-q", "-c", command, "in.tar", "-o", "out.tar")
    # The command itself can read what its user can.
    assert (done.returncode, done.stdout) == (3, b"secret")
    assert b"k0: what the command left cannot be used: sample.new is a link that leads out" in done.stderr
    assert bench.members() == {"k1.txt": b"good"}
    assert set(bench.members("out.tar.failed.tar")) == {"k0.tar", "k0.__error__.txt"}


@pytest.mark.parametrize("name", ["-rf", " a  b -rf $(id) `id` * \\ '\" # ü \udcff a\tb \r"])
def test_odd_scratch_folders(bench: Bench, name: str) -> None:
    place = bench.tmp / name
    place.mkdir()
    command = 'cp sample.cls sample.copy; pwd | grep -c "$(cat sample.cls)$"'
    done = bench.run("-q", "-p", "2", "-c", command, "in.tar", "-o", "out.tar", env={"TMPDIR": str(place)}, tidy=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n" * 3, b"")
    assert bench.members()["k2.copy"] == b"2" and os.listdir(place) == []


@pytest.mark.parametrize("how", ["TMPDIR", "--working-dir", "current folder"])
def test_a_scratch_folder_with_a_newline_is_refused(bench: Bench, how: str) -> None:
    """What commands print about their folder would be read as two names."""
    place = bench.tmp / "a\nb"
    place.mkdir()
    env = {"TMPDIR": str(place)} if how == "TMPDIR" else {}
    words = {"TMPDIR": [], "--working-dir": ["-w", f"{place}/new"], "current folder": ["-w", "new"]}[how]
    done = subprocess.run(
        [TARPROC, "-c", "true", *words, str(bench.path / "in.tar"), "-o", str(bench.path / "out.tar")],
        cwd=place if how == "current folder" else bench.path,
        env={**bench.env, **env},
        capture_output=True,
    )
    assert done.returncode == 2
    assert "has a newline in its name; set TMPDIR to another folder" in one_line(done.stderr)
    assert os.listdir(place) == [] and os.listdir(bench.path) == ["in.tar"]


@pytest.mark.parametrize("command", ["chmod 000 .", "mkdir d; touch d/f; chmod 000 d", "touch x; chmod 555 .; true"])
def test_folder_without_permissions(open_bench: Bench, command: str) -> None:
    """As a user for whom they count."""
    bench = open_bench
    bench.shard(numbered(3))
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to become someone else")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run([*become, TARPROC, "--version"], capture_output=True)
        if done.returncode:
            pytest.skip("the package is where another user cannot read it")
    else:
        become = []
    done = subprocess.run(
        [*become, TARPROC, "-c", _only_k1(command), "in.tar", "-o", "out.tar"],
        cwd=bench.path,
        env=bench.env,
        capture_output=True,
    )
    assert done.returncode in (0, 3), done.stderr
    assert bench.leftovers() == []


def test_keys_that_collide(bench: Bench) -> None:
    done = bench.run("-c", "printf same > __key__", "in.tar", "-o", "out.tar", "--report", "report.json")
    assert done.returncode == 3
    assert set(bench.members()) == {"same.cls", "same.dat"}
    assert bench.report()["failures"] == {"unwritable": 2}
    # Side by side they would be read back as one sample, whatever is allowed.
    done = bench.run("-c", "printf same > __key__", "in.tar", "-o", "out.tar", "--on-repeated-key", "allow")
    assert done.returncode == 3 and b"right before" in done.stderr
    apart = "grep -q k1 __key__ || printf same > __key__"
    assert bench.run("-c", apart, "in.tar", "-o", "out.tar").returncode == 3
    assert bench.run("-c", apart, "in.tar", "-o", "out.tar", "--on-repeated-key", "allow").returncode == 0


def test_key_that_leads_outside(bench: Bench) -> None:
    """It is a name in a tar, which others might extract: tarkit writes it nowhere itself."""
    before = _files(bench.path)
    done = bench.run("-c", _only_k1("printf ../../evil > __key__"), "in.tar", "-o", "out.tar")
    assert done.returncode in (0, 3)
    again = bench.run("-c", "true", "out.tar", "-o", "again.tar")
    assert again.returncode in (0, 3)
    after = _files(bench.path)
    assert {name for name in after if name not in before} <= {"out.tar", "out.tar.failed.tar", "again.tar"}


def _member(archive: tarfile.TarFile, name: str, content: bytes = b"evil", kind: bytes = tarfile.REGTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = "/etc/passwd"
    archive.addfile(info, io.BytesIO(content) if info.size else None)


HOSTILE_NAMES = [
    "../../evil.txt",
    "../../../../../../../../tmp/evil.txt",
    "/etc/evil.txt",
    "a/../../../evil.txt",
    "k.../../evil",
    "k.txt/../../../evil",
    "k.a/b",
    "line\nbreak.txt",
    "k.new\nline",
    "k." + "f" * 300,
    "k" * 65536 + ".txt",
    "./k.txt",
    "k..txt",
    "k.__key__",
    "$(touch evil).txt",
    "k.`touch evil`",
    "; touch evil;.txt",
    "-rf.txt",
    "~/evil.txt",
    "C:\\evil.txt",
]


@pytest.mark.parametrize("at", range(len(HOSTILE_NAMES)))
def test_hostile_name(bench: Bench, at: int) -> None:
    name, others = HOSTILE_NAMES[at], [["-c", "ls", "--subdirs", "-m", "--batch", "2"], ["--map", "m.py:f"]]
    with tarfile.open(bench.path / "evil.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        _member(archive, "good.txt", b"good")
        _member(archive, name)
        _member(archive, "last.txt", b"good")
    (bench.path / "m.py").write_text("def f(sample):\n    return sample\n")
    before = _files(bench.path.parent)
    for options in (["-c", "ls -a; cat __key__"], others[at % 2]):
        done = bench.run(*options, "evil.tar", "-o", "out.tar")
        assert done.returncode in (0, 3, 65), done.stderr
    after = _files(bench.path.parent)
    assert after.keys() - before <= {"run/out.tar", "run/out.tar.failed.tar"}
    assert {path: after[path] for path in before if path in after} == before
    assert not os.path.exists("/etc/evil.txt") and not os.path.exists("/tmp/evil.txt")


def test_hostile_kinds_of_members(bench: Bench) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
    with tarfile.open(bench.path / "evil.tar", "w") as archive:
        for number, kind in enumerate(kinds):
            _member(archive, f"k.{number}", kind=kind)
        _member(archive, "k.txt", b"good")
    done = bench.run("-c", "ls; find . -type l -o -type p -o -type c", "evil.tar", "-o", "out.tar")
    assert done.returncode == 0
    assert done.stdout == b"__key__\n__source__\nsample.txt\n"
    assert b"skipped members" in done.stderr
    with tarfile.open(bench.path / "evil.tar", "w") as archive:
        _member(archive, "k.link", kind=tarfile.LNKTYPE)
    done = bench.run("-c", "cat sample.link", "evil.tar", "-o", "out.tar")
    assert (done.returncode, done.stdout) == (65, b"") and "k.link" in one_line(done.stderr)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], stderr=subprocess.PIPE, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small file system here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("slots", ["1", "4"])
def test_scratch_disk_is_too_small_for_a_sample(bench: Bench, small_disk: Path, slots: str) -> None:
    bench.shard(numbered(4, 3_000_000))
    done = bench.run("-c", "true", "in.tar", "-o", "out.tar", "-p", slots, env={"TMPDIR": str(small_disk)})
    assert done.returncode == 1
    assert "No space left on device" in one_line(done.stderr) and "TMPDIR" in one_line(done.stderr)
    assert sorted(os.listdir(bench.path)) == ["in.tar"]
    assert os.listdir(small_disk) == []


def test_scratch_disk_with_room_for_some_samples(bench: Bench, small_disk: Path) -> None:
    """Then fewer are extracted ahead."""
    bench.shard(numbered(40, 600_000))
    done = bench.run("-c", "sleep 0.01", "in.tar", "-o", "out.tar", "-p", "8", env={"TMPDIR": str(small_disk)})
    assert done.returncode == 0, done.stderr
    assert bench.members() == contents(bench.path / "in.tar")


def test_command_fills_the_scratch_disk(bench: Bench, small_disk: Path) -> None:
    command = _only_k1("head -c 5000000 /dev/zero > sample.big")
    done = bench.run("-c", command, "in.tar", "-o", "out.tar", env={"TMPDIR": str(small_disk)})
    assert done.returncode == 3
    # Its complaint may have found no room either.
    assert bench.members("out.tar.failed.tar")["k1.__error__.txt"].startswith(b"exit code 1\n")
    assert len(bench.members()) == 4


def test_output_disk_is_full(bench: Bench, small_disk: Path) -> None:
    bench.shard(numbered(10, 600_000))
    target = small_disk / "out.tar"
    done = bench.run("-c", "true", "in.tar", "-o", str(target), "-p", "4")
    assert done.returncode == 1
    assert "no space left on device" in one_line(done.stderr)
    assert os.listdir(small_disk) == []


def test_file_size_limit(bench: Bench) -> None:
    bench.shard(numbered(10, 600_000))
    limit = 2_000_000

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = bench.run("-c", "true", "in.tar", "-o", "out.tar", preexec_fn=restrict)
    assert done.returncode == 1
    assert "file too large" in one_line(done.stderr).lower()
    assert sorted(os.listdir(bench.path)) == ["in.tar"]
