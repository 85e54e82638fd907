"""tarkit's reader in webdataset's pipelines, in PyTorch's loaders and in the notebook."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from trainshards import every_key, needs_torch, program_of, write_pictures, write_shards

from tarkit.trainers.webdataset import WebDataset

wds = pytest.importorskip("webdataset", reason="webdataset is not installed (pip install webdataset)")
COUNTS = (30, 0, 25, 17)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    return write_shards(folder, COUNTS, lambda shard, number: {"cls": number % 10, "JSON": b'{"n": 1}'})


def write_tar(path: Path, *members: tuple[str, bytes]) -> str:
    """An archive made by Python's tarfile."""
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


def test_the_notebook_cell_runs(tmp_path: Path) -> None:
    notebook = json.loads((Path(__file__).resolve().parents[3] / "notebooks/etl-mapreduce.ipynb").read_text("utf-8"))
    cell = "".join(next(each["source"] for each in notebook["cells"] if each["id"] == "in-13"))
    program = cell.partition("<<'EOF'\n")[2].removesuffix("EOF")
    picture = io.BytesIO()
    from PIL import Image

    Image.new("RGB", (4, 3), (255, 0, 0)).save(picture, "png")
    members = [(f"{n}.{field}", data) for n in range(3) for field, data in (("jpg", picture.getvalue()), ("cls", b"7"))]
    source = write_tar(tmp_path / "in.tar", *members)
    (tmp_path / "mapper.py").write_text(program)
    subprocess.run([sys.executable, "mapper.py", "--count", "2", source, "out.tar"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert archive.getnames() == ["0.cls", "0.ppm", "1.cls", "1.ppm"]
        ppm = archive.extractfile("0.ppm")
        assert ppm is not None and ppm.read().startswith(b"P6")


@needs_torch
@pytest.mark.parametrize("options", [{}, {"multiprocessing_context": "spawn"}])
def test_torch_loaders_read_each_sample_once(shards: str, options: dict[str, Any]) -> None:
    import torch.utils.data

    data = WebDataset(shards, shardshuffle=False, empty_check=False).decode().to_tuple("__key__", "cls").batched(5)
    for make in (torch.utils.data.DataLoader, wds.WebLoader):
        loader = make(data, batch_size=None, num_workers=2, **options)
        assert sorted(key for batch in loader for key in batch[0]) == sorted(every_key(COUNTS))
    mixed = wds.WebLoader(data, batch_size=None, num_workers=2).unbatched().shuffle(50).batched(8)
    assert sorted(key for batch in mixed for key in batch[0]) == sorted(every_key(COUNTS))


@needs_torch
def test_torch_the_programs_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path, 64)
    for name in ("dataset", "pipeline"):
        exec(program_of("training-webdataset.md", name), {})
        assert capsys.readouterr().out.count("32, 8, 8, 3") == 6


def read_in_process(dataset: Any, answers: Any) -> None:
    answers.put([sample["__key__"] for sample in dataset])


def test_it_can_be_sent_to_a_spawned_process(shards: str) -> None:
    dataset = pickle.loads(pickle.dumps(WebDataset(shards, shardshuffle=False)))
    assert [sample["__key__"] for sample in dataset] == every_key(COUNTS)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=read_in_process, args=(dataset, answers))
    process.start()
    assert answers.get(timeout=300) == every_key(COUNTS)
    process.join()
