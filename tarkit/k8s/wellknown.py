"""Names of labels and annotations: tarkit's own, which identify a Job's shards, and common ones.

Source of the others: https://kubernetes.io/docs/reference/labels-annotations-taints/ and Kueue's
reference.
"""

from __future__ import annotations

# Labels.
RUN = "tarkit.dev/run"
APP_NAME = "app.kubernetes.io/name"
MANAGED_BY = "app.kubernetes.io/managed-by"
QUEUE = "kueue.x-k8s.io/queue-name"
CONTROLLER = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
KUEUE_JOB = "kueue.x-k8s.io/job-uid"

# Label of pods, and annotation.
INDEX = "batch.kubernetes.io/job-completion-index"

# Annotations.
SHARDS = "tarkit.dev/shards"
SLICES = "tarkit.dev/slices"
OUTDIR = "tarkit.dev/outdir"
INPUTS = "tarkit.dev/inputs"
LIST = "tarkit.dev/list"
RETRY_OF = "tarkit.dev/retry-of"
ELASTIC = "tarkit.dev/elastic"
STAGE = "tarkit.dev/stage"
NEXT_STAGE = "tarkit.dev/next-stage"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
JOB_TRACKING = "batch.kubernetes.io/job-tracking"

ANNOTATIONS = 262_144
"""Largest size of all annotations of an object; client-side ``kubectl apply`` keeps the whole
manifest in one of them.
"""
INDEX_FIELD = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
"""Value of an environment variable that has the index of its pod."""
SERVICE = "shards"
"""Role of the shard service of an elastic training job."""
TRAINERS = "worker", "chief"
"""Roles whose pods take shards from the service."""
GPU = "nvidia.com/gpu"
"""Default name of the resource for GPUs."""
