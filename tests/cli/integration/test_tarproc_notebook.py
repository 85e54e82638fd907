"""The cells of the notebook that show tarproc, with ``cat`` in the place of ``gsutil cat``."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from tarproc_support import TARPROC, Bench, Fields

KEYS = ("n03788365_17158", "n03000247_49831", "n03000247_22907")


def _picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.radial_gradient("L").resize((40 + number, 30)).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    samples: list[tuple[str, Fields]] = [
        (key, {"cls": b"%03d" % number, "jpg": _picture(number), "json": b'{"number": %d}' % number})
        for number, key in enumerate((*KEYS, "n04597913_10741", "n02965783_5956"))
    ]
    name = bench.shard(samples, "plain.tar")
    with open(bench.path / "imagenet_train-0000.tgz", "wb") as target:
        subprocess.run(["gzip", "-c", name], cwd=bench.path, stdout=target, check=True)
    return bench


def _bash(bench: Bench, script: str) -> subprocess.CompletedProcess[bytes]:
    script = f'tarproc() {{ {TARPROC} "$@"; }}; export -f tarproc; {script}'
    done = subprocess.run(["bash", "-c", script], cwd=bench.path, env=bench.env, capture_output=True)
    assert bench.leftovers() == []
    return done


@pytest.fixture
def convert() -> None:
    if shutil.which("convert") is None:
        pytest.skip("ImageMagick's convert is not installed")


def test_cell_6_ls(bench: Bench) -> None:
    done = _bash(bench, "cat imagenet_train-0000.tgz | tarproc -c ls --count 3")
    assert done.returncode == 0
    lines = done.stdout.decode().split()
    assert lines == ["__key__", "__source__", "sample.cls", "sample.jpg", "sample.json"] * 3


def test_cell_7_key(bench: Bench) -> None:
    done = _bash(bench, "cat imagenet_train-0000.tgz | tarproc -c 'cat __key__; echo' --count 3")
    assert done.stdout.decode() == "".join(f"{key}\n" for key in KEYS)


@pytest.mark.usefixtures("convert")
def test_cells_8_and_9_convert_and_list(bench: Bench) -> None:
    done = _bash(
        bench,
        """cat imagenet_train-0000.tgz |
tarproc -c '
    convert sample.jpg sample.ppm
    rm sample.jpg
' --count 3 -o out.tar
""",
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    listing = subprocess.run(["tar", "tvf", "out.tar"], cwd=bench.path, capture_output=True, check=True)
    assert listing.stderr == b""
    rows = [line.split() for line in listing.stdout.decode().splitlines()]
    assert {(row[0], row[1]) for row in rows} == {("-r--r--r--", "bigdata/bigdata")}
    assert [row[-1] for row in rows] == [f"{key}.{field}" for key in KEYS for field in ("cls", "json", "ppm")]
    for number, key in enumerate(KEYS):
        with Image.open(io.BytesIO(bench.members()[f"{key}.ppm"])) as picture:
            assert (picture.format, picture.size) == ("PPM", (40 + number, 30))


@pytest.mark.usefixtures("convert")
def test_cells_11_and_12_multicore(bench: Bench) -> None:
    command = 'tarproc {} -c "convert sample.jpg sample.ppm; rm sample.jpg" -o out{}.tar'
    for number, options in (("1", ""), ("8", "-p 8")):
        line = command.format(options, number)
        done = _bash(bench, f"time /bin/bash -c '\ncat imagenet_train-0000.tgz | {line}\n'")
        assert done.returncode == 0, done.stderr
        assert b"in 5 = out 5" in done.stderr
    assert (bench.path / "out1.tar").read_bytes() == (bench.path / "out8.tar").read_bytes()
    assert len(bench.members("out8.tar")) == 15


def test_cell_18_sizes(bench: Bench) -> None:
    done = _bash(bench, 'cat imagenet_train-0000.tgz | TZ=UTC LC_ALL=C tarproc --count 3 -c "ls -l"')
    listings = done.stdout.decode().split("total ")[1:]
    assert len(listings) == 3
    for number, (key, listing) in enumerate(zip(KEYS, listings, strict=True)):
        rows = [line.split() for line in listing.splitlines()[1:]]
        assert {row[0] for row in rows} == {"-rw-r--r--"}
        assert {row[-1]: int(row[4]) for row in rows} == {
            "__key__": len(key),
            "__source__": 1,
            "sample.cls": 3,
            "sample.jpg": len(_picture(number)),
            "sample.json": 13,
        }
        assert all(re.fullmatch(r"\d\d:\d\d", row[-2]) for row in rows)


@pytest.mark.usefixtures("convert")
def test_cell_21_output_in_a_pipe(bench: Bench) -> None:
    done = _bash(
        bench,
        """cat imagenet_train-0000.tgz |
tarproc --count 3 -c "convert sample.jpg sample.ppm; rm sample.jpg" -o - |
dd of=/dev/null # put a copy-to-destination here
""",
    )
    assert done.returncode == 0
    assert b"20480 bytes" in done.stderr or b"bytes" in done.stderr
    size = int(re.findall(rb"(\d+) bytes", done.stderr)[0])
    assert size % 10240 == 0 and size > 3 * 3600


def test_curl_of_nothing_is_an_error(bench: Bench) -> None:
    """``curl`` without -f gives an HTML page for a missing shard; without any page, nothing at
    all."""
    for given in ("printf '<html>404</html>'", "true"):
        done = _bash(bench, f"{given} | tarproc -c ls -o out.tar")
        assert done.returncode == 65, done.stderr
        assert not (bench.path / "out.tar").exists()
