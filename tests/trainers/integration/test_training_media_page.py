"""The programs of docs/training-media.md run."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trainshards import needs_torch, program_of, write_shards

from tarkit.samples import video

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "training-media.md").read_text("utf-8")
RATE = 8000
needs_soundfile = pytest.mark.skipif(
    importlib.util.find_spec("soundfile") is None, reason="NO soundfile, SO NO AUDIO IS DECODED (pip install soundfile)"
)


def test_each_program_has_a_test() -> None:
    names = re.findall(r"<!-- program: (\w+) -->\n```python\n", PAGE)
    assert len(names) == PAGE.count("```python\n") == 4
    text = Path(__file__).read_text("utf-8")
    assert [name for name in names if f'run("{name}"' not in text] == []


def run(name: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(program_of("training-media.md", name), scope)
    return scope


def sound(seconds: float, number: int) -> bytes:
    import soundfile

    stream = io.BytesIO()
    samples = np.sin(np.arange(round(seconds * RATE)) / (5 + number)) / 2
    soundfile.write(stream, samples.astype("float32"), RATE, format="FLAC")
    return stream.getvalue()


@needs_torch
@needs_soundfile
def test_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(
        Path(), [12, 12], lambda shard, number: {"flac": sound(0.5 + number / 6, number), "cls": number}, "talks"
    )
    assert run("audio")["sounds"].abs().max() > 0.4
    assert capsys.readouterr().out == "torch.Size([8, 8000]) torch.Size([8])\n" * 3


@needs_torch
@needs_soundfile
def test_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(Path(), [4, 4], lambda shard, number: {"flac": sound(10, number), "cls": number}, "long")
    parts = run("parts")["parts"]
    assert capsys.readouterr().out == "torch.Size([4, 16000])\n" * 2
    first = parts[3]
    parts.epoch = 1
    assert not np.array_equal(first, parts[3])


@needs_torch
def test_films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a decoder of its own: that of torchcodec is tested in test_video.py."""
    import torch

    def frames(film: bytes, seconds: list[float]) -> video.Frames:
        return video.Frames(torch.full((len(seconds), 3, 4, 4), film[0], dtype=torch.uint8), torch.tensor(seconds))

    monkeypatch.setattr(video, "read_frames", frames)
    monkeypatch.chdir(tmp_path)
    write_shards(Path(), [4, 4], lambda shard, number: {"mp4": bytes([number] * 9), "cls": number}, "films")
    scope = run("video")
    assert (scope["frames"][:, 0, 0, 0, 0] == scope["labels"]).all()
    assert capsys.readouterr().out == "torch.Size([4, 3, 3, 4, 4])\n" * 2


@needs_torch
def test_the_hook_of_the_gpu_gets_undecoded_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import PIL.Image
    import torch

    from tarkit.trainers.torch import ShardDataset

    batches: list[list[int]] = []

    def decode_jpeg(files: list[bytes], device: str) -> Any:
        assert isinstance(files, list) and all(file[:2] == b"\xff\xd8" for file in files) and device == "cpu"
        found = [torch.from_numpy(np.array(PIL.Image.open(io.BytesIO(file)))).permute(2, 0, 1) for file in files]
        batches.append([round(each.float().mean().item() / 5) for each in found])
        return found

    monkeypatch.setitem(sys.modules, "torchcodec.decoders", SimpleNamespace(decode_jpeg=decode_jpeg))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    spec = write_shards(
        Path(),
        [20, 20],
        lambda shard, number: {"jpg": np.full((8, 8, 3), number * 5, "uint8"), "cls": number},
        "photos",
    )
    scope = run("gpu")
    assert scope["images"].shape == (8, 3, 8, 8) and scope["images"].max() <= 1
    order = ShardDataset(spec, batch=8, fields="cls", decode="bytes").loader()
    assert batches == [labels.tolist() for (labels,) in order] and len(batches) == 5
