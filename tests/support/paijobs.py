"""Jobs of OpenPAI, good and bad, and what is wrong with each: name -> (text, field that it is
refused for or None).
"""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml

V1: dict[str, Any] = {
    "jobName": "train-1",
    "image": "registry.example/etl:1",
    "taskRoles": [{"name": "map", "taskNumber": 4, "memoryMB": 1024, "command": "python train.py"}],
}
V2: dict[str, Any] = {
    "protocolVersion": 2,
    "name": "train_1",
    "type": "job",
    "prerequisites": [
        {"type": "dockerimage", "name": "image", "uri": "registry.example/etl:1"},
        {"type": "data", "name": "shards", "uri": ["hdfs://nn:9000/train-{0000..0147}.tar"]},
    ],
    "taskRoles": {
        "map": {
            "instances": 4,
            "dockerImage": "image",
            "data": "shards",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 1024, "gpu": 0},
            "commands": ["python train.py"],
        }
    },
}
GONE = object()
_RES, _EXTRA, _DONE = (
    f"taskRoles.map.{name}" for name in ("resourcePerInstance", "extraContainerOptions", "completion")
)
_DEPLOYED = "deployments[0].taskRoles.map"

# (name, path in the job, value, field of the verdict; None: accepted)
_V1 = [
    ("plain", "image", "a", None),
    ("dots in the name", "jobName", "a.b_c-1", None),
    ("tilde in the name", "jobName", "a~b", "jobName"),
    ("blank in the name", "jobName", "a b", "jobName"),
    ("line end in the name", "jobName", "a\n", "jobName"),
    ("empty name", "jobName", "", "jobName"),
    ("number as a name", "jobName", 7, "jobName"),
    ("no name", "jobName", GONE, None),
    ("no image", "image", GONE, "image"),
    ("empty image", "image", "", "image"),
    ("null image", "image", None, "image"),
    ("empty data folder", "dataDir", "", None),
    ("data folder is a list", "dataDir", ["hdfs://a/b"], "dataDir"),
    ("unknown field", "priority", 3, "priority"),
    ("any field in jobEnvs", "jobEnvs", {"isDebug": True, "A": 1}, None),
    ("jobEnvs is a list", "jobEnvs", [1], "jobEnvs"),
    ("any field in extras", "extras", {"x": [1, {"y": None}]}, None),
    ("retry always", "retryCount", -1, None),
    ("service", "retryCount", -2, None),
    ("retry count too low", "retryCount", -3, "retryCount"),
    ("retry count as a text", "retryCount", "3", None),
    ("retry count as another text", "retryCount", "three", "retryCount"),
    ("half a retry", "retryCount", 1.5, "retryCount"),
    ("a float that is whole", "retryCount", 2.0, None),
    ("truth value as a number", "retryCount", True, "retryCount"),
    ("obsolete", "killAllOnCompletedTaskNumber", 1, None),
    ("no roles", "taskRoles", GONE, "taskRoles"),
    ("empty roles", "taskRoles", [], "taskRoles"),
    ("roles are a mapping", "taskRoles", {"map": {}}, "taskRoles"),
    ("two roles of one name", "taskRoles", [{"name": "a", "command": "b"}] * 2, "taskRoles"),
    ("two roles", "taskRoles", [{"name": "a", "command": "b"}, {"name": "c", "command": "d"}], None),
    ("role without a name", "taskRoles.0.name", GONE, "taskRoles[0].name"),
    ("dash in a role", "taskRoles.0.name", "a-b", "taskRoles[0].name"),
    ("tilde in a role", "taskRoles.0.name", "a~b", None),
    ("no command", "taskRoles.0.command", GONE, "taskRoles[0].command"),
    ("empty command", "taskRoles.0.command", "", "taskRoles[0].command"),
    ("command is a list", "taskRoles.0.command", ["ls"], "taskRoles[0].command"),
    ("role with an unknown field", "taskRoles.0.gpu", 1, "taskRoles[0].gpu"),
    ("tasks as a text", "taskRoles.0.taskNumber", "8", None),
    ("no tasks", "taskRoles.0.taskNumber", 0, "taskRoles[0].minFailedTaskCount"),
    ("half a core", "taskRoles.0.cpuNumber", 0.5, "taskRoles[0].cpuNumber"),
    ("little memory", "taskRoles.0.memoryMB", 10, None),
    ("more shared memory than memory", "taskRoles.0.shmMB", 2048, "taskRoles[0].shmMB"),
    ("shared memory as memory", "taskRoles.0.shmMB", 1024, None),
    ("counts off", "taskRoles.0.minFailedTaskCount", None, None),
    ("count of 0", "taskRoles.0.minFailedTaskCount", 0, "taskRoles[0].minFailedTaskCount"),
    ("count above the tasks", "taskRoles.0.minSucceededTaskCount", 5, "taskRoles[0].minSucceededTaskCount"),
    ("ports", "taskRoles.0.portList", [{"label": "web", "beginAt": 8080, "portNumber": 2}], None),
    ("port without a label", "taskRoles.0.portList", [{"beginAt": 1}], "taskRoles[0].portList[0].label"),
    ("dash in a label", "taskRoles.0.portList", [{"label": "a-b"}], "taskRoles[0].portList[0].label"),
    ("unknown field of a port", "taskRoles.0.portList", [{"label": "a", "n": 1}], "taskRoles[0].portList[0].n"),
]
_V2 = [
    ("plain", "version", 1.0, None),
    ("version as a text", "protocolVersion", "2", None),
    ("version 1", "protocolVersion", 1, "protocolVersion"),
    ("dot in the name", "name", "a.b", "name"),
    ("long name", "name", "a" * 255, None),
    ("too long a name", "name", "a" * 256, "name"),
    ("no name", "name", GONE, "name"),
    ("no type", "type", GONE, "type"),
    ("another type", "type", "data", "type"),
    ("default for defaults", "default", {}, "default"),
    ("no prerequisites at all", "prerequisites", [], "prerequisites"),
    ("contributor is a number", "contributor", 5, "contributor"),
    ("image is missing", "prerequisites", GONE, "taskRoles.map.dockerImage"),
    ("image of another name", "taskRoles.map.dockerImage", "other", "taskRoles.map.dockerImage"),
    ("image names a data prerequisite", "taskRoles.map.dockerImage", "shards", "taskRoles.map.dockerImage"),
    ("image uri is a list", "prerequisites.0.uri", ["a"], "prerequisites[0].uri"),
    ("image with another field", "prerequisites.0.tag", "a", "prerequisites[0].tag"),
    ("image without uri", "prerequisites.0.uri", GONE, "prerequisites[0].uri"),
    ("login", "prerequisites.0.auth", {"username": "a", "password": "b", "registryuri": "c"}, None),
    ("login with a number", "prerequisites.0.auth", {"username": 5}, "prerequisites[0].auth.username"),
    ("data uri is a text", "prerequisites.1.uri", "hdfs://a", "prerequisites[1].uri"),
    ("unknown kind of prerequisite", "prerequisites.1.type", "volume", "prerequisites[1].type"),
    ("data with a plugin", "prerequisites.1.plugin", "com.microsoft.pai.runtimeplugin.cmd", None),
    ("prerequisites of a role", "taskRoles.map.prerequisites", ["shards"], None),
    ("unknown prerequisite of a role", "taskRoles.map.prerequisites", ["x"], "taskRoles.map.prerequisites[0]"),
    ("parameters", "parameters", {"a": 1, "b": [1, 2]}, None),
    ("parameters are a list", "parameters", [1], "parameters"),
    ("retries", "jobRetryCount", 3, None),
    ("negative retries", "jobRetryCount", -1, "jobRetryCount"),
    ("retries as a text", "jobRetryCount", "3", "jobRetryCount"),
    ("no roles", "taskRoles", {}, "taskRoles"),
    ("dash in a role", "taskRoles.a-b", "", "taskRoles.a-b"),
    ("unknown field of a role", "taskRoles.map.image", "a", "taskRoles.map.image"),
    ("no instances", "taskRoles.map.instances", 0, "taskRoles.map.instances"),
    ("instances as a float", "taskRoles.map.instances", 4.0, None),
    ("completion", _DONE, {"minFailedInstances": 1, "minSucceededInstances": -1}, None),
    ("completion null", _DONE, {"minFailedInstances": None}, None),
    ("completion of tasks", _DONE, {"minFailedTaskCount": 1}, f"{_DONE}.minFailedTaskCount"),
    ("half a core", f"{_RES}.cpu", 0.5, f"{_RES}.cpu"),
    ("no gpu field", f"{_RES}.gpu", GONE, f"{_RES}.gpu"),
    ("ports", f"{_RES}.ports", {"ssh": 1}, None),
    ("empty ports", f"{_RES}.ports", {}, f"{_RES}.ports"),
    ("dash in a port", f"{_RES}.ports", {"a-b": 1}, f"{_RES}.ports.a-b"),
    ("shared memory", _EXTRA, {"shmMB": 64, "infiniband": True}, None),
    ("shared memory as a text", _EXTRA, {"shmMB": "64"}, f"{_EXTRA}.shmMB"),
    ("no commands", "taskRoles.map.commands", [], "taskRoles.map.commands"),
    ("commands are a text", "taskRoles.map.commands", "ls", "taskRoles.map.commands"),
    ("command is a number", "taskRoles.map.commands", [5], "taskRoles.map.commands[0]"),
    ("deployment", "deployments", [{"name": "d", "taskRoles": {"map": {"preCommands": ["a"]}}}], None),
    ("deployment without commands", "deployments",
     [{"name": "d", "taskRoles": {"map": {"preCommands": []}}}], f"{_DEPLOYED}.preCommands"),
    ("two deployments of a name", "deployments", [{"name": "d", "taskRoles": {"map": {}}}] * 2, "deployments"),
    ("unknown deployment", "defaults", {"deployment": "d"}, "defaults.deployment"),
    ("virtual cluster", "defaults", {"virtualCluster": "vc1"}, None),
    ("extras", "extras", {"gangAllocation": False, "storages": [{"name": "nfs"}]}, None),
    ("extras are a list", "extras", [], "extras"),
]  # fmt: skip


