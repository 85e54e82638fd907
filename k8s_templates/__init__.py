"""Complete, valid manifests, which ``kubetpl`` fills by field."""
