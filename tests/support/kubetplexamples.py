"""A command line for each generator of kubetpl."""

from __future__ import annotations

TRAIN = ["train", "--job_name", "t", "--image_name", "i:1", "--job_command", "x"]
GENERATORS = [
    ["job", "-n", "j", "-c", "true", "-e", "EMPTY=", "--toleration", "k=", "--toleration", "l=v:NoExecute"],
    ["job", "-n", "j", "-c", "true", "-C", "-1", "-G", "0", "--security", "none", "--deadline", "1h", "--ttl", "1d"],
    ["pod", "-n", "p", "-c", "true", "-e", "EMPTY=", "--toleration", "k", "--toleration", "l=:NoExecute"],
    ["pod", "-n", "q", "-c", "true", "--security", "baseline", "--run-as", "0"],
    ["jobs", "-n", "m{i}", "-c", "echo {i}", "--over", "{0..2}", "-e", "X="],
    ["indexed", "-n", "i", "-I", "e/e:1", "-c", "true", "--shards", "gs://b/{0..9}.tar", "-O", "gs://b/o", "-e", "X="],
    ["service", "-n", "s", "-a", "p", "-P", "80"],
    [*TRAIN, "--num_ps=1", "--need_tf_config", "--num_evaluators=1", "--volume", "claim_name=c,mount_path=/d"],
    [*TRAIN, "--envs", "EMPTY=", "--security", "restricted", "--namespace", "default", "--queue", "q"],
    [*TRAIN, "--state_claim", "c", "--framework", "torch", "--worker_resource_limit", "cpu=2,memory=5Gi"],
]
