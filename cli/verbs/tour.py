"""The pipelines that ``tarkit demo`` runs: what is typed, and what must come of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SHARDS = 3
PER_SHARD = 20
TOTAL = SHARDS * PER_SHARD
_ALL = "shard-{000000..000002}.tar"
_FAILING = "000007"

MAPPER = '''\
def measure(sample):
    """Add how bright the picture is, from 0 to 255."""
    pixels = sample["ppm"][-48 * 48 * 3 :]
    sample["light.txt"] = b"%d" % (sum(pixels) // len(pixels))
    return sample
'''

Check = Callable[[Path, str], "str | None"]
"""Given the folder and what was printed, it returns what is wrong, or None."""


class Step(NamedTuple):
    """One command. title: what it shows. command: as typed to bash. code: the exit code that is right.
    needs: the program without which the step is left out."""

    title: str
    command: str
    check: Check
    code: int = 0
    needs: str = ""


def _has(count: int, *names: str, right: Callable[[dict[str, Any]], object] = lambda sample: "ppm" in sample) -> Check:
    """A check: these shards have so many samples together, and each is right."""

    def check(folder: Path, printed: str) -> str | None:
        from tarkit.samples.read import read_samples

        samples = list(read_samples([str(folder / name) for name in names]))
        good = sum(map(bool, map(right, samples)))
        if (len(samples), good) == (count, count):
            return None
        return f"{', '.join(names)} should have {count} samples; of {len(samples)}, {good} are right"

    return check


def _prints(*wanted: str) -> Check:
    """A check: these texts were printed."""

    def check(folder: Path, printed: str) -> str | None:
        missing = [text for text in wanted if text not in printed]
        return f"{missing[0]!r} should have been printed" if missing else None

    return check


def _sum_is_right(sample: dict[str, Any]) -> bool:
    return bool(sample.get("sha256", b"").split()[:1] == [hashlib.sha256(sample["ppm"]).hexdigest().encode("ascii")])


def _shape_is_upper_case(sample: dict[str, Any]) -> bool:
    return bool(json.loads(sample["json"])["shape"].isupper())


_SHA256 = "sha256sum" if shutil.which("sha256sum") else "shasum -a 256"
_TEST = f'test "$(cat __key__)" != {_FAILING} || {{ echo "I do not like this one"; exit 9; }}'

STEPS = (
    Step("How many samples there are", f"tarkit show --count '{_ALL}'", _prints(f"{TOTAL}")),
    Step("What is in them", "tarkit show shard-000000.tar -n 3", _prints("000002", "ppm:")),
    Step("They are plain tars", "tar tvf shard-000000.tar | head -n 3", _prints("000000.cls"), needs="tar"),
    Step(
        "A command runs in each sample's folder; look into the first two",
        "cat shard-000000.tar | tarproc -c 'cat __key__; echo; wc -c sample.*' --count 2",
        _prints("000001", "sample.json"),
    ),
    Step(
        "Whatever it leaves as sample.* is the new sample; two run at once",
        f"tarproc -p 2 -c '{_SHA256} < sample.ppm > sample.sha256' {_ALL} -o sums.tar",
        _has(TOTAL, "sums.tar", right=_sum_is_right),
    ),
    Step(
        "The output does not depend on how many run at once",
        f"tarproc -p 1 -c '{_SHA256} < sample.ppm > sample.sha256' {_ALL} -o again.tar && cmp sums.tar again.tar",
        _has(TOTAL, "again.tar"),
    ),
    Step(
        "Change a field",
        f"tarproc -p 2 -c 'tr a-z A-Z < sample.json | sed s/SHAPE/shape/ > new; mv new sample.json' {_ALL} -o loud.tar",
        _has(TOTAL, "loud.tar", right=_shape_is_upper_case),
    ),
    Step(
        "Keep the samples of one class, and cut the result into shards of 8",
        f"tarproc -c 'grep -qx 1 sample.cls || rm sample.*' {_ALL} -o - | "
        "tarkit split - -o 'ones-%06d.tar' --maxcount 8 --force",
        _has(TOTAL // 3, "ones-000000.tar", "ones-000001.tar", "ones-000002.tar"),
    ),
    Step("Join them again, compressed", "tarkit cat ones-*.tar -o ones.tar.gz", _has(TOTAL // 3, "ones.tar.gz")),
    Step("A Python function does as well", "cat mapper.py", _prints("def measure")),
    Step(
        "It is loaded once in each of two processes",
        f"tarproc -p 2 --map mapper.py:measure {_ALL} -o measured.tar && tarkit show measured.tar -n 2",
        _has(TOTAL, "measured.tar", right=lambda sample: "light.txt" in sample),
    ),
    Step(
        "When a sample fails, the others go on, and the exit code is 3",
        f"tarproc -p 2 -c '{_TEST}' {_ALL} -o checked.tar",
        _has(TOTAL - 1, "checked.tar"),
        code=3,
    ),
    Step(
        "The failed one is kept, with the reason",
        f"tarkit show checked.tar.failed.tar && tar xOf checked.tar.failed.tar {_FAILING}.__error__.txt",
        _prints(_FAILING, "exit code 9", "I do not like this one"),
        needs="tar",
    ),
    Step(
        "Run just that one again, with something better, and put it to the others",
        "tarproc --retry-failed checked.tar.failed.tar -c true -o fixed.tar && "
        "tarkit cat checked.tar fixed.tar -o complete.tar",
        _has(TOTAL, "complete.tar"),
    ),
    Step(
        "Convert the pictures with ImageMagick",
        f"tarproc -p 2 -c 'convert sample.ppm sample.jpg; rm sample.ppm' {_ALL} -o jpeg.tar",
        _has(TOTAL, "jpeg.tar", right=lambda sample: "jpg" in sample),
        needs="convert",
    ),
)
"""The tour, in order."""
