"""Stores that cannot be asked: one attempt, and a line that names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit.errors import StreamError, TemporaryStreamError
from tarkit.store.read import open_read

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without credentials, and filesystems that do not remember others."""
    fsspec = pytest.importorskip("fsspec")
    for name in (*KEYS, "AWS_PROFILE", "AWS_ENDPOINT_URL", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(fsspec.config, "conf", {})
    monkeypatch.setattr(fsspec.spec.AbstractFileSystem, "cachable", False)
    return monkeypatch


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("s3://b/a.tar", {}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.*FSSPEC_S3_ANON=1"),
        (
            "s3://b/a.tar",
            {**KEYS, "AWS_CA_BUNDLE": "/no/such.pem"},
            "the file of certificates /no/such.pem does not exist",
        ),
        ("s3://b/a.tar", {**KEYS, "AWS_ENDPOINT_URL": "localhost:9000"}, "Invalid endpoint: localhost:9000"),
        ("s3://b/a.tar", {"AWS_PROFILE": "nope"}, r"profile \(nope\) could not be found"),
        ("az://c/a.tar", {}, "set AZURE_STORAGE_CONNECTION_STRING.*AZURE_STORAGE_ANON=true"),
    ],
)
def test_what_no_attempt_changes_is_said_at_once(
    bare: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str, settings: dict[str, str], message: str
) -> None:
    pytest.importorskip({"s3": "s3fs", "az": "adlfs"}.get(url[:2], "fsspec"))
    for name, value in settings.items():
        bare.setenv(name, value)
    with pytest.raises(StreamError, match=message) as raised:
        open_read(url)
    assert not isinstance(raised.value, TemporaryStreamError)
    assert not [record for record in caplog.records if record.name == "tarkit.retry"], "it was tried once"
