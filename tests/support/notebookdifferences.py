"""How kubetpl's manifests differ from those of the talk's kubetpl, and why."""

from __future__ import annotations

from typing import Any

MISSING = "missing"
# Steps to a field of the manifest -> (what the original had, what stands there now, why). "*" is
# what depends on the cell: its command and its name.
POD = "spec template spec"
CONTAINER = f"{POD} containers 0"
DIFFERENCES: dict[str, tuple[Any, Any, str]] = {
    "metadata labels app.kubernetes.io/name": (MISSING, "bigdata19", "the usual label of what belongs together"),
    "metadata labels app.kubernetes.io/managed-by": (MISSING, "kubetpl", "names its author"),
    "spec podFailurePolicy": (
        MISSING,
        {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "a pod that was taken away has not failed",
    ),
    "spec podReplacementPolicy": (MISSING, "Failed", "never two pods at the same work; the policy above needs it"),
    "spec template metadata": (
        MISSING,
        {"labels": {"app": "bigdata19", "app.kubernetes.io/name": "bigdata19"}},
        "no service found the original's pods",
    ),
    f"{CONTAINER} name": ("*", "main", "policies and logs can name it whatever the Job is called"),
    f"{CONTAINER} resources limits cpu": (1.0, MISSING, "a limit of CPUs only makes work wait"),
    f"{CONTAINER} resources requests cpu": (1.0, "1", "the text that the server stores: else a later apply conflicts"),
    f"{CONTAINER} resources limits ephemeral-storage": (MISSING, "3Gi", "without, it is evicted first"),
    f"{CONTAINER} resources requests ephemeral-storage": (MISSING, "1Gi", "without, it is evicted first"),
    f"{CONTAINER} command": ("*", "*", "curl | tarproc fails when curl does, but not when tarproc had enough"),
    f"{CONTAINER} args": (MISSING, "*", "the command's exact bytes: the original deleted blank lines"),
    f"{CONTAINER} stdin": (True, MISSING, "a command that reads would hang"),
    f"{CONTAINER} tty": (True, MISSING, "a terminal mixes stdout and stderr, and ends lines in CR LF"),
    f"{CONTAINER} env": (
        None,
        [{"name": "TMPDIR", "value": "/scratch"}, {"name": "HOME", "value": "/scratch"}],
        "where a container with a read-only root can write",
    ),
    f"{CONTAINER} securityContext": (
        MISSING,
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "namespaces that enforce the restricted standard admit no other pods",
    ),
    f"{CONTAINER} terminationMessagePolicy": (
        MISSING,
        "FallbackToLogsOnError",
        "the last lines of the log stay with the pod",
    ),
    f"{CONTAINER} volumeMounts": (MISSING, [{"name": "scratch", "mountPath": "/scratch"}], "room for temporary files"),
    f"{POD} volumes": (MISSING, [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}], "room for temporary files"),
    f"{POD} hostname": ("*", MISSING, "Kubernetes gives each pod its own"),
    f"{POD} automountServiceAccountToken": (MISSING, False, "the command does not need the API"),
    f"{POD} enableServiceLinks": (MISSING, False, "else every service of the namespace is in the environment"),
    f"{POD} securityContext": (
        MISSING,
        {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "namespaces that enforce the restricted standard admit no other pods",
    ),
}
