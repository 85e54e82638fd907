"""Complete, valid manifests that ``kubetpl`` fills by field. This file only makes the folder a package."""
