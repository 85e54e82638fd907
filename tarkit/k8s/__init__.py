"""Work over shards as Kubernetes Jobs: manifests, what is wrong with them, and what became of them."""
