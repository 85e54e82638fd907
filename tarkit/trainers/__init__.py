"""Samples for trainers: each once an epoch, over any number of processes, resumable at any batch.

The way of a batch: ``world`` (which rank this is), ``order`` (which samples), ``shardmap`` (their
bytes), ``batchmaker`` (decoded and collated), ``source`` (all of these), ``delivery`` (on its way
to the loop), ``loader`` (epoch after epoch). What needs a library of a trainer is in a module of
that library's name; ``arrays`` needs NumPy only.
"""
