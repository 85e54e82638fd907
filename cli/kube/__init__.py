"""What the verbs of kubetpl share."""
