"""Which files the work of a run uses beside its own text: those named in a command, and modules
beside a mapper.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from usedtree import BESIDE, names, write_tree

from tarkit.runs.usedfiles import used_files
from tarkit.runs.work import Work


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path)


def test_modules_beside_a_mapper_are_found_without_running_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(Work(function=f"{tree}/mapper.py:grey"), tree) == BESIDE
    assert names(Work(script=f"{tree}/mapper.py", interpreter="python3"), tree) == BESIDE
    assert names(Work(command=f"python3 {tree}/mapper.py"), tree) == BESIDE | {"mapper.py"}
    monkeypatch.chdir(tree)
    assert names(Work(function="mapper:grey"), tree) == BESIDE | {"mapper.py"}
    assert names(Work(function="pkg.sub:f", setup="late.py:g"), tree) == {
        *("pkg/__init__.py", "pkg/sub.py", "pkg/beside.py", "pkg/inner/__init__.py", "pkg/up.py")
    }


COMMANDS = {
    "bash {0}/s.sh": {"s.sh"},
    "'{0}/a b.sh' sample.jpg": {"a b.sh"},
    'bash "{0}/a b.sh"; rm x': {"a b.sh"},
    "bash -c '. {0}/s.sh; go'": {"s.sh"},
    "awk -f{0}/s.sh <{0}/t.txt|cat": {"s.sh", "t.txt"},
    "run --config={0}/t.txt -v {0}/s.sh:/x": {"t.txt", "s.sh"},
    "$HOME/s.sh; ~/t.txt; ${{HOME}}/u": {"s.sh", "t.txt", "u"},
    "x=${{X:-{0}/s.sh}}": {"s.sh"},
    # Written to, of another place, no regular file, the system's, or not known before it runs.
    "echo >{0}/s.sh; echo >> {0}/t.txt; date 2> '{0}/u' | tee -a {0}/s.sh": set(),
    'cat s3:/{0}/s.sh $X{0}/s.sh "$X"x{0}/s.sh': set(),
    "ls {0} /usr/bin/env /bin/sh /etc/passwd /dev/null /proc/self/cmdline {0}/missing {0}/python": set(),
    "sort {0}/t.txt > {0}/t.txt": {"t.txt"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_regular_files_at_absolute_paths_in_a_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s.sh", "t.txt", "u", "a b.sh"):
        (tmp_path / name).write_text(name)
    (tmp_path / "python").symlink_to("/usr/bin/env")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert names(Work(command=command.format(tmp_path)), tmp_path) == COMMANDS[command]
    script = tmp_path / "script"
    script.write_text(command.format(tmp_path))
    assert names(Work(script=str(script), interpreter=f"bash {tmp_path}/u"), tmp_path) == COMMANDS[command] | {"u"}


def test_the_digest_is_of_what_is_there_now(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    found = []
    for text in ("one", "two", "one"):
        script.write_text(text)
        found += [each["sha256"] for each in used_files(Work(command=f"bash {script}"))]
    assert found[0] == found[2] != found[1]
