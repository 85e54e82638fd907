"""content_problems: pictures that need the second decoder, and what other programs write."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from planted import picture

from tarkit.steps import decoding
from tarkit.steps.decoding import content_problems
from tarkit.steps.findings import UNCHECKED


def refuse(data: bytes) -> Any:
    raise ValueError("Could not determine subsampling level of JPEG image")


def test_pillow_decides_about_a_jpeg_whose_subsampling_the_first_decoder_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid JPEG of 4:1:0 was reported as damaged."""
    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(decode_jpeg_header=refuse))
    whole = picture("JPEG")
    assert [each.kind for each in content_problems("jpg", whole)] == [UNCHECKED]
    assert [each.kind for each in content_problems("jpg", whole + b"x")] == [UNCHECKED, "trailing-bytes"]
    assert [each.kind for each in content_problems("jpg", whole[:300] + b"\xff\xd9")] == ["picture"]


def test_an_array_that_python_2_wrote_gives_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2L,), }"
    data = b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + numpy.zeros(2, "<i8").tobytes()
    assert list(content_problems("npy", data)) == [] and not recwarn.list
    assert [each.kind for each in content_problems("npy", data[:-1])] == ["array"]


def test_a_lack_of_memory_says_nothing_about_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a picture was reported as damaged, and came into the list of bad keys."""

    def no_room(data: bytes, extension: str) -> Any:
        raise MemoryError

    monkeypatch.setitem(decoding._CHECKS, "png", ("picture", no_room))
    assert [(each.kind, each.is_warning) for each in content_problems("png", b"x")] == [("not-decoded", True)]
