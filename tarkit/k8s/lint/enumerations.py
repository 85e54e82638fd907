"""What the published schemas leave out of the API's own description: allowed words, and ranges of numbers.

A server serves both in its OpenAPI document (``enum``), or refuses the rest in its validation; the schemas that are
published with a release have the words in the descriptions of the fields only, where a test looks for them. An empty
word is the default. Left out are words of which it depends on the server's feature gates whether it takes them.
Source: staging/src/k8s.io/api (``+enum``), pkg/apis/core/validation and pkg/apis/batch/validation of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = """
    AppArmorProfile.type: Localhost RuntimeDefault Unconfined
    Container.imagePullPolicy: Always IfNotPresent Never
    Container.terminationMessagePolicy: FallbackToLogsOnError File
    ContainerPort.protocol: SCTP TCP UDP
    ContainerResizePolicy.resourceName: cpu memory
    ContainerResizePolicy.restartPolicy: NotRequired RestartContainer
    CronJobSpec.concurrencyPolicy: Allow Forbid Replace
    DeploymentStrategy.type: Recreate RollingUpdate
    HTTPGetAction.scheme: HTTP HTTPS
    HostPathVolumeSource.type: BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket
    ImageVolumeSource.pullPolicy: Always IfNotPresent Never
    JobSpec.completionMode: Indexed NonIndexed
    JobSpec.podReplacementPolicy: Failed TerminatingOrFailed
    LabelSelectorRequirement.operator: DoesNotExist Exists In NotIn
    NodeSelectorRequirement.operator: DoesNotExist Exists Gt In Lt NotIn
    PersistentVolumeClaimSpec.accessModes: ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod
    PersistentVolumeClaimSpec.volumeMode: Block Filesystem
    PodFailurePolicyOnExitCodesRequirement.operator: In NotIn
    PodFailurePolicyOnPodConditionsPattern.status: False True Unknown
    PodFailurePolicyRule.action: Count FailIndex FailJob Ignore
    PodOS.name: linux windows
    PodSecurityContext.fsGroupChangePolicy: Always OnRootMismatch
    PodSecurityContext.supplementalGroupsPolicy: Merge Strict
    PodSpec.dnsPolicy: ClusterFirst ClusterFirstWithHostNet Default None
    PodSpec.preemptionPolicy: Never PreemptLowerPriority
    PodSpec.restartPolicy: Always Never OnFailure
    SeccompProfile.type: Localhost RuntimeDefault Unconfined
    SecurityContext.procMount: Default Unmasked
    ServicePort.protocol: SCTP TCP UDP
    ServiceSpec.externalTrafficPolicy: Cluster Local
    ServiceSpec.internalTrafficPolicy: Cluster Local
    ServiceSpec.ipFamilies: IPv4 IPv6
    ServiceSpec.ipFamilyPolicy: PreferDualStack RequireDualStack SingleStack
    ServiceSpec.sessionAffinity: ClientIP None
    ServiceSpec.type: ClusterIP ExternalName LoadBalancer NodePort
    Toleration.effect: NoExecute NoSchedule PreferNoSchedule
    Toleration.operator: Equal Exists Gt Lt
    TopologySpreadConstraint.nodeAffinityPolicy: Honor Ignore
    TopologySpreadConstraint.nodeTaintsPolicy: Honor Ignore
    TopologySpreadConstraint.whenUnsatisfiable: DoNotSchedule ScheduleAnyway
    VolumeMount.mountPropagation: Bidirectional HostToContainer None
    VolumeMount.recursiveReadOnly: Disabled Enabled IfPossible
