"""Tar archives: headers, members, damage.

Bytes only; what a sample is, the next room knows.
"""
