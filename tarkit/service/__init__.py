"""The shard service hands out ranges of records to trainers whose workers come and go.

A task is a range of records that a worker leases. The names of clients, messages and settings, and
the texts for users, call it a shard.

Public modules: ``client`` for trainers; ``serve`` and ``connection`` for programs, with
``dataset``, ``leases`` and ``progress``; ``dispatcher``, ``ledger``, ``messages`` and
``checkpoint`` for another protocol, which ``server`` offers beside tarkit's own.

A call passes through: ``client`` (used by a trainer), ``worker`` (fetches tasks ahead), ``reports``
(leases of the worker, and its reports), ``connection``, ``server`` (gRPC), ``dispatcher`` (all data
sets of a service), with ``heartbeats`` and ``pendingcalls`` (attached workers and waiting calls),
``ledger`` (which worker holds which task; it uses neither threads, nor the network, nor the clock),
``journal`` (the ledgers on the disk).
"""
