"""Make a shard of ImageNet-like photos: ``photos.py OUT.tar COUNT LOW HIGH``.

Runs in the pictures environment.

Each photo is a random crop of a photograph that ships inside scikit-image's wheel (nothing is
downloaded), perhaps mirrored, resized to about 500x375 pixels, with a camera's grain, and saved as
JPEG at the quality at which its size comes closest to a size drawn between LOW and HIGH bytes.
Members are as in the ImageNet shards: ``.cls``, ``.jpg`` and ``.json``. Seeded: the same versions
of Pillow and numpy make the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import json
import multiprocessing
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy
from PIL import Image, ImageOps

PHOTOGRAPHS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)
SHAPES = ((500, 375), (500, 333), (375, 500), (500, 400))
QUALITIES = (30, 98)
GRAIN = 4.0


@cache
def photograph(name: str) -> Image.Image:
    """One of scikit-image's photographs, found without importing scikit-image."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        # In a process of a pool SystemExit would have the pool wait for ever.
        raise ModuleNotFoundError("scikit-image is not installed")
    path = Path(spec.origin).parent / "data" / name
    if not path.exists():
        raise FileNotFoundError(f"this version of scikit-image ships no {name}")
    return Image.open(path).convert("RGB")


def jpeg(image: Image.Image, quality: int) -> bytes:
    """The image as a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def photo(task: tuple[int, int, int]) -> tuple[bytes, dict[str, Any]]:
    """Photo number ``task[0]`` with a size in bytes between ``task[1]`` and ``task[2]``, and a
    description.
    """
    number, low, high = task
    chance = numpy.random.default_rng([20191209, number])
    name = str(chance.choice(PHOTOGRAPHS))
    image = photograph(name)
    width, height = SHAPES[int(chance.integers(len(SHAPES)))]
    scale = min(image.width / width, image.height / height) * chance.uniform(0.6, 1.0)
    across, down = int(width * scale), int(height * scale)
    left, top = int(chance.integers(image.width - across + 1)), int(chance.integers(image.height - down + 1))
    image = image.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + across, top + down))
    if chance.random() < 0.5:
        image = ImageOps.mirror(image)
    grain = chance.normal(0.0, GRAIN, (height, width, 3))
    image = Image.fromarray(numpy.clip(numpy.asarray(image) + grain, 0, 255).astype(numpy.uint8))
    content = _closest(image, int(chance.integers(low, high + 1)), low)
    box = {"left": left, "top": top, "width": across, "height": down}
    return content, {"photograph": name, "crop": box, "size": [width, height], "seed": number}


def _closest(image: Image.Image, wanted: int, least: int) -> bytes:
    """The largest JPEG of the image that is not larger than ``wanted`` bytes.

    If that is below ``least``, the next.
    """
    low, high = QUALITIES
    best = jpeg(image, low)
    while low < high:
        middle = (low + high + 1) // 2
        content = jpeg(image, middle)
        if len(content) <= wanted:
            low, best = middle, content
        else:
            high = middle - 1
    return best if len(best) >= least else jpeg(image, low + 1)


def main() -> None:
    """Write the shard."""
    target, count, low, high = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    tasks = [(number, low, high) for number in range(count)]
    with multiprocessing.Pool() as pool, tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as shard:
        for number, (content, description) in enumerate(pool.imap(photo, tasks, chunksize=8)):
            fields = {"cls": b"%d" % (number * 7 % 1000), "jpg": content, "json": json.dumps(description).encode()}
            for field in sorted(fields):
                info = tarfile.TarInfo(f"n{number % 100:08d}_{number}.{field}")
                info.size = len(fields[field])
                info.mtime = 1_559_995_920
                info.uname = info.gname = "bigdata"
                shard.addfile(info, io.BytesIO(fields[field]))


if __name__ == "__main__":
    main()
