"""Generators of manifests: each is a ``Generator`` of ``tarkit.k8s.settings``.

To add one: write a file or a function here, a line in ``tarkit.k8s.settings.GENERATORS``, and a
template if the generator begins with one.
"""
