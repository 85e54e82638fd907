"""Errors of record files at URLs show no secret of the URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from httpserver import FaultServer
from recordiobuild import HELLO, written
from tfrecordbuild import file_of

from tarkit.errors import TruncatedError
from tarkit.formats import tfrecord
from tarkit.formats.recordio import read_index, read_records
from tarkit.formats.tally import Tally


def test_the_secret_of_a_url_is_in_no_error() -> None:
    with FaultServer() as server:
        url = server.put("a.recordio", written(HELLO)[:-1]) + "?token=SECRET"
        tally = Tally()
        assert list(read_records(url, on_damage="skip", tally=tally)) == []
        assert "a.recordio" in tally.damage[0][0]
        assert "SECRET" not in str(tally)
        for reading in (read_records, read_index):
            with pytest.raises(TruncatedError, match=r"a.recordio") as found:
                list(reading(url))  # type: ignore[call-overload]
            assert "SECRET" not in str(found.value)


def test_secrets_of_a_url_are_in_no_error(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(file_of([b"one", b"three" * 5])[:-1])
    command = f"pipe:cat '{tmp_path}/x.tfrecord' # password=hunter2"
    with pytest.raises(TruncatedError) as caught:
        list(tfrecord.read_records(command))
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).startswith("pipe:cat")
