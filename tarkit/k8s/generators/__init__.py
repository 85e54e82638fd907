"""Generators of manifests: each is a ``Generator`` of ``tarkit.k8s.settings``, a function with its
help.

To add one: a file or a function here, a line in ``tarkit.k8s.settings.GENERATORS``, a template if
it begins with one.
"""
