"""The fields of the objects that kubetpl prints: their types, and since which Kubernetes they exist.

Taken from the API's own schema, releases 1.25 to 1.37. A table of this size instead of the schema, so that fields
can be checked with nothing installed, in less than a millisecond; schema.py has the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

# name, "!" if it is required, ":" type, "@" the first release that has it if that is later than 1.25 or the type
# itself. Types: text, int (32 bits), long, flag, quantity, map and any (not looked into), [list of], {map to},
# or another table.
_FIELDS = {
    "Job": """
        apiVersion:text kind:text metadata:ObjectMeta spec!:JobSpec status:map
    """,
    "JobSpec": """
        activeDeadlineSeconds:long backoffLimit:int backoffLimitPerIndex:int@1.28 completionMode:text
        completions:int managedBy:text@1.30 manualSelector:flag maxFailedIndexes:int@1.28 parallelism:int
        podFailurePolicy:PodFailurePolicy podReplacementPolicy:text@1.28 scheduling:map@1.37 selector:map
        successPolicy:SuccessPolicy@1.30 suspend:flag template!:PodTemplateSpec ttlSecondsAfterFinished:int
    """,
    "PodFailurePolicy": """
        rules!:[PodFailurePolicyRule]
    """,
    "PodFailurePolicyRule": """
        action!:text onExitCodes:OnExitCodes onPodConditions:[OnPodConditions]
    """,
    "OnExitCodes": """
        containerName:text operator!:text values!:[int]
    """,
    "OnPodConditions": """
        status:text type!:text
    """,
    "SuccessPolicy": """
        rules!:[SuccessPolicyRule]
    """,
    "SuccessPolicyRule": """
        succeededCount:int succeededIndexes:text
    """,
    "CronJob": """
        apiVersion:text kind:text metadata:ObjectMeta spec!:CronJobSpec status:map
    """,
    "CronJobSpec": """
        concurrencyPolicy:text failedJobsHistoryLimit:int jobTemplate!:JobTemplateSpec schedule!:text
        startingDeadlineSeconds:long successfulJobsHistoryLimit:int suspend:flag timeZone:text
    """,
    "JobTemplateSpec": """
        metadata:ObjectMeta spec!:JobSpec
    """,
    "Pod": """
        apiVersion:text kind:text metadata:ObjectMeta spec!:PodSpec status:map
    """,
    "PodSpec": """
        activeDeadlineSeconds:long affinity:Affinity automountServiceAccountToken:flag containers!:[Container]
        dnsConfig:map dnsPolicy:text enableServiceLinks:flag ephemeralContainers:[map]
        evictionResponders:[map]@1.37 hostAliases:[map] hostIPC:flag hostNetwork:flag hostPID:flag
        hostUsers:flag hostname:text hostnameOverride:text@1.34 imagePullSecrets:[LocalObjectReference]
        initContainers:[Container] nodeName:text nodeSelector:{text} os:map overhead:{quantity}
        preemptionPolicy:text priority:int priorityClassName:text readinessGates:[map] resourceClaims:[map]@1.26
        resources:ResourceRequirements@1.32 restartPolicy:text runtimeClassName:text schedulerName:text
        schedulingGates:[map]@1.26 schedulingGroup:map@1.36 securityContext:PodSecurityContext
        serviceAccount:text serviceAccountName:text setHostnameAsFQDN:flag shareProcessNamespace:flag
        subdomain:text terminationGracePeriodSeconds:long tolerations:[Toleration]
        topologySpreadConstraints:[TopologySpreadConstraint] volumes:[Volume]
    """,
    "PodTemplateSpec": """
        metadata:ObjectMeta spec!:PodSpec
    """,
    "Container": """
        args:[text] command:[text] env:[EnvVar] envFrom:[EnvFromSource] image!:text imagePullPolicy:text
        lifecycle:Lifecycle livenessProbe:Probe name!:text ports:[ContainerPort] readinessProbe:Probe
        resizePolicy:[map]@1.27 resources:ResourceRequirements restartPolicy:text@1.28
        restartPolicyRules:[ContainerRestartRule]@1.34 securityContext:SecurityContext startupProbe:Probe
        stdin:flag stdinOnce:flag terminationMessagePath:text terminationMessagePolicy:text tty:flag
        volumeDevices:[map] volumeMounts:[VolumeMount] workingDir:text
    """,
    "EnvVar": """
        name!:text value:text valueFrom:EnvVarSource
    """,
    "EnvVarSource": """
        configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector@1.34
        resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
    """,
    "EnvFromSource": """
        configMapRef:SourceOfEnv prefix:text secretRef:SourceOfEnv
    """,
    "SourceOfEnv": """
        name:text optional:flag
    """,
    "ConfigMapKeySelector": """
        key!:text name:text optional:flag
    """,
    "SecretKeySelector": """
        key!:text name:text optional:flag
    """,
    "ObjectFieldSelector": """
        apiVersion:text fieldPath!:text
    """,
    "ResourceFieldSelector": """
        containerName:text divisor:quantity resource!:text
    """,
    "FileKeySelector": """
        key!:text optional:flag path!:text volumeName!:text
    """,
    "ContainerPort": """
        containerPort!:int hostIP:text hostPort:int name:text protocol:text
    """,
    "VolumeMount": """
        bindMountOptions:[text]@1.37 mountPath!:text mountPropagation:text name!:text readOnly:flag
        recursiveReadOnly:text@1.30 subPath:text subPathExpr:text
    """,
    "ResourceRequirements": """
        claims:[map]@1.26 limits:{quantity} requests:{quantity}
    """,
    "Volume": """
        awsElasticBlockStore:map azureDisk:map azureFile:map cephfs:map cinder:map
        configMap:ConfigMapVolumeSource csi:map downwardAPI:DownwardVolumeSource emptyDir:EmptyDirVolumeSource
        ephemeral:map
        fc:map flexVolume:map flocker:map gcePersistentDisk:map gitRepo:map glusterfs:map
        hostPath:HostPathVolumeSource image:map@1.31 iscsi:map name!:text nfs:map
        persistentVolumeClaim:ClaimSource photonPersistentDisk:map portworxVolume:map
        projected:ProjectedVolumeSource quobyte:map
        rbd:map scaleIO:map secret:SecretVolumeSource storageos:map vsphereVolume:map
    """,
    "EmptyDirVolumeSource": """
        medium:text mode:int@1.37 sizeLimit:quantity
    """,
    "ConfigMapVolumeSource": """
        defaultMode:int defaultUser:long@1.37 items:[KeyToPath] name:text optional:flag
    """,
    "SecretVolumeSource": """
        defaultMode:int defaultUser:long@1.37 items:[KeyToPath] optional:flag secretName:text
    """,
    "ProjectedVolumeSource": """
        defaultMode:int defaultUser:long@1.37 sources:[VolumeProjection]
    """,
    "VolumeProjection": """
        clusterTrustBundle:map@1.29 configMap:KeysProjection downwardAPI:DownwardProjection
        podCertificate:map@1.34 secret:KeysProjection serviceAccountToken:map
    """,
    "KeysProjection": """
        items:[KeyToPath] name:text optional:flag
    """,
    "DownwardProjection": """
        items:[DownwardAPIVolumeFile]
    """,
    "DownwardVolumeSource": """
        defaultMode:int defaultUser:long@1.37 items:[DownwardAPIVolumeFile]
    """,
    "DownwardAPIVolumeFile": """
        fieldRef:ObjectFieldSelector mode:int path!:text resourceFieldRef:ResourceFieldSelector user:long@1.37
    """,
    "ClaimSource": """
        claimName!:text readOnly:flag
    """,
    "HostPathVolumeSource": """
        path!:text type:text
    """,
    "KeyToPath": """
        key!:text mode:int path!:text user:long@1.37
    """,
    "PodSecurityContext": """
        appArmorProfile:map@1.30 fsGroup:long fsGroupChangePolicy:text runAsGroup:long runAsNonRoot:flag
        runAsUser:long seLinuxChangePolicy:text@1.32 seLinuxOptions:map seccompProfile:SeccompProfile
        supplementalGroups:[long] supplementalGroupsPolicy:text@1.31 sysctls:[map] windowsOptions:map
    """,
    "SecurityContext": """
        allowPrivilegeEscalation:flag appArmorProfile:map@1.30 capabilities:Capabilities privileged:flag
        procMount:text readOnlyRootFilesystem:flag runAsGroup:long runAsNonRoot:flag runAsUser:long
        seLinuxOptions:map seccompProfile:SeccompProfile windowsOptions:map
    """,
    "Capabilities": """
        add:[text] drop:[text]
    """,
    "SeccompProfile": """
        localhostProfile:text type!:text
    """,
    "Toleration": """
        effect:text key:text operator:text tolerationSeconds:long value:text
    """,
    "TopologySpreadConstraint": """
        labelSelector:map matchLabelKeys:[text] maxSkew!:int minDomains:int nodeAffinityPolicy:text
        nodeTaintsPolicy:text topologyKey!:text whenUnsatisfiable!:text
    """,
    "Affinity": """
        nodeAffinity:NodeAffinity podAffinity:map podAntiAffinity:map
    """,
    "NodeAffinity": """
        preferredDuringSchedulingIgnoredDuringExecution:[map] requiredDuringSchedulingIgnoredDuringExecution:map
    """,
    "LocalObjectReference": """
        name:text
    """,
    "Service": """
        apiVersion:text kind:text metadata:ObjectMeta spec!:ServiceSpec status:map
    """,
    "ServiceSpec": """
        allocateLoadBalancerNodePorts:flag clusterIP:text clusterIPs:[text] externalIPs:[text] externalName:text
        externalTrafficPolicy:text healthCheckNodePort:int internalTrafficPolicy:text ipFamilies:[text]
        ipFamilyPolicy:text loadBalancerClass:text loadBalancerIP:text loadBalancerSourceRanges:[text]
        ports:[ServicePort] publishNotReadyAddresses:flag selector:{text} sessionAffinity:text
        sessionAffinityConfig:map trafficDistribution:text@1.30 type:text
    """,
    "ServicePort": """
        appProtocol:text name:text nodePort:int port!:int protocol:text targetPort:any
    """,
    "ConfigMap": """
        apiVersion:text binaryData:{text} data:{text} immutable:flag kind:text metadata:ObjectMeta
    """,
    "Secret": """
        apiVersion:text data:{text} immutable:flag kind:text metadata:ObjectMeta stringData:{text} type:text
    """,
    "ContainerRestartRule": """
        action!:text exitCodes:RestartExitCodes
    """,
    "RestartExitCodes": """
        operator!:text values:[int]
    """,
    "Probe": """
        exec:map failureThreshold:int grpc:map httpGet:map initialDelaySeconds:int periodSeconds:int
        successThreshold:int tcpSocket:map terminationGracePeriodSeconds:long timeoutSeconds:int
    """,
    "Lifecycle": """
        postStart:map preStop:map stopSignal:text@1.33
    """,
    "ObjectMeta": """
        annotations:{text} creationTimestamp:text deletionGracePeriodSeconds:long deletionTimestamp:text
        finalizers:[text] generateName:text generation:long labels:{text} managedFields:[map] name:text
        namespace:text ownerReferences:[map] resourceVersion:text selfLink:text uid:text
    """,
}

# (table, field) -> (the first release that has it switched on, the switch). Where it is off, a server drops
# the field and says nothing. "" means that no release has it on yet.
_SWITCHED = {
    ("JobSpec", "backoffLimitPerIndex"): ("1.29", "JobBackoffLimitPerIndex"),
    ("JobSpec", "managedBy"): ("1.32", "JobManagedBy"),
    ("JobSpec", "maxFailedIndexes"): ("1.29", "JobBackoffLimitPerIndex"),
    ("JobSpec", "podReplacementPolicy"): ("1.29", "JobPodReplacementPolicy"),
    ("JobSpec", "scheduling"): ("", "WorkloadWithJob"),
    ("JobSpec", "successPolicy"): ("1.31", "JobSuccessPolicy"),
    ("Container", "restartPolicy"): ("1.29", "SidecarContainers"),
    ("Container", "restartPolicyRules"): ("1.35", "ContainerRestartRules"),
    ("PodSpec", "resources"): ("1.34", "PodLevelResources"),
}


_PLAIN: dict[str, type] = {"text": str, "flag": bool, "map": dict}


@dataclass(frozen=True)
class Field:
    """kind: its type as in the table. plain: Python's type, if all values of that are right.

    since, switched_on: releases, None if always and "" if never. switch: its feature gate.
    """

    kind: str
    plain: type | None
    required: bool
    since: str | None
    switched_on: str | None
    switch: str | None


@cache
def fields_of(table: str) -> dict[str, Field] | None:
    """The fields of an object by name; None if the table has no such object."""
    if table not in _FIELDS:
        return None
    found = {}
    for entry in _FIELDS[table].split():
        name, _, rest = entry.partition(":")
        kind, _, since = rest.partition("@")
        switched_on, switch = _SWITCHED.get((table, name.rstrip("!")), (None, None))
        plain = None if since or switch else _PLAIN.get(kind)
        found[name.rstrip("!")] = Field(kind, plain, name.endswith("!"), since or None, switched_on, switch)
    return found


@cache
def required_of(table: str) -> tuple[str, ...]:
    """The names of the fields that must be there."""
    return tuple(name for name, field in (fields_of(table) or {}).items() if field.required)
