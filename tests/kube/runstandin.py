"""The stand-in cluster by hand, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from kubestandin import Standin, kubeconfig


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in Kubernetes cluster for kubectl; pods are local processes.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="written here; point kubectl at it")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--shared", type=Path, action="append", default=[], help="a folder that pods write to")
    parser.add_argument(
        "--backoff", type=float, default=10.0, help="seconds before a first retry, as on a real cluster"
    )
    given = parser.parse_args()
    over: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: over.append(got))
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        standin = Standin(Path(folder), given.shared, given.port, given.backoff)
        given.kubeconfig.write_text(kubeconfig(standin.url))
        print(f"{standin.url}  kubectl --kubeconfig {given.kubeconfig} get pods", flush=True)
        # No Event, no queue: a signal that comes just as a wait for a lock begins is not seen before that wait is over.
        while not over:
            time.sleep(0.1)
        standin.stop()
        for line in standin.failures:
            print(line)
