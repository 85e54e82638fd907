"""Manifests run on this machine, by the rules of a cluster: ``run.run_documents`` is the door."""
