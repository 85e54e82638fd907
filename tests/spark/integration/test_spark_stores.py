"""The job on Spark from and to a real S3 server; its tasks run in this process."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest
from s3_client import S3, s3_bucket
from sparkcontext import MODEL, Context

from tarkit.errors import UsageError
from tarkit.formats.recordio import read_records
from tarkit.spark.records import generate_records

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@pytest.fixture
def s3(s3_endpoint: str) -> Iterator[S3]:
    with s3_bucket(s3_endpoint) as bucket:
        yield bucket


@pytest.mark.parametrize("compression", ["", "gz"])
def test_a_tar_in_a_bucket_becomes_files_in_a_bucket(s3: S3, compression: str) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=f"w:{compression}") as tar:  # type: ignore[call-overload]
        for number in range(20):
            info = tarfile.TarInfo(f"raw/{number:02d}")
            info.size = 1000 * number
            tar.addfile(info, io.BytesIO(b"%02d" % number * 500 * number))
    client = s3.client()
    client.put_object(Bucket=s3.bucket, Key=f"{s3.folder}/raw.tar", Body=archive.getvalue())
    client.put_object(Bucket=s3.bucket, Key=f"{s3.folder}/model.py", Body=MODEL.encode())
    # What a task leaves that was killed while it uploaded.
    client.create_multipart_upload(Bucket=s3.bucket, Key=f"{s3.folder}/out/data-0-0000")
    written = generate_records(
        s3.url("raw.tar"), s3.url("out"), is_tar=True, model_file=s3.url("model.py"), records_per_file=8,
        context=Context(again=1),
    )  # fmt: skip
    names = ["data-0-0000", "data-0-0001", "data-1-0000", "data-1-0001"]
    assert [file.name for file in written] == names
    assert sorted(s3.names()) == ["model.py", *(f"out/{name}" for name in names), "raw.tar"]
    assert s3.uploads() == []
    # Refused: it may be the folder of a job that runs.
    client.create_multipart_upload(Bucket=s3.bucket, Key=f"{s3.folder}/out/data-0-0000")
    with pytest.raises(UsageError, match="4 files of an earlier run"):
        generate_records(s3.url("raw.tar"), s3.url("out"), is_tar=True, context=Context())
    assert s3.uploads() == ["out/data-0-0000"]
    found = [record for name in names for record in read_records(s3.url(f"out/{name}"))]
    assert found == [b"%02d" % number * 500 * number for number in range(20)]


def test_a_folder_in_a_bucket(s3: S3) -> None:
    client = s3.client()
    for name in ("a/1.jpg", "b/2.jpg", "b/.hidden.jpg"):
        client.put_object(Bucket=s3.bucket, Key=f"{s3.folder}/raw/{name}", Body=name.encode())
    written = generate_records(s3.url("raw/"), s3.url("out/"), is_tar=False, context=Context())
    assert [tuple(file) for file in written] == [("data-0-0000", 1), ("data-1-0000", 1)]
    (record,) = read_records(s3.url("out/data-1-0000"))
    assert b"b/2.jpg" in record
