"""The progress of a service, asked for again and again by its own protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from tarkit.service.connection import ServiceConnection
from tarkit.service.credentials import bytes_of_file, token_of_file
from tarkit.service.progress import DataSetProgress, progress_of_message

_EVERY = 1.0
_PATIENCE = 60.0


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
        ServiceLostError: the service did not answer for so long.
        UsageError: it refused to answer, such as without a token; or ``address`` is not one.
        MissingInputError: a file cannot be read.
        MissingExtraError: grpcio is not installed.
    """
    trusted = bytes_of_file(certificate) if certificate else b""
    with closing(ServiceConnection(address, token_of_file(token) if token else "", trusted, patience)) as connection:
        while True:
            found = [progress_of_message(each) for each in connection.call("GetProgress").progress]
            yield found
            if found and all(each.over for each in found):
                return
            time.sleep(_EVERY)
