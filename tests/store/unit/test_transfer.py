"""Whole files and folders: where they go, what is refused, what is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.store.entries import entries, remove, stat
from tarkit.store.transfer import CopyOutcome, copy_all, copy_file, plan_copies


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "d").mkdir(parents=True)
    (folder / "a").write_bytes(b"a" * 3_000_000)
    (folder / "d" / "b").write_bytes(b"b")
    (folder / ".x.tar.tarkit-0123abcd").write_bytes(b"somebody writes this")
    return folder


def run(sources: list[object], target: object, **options: bool) -> list[CopyOutcome]:
    return list(copy_all(plan_copies(map(str, sources), str(target)), **options))  # type: ignore[arg-type]


def below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_folder_goes_to_the_same_place_each_time(source: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert all(done.error is None for done in run([source], tmp_path / "out"))
        assert below(tmp_path / "out") == ["a", "d/b"]
    run([source], f"{tmp_path}/into/")
    assert below(tmp_path / "into") == ["in/a", "in/d/b"]


def test_files_go_into_a_folder_or_become_the_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    run([source / "a"], tmp_path / "there")
    run([source / "a"], tmp_path / "name")
    run([source / "a", source / "d" / "b"], f"{tmp_path}/new/")
    assert below(tmp_path / "there") == ["a"]
    assert (tmp_path / "name").read_bytes() == (source / "a").read_bytes()
    assert below(tmp_path / "new") == ["a", "b"]
    with pytest.raises(UsageError, match="is not a folder"):
        run([source / "a", source / "d" / "b"], tmp_path / "name")


@pytest.mark.parametrize("target", ["source/d", "source/d/", "source/new", "link/d", "source"])
def test_a_folder_that_would_be_copied_into_itself_is_refused(target: str, source: Path, tmp_path: Path) -> None:
    os.symlink(source, tmp_path / "link")
    before = below(source)
    with pytest.raises(UsageError, match="cannot be copied into itself"):
        run([source], target.replace("source", str(source)).replace("link", f"{tmp_path}/link"))
    assert below(source) == before
    run([source], f"{source}-2")


def test_one_failure_stops_no_other(source: Path, tmp_path: Path) -> None:
    os.symlink("nowhere", source / "dangling")
    os.symlink("d", source / "link")
    os.mkfifo(source / "pipe")
    done = run([source], tmp_path / "out")
    failed = {item.job.source.name: str(item.error) for item in done if item.error}
    assert sorted(failed) == ["dangling", "link", "pipe"]
    assert "is a link to a directory" in failed["link"]
    assert "is not a regular file" in failed["pipe"]
    assert below(tmp_path / "out") == ["a", "d/b"]


def test_what_is_there_is_kept_only_if_its_length_is_right(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"short")
    done = {item.job.source.name: item for item in run([source], tmp_path / "out", overwrite=False)}
    assert "already exists with 5 bytes, but the source has 3000000" in str(done["a"].error)
    assert (tmp_path / "out" / "a").read_bytes() == b"short"
    again = {item.job.source.name: item for item in run([source], tmp_path / "out", overwrite=False)}
    assert again["d/b"].kept
    with pytest.raises(AlreadyPublishedError):
        copy_file(str(source / "a"), str(tmp_path / "out" / "a"), overwrite=False)


def test_names_that_would_leave_the_target_are_refused(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/esc/good", b"1")
    memory.store["/esc/../../evil"] = memory.store["/esc/good"]
    try:
        done = run(["memory://esc"], tmp_path / "out")
    finally:
        memory.store.pop("/esc/../../evil")
    assert [str(item.error) for item in done if item.error] != []
    assert below(tmp_path) == ["out/good"]


def test_a_percent_sign_in_a_name_stays_one_in_a_folder_that_is_a_url(tmp_path: Path) -> None:
    """It was decoded: ``..%2Fout`` of a store was written outside of the folder, and two files
    became one.
    """
    names = ["..%2Fout", "a b", "a%20b"]
    (tmp_path / "in").mkdir()
    for name in names:
        (tmp_path / "in" / name).write_text(name)
    for outcome in copy_all(plan_copies([str(tmp_path / "in")], f"file://{tmp_path}/to/here/")):
        assert outcome.error is None
    here = tmp_path / "to" / "here" / "in"
    assert {path: (here / path).read_text() for path in sorted(os.listdir(here))} == {name: name for name in names}
    assert os.listdir(tmp_path / "to" / "here") == ["in"]


def test_stat_list_and_remove(source: Path, tmp_path: Path) -> None:
    assert stat(str(source / "a")).size == 3_000_000
    assert [(entry.name, entry.is_folder) for entry in entries(str(source))][1:] == [("a", False), ("d", True)]
    assert [entry.name for entry in entries(str(source), recursive=True)][1:] == ["a", "d/b"]
    with pytest.raises(UsageError, match="pass -r"):
        remove(str(source))
    os.symlink(source, tmp_path / "link")
    remove(str(tmp_path / "link"))
    remove(str(source / "a"))
    assert below(source) == [".x.tar.tarkit-0123abcd", "d/b"]
    remove(str(source), recursive=True)
    with pytest.raises(MissingInputError):
        stat(str(source))
    for bad in ("-", "pipe:true"):
        with pytest.raises(UsageError, match="a stream cannot be"):
            stat(bad)
    with pytest.raises(UsageError, match="http"):
        remove("http://127.0.0.1:1/x")


def test_a_file_that_grows_while_it_is_copied_is_not_published(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"1" * 10)
    with pytest.raises(TemporaryStreamError, match="was changed while it was read: it had 10 bytes, and has 20 now"):
        copy_file(str(source), str(tmp_path / "b"), under_way=lambda count: source.write_bytes(b"1" * 20))
    assert not (tmp_path / "b").exists()


def test_files_of_the_same_name_do_not_replace_each_other(tmp_path: Path) -> None:
    for folder, content in (("a", b"first"), ("b", b"other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.tar").write_bytes(content)
    sources = [str(tmp_path / "a" / "x.tar"), str(tmp_path / "b" / "x.tar")]
    target = tmp_path / "out"
    done = list(copy_all(plan_copies(sources, f"{target}/"), parallel=1))
    assert sum(each.error is None for each in done) == 1
    (error,) = (each.error for each in done if each.error is not None)
    assert isinstance(error, StreamError)
    assert str(error).startswith(f"{sources[1]}: would replace the copy of {sources[0]} as ")
    assert (target / "x.tar").read_bytes() == b"first"
    # The same file named twice is no loss.
    assert [job.problem for job in plan_copies([sources[0]] * 2, f"{target}/")] == [None, None]
