"""The progress of a service, asked for again and again by its own protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tarkit.errors import TemporaryStreamError, UsageError, library, printable, quoted
from tarkit.service.credentials import bytes_of_file, token_of_file
from tarkit.service.messages import protocol
from tarkit.service.progress import DataSetProgress, progress_of_message

_EVERY = 1.0
_PATIENCE = 60.0
_PATH = "/tarkit.shards.v1.ShardService/GetProgress"


def watched_progress(
    address: str, certificate: str | None = None, token: str | None = None, *, patience: float = _PATIENCE
) -> Iterator[list[DataSetProgress]]:
    """The progress of all data sets, once a second, until all have ended; the last one shows the end.

    Args:
        address: HOST:PORT.
        certificate: PEM file of what to trust; None: no TLS.
        token: a file whose first line is the bearer token.
        patience: seconds for which the service may not answer.

    Raises:
        TemporaryStreamError: the service did not answer for so long.
        UsageError: it refused to answer, such as without a token.
        MissingExtraError: grpcio is not installed.
    """
    grpc = library("grpc", "the shard service", "service")
    messages = protocol("shards")
    metadata = [("authorization", f"Bearer {token_of_file(token)}")] if token else []
    if certificate:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(bytes_of_file(certificate)))
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        ask = channel.unary_unary(_PATH, messages.ProgressRequest.SerializeToString, messages.ProgressReply.FromString)
        answered = time.monotonic()
        while True:
            try:
                reply = ask(messages.ProgressRequest(), timeout=10, metadata=metadata)
            except grpc.RpcError as error:
                _look_into(error, address, time.monotonic() - answered > patience)
            else:
                answered = time.monotonic()
                found = [progress_of_message(each) for each in reply.progress]
                yield found
                if found and all(each.ended for each in found):
                    return
            time.sleep(_EVERY)


def _look_into(error: Any, address: str, too_long: bool) -> None:
    """Raise an error that another try does not change, or any after too long."""
    code = error.code().name
    reason = printable(str(error.details()))
    if code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        raise UsageError(f"{quoted(address)}: the service refuses: {reason}")
    if too_long:
        raise TemporaryStreamError(
            f"the shard service does not answer: {reason}", url=address, hint="is it running, and is TLS right?"
        )
