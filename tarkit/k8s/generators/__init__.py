"""Generators of manifests, one a file: ``documents(request)`` makes them, ``ABOUT`` and ``EXAMPLE`` are their help.

To add one: a file here, a line in ``tarkit.k8s.settings.GENERATORS``, a template if it begins with one.
"""
