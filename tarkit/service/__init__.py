"""The shard service hands ranges of records to trainers whose workers come and go.

A task is a range of records that a worker leases. The names of clients, messages and settings, and
the texts for users, call it a shard.

The door: ``client`` for trainers; ``serve`` and ``connection`` for programs, with ``dataset``,
``leases`` and ``progress``; ``dispatcher``, ``ledger``, ``messages`` and ``checkpoint`` for another
protocol, which ``server`` speaks beside tarkit's own.

The way of a call: ``client`` (what a trainer uses), ``worker`` (tasks fetched ahead), ``reports``
(what it holds and has done), ``connection``, ``server`` (gRPC), ``dispatcher`` (all data sets of a
service), with ``heartbeats`` and ``pendingcalls`` (who is there, and who waits), ``ledger`` (which
task is with which worker; it knows neither threads, nor the network, nor the clock), ``journal``
(the ledgers on the disk).
"""