"""

_PORT, _MODE, _COUNT, _USER = (1, 65535), (0, 0o777), (0, None), (0, 2**31 - 1)
_RANGES: dict[str, tuple[int, int | None]] = {
    "ClientIPConfig.timeoutSeconds": (1, 86400),
    "ConfigMapVolumeSource.defaultMode": _MODE,
    "ContainerPort.containerPort": _PORT,
    "ContainerPort.hostPort": (0, 65535),
    "CronJobSpec.startingDeadlineSeconds": _COUNT,
    "DownwardAPIVolumeFile.mode": _MODE,
    "DownwardAPIVolumeSource.defaultMode": _MODE,
    "GRPCAction.port": _PORT,
    "JobSpec.activeDeadlineSeconds": _COUNT,
    "JobSpec.backoffLimit": _COUNT,
    "JobSpec.backoffLimitPerIndex": _COUNT,
    "JobSpec.completions": _COUNT,
    "JobSpec.maxFailedIndexes": _COUNT,
    "JobSpec.parallelism": _COUNT,
    "JobSpec.ttlSecondsAfterFinished": _COUNT,
    "KeyToPath.mode": _MODE,
    "PodSecurityContext.fsGroup": _USER,
    "PodSecurityContext.runAsGroup": _USER,
    "PodSecurityContext.runAsUser": _USER,
    "PodSpec.activeDeadlineSeconds": (1, 2**31 - 1),
    "PreferredSchedulingTerm.weight": (1, 100),
    "Probe.failureThreshold": _COUNT,
    "Probe.initialDelaySeconds": _COUNT,
    "Probe.periodSeconds": _COUNT,
    "Probe.successThreshold": _COUNT,
    "Probe.terminationGracePeriodSeconds": (1, None),
    "Probe.timeoutSeconds": _COUNT,
    "ProjectedVolumeSource.defaultMode": _MODE,
    "SecretVolumeSource.defaultMode": _MODE,
    "SecurityContext.runAsGroup": _USER,
    "SecurityContext.runAsUser": _USER,
    "ServiceAccountTokenProjection.expirationSeconds": (600, 2**32),
    "ServicePort.nodePort": (0, 65535),
    "ServicePort.port": _PORT,
    "SuccessPolicyRule.succeededCount": _COUNT,
    "TopologySpreadConstraint.maxSkew": (1, None),
    "TopologySpreadConstraint.minDomains": (1, None),
    "WeightedPodAffinityTerm.weight": (1, 100),
}
_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

# Fields that the schemas of all releases require, and servers do not: what is missing is empty, 0, or has a default.
_NOT_NEEDED = {
    "HTTPHeader": {"value"},
    "ISCSIVolumeSource": {"lun"},
    "LimitRangeSpec": {"limits"},
    "PodFailurePolicy": {"rules"},
    "PreferredSchedulingTerm": {"preference"},
    "SleepAction": {"seconds"},
    "StatefulSetSpec": {"serviceName"},
    "Sysctl": {"value"},
}


def words() -> dict[str, list[str]]:
    """The words that a field can have, by ``Type.field``."""
    lines = (line.partition(":") for line in _WORDS.strip().splitlines())
    return {name.strip(): values.split() for name, _, values in lines}


def complete(definitions: dict[str, Any], quantity: str, newest: Mapping[str, Any] | None = None) -> None:
    """Put words and ranges into the definitions of a release, and take out what its servers do not ask for.

    quantity: the form of a quantity, as a regular expression. newest: the newest release's
    definitions; where they no longer require a field, the older description was wrong, and its servers take the same.
    """
    known = words()
    for long_name, body in definitions.items():
        name = long_name.rpartition(".")[2]
        if name in ("Quantity", "IntOrString"):
            body.pop("oneOf", None)
            body["type"] = ["string", "null", "number" if name == "Quantity" else "integer"]
            body.update({"pattern": quantity} if name == "Quantity" else {})
            continue
        required = set(body.get("required", ()))
        needless = required & _NOT_NEEDED.get(name, set())
        if newest and long_name in newest:
            needless |= required.difference(newest[long_name].get("required", ()))
        if needless:
            body["required"] = sorted(required - needless)
        for key, field in body.get("properties", {}).items():
            inner = field.get("items", field)
            if values := known.get(f"{name}.{key}"):
                inner["enum"] = [*values, "", None]
            least, most = _RANGES.get(f"{name}.{key}") or _FORMATS.get(inner.get("format", "")) or (None, None)
            upper = _FORMATS.get(inner.get("format", ""), (None, None))[1] if most is None else most
            inner.update({} if least is None else {"minimum": least})
            inner.update({} if upper is None else {"maximum": upper})
            if key in body.get("required", ()) and field.get("type") == "string":
                field["minLength"] = 1
            if key in needless and isinstance(field.get("type"), str):
                field["type"] = [field["type"], "null"]
