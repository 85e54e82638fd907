"""What the published schemas leave out of the API's own description: allowed words, and ranges of numbers.

A server serves both in its OpenAPI document (``enum``), or refuses the rest in its validation; the schemas that are
published with a release have the words in the descriptions of the fields only, where a test looks for them. An empty
word is the default. Left out are words that servers take with some feature gate only.
Source: staging/src/k8s.io/api (``+enum``), pkg/apis/core/validation and pkg/apis/batch/validation of Kubernetes."""

from __future__ import annotations

from typing import Any

from tarkit.k8s.quantity import TAKEN

WORDS = {
    name: words.split()
    for names, words in (entry.split(":") for entry in """
    AppArmorProfile.type SeccompProfile.type: Localhost RuntimeDefault Unconfined
    Container.imagePullPolicy ImageVolumeSource.pullPolicy: Always IfNotPresent Never
    Container.terminationMessagePolicy: FallbackToLogsOnError File
    ContainerPort.protocol ServicePort.protocol: SCTP TCP UDP
    ContainerResizePolicy.resourceName: cpu memory; ContainerResizePolicy.restartPolicy: NotRequired RestartContainer
    CronJobSpec.concurrencyPolicy: Allow Forbid Replace; DeploymentStrategy.type: Recreate RollingUpdate
    HTTPGetAction.scheme: HTTP HTTPS
    HostPathVolumeSource.type: BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket
    JobSpec.completionMode: Indexed NonIndexed; JobSpec.podReplacementPolicy: Failed TerminatingOrFailed
    LabelSelectorRequirement.operator: DoesNotExist Exists In NotIn
    NodeSelectorRequirement.operator: DoesNotExist Exists Gt In Lt NotIn
    PersistentVolumeClaimSpec.accessModes: ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod
    PersistentVolumeClaimSpec.volumeMode: Block Filesystem
    PodFailurePolicyOnExitCodesRequirement.operator: In NotIn
    PodFailurePolicyOnPodConditionsPattern.status: False True Unknown
    PodFailurePolicyRule.action: Count FailIndex FailJob Ignore; PodOS.name: linux windows
    PodSecurityContext.fsGroupChangePolicy: Always OnRootMismatch
    PodSecurityContext.supplementalGroupsPolicy: Merge Strict
    PodSpec.dnsPolicy: ClusterFirst ClusterFirstWithHostNet Default None; PodSpec.restartPolicy: Always Never OnFailure
    PodSpec.preemptionPolicy: Never PreemptLowerPriority; SecurityContext.procMount: Default Unmasked
    ServiceSpec.externalTrafficPolicy ServiceSpec.internalTrafficPolicy: Cluster Local
    ServiceSpec.ipFamilies: IPv4 IPv6; ServiceSpec.ipFamilyPolicy: PreferDualStack RequireDualStack SingleStack
    ServiceSpec.sessionAffinity: ClientIP None; ServiceSpec.type: ClusterIP ExternalName LoadBalancer NodePort
    Toleration.effect: NoExecute NoSchedule PreferNoSchedule; Toleration.operator: Equal Exists Gt Lt
    TopologySpreadConstraint.nodeAffinityPolicy TopologySpreadConstraint.nodeTaintsPolicy: Honor Ignore
    TopologySpreadConstraint.whenUnsatisfiable: DoNotSchedule ScheduleAnyway
    VolumeMount.mountPropagation: Bidirectional HostToContainer None
    VolumeMount.recursiveReadOnly: Disabled Enabled IfPossible""".replace(";", "\n").strip().splitlines())
    for name in names.split()
}  # fmt: skip
"""The words that a field can have, by ``Type.field``."""

RANGES = {
    name: ends
    for ends, names in {
        (0, 511): """
            ConfigMapVolumeSource.defaultMode DownwardAPIVolumeFile.mode DownwardAPIVolumeSource.defaultMode
            KeyToPath.mode ProjectedVolumeSource.defaultMode SecretVolumeSource.defaultMode""",
        (0, 65535): "ContainerPort.hostPort ServicePort.nodePort",
        (0, 2**31 - 1): """
            CronJobSpec.startingDeadlineSeconds JobSpec.backoffLimit JobSpec.backoffLimitPerIndex
            JobSpec.completions JobSpec.maxFailedIndexes JobSpec.parallelism JobSpec.ttlSecondsAfterFinished
            PodSecurityContext.fsGroup PodSecurityContext.runAsGroup PodSecurityContext.runAsUser
            Probe.failureThreshold Probe.initialDelaySeconds Probe.periodSeconds Probe.successThreshold
            Probe.timeoutSeconds SecurityContext.runAsGroup SecurityContext.runAsUser
            SuccessPolicyRule.succeededCount""",
        (0, 2**63 - 1): "JobSpec.activeDeadlineSeconds",
        (1, 100): "PreferredSchedulingTerm.weight WeightedPodAffinityTerm.weight",
        (1, 86400): "ClientIPConfig.timeoutSeconds",
        (600, 2**32): "ServiceAccountTokenProjection.expirationSeconds",
        (1, 65535): "ContainerPort.containerPort GRPCAction.port ServicePort.port",
        (1, 2**31 - 1): """
            PodSpec.activeDeadlineSeconds TopologySpreadConstraint.maxSkew TopologySpreadConstraint.minDomains""",
        (1, 2**63 - 1): "Probe.terminationGracePeriodSeconds",
    }.items()
    for name in names.split()
}
"""The least and the largest number that a field can have, by ``Type.field``."""

# How many items a list can have.
_ITEMS = {
    "PodFailurePolicy.rules": (0, 20), "PodFailurePolicyRule.onPodConditions": (0, 20), "SuccessPolicy.rules": (1, 20),
    "PodFailurePolicyOnExitCodesRequirement.values": (1, 255),
}  # fmt: skip
_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

# Fields that the schemas of all releases require, and servers do not: what is missing is empty, 0, or has a default.
_NOT_NEEDED = {
    "HTTPHeader": {"value"}, "ISCSIVolumeSource": {"lun"}, "LimitRangeSpec": {"limits"}, "PodFailurePolicy": {"rules"},
    "PreferredSchedulingTerm": {"preference"}, "SleepAction": {"seconds"}, "StatefulSetSpec": {"serviceName"},
    "Sysctl": {"value"},
}  # fmt: skip


def complete(definitions: dict[str, Any]) -> None:
    """Put words and ranges into the definitions of a release, and take out what its servers do not ask for."""
    for long_name, body in definitions.items():
        name = long_name.rpartition(".")[2]
        if name in ("Quantity", "IntOrString"):
            body.pop("oneOf", None)
            body["type"] = ["string", "null", "number" if name == "Quantity" else "integer"]
            body.update({"pattern": rf"\A{TAKEN}\Z"} if name == "Quantity" else {})
            continue
        required = set(body.get("required", ()))
        needless = required & _NOT_NEEDED.get(name, set())
        if needless:
            body["required"] = sorted(required - needless)
        for key, field in body.get("properties", {}).items():
            inner = field.get("items", field)
            if values := WORDS.get(f"{name}.{key}"):
                inner["enum"] = [*values, "", None]
            ends = RANGES.get(f"{name}.{key}") or _FORMATS.get(inner.get("format", ""))
            inner.update({} if ends is None else {"minimum": ends[0], "maximum": ends[1]})
            if ends := _ITEMS.get(f"{name}.{key}"):
                field.update(minItems=ends[0], maxItems=ends[1])
            if key in body.get("required", ()) and field.get("type") == "string":
                field["minLength"] = 1
            if key in needless and isinstance(field.get("type"), str):
                field["type"] = [field["type"], "null"]
