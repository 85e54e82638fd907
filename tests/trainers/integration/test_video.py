"""Frames of a video by time, of which a part is read; FFmpeg is that of PyAV's wheel."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tarkit.errors import DecodeError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.samples import video

NEEDED = ("torch", "torchcodec", "av", "numpy")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program decodes."""
    folder, libraries = tmp_path_factory.mktemp("videos"), tmp_path_factory.mktemp("ffmpeg")
    spec = importlib.util.find_spec("av")
    assert spec is not None and spec.origin is not None
    shipped = Path(spec.origin).parents[1] / "av.libs"
    for path in shipped.iterdir():
        if name := re.match(r"(lib(?:av|sw)\w+)-\w+(\.so\.\d+)", path.name):
            (libraries / f"{name[1]}{name[2]}").symlink_to(path)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{shipped}"}
    try_it = "import torchcodec.decoders"
    if subprocess.run([sys.executable, "-c", try_it], env=environment, capture_output=True, check=False).returncode:
        pytest.skip("torchcodec CANNOT LOAD WITH THIS torch AND THE FFmpeg OF PyAV, NO VIDEO IS DECODED")
    program = Path(__file__).resolve().parents[2] / "support" / "videorun.py"
    done = subprocess.run(
        [sys.executable, str(program), str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.torch
@pytest.mark.skipif(bool(MISSING), reason=f"NO {', '.join(MISSING)}, NO VIDEO IS DECODED (tox run -e torch)")
def test_frames_by_time(found: dict[str, Any]) -> None:
    grey = [40 + number * 7 % 180 for number in (1000, 1010, 30)]
    assert found["varies range at 80.05"]["begins"] == pytest.approx([80])
    good = [name for name in found if "error" not in found[name] and " at " not in name]
    assert good == [
        "front range",
        "front bytes",
        "end range",
        "end bytes",
        "varies bytes",
        "varies range mapped",
        "varies bytes mapped",
    ]
    for name in good:
        assert found[name]["begins"] == pytest.approx([100, 101, 3]), name
        assert found[name]["mean"] == pytest.approx(grey, abs=4), name
        assert found[name]["shape"] == [3, 3, 96, 128]
        if "range" in name:
            assert 0 < found[name]["read"] < found[name]["size"] / 3 and found[name]["reads"] < 10, found[name]


@pytest.mark.torch
@pytest.mark.skipif(bool(MISSING), reason=f"NO {', '.join(MISSING)}, NO VIDEO IS DECODED (tox run -e torch)")
@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "varies range",
            r"DecodeError: \S+a\.tar, member 'varies\.mp4': the video cannot be .*if its frame rate varies, ",
        ),
        ("front range at 400", r"UsageError: \S+a\.tar, member 'front\.mp4': 400 s is not in it: it has 0\.000 to 150"),
        ("front bytes at 400", r"UsageError: video: 400 s is not in it: it has 0\.000 to 150\.000 s"),
        (
            "garbage range",
            r"DecodeError: \S+a\.tar, member 'garbage\.mp4': the video cannot be decoded: Failed to open",
        ),
        ("garbage bytes", r"DecodeError: the video cannot be decoded: Failed to open input buffer: Invalid data"),
        ("cut range", r"DecodeError: \S+a\.tar, member 'cut\.mp4': the video cannot be decoded: "),
        ("cut bytes", r"UsageError: video: 100\.05 s is not in it: it has 0\.000 to "),
    ],
)
def test_what_cannot_be_decoded(name: str, pattern: str, found: dict[str, Any]) -> None:
    assert re.match(pattern, found[name]["error"]) and "\n" not in found[name]["error"], found[name]


@pytest.mark.parametrize("times", [[], [float("nan")], [1.0, float("inf")]])
def test_times_that_are_none(times: list[float]) -> None:
    with pytest.raises(UsageError, match=r"^seconds is \[.*\]; it must be one or more times in seconds$"):
        video.read_frames(b"", times)


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    with pytest.raises(MissingExtraError, match=r"^video needs .*: pip install torchcodec \(or .* extra 'video'\)"):
        video.read_frames(b"", [1.0])


@pytest.mark.parametrize("error", [RuntimeError("Could not load libtorchcodec"), OSError("libnvrtc.so.13"), None])
def test_the_library_lacks_another(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*words: str) -> Any:
        if error is not None:
            raise error
        return SimpleNamespace(ffmpeg_major_version=None)  # since 0.16, which is loaded without FFmpeg

    monkeypatch.setattr(video, "library", found)
    with pytest.raises(UsageError, match=r"cannot be loaded: its FFmpeg lib.*; install FFmpeg \(apt-get ") as raised:
        video.read_frames(b"", [1.0])
    assert isinstance(raised.value, ImportError)  # never counted as a failed sample


def test_a_frame_of_another_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(tolist=lambda: [2.0]), SimpleNamespace(tolist=lambda: [0.5])
    frames = SimpleNamespace(data=None, pts_seconds=times[0], duration_seconds=times[1])
    decoder = SimpleNamespace(
        metadata=SimpleNamespace(begin_stream_seconds=0, end_stream_seconds=9),
        get_frames_played_at=lambda seconds: frames,
    )
    monkeypatch.setattr(video, "_decoders", lambda: SimpleNamespace(VideoDecoder=lambda *_, **__: decoder))
    file = io.BufferedReader(io.BytesIO(b"video"))  # type: ignore[arg-type]
    assert video.read_frames(file, [2.25]).begins is times[0]
    for time in (1.9, 2.6):
        with pytest.raises(
            DecodeError, match=rf"at {time} s there is the frame of 2\.000 to 2\.500 s; if its frame rate"
        ):
            video.read_frames(file, [time])
