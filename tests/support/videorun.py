"""Decode parts of videos in shards: videorun.py FOLDER; prints what was read and decoded, as JSON.

A program of its own, because FFmpeg's libraries are found by LD_LIBRARY_PATH.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np

from tarkit.errors import TarkitError
from tarkit.samples.tarwriter import TarWriter
from tarkit.samples.video import read_frames
from tarkit.store.ranges import Ranges
from tarkit.trainers.shardmap import ShardMap

FPS, LENGTH = 10, 150
TIMES = [100.05, 101.05, 3.05]


def grey(number: int) -> int:
    """How bright the frame of a number is."""
    return 40 + number * 7 % 180


def pictures(count: int) -> Iterator[Any]:
    noise = np.random.default_rng(0).integers(-30, 30, (96, 128, 1))
    for number in range(count):
        yield np.broadcast_to(grey(number) + np.roll(noise, number, 0), (96, 128, 3)).clip(0, 255).astype("uint8")


def write_video(path: Path, varies: bool = False, **options: str) -> bytes:
    """A video of 150 s; with ``varies``, its second half has a tenth of the frames."""
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.options = {"preset": "ultrafast"}
        stream.codec_context.gop_size = 2 * FPS
        for number, pixels in enumerate(pictures(FPS * LENGTH)):
            if varies and number > FPS * LENGTH // 2 and number % 10:
                continue
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path.read_bytes()


def mappings(path: Path) -> str:
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.pts is not None]
    found = [{"pts": each.pts, "duration": each.duration, "key_frame": int(each.is_keyframe)} for each in packets]
    return json.dumps({"frames": sorted(found, key=lambda frame: frame["pts"])})


def main(folder: Path) -> None:
    """All that the test judges."""
    videos = {
        "front": write_video(folder / "front.mp4", movflags="faststart"),
        "end": write_video(folder / "end.mp4"),
        "varies": write_video(folder / "varies.mp4", varies=True),
    }
    with TarWriter(str(folder / "a.tar"), index=True) as writer:
        for key, data in videos.items():
            writer.write({"__key__": key, "mp4": data})
        writer.write({"__key__": "garbage", "mp4": random.Random(0).randbytes(10_000)})
        writer.write({"__key__": "cut", "mp4": videos["front"][: len(videos["front"]) // 3]})
    samples, keys = ShardMap(str(folder / "a.tar")), [*videos, "garbage", "cut"]
    original, reads = Ranges.read, list[int]()

    def noted(ranges: Ranges, start: int, stop: int) -> bytes:
        reads.append(stop - start)
        return original(ranges, start, stop)

    Ranges.read = noted  # type: ignore[method-assign]
    result: dict[str, Any] = {}
    for key, times, options in [
        ("front", TIMES, {}),
        ("end", TIMES, {}),
        ("varies", TIMES, {}),
        ("varies", TIMES, {"mappings": mappings(folder / "varies.mp4")}),
        ("varies", [80.05], {}),
        ("front", [400], {}),
        ("garbage", TIMES, {}),
        ("cut", TIMES, {}),
    ]:
        for is_range in (True, False):
            name = f"{key} {'range' if is_range else 'bytes'}{' mapped' * bool(options)}"
            name += f" at {times[0]}" * (times != TIMES)
            reads.clear()
            number = keys.index(key)
            video: Any = samples.open_field(number, "mp4") if is_range else samples[number]["mp4"]
            reads.clear()
            try:
                pixels, begins = read_frames(video, times, **options)
                found = {"mean": pixels.float().mean((1, 2, 3)).tolist(), "begins": begins.tolist()}
                found["shape"] = list(pixels.shape)
            except TarkitError as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            result[name] = {**found, "read": sum(reads), "reads": len(reads), "size": len(videos.get(key, b""))}
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