def changed(job: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field set; GONE: taken out."""
    found: Any = copy.deepcopy(job)
    inner = found
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(value)
    return dict(found)


def jobs() -> dict[str, tuple[str, str | None]]:
    """All of them."""
    found = {
        f"1: {name}": (json.dumps(changed(V1, path, value)), field)
        for name, path, value, field in _V1
        if name != "no name"
    }
    for name, path, value, field in _V2:
        found[f"2: {name}"] = (yaml.safe_dump(changed(V2, path, value), sort_keys=False), field)
    found["1: a comment"] = ('{"jobName": "a", // the name\n "image": "b", "taskRoles": []}', "")
    found["1: a comma too much"] = ('{"jobName": "a", "image": "b", "taskRoles": [],}', "")
    found["1: not a number"] = (found["1: plain"][0].replace("1024", "NaN"), "")
    found["2: a key twice"] = (found["2: plain"][0] + "name: b\n", "")
    found["2: yes is a text"] = (found["2: plain"][0] + "contributor: yes\n", None)
    found["2: octal"] = (found["2: plain"][0].replace("instances: 4", "instances: 010"), None)
    found["2: base 60"] = (found["2: plain"][0].replace("instances: 4", "instances: 1:30"), None)
    found["2: a date"] = (found["2: plain"][0] + "description: 2026-11-22\n", "description")
    found["2: an exponent"] = (found["2: plain"][0].replace("instances: 4", "instances: 1e1"), None)
    found["2: a tab"] = ("protocolVersion: 2\n\tname: a\n", "")
    found["2: a list"] = ("- protocolVersion: 2\n", "")
    found["2: empty"] = ("", "")
    return found
