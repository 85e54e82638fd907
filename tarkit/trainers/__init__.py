"""Samples to trainers: each sample once an epoch, over any number of processes, and from the middle
of an epoch on.

The way of a batch: ``world`` (which rank this is), ``order`` (which samples), ``shardmap`` (their
bytes), ``batchmaker`` (decoded and collated), ``source`` (all of these), ``delivery`` (on its way
to the loop), ``loader`` (epoch after epoch). What needs a library of a trainer is in a module of
that library's name; ``arrays`` needs NumPy only.
"""
