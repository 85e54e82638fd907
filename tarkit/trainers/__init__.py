"""Samples to trainers: each sample once an epoch, over any number of processes, and from the middle of an epoch on.

The door: ``order``. What needs a library of a trainer is in a module of that library's name.
"""
