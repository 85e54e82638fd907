"""The programs and commands of docs/training.md run.

Those of other test files are found there by their names.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from object_servers import free_ports
from waiting import wait_for

from tarkit.samples.codecs import decode_sample
from tarkit.samples.read import read_samples
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.manifest import read_manifest

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "training.md").read_text("utf-8")
BLOCKS = {name: text for name, text in re.findall(r"<!-- \w+: (\w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)}
MDS = Path(__file__).resolve().parents[1] / "data" / "mds"
FOLDER = str(Path(sys.executable).parent)


def needs(*names: str) -> Any:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"NO {', '.join(missing)} (tox run -e torch)")


def torch_test(test: Any) -> Any:
    """Runs in the environment torch.

    The warnings are torch's own, about forks beside threads.
    """
    return pytest.mark.torch(needs("torch", "torchdata")(pytest.mark.filterwarnings("ignore")(test)))


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: shards of dark images, of class 0, and of bright ones."""
    monkeypatch.chdir(tmp_path)
    for name, count in (*((f"train-{shard}", 96) for shard in range(3)), ("test-0", 40), ("test-1", 31)):
        with TarWriter(f"{name}.tar", index=True) as writer:
            for number in range(count):
                array = np.full((8, 8, 3), number % 2 * 200, "uint8")
                writer.write({"__key__": f"{name}-{number}", "png": array, "cls": number % 2})
    index()
    return tmp_path


def index() -> None:
    """What the page's command does."""
    subprocess.run(["bash", "-eu", "-c", BLOCKS["index"]], env=environment(), check=True)


def environment(**more: str) -> dict[str, str]:
    path = f"{FOLDER}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}


def test_each_block_has_a_test() -> None:
    marks = re.findall(r"(?:<!-- (.*?) -->\n)?```(?!\n)\w+\n", PAGE)
    assert len(marks) == len(BLOCKS) and all(marks), "a block has no <!-- program: NAME --> or <!-- command: NAME -->"
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).resolve().parents[2].rglob("test_*.py"))
    missing = {mark.split()[1] for mark in marks if mark not in tests}
    assert missing <= set(re.findall(r'(?:BLOCKS\[|scope_of\(|program_of\("training.md", )"(\w+)"', tests))


def test_links_lead_to_headings() -> None:
    headings = {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in re.findall(r"^#+ (.*)$", PAGE, re.M)}
    assert [link for link in re.findall(r"\]\(#([^)]+)\)", PAGE) if link not in headings] == []


def test_the_measures_of_the_shuffle_are_those_of_their_page() -> None:
    rows = re.findall(r"^\| .*? \| ([\d.]+%) \| (\d+) \|$", PAGE, re.MULTILINE)
    measured = re.findall(r"^\| .*? \| ([\d.]+%) \| [\d.]+% \| (\d+) \|", (DOCS / "order.md").read_text("utf-8"), re.M)
    assert rows == measured and len(rows) == 6


def test_the_index_and_the_manifest(shards: Path) -> None:
    assert [(shard.url, shard.nsamples) for shard in read_manifest("dataset.json")] == [
        (f"train-{shard}.tar", 96) for shard in range(3)
    ]


