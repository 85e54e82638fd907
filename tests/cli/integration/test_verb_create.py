"""tarkit create: from files and folders, and from plans."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


def make(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


# ---- files and folders


def test_files_and_folders_become_samples_sorted_by_key(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", b_txt="B", a_txt="A", z__c_txt="C", z__c_seg_png="S", a_cls="1")
    out = tmp_path / "out.tar"
    result = run("tarkit", "create", "-o", out, "-C", data, "z", "b.txt", "a.txt", "a.cls")
    assert result.code == 0
    assert result.stderr == "tarkit create: 3 samples, 5 bytes of content\n"
    assert list(members(out)) == ["a.cls", "a.txt", "b.txt", "z/c.seg.png", "z/c.txt"]
    again = tmp_path / "again.tar"
    assert run("tarkit", "create", "-q", "-o", again, "-C", data, "a.cls", "a.txt", "b.txt", "z").stderr == ""
    assert again.read_bytes() == out.read_bytes()
    with TarWriter(str(tmp_path / "written.tar"), encoder=False, mtime=0) as writer:
        for sample in read_samples(str(out)):
            writer.write(sample)
    assert (tmp_path / "written.tar").read_bytes() == out.read_bytes()


def test_files_of_one_sample_are_adjacent_whatever_the_names(run: Run, tmp_path: Path) -> None:
    """In a folder's order, x-1.txt comes between x.0.txt's and x.txt's places for other rules."""
    data = make(tmp_path / "data", **{"x_txt": "1", "x-1_txt": "2", "x_1_cls": "3", "x-1_cls": "4"})
    out = tmp_path / "out.tar"
    assert run("tarkit", "create", "-o", out, data, "--key-rule", "last-dot").code == 0
    found = [sample["__key__"].rpartition("/")[2] for sample in read_samples(str(out), rule="last-dot")]
    assert found == ["x", "x-1", "x.1"]


