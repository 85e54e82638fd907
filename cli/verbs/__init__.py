"""Verbs of the program ``tarkit``, one file each."""
