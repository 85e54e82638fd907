"""The shard service: it hands ranges of records to trainers whose workers come and go.

The door: ``client``, ``dataset``, ``server``; ``ledger``, ``leases`` and ``journal`` for programs with a transport of
their own. ``ledger`` knows neither threads, nor the network, nor the clock. ``journal`` keeps it in a file. ``server``
speaks tarkit's protocol (``shards.proto``) and, by ``elasticdl``, that of ElasticDL's published clients.
"""
