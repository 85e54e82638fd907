"""Run manifests on this machine, by the rules of a cluster; see ``run.run_documents``."""
