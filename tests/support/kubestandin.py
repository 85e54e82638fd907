"""The stand-in with pods that run: processes of this machine, one after the other, in the folder
where it is started.

By hand, until Ctrl-C:  python tests/support/kubestandin.py KUBECONFIG
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from apiserver import ApiServer
from kubecluster import Cluster, own_namespace
from kubejobs import run_pods


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose Jobs do their work.

    Args:
        folder: of their pods.
    """
    server = ApiServer()
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            for job in cluster.items("jobs"):
                # A Job may be deleted while its pods run.
                with contextlib.suppress(AssertionError):
                    if "startTime" not in job["status"]:
                        run_pods(cluster, job["metadata"]["name"], folder)

    with own_namespace(folder, server, name="default") as cluster:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield cluster
        finally:
            over.set()
            thread.join()
            server.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as own, running_cluster(Path(own)) as started:
        shutil.copy(started.kubeconfig, sys.argv[1])
        print(f"kubectl --kubeconfig {sys.argv[1]} get pods", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
