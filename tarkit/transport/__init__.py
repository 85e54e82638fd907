"""Bytes from and to everywhere: one module for each kind of place, and what they share.

What the rest of tarkit uses of it is in :mod:`tarkit.streams`.
"""
