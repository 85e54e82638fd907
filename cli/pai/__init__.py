"""Verbs of ``tarkit pai``: jobs of OpenPAI."""