def test_leading_slashes_and_dots_are_stripped_and_told(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A", b_txt="B")
    out = tmp_path / "out.tar"
    result = run("tarkit", "create", "-o", out, "-C", data, ".", stdin=b"")
    assert list(members(out)) == ["a.txt", "b.txt"]
    assert "2 names lost a leading / or ./" in result.stderr
    assert run("tarkit", "create", "-o", out, data / "a.txt").code == 0
    assert list(members(out)) == [str(data / "a.txt").lstrip("/")]


def test_output_to_standard_output_and_compressed(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    plain = run("tarkit", "create", "-o", "-", "-C", data, "a.txt")
    assert run("tarkit", "create", "-o", tmp_path / "o.tar.gz", "-C", data, "a.txt").code == 0
    assert (tmp_path / "o.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert run("tarkit", "cat", "-q", tmp_path / "o.tar.gz").stdout == plain.stdout


def test_mtime(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    assert run("tarkit", "create", "-o", tmp_path / "o.tar", data, "--mtime", "99").code == 0
    with tarfile.open(tmp_path / "o.tar") as archive:
        assert [info.mtime for info in archive] == [99]


def test_others_are_refused_or_counted(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A", README="x", _hidden="y")
    os.mkfifo(data / "pipe.txt")
    (data / "folder").mkdir()
    (data / "loop").symlink_to(data)
    out = tmp_path / "out.tar"
    result = run("tarkit", "create", "-o", out, data)
    assert (result.code, out.exists()) == (65, False)
    assert "no part of a sample: hidden (and 3 more)" in result.stderr and "--skip-others" in result.stderr
    result = run("tarkit", "create", "-o", out, data, "--skip-others")
    assert result.code == 0
    assert "left out: hidden 1, link to a folder 1, no-extension 1, not-a-file 1" in result.stderr
    assert len(members(out)) == 1


def test_links_to_files_are_followed(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    (tmp_path / "b.txt").symlink_to(data / "a.txt")
    (tmp_path / "linked").symlink_to(data)
    out = tmp_path / "out.tar"
    assert run("tarkit", "create", "-o", out, "-C", tmp_path, "b.txt", "linked").code == 0
    assert members(out) == {"b.txt": b"A", "linked/a.txt": b"A"}
    (tmp_path / "b.txt").unlink()
    (tmp_path / "b.txt").symlink_to("nowhere")
    result = run("tarkit", "create", "-o", out, "-C", tmp_path, "b.txt")
    assert result.code == 66 and "the target of this link does not exist" in result.stderr


def test_the_output_is_not_put_into_itself(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    for _ in range(2):
        result = run("tarkit", "create", "-o", data / "out.tar", "-C", data, ".")
        assert result.code == 0
        assert list(members(data / "out.tar")) == ["a.txt"]
    assert "left out: the output itself 1" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "give files or folders, or --plan"),
        (["a.txt", "--plan", "p"], 2, "not both"),
        (["a.txt", "--allow-pipe"], 2, "--allow-pipe goes with --plan"),
        (["--plan", "p", "--skip-others"], 2, "--skip-others goes with files"),
        (["nosuch.txt"], 66, "no such file or folder"),
        (["empty"], 66, "no file of a sample"),
        (["../data/a.txt"], 2, ".. in it"),
        ([""], 2, "name is empty"),
        (["a.txt", "a.txt"], 65, "given twice"),
        (["a.txt", "--key-rule", "("], 2, "key rule"),
        (["a.txt", "-C", "nosuch"], 66, "-C names no folder"),
    ],
)
def test_what_can_not_be(arguments: list[str], code: int, words: str, run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    (data / "empty").mkdir()
    out = tmp_path / "out.tar"
    place = [] if "-C" in arguments else ["-C", data]
    result = run("tarkit", "create", "-o", out, *place, *arguments)
    assert (result.code, result.stdout) == (code, b"")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


# ---- plans


def test_plan(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_gz="not gzip", **{"x": "X"})
    text = (
        "\ufeff# a comment\n\n"
        f"z.gz file:a.gz\nz.txt\ttext:  two  words \r\nz.url file://{data}/x\n"
        "  # another\nb/a.txt x\nb/a.cls text:\nb/a.pipe pipe:echo hi; echo there"
    )
    out = tmp_path / "out.tar"
    result = run("tarkit", "create", "--plan", "-", "-o", out, "-C", data, "--allow-pipe", stdin=text.encode())
    assert result.stderr == "tarkit create: 2 samples, 32 bytes of content\n"
    assert members(out) == {
        "z.gz": b"not gzip",
        "z.txt": b"  two  words ",
        "z.url": b"X",
        "b/a.cls": b"",
        "b/a.pipe": b"hi\nthere\n",
        "b/a.txt": b"X",
    }
    assert [sample["__key__"] for sample in read_samples(str(out))] == ["z", "b/a"]


def test_plan_takes_content_as_it_is(run: Run, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x"))
    plan = tmp_path / "plan.txt"
    plan.write_text(f"a.gz {tmp_path}/x.gz\n")
    assert run("tarkit", "create", "--plan", plan, "-o", tmp_path / "o.tar").code == 0
    assert members(tmp_path / "o.tar")["a.gz"] == (tmp_path / "x.gz").read_bytes()


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ("a.txt", 2, "plan.txt:2: 'a.txt' is not NAME SOURCE"),
        ("a.txt text", 66, "wanted by"),
        ("README text:x", 2, "plan.txt:2: the name 'README' cannot be a file of a sample (no-extension)"),
        ("/a.txt text:x", 2, "plan.txt:2: the name '/a.txt' begins with /"),
        ("a/../b.txt text:x", 2, "has .. in it"),
        ("a.txt pipe:touch RAN", 2, "plan.txt:2: commands are run only with --allow-pipe"),
        ("a.txt -", 2, "plan.txt:2: the source '-' names nothing"),
        ("a.txt file:", 2, "names nothing"),
        ("a.txt text:1\nb.txt text:2\na.cls text:3", 65, "plan.txt:4: the key comes back"),
        ("a.txt text:1\na.txt text:2", 65, "plan.txt:3: 'a.txt' is listed twice"),
        ("a.txt nosuch", 66, "no such file (wanted by"),
        ("a.txt nosuchscheme://x", 2, "plan.txt:2: "),
        ("a.txt .", 1, "is a directory, not a file (wanted by"),
        ("", 66, "the plan has no lines"),
    ],
)  # fmt: skip
def test_plans_that_can_not_be(lines: str, code: int, words: str, run: Run, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.txt", tmp_path / "out.tar"
    plan.write_text(f"# first line\n{lines}\n")
    result = run("tarkit", "create", "--plan", plan, "-o", out, "-C", tmp_path)
    assert (result.code, result.stdout) == (code, b"")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["plan.txt"]


def test_a_command_that_fails_publishes_nothing(run: Run, tmp_path: Path) -> None:
    plan = b"a.txt pipe:echo partial; exit 4\n"
    result = run("tarkit", "create", "--plan", "-", "--allow-pipe", "-o", tmp_path / "o.tar", stdin=plan)
    assert result.code == 1 and "exit status 4 (wanted by -:1)" in result.stderr
    assert os.listdir(tmp_path) == []


def test_missing_plan(run: Run, tmp_path: Path) -> None:
    result = run("tarkit", "create", "--plan", tmp_path / "nosuch", "-o", tmp_path / "o.tar")
    assert result.code == 66 and "nosuch" in result.stderr


# ---- names with dots of their own


@pytest.mark.parametrize(
    ("names", "kind", "last_dot"),
    [
        (("img_0.5.jpg", "img_0.7.jpg"), "jpg", True),
        (("a.JPEG", "a.jpg"), "jpg", False),
        (("a.JPG", "a.jpg"), "jpg", False),
        (("a.input.png", "a.output.PNG"), "png", True),
        (("a.tif", "a.x.tiff"), "tif", True),
        (("a.0.json.gz", "a.1.json.gz"), "json.gz", True),
        (("z/a.cls", "z/a.1.cls"), "cls", True),
    ],
)
def test_files_of_one_sample_with_one_extension(
    names: tuple[str, str], kind: str, last_dot: bool, run: Run, tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out.tar"
    for name in names:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(b"1")
    plan = tmp_path / "plan"
    plan.write_text("".join(f"{name} text:1\n" for name in names))
    for source in (["-C", data, "."], ["--plan", plan]):
        result = run("tarkit", "create", "-o", out, *source)
        assert (result.code, out.exists()) == (65, False)
        assert all(repr(name) in result.stderr for name in names), result.stderr
        assert f"two {kind} fields of one sample" in result.stderr
        assert "--on-same-extension allow" in result.stderr
        assert ("--key-rule last-dot" in result.stderr) == last_dot
        assert run("tarkit", "create", "-q", "-o", out, *source, "--on-same-extension", "allow").code == 0
        assert sorted(members(out)) == sorted(names)
        out.unlink()
        if last_dot:
            assert run("tarkit", "create", "-q", "-o", out, *source, "--key-rule", "last-dot").code == 0
            out.unlink()


def test_files_that_end_with_a_dot_are_named_as_any_other(run: Run, tmp_path: Path) -> None:
    for name in ("a.x.", "a.y."):
        (tmp_path / name).write_bytes(b"1")
    result = run("tarkit", "create", "-o", tmp_path / "out.tar", "-C", tmp_path, "a.x.", "a.y.")
    assert result.code == 65
    assert "'a.x.' and 'a.y.' would be two fields of one sample; pass --on-same-ext" in result.stderr


def test_files_of_one_sample_with_other_extensions(run: Run, tmp_path: Path) -> None:
    names = ["a.jpg", "a.json", "a.json.gz", "a.seg.png", "b.jpg", "B.JPG"]
    plan = tmp_path / "plan"
    plan.write_text("".join(f"{name} text:1\n" for name in names))
    assert run("tarkit", "create", "-o", tmp_path / "out.tar", "--plan", plan).code == 0


# ---- a series of shards


def test_a_pattern_is_a_series_of_shards(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", **{f"s{number}_txt": "x" * 10 for number in range(7)})
    out = [tmp_path / "new" / f"o-{number:03d}.tar" for number in range(3)]
    out[0].parent.mkdir()
    command = ["tarkit", "create", "-o", f"{tmp_path}/new/o-%03d.tar", data, "--maxcount", "3"]
    result = run(*command)
    assert (result.code, result.lines) == (0, [str(path) for path in out])
    assert "7 samples in 3 shards, 70 bytes of content; " in result.stderr
    assert [len(members(path)) for path in out] == [3, 3, 1]
    assert run(*command).code == 2
    assert run(*command, "--force", "--maxcount", "4").code == 0
    assert [path.exists() for path in out] == [True, True, False]


def test_shards_of_an_earlier_run_are_not_put_into_new_ones(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A", b_txt="B")
    command = ["tarkit", "create", "-o", f"{data}/o-%d.tar", "-C", data, ".", "--maxcount", "1"]
    assert run(*command).code == 0
    result = run(*command, "--force")
    assert result.code == 0 and "left out: the output itself 2" in result.stderr
    assert [list(members(data / f"o-{number}.tar")) for number in range(2)] == [["a.txt"], ["b.txt"]]


def test_an_output_that_goes_into_itself_or_has_no_folder(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    shard = data / "o.tar"
    shard.write_bytes(b"old")
    os.link(shard, data / "b.tar")
    (data / "plan").write_text("a.txt text:1\no.tar b.tar\n")
    for what in (["a.txt", "b.tar"], ["--plan", data / "plan"]):
        result = run("tarkit", "create", "-o", shard, "-C", data, *what)
        assert result.code == 2 and "b.tar is an input, and the same file as the output" in result.stderr
        assert shard.read_bytes() == b"old"
    for output in ("new/x.tar", "new/x-%d.tar"):
        result = run("tarkit", "create", "-o", f"{tmp_path}/{output}", "gone.txt")
        assert result.code == 2 and f"the folder {tmp_path}/new is missing" in result.stderr


def test_a_series_that_would_replace_the_files_that_go_into_it_is_refused(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A", b_txt="B")
    (data / "o-0.tar").write_bytes(b"old")
    (data / "plan").write_text("a.txt text:1\no.tar o-0.tar\n")
    for what in (["a.txt", "o-0.tar"], ["--plan", data / "plan"]):
        result = run("tarkit", "create", "-o", f"{data}/o-%d.tar", "-C", data, *what, "--maxcount", "1", "--force")
        assert result.code == 2 and "o-0.tar is an input, and one of the shards that --force repl" in result.stderr
        assert (data / "o-0.tar").read_bytes() == b"old"


def test_options_of_a_series_go_with_a_pattern(run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    for option in (["--maxcount", "1"], ["--maxsize", "1k"], ["--start", "0"], ["--force"]):
        result = run("tarkit", "create", "-o", tmp_path / "o.tar", data, *option)
        assert result.code == 2 and f"{option[0]} goes with a series of shards" in result.stderr


@pytest.mark.parametrize("name", ["50%done.tar", "10%discount/a.tar", "on-%d/a.tar", "%deg.tar", "a%2d.tar"])
def test_a_percent_sign_in_the_name_of_one_shard_stays_as_it_is(name: str, run: Run, tmp_path: Path) -> None:
    data = make(tmp_path / "data", a_txt="A")
    for command in (["create", "-C", data, "."], ["cat", tmp_path / "out" / name]):
        out = tmp_path / ("out" if command[0] == "create" else "copy") / name
        out.parent.mkdir(parents=True)
        assert run("tarkit", *command, "-o", out).code == 0
        assert members(out) == {"a.txt": b"A"}


def test_a_percent_sign_in_the_command_that_takes_a_shard_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    data, shard = make(tmp_path / "data", a_txt="A"), tmp_path / "in.tar"
    assert run("tarkit", "create", "-o", shard, "-C", data, ".").code == 0
    out, printed = tmp_path / "out.tar", tmp_path / "printed"
    text = f"pipe:cat > {out}; printf '%d-%06d %s' 7 5 $(date -d 2001-02-03 +%d) > {printed}"
    for command in (["tarkit", "create", "-C", data, "."], ["tarkit", "cat", shard], ["tarproc", "-c", "true", shard]):
        assert run(*command, "-o", text).code == 0
        assert (members(out), printed.read_text()) == ({"a.txt": b"A"}, "7-000005 03")
        out.unlink()
