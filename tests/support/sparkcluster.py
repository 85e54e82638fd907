"""A standalone Spark cluster of a master and two workers, each on a loopback address of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

SECONDS = 300
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
}
"""Speculation: a task that takes 1.5 times as long as half of them is run once more, on the other
worker.
"""


def home() -> Path:
    """Where Spark is, in the package pyspark."""
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def _daemon(name: str, log: Path, address: str, *words: str) -> Iterator[None]:
    """A program of Spark, until the end of the block."""
    with open(log, "wb") as file:
        command = [str(home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", address, *words]
        # Its JVM takes the place of the script, so the id is that of the JVM.
        child = subprocess.Popen(
            [*command, "--webui-port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_HOME": str(home()), "SPARK_LOCAL_IP": address},
        )
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(SECONDS)
        finally:
            child.kill()


def _wait_for(pattern: str, log: Path) -> str:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if match := re.search(pattern, log.read_text(errors="replace")):
            return match[1]
        time.sleep(0.1)
    raise TimeoutError(f"{pattern} is not in {log}: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a cluster.

    Args:
        folder: for logs, and what its tasks print.
    """
    with ExitStack() as stack:
        master = folder / "master.log"
        stack.enter_context(_daemon("master.Master", master, "127.0.0.1", "--port", "0"))
        url = _wait_for(r"Starting Spark master at (spark://\S+)", master)
        workers = [folder / "worker1.log", folder / "worker2.log"]
        for number, log in enumerate(workers, 1):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"), url)
            # Two addresses: Spark does not speculate on the machine that already runs the task.
            stack.enter_context(_daemon("worker.Worker", log, f"127.0.0.{number}", *options))
        for log in workers:
            _wait_for(r"(Successfully registered with master)", log)
        yield url


@contextmanager
def context(master: str, settings: Mapping[str, str] = SETTINGS) -> Iterator[Any]:
    """A SparkContext whose tasks run this Python."""
    import pyspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = pyspark.SparkContext(master, "tests", conf=pyspark.SparkConf().setAll(list(settings.items())))
    found.setLogLevel("OFF")
    try:
        yield found
    finally:
        found.stop()
        del os.environ["PYSPARK_PYTHON"]
