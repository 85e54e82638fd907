"""Objects of a kind as they are: listed once, then kept up to date by watches."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tarkit.errors import ClusterDeniedError, ClusterError, ClusterUnreachableError
from tarkit.k8s.cluster.connection import Cluster

Object = dict[str, Any]


class LiveList:
    """What selectors choose among the objects of a kind. labels, fields: in the API's notation.

    may_watch: False once the cluster has forbidden it. All methods raise as those of ``Cluster``; what is known stays
    as it was.
    """

    def __init__(self, cluster: Cluster, kind: str, *, labels: str = "", fields: str = "") -> None:
        self._cluster, self._kind = cluster, kind
        self._selectors = {"labels": labels, "fields": fields}
        self._things: dict[str, Object] = {}
        self._version = ""
        self.may_watch = True

    @property
    def things(self) -> list[Object]:
        """As they are known now, in no order."""
        return list(self._things.values())

    @property
    def is_watchable(self) -> bool:
        """Whether the next look can be a watch: there is a list, and a watch is not forbidden."""
        return bool(self._version) and self.may_watch

    def list_anew(self) -> None:
        """By a list."""
        found, version = self._cluster.list_at(self._kind, **self._selectors)
        self._things = {str(each["metadata"].get("uid")): each for each in found}
        self._version = version

    def forget(self) -> None:
        """The next look is a list."""
        self._version = ""

    def changes(self, seconds: float) -> Generator[None, None, None]:
        """One after each change, by a watch of so many seconds at most.

        Where it cannot go on, the next look is a list: when it was cut, when what changed since is too long ago (410),
        or if to watch is forbidden.
        """
        try:
            events = self._cluster.watch(self._kind, version=self._version, seconds=seconds, **self._selectors)
        except ClusterDeniedError as error:
            self.may_watch = error.status != 403
            self.forget()
            if self.may_watch:
                raise
            return
        except ClusterError as error:
            self.forget()
            if error.status != 410:
                raise
            return
        try:
            for kind, thing in events:
                if kind == "ERROR":
                    self.forget()
                    return
                if self._take(kind, thing):
                    yield
        except ClusterUnreachableError:
            self.forget()
        finally:
            # Who looks no further must not leave the connection open.
            events.close()

    def _take(self, kind: str, thing: Object) -> bool:
        """Whether anything changed."""
        metadata = thing.get("metadata") or {}
        self._version = str(metadata.get("resourceVersion") or self._version)
        if kind == "BOOKMARK":
            return False
        if kind == "DELETED":
            return self._things.pop(str(metadata.get("uid")), None) is not None
        self._things[str(metadata.get("uid"))] = thing
        return True
