"""Generators of manifests, one a file: ``documents(request)`` gives them, ``ABOUT`` says what they are.

To add one: a file here, its name in ``tarkit.k8s.settings.GENERATORS``, a template if it begins with one.
"""