@pytest.mark.parametrize("kind", ["plain", "zstd"])
def test_mds_is_converted(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "mds_to_tar.py"
    program.write_text(BLOCKS["mds"])
    words = [sys.executable, str(program), str(MDS / kind), "train-%06d.tar", "dataset.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "12 samples\n"), done.stderr
    assert [shard.nsamples for shard in read_manifest(str(tmp_path / "dataset.json"))] == [12]
    samples = list(read_samples(str(tmp_path / "train-000000.tar")))
    assert samples[5]["image.jpg"].startswith(b"\xff\xd8") and samples[5]["image.jpg"] in content(kind)
    for number, sample in enumerate(decode_sample(each, image="rgb8") for each in samples):
        assert abs(int(sample.pop("image.jpg").mean()) - 20 * number) < 3
        assert (sample.pop("mask.png")[:, :, 0] == number).all()
        assert {name: value for name, value in sample.items() if name != "__url__"} == {
            "__key__": f"{number:09d}",
            "label.cls": number - 3,
            "caption.txt": f"größe {number}",
            "more.json": {"number": number},
            "raw.bin": bytes([number] * number),
        }


def content(kind: str) -> bytes:
    from tarkit.store.read import open_read

    found = b""
    for path in sorted((MDS / kind).glob("*.mds*")):
        with open_read(str(path)) as stream:
            found += b"".join(iter(lambda stream=stream: stream.read(1 << 20), b""))  # type: ignore[misc]
    return found


def test_mds_that_is_cut_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "mds_to_tar.py").write_text(BLOCKS["mds"])
    for path in (MDS / "plain").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: None if path.suffix == ".json" else -1])
    words = [sys.executable, "mds_to_tar.py", ".", "train-%06d.tar", "dataset.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "shard.00000.mds: 5607 bytes, and the index has 5608\n")
    assert not list(tmp_path.glob("train-*"))


def scope_of(name: str, **given: Any) -> dict[str, Any]:
    scope = {"__name__": "__main__", **given}
    exec(BLOCKS[name], scope)
    return scope


@torch_test
def test_each_sample_of_the_test_counts_once(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    def model(images: Any) -> Any:
        bright = images.mean((1, 2, 3)) > 0.5
        return torch.stack([~bright, bright], 1).float()

    scope_of("evaluate", model=model)
    assert capsys.readouterr().out == "71 of 71\n"


@torch_test
def test_torchdata_goes_on_with_another_number_of_workers(shards: Path) -> None:
    from tarkit.trainers.torch import ShardDataset

    found = scope_of("torchdata")["rest"]
    whole = ShardDataset("train-{0..2}.tar", batch=32, fields="cls", decode="rgb", seed=1).loader()
    assert [each.tolist() for each in found] == [labels.tolist() for (labels,) in whole][5:]


@torch_test
def test_the_numbers_of_a_loop(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

    scope_of("numbers", train=lambda images, labels: None, writer=Writer())
    assert re.fullmatch(r"288 samples, waiting \d+%, limit: \w+\n", capsys.readouterr().out)
    assert [(value, step) for name, value, step in written if name == "tarkit/samples"] == [(32, 0), (160, 4), (288, 8)]
    assert {step for name, _, step in written if name == "tarkit/loop_waits"} == {4, 8}


@torch_test
def test_a_data_set_is_measured_without_a_model(shards: Path) -> None:
    command = BLOCKS["feed"].replace("--seconds 10", "--batches 12")
    done = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False, cwd=shards
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 workers: 12 batches, 384 samples; ") and "\nlimit: " in done.stdout


@torch_test
def test_ranks_are_killed_and_others_go_on(shards: Path) -> None:
    # The ranks that are killed do not come to their end before.
    saved = 'os.replace(f"{last}.new", last)\n'
    hold = "            while state['loader']['next_batch'] == 3:\n                __import__('time').sleep(1)\n"
    assert saved in BLOCKS["ddp"]
    (shards / "train_ddp.py").write_text(BLOCKS["ddp"].replace(saved, saved + hold))
    command = BLOCKS["torchrun"].split()
    assert command[0] == "torchrun" and command[2] == "--nproc-per-node=2"
    program = [sys.executable, "-m", "torch.distributed.run", *command[1:]]
    first = subprocess.Popen(program, env=environment(), stderr=subprocess.DEVNULL)
    wait_for(lambda: Path("last.pt").exists() or first.poll() is not None, 300)
    first.send_signal(signal.SIGTERM)  # SIGKILL would leave the ranks alive
    assert first.wait() != 0 and Path("last.pt").exists()
    (shards / "train_ddp.py").write_text(BLOCKS["ddp"])
    program[program.index("--nproc-per-node=2")] = "--nproc-per-node=3"
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert losses and losses[-1] < 0.3
    import torch

    saved = torch.load("last.pt")
    assert (saved["loader"]["epoch"], saved["loader"]["next_batch"]) == (3, 0)
    assert saved["optimizer"]["state"][0]["step"] == 3 * 6


# Otherwise one of two programs may have used all records, and the service have ended, before the
# other comes.
MEET = """\
    import glob, os, time
    open(f"begun-{os.getpid()}", "w").close()
    until = time.monotonic() + 300
    while len(glob.glob("begun-*")) < 2 and time.monotonic() < until:
        time.sleep(0.02)
"""


@torch_test
def test_two_programs_are_fed_by_a_service(shards: Path) -> None:
    (port,) = map(str, free_ports(1))
    program = BLOCKS["served"].replace("50001", port).replace("    steps += 1\n", f"    steps += 1\n{MEET}")
    assert MEET in program
    (shards / "train.py").write_text(program + 'print("steps", steps)\n')
    script = BLOCKS["serve"].replace("tarkit serve", f"tarkit serve --quiet --listen 127.0.0.1:{port}")
    script = script.replace("python train.py", f"{sys.executable} train.py") + "wait\n"
    done = subprocess.run(["bash", "-c", script], env=environment(), capture_output=True, text=True, check=False)
    assert "records done 864" in done.stdout and "dead 0" in done.stdout, done.stdout + done.stderr
    assert len(re.findall(r"^steps \d+$", done.stdout, re.MULTILINE)) == 2


@torch_test
def test_the_lines_of_the_readme(tmp_path: Path) -> None:
    """On the shards of the demo, as the reader of the README has them."""
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    found = re.search(
        r"<!-- training: index -->\n```sh\n(.*?)```.*<!-- training: torch -->\n```python\n(.*?)```", readme, re.S
    )
    assert found is not None and found[2].strip().count("\n") <= 6
    (tmp_path / "train.py").write_text(found[2])
    script = f"tarkit demo demo >demo.txt && cd demo && {found[1]}\n{sys.executable} ../train.py"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["torch.Size([20, 48, 48, 3]) torch.Size([20])"] * 3
