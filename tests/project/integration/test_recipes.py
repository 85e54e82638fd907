"""The blocks of docs/recipes.md are run as they stand there, on data made for them."""

from __future__ import annotations

import csv
import http.server
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import wave
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import warmprogram

from tarkit import TarWriter, read_samples
from tarkit.formats.example import decode_example
from tarkit.formats.tfrecord import read_records

Image = pytest.importorskip("PIL.Image", reason="NO Pillow, NO RECIPE IS RUN")

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
RECIPES = dict(re.findall(r"<!-- recipe: ([\w-]+) -->\n```sh\n(.*?)```", PAGE, re.DOTALL))
SHARDS = "train-{000000..000003}.tar"
SBATCH = """#!/bin/bash
# As Slurm does: a process for each ID of the array, with its variables.
IFS=- read -r first last < <(sed -n 's/^#SBATCH --array=//p' "$1")
export SLURM_ARRAY_TASK_MIN=$first SLURM_ARRAY_TASK_MAX=$last SLURM_ARRAY_TASK_STEP=1
export SLURM_ARRAY_TASK_COUNT=$((last - first + 1)) SLURM_CPUS_PER_TASK=1
for SLURM_ARRAY_TASK_ID in $(seq "$first" "$last"); do
    export SLURM_ARRAY_TASK_ID
    bash "$1" || exit
done
"""


class Done(NamedTuple):
    """What a recipe left: its folder, and what it printed."""

    folder: Path
    stdout: str
    stderr: str

    def keys(self, spec: str) -> list[str]:
        return [sample["__key__"] for sample in read_samples(f"{self.folder}/{spec}")]


def picture(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (48 + number % 24, 40), (number * 7 % 256, number * 13 % 256, 90)).save(out, "JPEG")
    return out.getvalue()


def sample(number: int, name: str = "photo") -> dict[str, object]:
    size = {"width": 48 + number % 24, "height": 40}
    return {
        "__key__": f"{name}-{number:06d}",
        "jpg": picture(number),
        "cls": number % 3,
        "json": size,
        "txt": f"No. {number}",
    }


