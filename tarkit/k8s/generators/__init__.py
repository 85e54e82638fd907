"""Generators of manifests: each is a ``Generator`` of ``tarkit.k8s.settings``.

To add one: a file or a function here, a line in ``tarkit.k8s.settings.GENERATORS``, a template if
it begins with one.
"""
