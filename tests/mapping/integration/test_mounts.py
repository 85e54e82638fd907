"""What a command mounts in its folder: tried in a mount namespace of its own, on folders made for
it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tarkit.mapping import mounts
from tarkit.mapping.scratch import Rules
from tarkit.mapping.shellpool import ShellPool

UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]

# $V is a folder with a file, both made for this; the number of each is that of its sample.
COMMANDS = {
    "a folder": "mkdir m; mount --bind $V m",
    "a folder far below": "mkdir -p a/b/m; mount --bind $V a/b/m; chmod 0 a",
    "its own folder": "mount --bind $V .",
    "a file": "mount --bind $V/keep sample.cls",
    "another device": "mkdir m; mount -t tmpfs none m; touch m/x",
    "an odd name": "mkdir 'm \\\n'; mount --bind $V 'm \\\n'",
    "and fails": "mkdir m; mount --bind $V m; exit 7",
    "and unmounts it": "mkdir m; mount --bind $V m; cat m/keep > sample.new; umount m; rmdir m",
    "nothing": "true",
    "the run's folder": "mount --bind $V ..",
}

RUN = """
import json, os, subprocess, sys
from tarkit.mapping.scratch import Rules, Scratch, sweep
from tarkit.mapping.shellpool import ShellPool

place, *commands = sys.argv[1:]
os.environ["V"] = victim = os.path.join(place, "victim")
parent = os.path.join(place, "tmp")
command = "case $PWD in " + "".join(f"*{n})\\n{each}\\n;;\\n" for n, each in enumerate(commands)) + "esac"
outcomes = {}
with Scratch(parent) as scratch, ShellPool(command, scratch.path, rules=Rules()) as pool:
    for ticket in range(len(commands)):
        pool.submit(ticket, [{"__key__": f"k{ticket}", "cls": b"1"}])
        for done, outcome in pool.collect():
            outcomes[done] = outcome.failure and [outcome.failure.kind, outcome.failure.message], len(outcome.made)

def state():
    return sorted(os.listdir(victim)), oct(os.stat(victim).st_mode), open(f"{victim}/keep").read()

after_run = state()
sweep(parent)
after_sweep = state()
mounted = [line.split()[4].encode().decode("unicode_escape") for line in open("/proc/self/mountinfo")]
for point in reversed(mounted):
    if point.startswith(scratch.path):
        subprocess.run(["umount", point], check=True)
sweep(parent)
found = [outcomes[number] for number in sorted(outcomes)]
print(json.dumps([scratch.path, found, after_run, after_sweep, os.listdir(parent), state()]))
"""


def _in_a_mount_namespace(*arguments: str) -> str:
    """What a Python program printed that ran where its mounts are seen by no other process."""
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    command = [*UNSHARE, *user]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace of its own can be made here (unshare --mount)")
    done = subprocess.run([*command, sys.executable, "-c", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_command_leaves_mounted_fails_its_sample_and_is_not_touched(tmp_path: Path) -> None:
    """It was emptied, and its mode changed."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "keep").write_text("content")
    (tmp_path / "victim").chmod(0o555)
    printed = _in_a_mount_namespace(RUN, str(tmp_path), *COMMANDS.values())
    scratch, outcomes, *states, left, end = json.loads(printed)
    of = dict(zip(COMMANDS, outcomes, strict=True))
    points = {"a folder": "m", "a folder far below": "a/b/m", "its own folder": "", "a file": "sample.cls"}
    for number, case in enumerate(COMMANDS):
        point = os.path.join(scratch, f"{number:08d}", points.get(case, "m"))
        point = scratch if case == "the run's folder" else point
        message = f"the command left {point} mounted, which stays; unmount it, then remove {scratch}"
        if case in ("nothing", "and unmounts it"):
            assert of[case] == [None, 1]
        elif case == "an odd name":
            assert of[case][0][1].startswith(f"the command left {point} \\\\") and "\n" not in of[case][0][1]
        elif case == "and fails":
            assert of[case] == [["mount", f"exit code 7; {message}"], 0]
        else:
            assert of[case] == [["mount", message.replace("/ mounted", " mounted")], 0]
    untouched = [["keep"], oct(0o40555), "content"]
    assert [*states, end] == [untouched] * 3
    # Unmounted, the folder goes with the next run.
    assert left == []


REMOVE = """
import os, subprocess, sys
from tarkit.errors import StreamError
from tarkit.store.entries import remove

place = sys.argv[1]
subprocess.run(["mount", "--bind", f"{place}/victim", f"{place}/tree/a/m"], check=True)
for name in ("tree", "tree/a/m"):
    try:
        remove(f"{place}/{name}", recursive=True)
    except StreamError as error:
        print(error)
subprocess.run(["umount", f"{place}/tree/a/m"], check=True)
remove(f"{place}/tree", recursive=True)
"""


def test_a_folder_is_not_removed_with_what_is_mounted_in_it(tmp_path: Path) -> None:
    """As by tarkit rm -r."""
    (tmp_path / "tree" / "a" / "m").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "keep").write_text("content")
    point = f"{tmp_path}/tree/a/m"
    assert _in_a_mount_namespace(REMOVE, str(tmp_path)).splitlines() == [
        f"{tmp_path}/tree: {point} is a mount point; unmount it first",
        f"{point}: {point} is a mount point; unmount it first",
    ]
    assert os.listdir(tmp_path) == ["victim"]
    assert (tmp_path / "victim" / "keep").read_text() == "content"


def test_where_there_is_no_table_of_mounts_devices_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has no bind mounts."""
    monkeypatch.setattr(mounts, "_TABLE", "/no/such/table")
    monkeypatch.setattr(os.path, "ismount", lambda path: path.endswith("/m"))
    with ShellPool("case $PWD in *1) mkdir m;; esac", str(tmp_path), rules=Rules()) as pool:
        outcomes: dict[int, Any] = {}
        for ticket in range(2):
            pool.submit(ticket, [{"__key__": "k", "x": b"1"}])
            outcomes.update(pool.collect())
    assert outcomes[0].failure is None
    assert outcomes[1].failure.message.startswith(f"the command left {tmp_path}/00000001/m mounted, which stays;")
    with mounts.MountWatch(str(tmp_path)) as watch:
        assert watch.find("gone") is None
