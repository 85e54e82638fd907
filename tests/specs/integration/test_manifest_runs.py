"""Manifests that runs write and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from manifestshards import listed, shards

import tarkit
from tarkit.errors import TarkitError
from tarkit.samples.indexing import index_all
from tarkit.specs.manifest import (
    compare_manifest,
    read_manifest,
    write_manifest,
)


def test_a_run_lists_its_shards_when_all_are_made(tmp_path: Path) -> None:
    inputs, out, manifest = shards(tmp_path), str(tmp_path / "out"), tmp_path / "out" / "dataset.json"
    given: dict[str, Any] = {
        "outdir": out,
        "function": lambda sample: sample,
        "work_id": "x",
        "manifest": str(manifest),
    }
    tarkit.process(inputs, **given)
    first = manifest.read_bytes()
    assert [shard.nsamples for shard in read_manifest(str(manifest))] == [3, 1, 4]
    compare_manifest(str(manifest), [each.listed for each in index_all(inputs_of(out), listed=True) if each.listed])
    # Again, where all is done before; and with a shard that fails, after which no old list is left.
    tarkit.process(inputs, **given)
    assert manifest.read_bytes() == first
    Path(inputs[1]).write_bytes(b"x" * 1024)
    with pytest.raises(TarkitError):
        tarkit.process(inputs, **given)
    assert not manifest.exists()


def inputs_of(folder: str) -> list[str]:
    return [f"{folder}/s-{number}.tar" for number in range(3)]


@pytest.fixture
def data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the manifest of three shards that are beside it, and nothing else.

    Another one is the current.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    write_manifest(f"{folder}/dataset.json", listed(shards(folder)))
    monkeypatch.chdir(tmp_path)
    return folder


def test_every_program_takes_a_manifest_for_its_shards(data_set: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tarkit.cli.tarkit import main
    from tarkit.cli.tarproc import main as tarproc

    manifest = "data/dataset.json"
    for words in (
        "cat {} -o cat.tar",
        "convert {} -o a.tar.rio --to recordio",
        "split {} -o split-%d.tar",
        "index {} --force",
    ):
        assert main([*words.format(manifest).split(), "-q"]) == 0, words
    assert len(list(tarkit.read_samples("cat.tar"))) == len(list(tarkit.read_samples(manifest))) == 8
    capfd.readouterr()
    assert main(["show", "--json", "--count", manifest]) == 0
    assert [json.loads(line)["samples"] for line in capfd.readouterr().out.splitlines()] == [3, 1, 4]
    assert tarproc(["-c", "true", manifest, "-O", "out", "-q"]) == 0
    assert main(["status", "out", manifest]) == 0 and "done 3, missing 0" in capfd.readouterr().out
