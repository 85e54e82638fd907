"""docs/shard-service.md: its first run, and that its tables name all calls, limits and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tarkit.elasticdl import mastercalls
from tarkit.elasticdl.mastercalls import master_protocol
from tarkit.service import messages
from tarkit.service.dataset import MOST_FILE
from tarkit.service.leases import LeaseRules, Limits
from tarkit.service.messages import shard_protocol

pytest.importorskip("grpc", reason="the shard service needs grpcio")

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "shard-service.md").read_text(encoding="utf-8")


def test_all_calls_are_on_the_page() -> None:
    for protocol in (shard_protocol(), master_protocol()):
        for call in protocol.calls:
            assert f"`{call.name}" in PAGE, call.name


def test_the_limits_are_on_the_page() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("| limit |")[2], re.MULTILINE))
    assert rows["data sets"] == f"{limits.datasets:,}"
    assert rows["calls that are open at once"] == f"{limits.calls:,}"
    outstanding = rows["shards of a data set that are handed out and not done; that are dead"]
    assert outstanding == f"{LeaseRules.outstanding:,}; {LeaseRules.dead:,} (`--max-dead`)"
    assert rows["shards of a call"] == f"{limits.tasks:,}"
    assert rows["records of a shard, where records are shuffled"].startswith(f"{limits.indices:,},")
    assert rows["a message"] == f"{limits.message >> 20} MiB"
    names = rows["a name of a data set; of a worker; of a file"]
    assert names == f"1 to {limits.worker:,} bytes of UTF-8; the same; {MOST_FILE:,}"
    assert rows["workers that are remembered"].startswith(f"{limits.workers:,},")


def test_the_descriptors_are_those_of_the_files(tmp_path: Path) -> None:
    compiler = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools compiles the files")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    made = tmp_path / "made"
    for module, name in ((messages, "shards"), (mastercalls, "elasticdl")):
        here = Path(module.__file__).parent
        assert not compiler.main(["protoc", f"-I{here}", f"--descriptor_set_out={made}", f"{name}.proto"])
        files = here / f"{name}.binpb", made
        read, expected = (FileDescriptorSet.FromString(path.read_bytes()) for path in files)
        assert read == expected
