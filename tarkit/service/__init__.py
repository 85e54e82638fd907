"""The shard service: it hands ranges of records to trainers whose workers come and go.

The door: ``client`` for trainers; ``serve`` and ``connection`` for programs, with ``dataset``,
``leases``, ``credentials`` and ``progress``; ``ledger`` and ``journal`` for programs with a
transport of their own. ``ledger`` knows neither threads, nor the network, nor the clock.
``journal`` keeps it in a file, and ``durable`` knows what is on the disk. ``dispatcher`` holds
calls. ``server`` speaks tarkit's protocol (``shardcalls``) and that of ElasticDL's published
clients (``elasticdl``). ``http`` shows what goes on.
"""
