"""A shuffle that is killed, or has no space left: the next run ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, left_in, numbered_inputs
from installed import program_path

WORDS = ["--shards", "6", "--seed", "0"]


def start(folder: Path, urls: list[str], mem: str = "64M") -> subprocess.Popen[bytes]:
    command = [program_path("tarkit"), "shuffle", *urls, "-O", "out", *WORDS, "-p", "2", "--mem", mem, "-q"]
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, "TMPDIR": str(folder / "tmp")}, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=[pytest.mark.elasticdl, pytest.mark.slow])])
def test_killed_at_random_moments(tmp_path: Path, kills: int) -> None:
    urls = numbered_inputs(tmp_path / "in", [60] * 12, most=2000)
    exchange(urls, tmp_path / "right", shards=6, mem=300_000).run()
    right = files_of(tmp_path / "right")
    out, draw = tmp_path / "out", random.Random(26)

    def planned() -> None:
        shutil.rmtree(out, ignore_errors=True)
        # With these blocks and this memory the slices are spilled, too.
        exchange(urls, out, shards=6, slices=6, block_size=40_000)

    planned()
    begun = time.monotonic()
    process = start(tmp_path, urls, "300k")
    assert process.communicate(timeout=60) == (None, b"")
    whole = time.monotonic() - begun
    assert files_of(out) == right
    planned()
    for _ in range(kills):
        process = start(tmp_path, urls, "300k")
        try:
            process.wait(draw.uniform(0.3, 1.0) * whole)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        # What has a final name is whole.
        found = files_of(out)
        assert all(found[name] == right[name] for name in found if not name.startswith(("_exchange", ".")))
        if process.returncode == 0:
            planned()
    process = start(tmp_path, urls, "300k")
    _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (0, b"")
    assert files_of(out) == right
    assert left_in(out) == []
    assert os.listdir(tmp_path / "tmp") == [], "the next run removes the scratch folders of killed ones"


UNSHARE = ["unshare", "--mount", "--propagation", "private"]
SCRIPT = r"""
set -e
mount -t tmpfs -o size=$SIZE tmpfs "$FULL"
set +e
"$@" 2> messages
echo $? > code
ls -A out > names
find out "$TMPDIR" -name '.*' -type f ! -name '.tarkit-run-*' > left
find "$TMPDIR" -mindepth 1 >> left
set -e
mount -o remount,size=64m "$FULL"
"$@" 2> again
rm -rf kept
cp -a out kept
"""


def full_disk(folder: Path, urls: list[str], full: str, size: str) -> tuple[int, list[str], list[str]]:
    """Run a shuffle with a full disk at a folder, and again with space: code, lines, names."""
    own = [*UNSHARE, *(["--map-root-user"] if os.geteuid() else [])]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("NO MOUNT NAMESPACE OF ITS OWN CAN BE MADE HERE, A FULL DISK IS NOT TESTED (unshare --mount)")
    for name in ("out", "work", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    words = ["shuffle", *urls, "-O", "out", "--work", "work", *WORDS, "-p", "2", "--mem", "400k"]
    environment = {**os.environ, "FULL": str(folder / full), "SIZE": size, "TMPDIR": str(folder / "tmp")}
    done = subprocess.run(
        [*own, "bash", "-c", SCRIPT, "bash", program_path("tarkit"), *words],
        cwd=folder, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # A process that is ended because another one failed leaves the file that it was writing; the
    # next run removes it.
    left = [line for line in (folder / "left").read_text().splitlines() if not line.startswith("out/.shard-")]
    assert left == []
    lines = (folder / "messages").read_text().splitlines()
    return int((folder / "code").read_text()), lines, (folder / "names").read_text().split()


@pytest.mark.parametrize(
    ("full", "size"), [("tmp", "300k"), ("work", "300k"), ("work", "40k"), ("out", "500k"), ("out", "60k")]
)
def test_full_disk(tmp_path: Path, full: str, size: str) -> None:
    urls = numbered_inputs(tmp_path / "in", [100] * 6, most=3000)
    exchange(urls, tmp_path / "right", shards=6).run()
    right = files_of(tmp_path / "right")
    # One slice of more than the memory is spilled.
    exchange(urls, tmp_path / "planned", shards=6, slices=1, block_size=40_000)
    code, lines, names = full_disk(tmp_path, urls, full, size)
    assert code == 1, lines
    assert len(lines) == 1 and "no space left" in lines[0], lines
    shards = [name for name in names if name.endswith(".tar")]
    assert (len(shards) < 6) if full == "out" else not shards
    kept = files_of(tmp_path / "kept")
    assert kept == right
