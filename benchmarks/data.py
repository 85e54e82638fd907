"""The data: made once, seeded, kept in the work folder."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from environments import Settings, call, picture_environment, streaming_environment, tarkit_environment
from loops.small import small_samples
from rounds import say

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Shard:
    """A tar file and how many samples are in it."""

    path: Path
    samples: int


def kept(settings: Settings, name: str, make: Callable[[Path], None]) -> Path:
    """The file of this name among the data.

    Made if it is not there, under its name only when complete.
    """
    path = settings.work / "data" / name
    if not path.exists():
        say(f"  data {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        make(unfinished)
        unfinished.rename(path)
    return path


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.uname = info.gname = "bigdata"
    shard.addfile(info, io.BytesIO(content))


def small_shard(settings: Settings, count: int) -> Shard:
    """Samples of 1 byte (``.cls``) and 300 bytes (``.json``)."""

    def make(path: Path) -> None:
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
            for sample in small_samples(count):
                for field in ("cls", "json"):
                    _add(shard, f"{sample['__key__']}.{field}", sample[field])

    return Shard(kept(settings, f"small-{count}.tar", make), count)


def indexed_shards(settings: Settings, shards: int, samples: int, size: int) -> str:
    """Shards of ``samples`` samples of 1 byte and ``size`` random bytes, with indexes.

    Their shard spec.
    """

    def make(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        python = tarkit_environment(settings.work).python
        call([python, HERE / "loops" / "make_shards.py", folder, str(shards), str(samples), str(size)])

    return f"{kept(settings, f'shards-{shards}-{samples}-{size}', make)}/s-{{000..{shards - 1:03d}}}.tar"


def packed_shards(settings: Settings, shards: int, samples: int) -> str:
    """Shards of ``samples`` texts of 1.7 kB, with indexes, plain and (``.zst`` added) compressed.

    The shard spec of the plain ones.
    """

    def make(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        python = tarkit_environment(settings.work).python
        call([python, HERE / "loops" / "make_packed.py", folder, str(shards), str(samples)])

    return f"{kept(settings, f'packed-{shards}-{samples}', make)}/s-{{000..{shards - 1:03d}}}.tar"


def keyed_shards(settings: Settings, name: str, shards: int, samples: int, first: int, *fields: str) -> list[Path]:
    """Shards of ``samples`` samples each, whose keys have no order.

    Args:
        name: of their folder among the data.
        first: number of the first sample: equal numbers have equal keys.
        fields: name and bytes of each field, as in ``bin=1000``.
    """

    def make(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        python = tarkit_environment(settings.work).python
        call([python, HERE / "loops" / "make_keyed.py", folder, str(shards), str(samples), str(first), *fields])

    folder = kept(settings, f"{name}-{shards}-{samples}", make)
    return [folder / f"s-{number:05d}.tar" for number in range(shards)]


def manifest_of_shards(settings: Settings, shards: int, samples: int, size: int) -> Path:
    """The manifest of such shards."""
    spec = indexed_shards(settings, shards, samples, size)
    path = Path(spec).parent / "dataset.json"
    if not path.exists():
        program = tarkit_environment(settings.work).program("tarkit")
        call([program, "index", "--quiet", "--manifest", path, spec])
    return path


def mds_folder(settings: Settings, shards: int, samples: int, size: int) -> Path:
    """The samples of such shards in Mosaic's MDS, in files of the size that its writer makes."""

    def make(folder: Path) -> None:
        python = streaming_environment(settings.work).python
        call([python, HERE / "loops" / "make_mds.py", folder, str(shards), str(samples), str(size)])

    return kept(settings, f"mds-{shards}-{samples}-{size}", make)


def tfrecord_file(settings: Settings, count: int, size: int, *, examples: bool = False) -> Path:
    """``count`` records of ``size`` random bytes; or Examples of a label, a name and such bytes."""
    kind = "examples" if examples else "records"

    def make(path: Path) -> None:
        python = tarkit_environment(settings.work).python
        call([python, HERE / "loops" / "make_tfrecord.py", path, str(count), str(size), kind])

    return kept(settings, f"{kind}-{count}-{size}.tfrecord", make)


def sequencefile(settings: Settings, count: int) -> Path:
    """``count`` pairs of 12 and 100 bytes, half of the values random, in blocks of snappy."""

    def make(path: Path) -> None:
        python = tarkit_environment(settings.work).python
        call([python, HERE / "loops" / "make_sequencefile.py", path, str(count)])

    return kept(settings, f"pairs-{count}.seq", make)


def photo_shard(settings: Settings, count: int, low: int = 50_000, high: int = 100_000) -> Shard:
    """Photos of ``low`` to ``high`` bytes, each with its class and a description."""

    def make(path: Path) -> None:
        python = picture_environment(settings.work).python
        call([python, HERE / "photos.py", path, str(count), str(low), str(high)])

    return Shard(kept(settings, f"photos-{count}-{low // 1000}-{high // 1000}kB.tar", make), count)


def indexed_photos(settings: Settings, shards: int, count: int) -> str:
    """``count`` photos in shards with indexes; their shard spec."""

    def make(folder: Path) -> None:
        source = photo_shard(settings, count).path
        folder.mkdir(parents=True, exist_ok=True)
        program = tarkit_environment(settings.work).program("tarkit")
        target = f"{folder}/p-%03d.tar"
        call([program, "split", "--quiet", "--index", "--maxcount", str(count // shards), source, "-o", target])

    return f"{kept(settings, f'photos-{count}-in-{shards}', make)}/p-{{000..{shards - 1:03d}}}.tar"


def long_photo_shard(settings: Settings, count: int) -> Shard:
    """``count`` photos of about 50 kB: a pool of 200 over and over, each time under another key."""
    pool = photo_shard(settings, 200, 47_000, 53_000)

    def make(path: Path) -> None:
        with tarfile.open(pool.path) as source:
            members = [(info.name.partition("."), _content(source, info)) for info in source]
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
            for turn in range(count // pool.samples):
                for (key, dot, field), content in members:
                    _add(shard, f"{key}_{turn:04d}{dot}{field}", content)

    return Shard(kept(settings, f"photos-{count}-long.tar", make), count // pool.samples * pool.samples)


def _content(shard: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    stream = shard.extractfile(info)
    if stream is None:
        raise ValueError(f"{info.name} is not a regular file")
    return stream.read()


def extract(shard: Path, folder: Path) -> list[str]:
    """Unpack a shard that we made into a folder; the keys of its samples, in order."""
    with tarfile.open(shard) as source:
        if sys.version_info >= (3, 12):
            source.extractall(folder, filter="data")
        else:
            source.extractall(folder)
        return list(dict.fromkeys(name.partition(".")[0] for name in source.getnames()))
