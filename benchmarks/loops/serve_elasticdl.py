"""ElasticDL's own service, as its master starts it, with one data set: its size, and records in a
task, are given.
"""

from __future__ import annotations

import sys
import threading
from concurrent import futures
from types import SimpleNamespace

import grpc
from elasticdl.proto import elasticdl_pb2_grpc
from elasticdl.python.common.constants import GRPC
from elasticdl.python.master.servicer import MasterServicer
from elasticdl.python.master.task_dispatcher import _TaskDispatcher

size, per_task = map(int, sys.argv[1:])
callbacks = SimpleNamespace(model=SimpleNamespace(stop_training=False), callbacks=[])
tasks = _TaskDispatcher({"data": (0, size)}, {}, {}, per_task, 1, callbacks)
limits = [
    ("grpc.max_send_message_length", GRPC.MAX_SEND_MESSAGE_LENGTH),
    ("grpc.max_receive_message_length", GRPC.MAX_RECEIVE_MESSAGE_LENGTH),
]
server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=limits)
master = SimpleNamespace(distribution_strategy="ParameterServerStrategy")
elasticdl_pb2_grpc.add_MasterServicer_to_server(MasterServicer(per_task, tasks, None, master), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
sys.stdout.write(f"{port}\n")
sys.stdout.flush()
threading.Event().wait()
