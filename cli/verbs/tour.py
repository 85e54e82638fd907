"""The pipelines that ``tarkit demo`` runs: what is typed, and what must come of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SHARDS = 3
PER_SHARD = 20
TOTAL = SHARDS * PER_SHARD
ALL = "shard-{000000..000002}.tar"
FAILING = "000007"

MAPPER = '''\
def measure(sample):
    """Add how bright the picture is, from 0 to 255."""
    pixels = sample["ppm"][-48 * 48 * 3 :]
    sample["light.txt"] = b"%d" % (sum(pixels) // len(pixels))
    return sample
'''


class Step(NamedTuple):
    """One command. title: what it shows. command: as typed to bash. code: the exit code that is right.

    check: given the folder and what was printed, says what is wrong, or returns None. needs: the program
    without which the step is left out.
    """

    title: str
    command: str
    check: Callable[[Path, str], str | None]
    code: int = 0
    needs: str = ""


def _samples(folder: Path, *names: str) -> list[dict[str, bytes]]:
    from tarkit.samples.read import read_samples

    return list(read_samples([str(folder / name) for name in names]))


def _has(count: int, *names: str, field: str = "ppm") -> Callable[[Path, str], str | None]:
    """A check: these shards have so many samples together, each with this field."""

    def check(folder: Path, printed: str) -> str | None:
        samples = _samples(folder, *names)
        having = sum(field in sample for sample in samples)
        if (len(samples), having) == (count, count):
            return None
        return f"{', '.join(names)} should have {count} samples with {field}; of {len(samples)}, {having} have it"

    return check


def _prints(*wanted: str) -> Callable[[Path, str], str | None]:
    """A check: these texts were printed."""

    def check(folder: Path, printed: str) -> str | None:
        missing = [text for text in wanted if text not in printed]
        return f"{missing[0]!r} should have been printed" if missing else None

    return check


def _sums_are_right(folder: Path, printed: str) -> str | None:
    samples = _samples(folder, "sums.tar")
    right = sum(sample.get("sha256", b"").split()[:1] == [_digest(sample["ppm"])] for sample in samples)
    return None if right == len(samples) == TOTAL else f"of {TOTAL} checksums in sums.tar, {right} are right"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode("ascii")


def _shapes_are_upper_case(folder: Path, printed: str) -> str | None:
    samples = _samples(folder, "loud.tar")
    right = sum(json.loads(sample["json"])["shape"].isupper() for sample in samples)
    return None if right == TOTAL else f"of {TOTAL} shapes in loud.tar, {right} are in capitals"


def _same_bytes(one: str, other: str) -> Callable[[Path, str], str | None]:
    def check(folder: Path, printed: str) -> str | None:
        same = (folder / one).read_bytes() == (folder / other).read_bytes()
        return None if same else f"{one} and {other} should be the same"

    return check


def steps() -> Iterator[Step]:
    """The tour, in order."""
    sha256 = "sha256sum" if shutil.which("sha256sum") else "shasum -a 256"
    yield Step("How many samples there are", f"tarkit show --count '{ALL}'", _prints(f"{TOTAL}"))
    yield Step("What is in them", "tarkit show shard-000000.tar -n 3", _prints("000002", "ppm:"))
    yield Step("They are plain tars", "tar tvf shard-000000.tar | head -n 3", _prints("000000.cls"), needs="tar")
    yield Step(
        "A command runs in each sample's folder; look into the first two",
        "cat shard-000000.tar | tarproc -c 'cat __key__; echo; wc -c sample.*' --count 2",
        _prints("000001", "sample.json"),
    )
    yield Step(
        "Whatever it leaves as sample.* is the new sample; two run at once",
        f"tarproc -p 2 -c '{sha256} < sample.ppm > sample.sha256' {ALL} -o sums.tar",
        _sums_are_right,
    )
    yield Step(
        "The output does not depend on how many run at once",
        f"tarproc -p 1 -c '{sha256} < sample.ppm > sample.sha256' {ALL} -o again.tar && cmp sums.tar again.tar",
        _same_bytes("sums.tar", "again.tar"),
    )
    yield Step(
        "Change a field",
        f"tarproc -p 2 -c 'tr a-z A-Z < sample.json | sed s/SHAPE/shape/ > new; mv new sample.json' {ALL} -o loud.tar",
        _shapes_are_upper_case,
    )
    yield Step(
        "Keep the samples of one class, and cut the result into shards of 8",
        f"tarproc -c 'grep -qx 1 sample.cls || rm sample.*' {ALL} -o - | "
        "tarkit split - -o 'ones-%06d.tar' --maxcount 8 --force",
        _has(TOTAL // 3, "ones-000000.tar", "ones-000001.tar", "ones-000002.tar"),
    )
    yield Step("Join them again, compressed", "tarkit cat ones-*.tar -o ones.tar.gz", _has(TOTAL // 3, "ones.tar.gz"))
    yield from _python_steps()
    yield from _failing_steps()
    yield Step(
        "Convert the pictures with ImageMagick",
        f"tarproc -p 2 -c 'convert sample.ppm sample.jpg; rm sample.ppm' {ALL} -o jpeg.tar",
        _has(TOTAL, "jpeg.tar", field="jpg"),
        needs="convert",
    )


def _python_steps() -> Iterator[Step]:
    yield Step("A Python function does as well", "cat mapper.py", _prints("def measure"))
    yield Step(
        "It is loaded once in each of two processes",
        f"tarproc -p 2 --map mapper.py:measure {ALL} -o measured.tar && tarkit show measured.tar -n 2",
        _has(TOTAL, "measured.tar", field="light.txt"),
    )


def _failing_steps() -> Iterator[Step]:
    test = f'test "$(cat __key__)" != {FAILING} || {{ echo "I do not like this one"; exit 9; }}'
    yield Step(
        "When a sample fails, the others go on, and the exit code is 3",
        f"tarproc -p 2 -c '{test}' {ALL} -o checked.tar",
        _has(TOTAL - 1, "checked.tar"),
        code=3,
    )
    yield Step(
        "The failed one is kept, with the reason",
        f"tarkit show checked.tar.failed.tar && tar xOf checked.tar.failed.tar {FAILING}.__error__.txt",
        _prints(FAILING, "exit code 9", "I do not like this one"),
        needs="tar",
    )
    yield Step(
        "Run just that one again, with something better, and put it to the others",
        "tarproc --retry-failed checked.tar.failed.tar -c true -o fixed.tar && "
        "tarkit cat checked.tar fixed.tar -o complete.tar",
        _has(TOTAL, "complete.tar"),
    )
