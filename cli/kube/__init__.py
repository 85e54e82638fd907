"""Options, tables and manifests that the verbs of kubetpl share."""
