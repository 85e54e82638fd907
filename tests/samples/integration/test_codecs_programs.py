"""Codecs with ImageMagick, and in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarkit.samples.codecs import decode_field


def test_colours_of_16_bits_become_the_same_8_bits_as_grey(tmp_path: Path) -> None:
    """Made by ImageMagick."""
    convert = shutil.which("convert")
    if convert is None:
        pytest.skip("ImageMagick's convert is not on the path")
    picture = tmp_path / "in.pgm"
    picture.write_bytes(b"P5\n4 1\n65535\n" + np.array([0, 256, 32768, 65535], ">u2").tobytes())
    for kind in ("PNG48", "PNG64"):
        made = tmp_path / f"{kind}.png"
        subprocess.run([convert, picture, "-depth", "16", f"{kind}:{made}"], check=True)
        back: Any = decode_field("png", made.read_bytes(), image="rgb8")
        assert back[0, :, 0].tolist() == [0, 1, 128, 255], kind


def test_the_module_loads_only_the_standard_library() -> None:
    code = "import sys, tarkit.samples.codecs; print({'numpy', 'PIL', 'msgpack', 'cbor2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux' /proc")
def test_a_bomb_in_a_field_stays_small_in_memory() -> None:
    """4 GiB in 4 MB of a json.gz: refused after max_bytes."""
    program = """
import gzip, sys
from tarkit.samples.codecs import decode_field
from tarkit.errors import DecodeError
bomb = gzip.compress(bytes(1 << 24), 9) * 256
try: decode_field("json.gz", bomb, max_bytes=1 << 26)
except DecodeError: print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 300_000_000
