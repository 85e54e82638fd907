"""Code that only users of ElasticDL need.

``DataShardService``, ``build_data_shard_service`` and ``RecordIndexService`` are the names of its
clients, over a client of tarkit's shard service. ``mastercalls`` answers its published clients.
``trainarguments`` and ``trainjob`` make the manifests of ``kubetpl train``, and ``zoo`` images with
a folder of models. Each name of a client loads its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarkit.elasticdl.datashards import DataShardService, build_data_shard_service
    from tarkit.elasticdl.recordindices import RecordIndexService

__all__ = ["DataShardService", "RecordIndexService", "build_data_shard_service"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tarkit.elasticdl' has no attribute {name!r}")
    import importlib

    module = "recordindices" if name == "RecordIndexService" else "datashards"
    return getattr(importlib.import_module(f"tarkit.elasticdl.{module}"), name)