def write(path: Path, samples: list[dict[str, object]]) -> None:
    with TarWriter(str(path), encoder=True) as writer:
        for each in samples:
            writer.write(each)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all recipes; nothing changes it."""
    folder = tmp_path_factory.mktemp("recipes") / "data"
    for part, count in (("train", 12), ("val", 3)):
        for wnid in ("n01440764", "n01443537", "n01484850"):
            (folder / "imagenet" / part / wnid).mkdir(parents=True)
            for number in range(count):
                (folder / "imagenet" / part / wnid / f"{wnid}_{number}.JPEG").write_bytes(picture(number))
    for shard in range(4):
        samples = [sample(12 * shard + number) for number in range(12)]
        write(folder / f"train-{shard:06d}.tar", samples)
        write(folder / f"old-{shard}.tar", samples[:11] if shard == 2 else samples)
        for number in (2, 5):
            if shard == 1:
                samples[number]["jpg"] = picture(number)[:-300]
        write(folder / f"crawl-{shard:06d}.tar", samples)
    write(folder / "val-000000.tar", [sample(number, "val") for number in range(20)])
    write(
        folder / "camera-0.tar", [{"__key__": "a", "jpeg": b"1", "xmp": b""}, {"__key__": "b", "JPEG": b"2", "cls": 1}]
    )
    damaged = bytearray((folder / "train-000000.tar").read_bytes())
    place = damaged.index(b"photo-000004.json")
    damaged[place : place + 512] = b"\xff" * 512
    (folder / "damaged.tar").write_bytes(damaged)
    (folder / "keys.txt").write_text("photo-000003\nphoto-000030\n")
    (folder / "parts.csv").write_text("key,output\nphoto-000030,rare\nphoto-000001,val\nphoto-000003,rare\n")
    rows = "".join(f"photo-{number:06d},Title {number}\n" for number in range(8, 56))
    (folder / "titles.csv").write_text(f"photo,title\n{rows}")
    _tables(folder)
    return folder


def _tables(folder: Path) -> None:
    for name in ("photos", "laion", "speech"):
        (folder / name).mkdir()
    for number in range(5):
        (folder / "photos" / f"p{number}.jpg").write_bytes(picture(number))
        with wave.open(f"{folder}/speech/s{number}.wav", "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(bytes(1600))
    with open(folder / "captions.csv", "w", newline="") as file:
        rows = ([f"photos/p{number}.jpg", f"a photo, number {number}"] for number in range(5))
        csv.writer(file).writerows([["file", "caption"], *rows])
    lines = (
        {"audio_filepath": f"speech/s{number}.wav", "duration": 0.1, "text": f"word {number}"} for number in range(5)
    )
    (folder / "speech.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for shard in range(2):
        ids = (f"{shard:05d}{number:04d}" for number in range(3))
        write(
            folder / "laion" / f"{shard:05d}.tar",
            [{"__key__": key, "jpg": picture(1), "txt": key, "json": {}} for key in ids],
        )
        (folder / "laion" / f"{shard:05d}_stats.json").write_text("{}")
    from tarkit.steps.convert import convert
    from tarkit.steps.encoding import Encoding

    convert(f"{folder}/val-000000.tar", f"{folder}/examples.tfrecord", "tfrecord", Encoding(example=True, typed=True))


@pytest.fixture
def server(data: Path) -> Iterator[str]:
    """URL of the data, on the loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(data))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def plain_commands(block: str) -> list[list[str]] | None:
    """The words of a block whose lines need no shell; None if one of them does."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        if words[0] not in ("tarkit", "tarproc") or {*words} & {"|", "||", "&&", ">", "<<"} or "$" in line:
            return None
        found.append(shlex.split(line))
    return found


def run_block(block: str, folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """Run a block as ``bash -euo pipefail`` does, and return what it printed.

    A start of Python for each line is left out where no shell is needed.
    """
    if (commands := plain_commands(block)) is not None:
        done = [warmprogram.run(words, folder, environment, None) for words in commands]
        stdout, stderr = (b"".join(parts).decode() for parts in ([e.stdout for e in done], [e.stderr for e in done]))
        assert [each.returncode for each in done] == [0] * len(done), stdout + stderr
        return stdout, stderr
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, result.stderr


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Callable[..., Done]:
    """``run(name)``: a recipe, in a copy of the data."""

    def run(name: str, **variables: str) -> Done:
        folder = tmp_path / "here"
        shutil.copytree(data, folder, copy_function=os.link)
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "sbatch").write_text(SBATCH)
        (programs / "sbatch").chmod(0o755)
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), "/usr/bin", os.environ["PATH"]))
        environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path), **variables}
        if "url" in name:
            rows = "".join(f"{number},{variables['BUCKET']}/photos/p{number}.jpg\n" for number in range(5))
            (folder / "urls.csv").write_text(f"id,url\n{rows}")
        return Done(folder, *run_block(RECIPES[name], folder, environment))

    return run


def test_each_recipe_has_a_test_and_a_heading() -> None:
    tested = re.findall(r"\brun\([\"']([\w-]+)[\"']", Path(__file__).read_text("utf-8"))
    assert sorted(RECIPES) == sorted(set(tested)) and len(RECIPES) >= 25
    headings = re.findall(r"(?m)^### (.*)$", PAGE)
    anchors = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
    assert re.findall(r"\]\(#([\w-]+)\)", PAGE) and sorted(re.findall(r"\]\(#([\w-]+)\)", PAGE)) == sorted(anchors)
    assert len(headings) == len(RECIPES) == PAGE.count("```sh")


Run = Callable[..., Done]
TRAINED = [f"photo-{number:06d}" for number in range(48)]


def test_imagenet(run: Run) -> None:
    done = run("imagenet")
    found = list(read_samples(f"{done.folder}/imagenet-00000[01].tar"))
    assert len(found) == 36 and sorted(int(each["cls"]) for each in found) == [0] * 12 + [1] * 12 + [2] * 12
    assert json.loads((done.folder / "classes.json").read_text()) == {"n01440764": 0, "n01443537": 1, "n01484850": 2}
    assert len(json.loads((done.folder / "imagenet.json").read_text())["shardlist"]) == 2


def test_validation(run: Run) -> None:
    done = run("validation")
    assert {int(each["cls"]) for each in read_samples(f"{done.folder}/imagenet-val-000000.tar")} == {0, 1, 2}


def test_split(run: Run) -> None:
    done = run("split")
    train, val = done.keys("part-train-*.tar"), done.keys("part-val-*.tar")
    assert len(train) + len(val) == len({*train, *val}) == 36 and val


def test_shuffle(run: Run) -> None:
    done = run("shuffle")
    keys = done.keys("shuffled-*.tar")
    assert len(keys) == len(set(keys)) == 36 and keys != sorted(keys)


def test_captions(run: Run) -> None:
    done = run("captions")
    found = {each["__key__"]: each["txt"] for each in read_samples(f"{done.folder}/captions-000000.tar")}
    assert found == {f"photos/p{number}": f"a photo, number {number}".encode() for number in range(5)}
    assert "a photo, number 1" in done.stdout


def test_speech(run: Run) -> None:
    found = list(read_samples(f"{run('speech').folder}/speech-000000.tar"))
    assert [(each["txt"], each["duration.json"], each["wav"][:4]) for each in found] == [
        (f"word {number}".encode(), b"0.1", b"RIFF") for number in range(5)
    ]


def test_urls(run: Run, server: str) -> None:
    found = list(read_samples(f"{run('urls', BUCKET=server).folder}/web-000000.tar"))
    assert [each["jpg"] for each in found] == [picture(number) for number in range(5)]


def test_img2dataset(run: Run) -> None:
    done = run("img2dataset")
    listed = json.loads((done.folder / "laion" / "laion.json").read_text())["shardlist"]
    assert [each["nsamples"] for each in listed] == [3, 3]


def test_tfrecord(run: Run) -> None:
    done = run("tfrecord")
    assert "read back and compared" in done.stderr
    before, after = (
        [decode_example(each) for each in read_records(str(done.folder / name))]
        for name in ("examples.tfrecord", "again.tfrecord")
    )
    assert [each["__key__"] for each in after] == [each["__key__"] for each in before] and len(before) == 20
    assert [each["jpg"] for each in after] == [each["jpg"] for each in before]


def test_count(run: Run) -> None:
    assert "48" in run("count").stdout


def test_sheet(run: Run) -> None:
    page = (run("sheet").folder / "sheet.html").read_text()
    assert len(set(re.findall(r"photo-0000\d\d", page))) == 20


def test_stats(run: Run) -> None:
    done = run("stats")
    assert "48" in done.stdout and "<html" in (done.folder / "stats.html").read_text()


def test_compare(run: Run) -> None:
    assert run("compare").stdout


def test_explain(run: Run) -> None:
    lines = run("explain").stdout.splitlines()
    assert lines[0] == "images/cat.v2.JPG"
    assert [json.loads(line)["name"] for line in lines if line.startswith("{")][:4] == [
        f"photo-000000.{field}" for field in ("cls", "jpg", "json", "txt")
    ]


def test_check(run: Run) -> None:
    assert run("check").stdout == ""


def test_broken(run: Run) -> None:
    done = run("broken")
    assert (done.folder / "bad.txt").read_text().split() == ["photo-000014", "photo-000017"]
    bad = {"photo-000014", "photo-000017"}
    assert done.keys("clean/crawl-00000[0-3].tar") == [key for key in TRAINED if key not in bad]


def test_diff(run: Run) -> None:
    assert run("diff").stdout.strip() == "only in A: photo-000035"


def test_sample(run: Run) -> None:
    keys = run("sample").keys("some.tar")
    assert len(keys) == 10 and set(keys) < set(TRAINED) and keys == sorted(keys)


def test_keys(run: Run) -> None:
    assert run("keys").keys("chosen.tar") == ["photo-000003", "photo-000030"]


def test_where(run: Run) -> None:
    expected = [f"photo-{number:06d}" for number in range(48) if number % 24 >= 12 and number % 3 != 1]
    assert run("where").keys("large/train-00000[0-3].tar") == expected


def test_sort(run: Run) -> None:
    expected = sorted((f"photo-{number:06d}" for number in range(48)), key=lambda key: -(int(key[6:]) % 24))
    assert run("sort").keys("by-width/shard-00000[0-2].tar") == expected


def test_reduce(run: Run) -> None:
    found = {each["__key__"]: each["txt"] for each in read_samples(f"{run('reduce').folder}/classes/shard-000000.tar")}
    names = [f"photo-{number:06d}" for number in range(48)]
    assert found == {str(cls): "".join(names[cls::3]).encode() for cls in range(3)}


def test_placing(run: Run) -> None:
    done = run("placing")
    assert done.keys("parts/rare.tar") == ["photo-000003", "photo-000030"]
    assert done.keys("parts/val.tar") == ["photo-000001"]
    assert "keys that the map does not list: 45" in done.stderr


def test_pick(run: Run) -> None:
    folder = run("pick").folder / "picked"
    assert sorted(path.name for path in folder.glob("*.jpg")) == ["photo-000017.jpg", "photo-000018.jpg"]
    assert (folder / "photo-000017.jpg").read_bytes() == picture(17)


def test_rename(run: Run) -> None:
    found = list(read_samples(f"{run('rename').folder}/renamed.tar"))
    assert [{name: each[name] for name in each if name[0] != "_"} for each in found] == [
        {"jpg": b"1"}, {"jpg": b"2", "cls": b"1"},
    ]  # fmt: skip


def test_rekey(run: Run) -> None:
    keys = run("rekey").keys("both.tar")
    assert keys[:2] == ["first-000000", "first-000001"] and keys[48:] == [f"val-{number:06d}" for number in range(20)]


def test_dedup(run: Run) -> None:
    done = run("dedup")
    assert (len(done.keys(f"unique/{SHARDS}")), done.keys("unique/val-000000.tar")) == (48, [])
    assert "shards that are empty now: 1, the first val-000000.tar" in done.stderr
    first = json.loads((done.folder / "gone.jsonl").read_text().splitlines()[0])
    assert (first["key"], first["equals_key"]) == ("val-000000", "photo-000000")


def test_mix(run: Run) -> None:
    keys = run("mix").keys("mixed-*.tar")
    first = sum(key.startswith("a-") for key in keys)
    assert abs(first - 3 * (len(keys) - first)) <= 8 and len(keys) > 50


def test_even(run: Run) -> None:
    done = run("even")
    sizes = [len(done.keys(f"even-{number:06d}.tar")) for number in range(5)]
    assert sum(sizes) == 48 and max(sizes) - min(sizes) <= 1


def test_reshuffle(run: Run) -> None:
    done = run("reshuffle")
    sizes = [len(done.keys(f"shuffled/shard-{number:06d}.tar")) for number in range(5)]
    keys = done.keys("shuffled/shard-00000[0-4].tar")
    assert sorted(sizes) == [9, 9, 10, 10, 10] and sorted(keys) == TRAINED != keys
    assert not (done.folder / "shuffled" / "_exchange").exists()


def test_join(run: Run) -> None:
    done = run("join")
    found = list(read_samples(f"{done.folder}/titled/shard-*.tar"))
    assert [each["__key__"] for each in found] == TRAINED and all(each["jpg"] for each in found)
    titles = [f"Title {number}".encode() for number in range(48)]
    assert [each.get("title.txt") for each in found] == [None] * 8 + titles[8:]


def test_salvage(run: Run) -> None:
    keys = run("salvage").keys("saved.tar")
    assert "photo-000004" not in keys and {"photo-000000", "photo-000011"} <= set(keys) and len(keys) >= 9


def test_try(run: Run) -> None:
    done = run("try")
    (found,) = re.findall(r"the samples of this trial are in (.*);", done.stderr)
    assert sorted(path.name for path in Path(found).glob("*/sample.*"))[:2] == ["sample.cls", "sample.cls"]
    assert len([*Path(found).glob("*/sample.sum")]) == 3


def test_resize(run: Run) -> None:
    done = run("resize")
    found = list(read_samples(f"{done.folder}/small/train-00000[0-3].tar"))
    assert {max(Image.open(io.BytesIO(each["jpg"])).size) for each in found} == {32} and len(found) == 48


def test_resume(run: Run) -> None:
    done = run("resume")
    assert "done before 1" in done.stderr and "done 4, missing 0, stale 0, failed 0" in done.stdout


def test_slurm(run: Run) -> None:
    done = run("slurm")
    assert done.keys("sums/train-00000[0-3].tar") == TRAINED
    assert [int(number) for number in re.findall(r"shards: done (\d)", done.stderr)] == [1, 1, 2]


def test_kubernetes(run: Run) -> None:
    done = run("kubernetes")
    assert done.keys("sums/train-00000[0-3].tar") == TRAINED
    assert "kind: Job" in (done.folder / "sums.yaml").read_text()


def test_bucket(run: Run, server: str) -> None:
    done = run("bucket", BUCKET=server)
    assert "photo-000001" in done.stdout
    for number in range(2):
        name = f"train-{number:06d}.tar"
        assert (done.folder / "local" / name).read_bytes() == (done.folder / name).read_bytes()


def test_parquet(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(run("parquet").folder / "train.parquet")
    assert table["__key__"].to_pylist() == TRAINED and table["cls"].to_pylist()[:4] == [0, 1, 2, 0]


def test_folders(run: Run) -> None:
    done = run("folders")
    with tarfile.open(done.folder / "again.tar") as archive:
        assert "photo-000003.txt" in "\n".join(archive.getnames())
