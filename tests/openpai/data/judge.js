// Verdicts of the libraries that OpenPAI's server uses, over its rules as its documents state them.
// node judge.js < JOBS.json > verdicts.json; both are objects by name.
const Joi = require("joi");
const Ajv = require("ajv");
const yaml = require("js-yaml");

const whole = () => Joi.number().integer();
const word = () => Joi.string().regex(/^[A-Za-z0-9._~]+$/);
const url = () => Joi.string().allow("");
const port = Joi.object({ label: word().required(), beginAt: whole(), portNumber: whole() });
const count = () => whole().min(1).allow(null);
const role = Joi.object({
  name: word().required(), command: Joi.string().required(),
  taskNumber: whole().default(1), cpuNumber: whole(), memoryMB: whole().default(100), gpuNumber: whole(),
  shmMB: whole().max(Joi.ref("memoryMB")), portList: Joi.array().items(port),
  minFailedTaskCount: count().default(1), minSucceededTaskCount: count(),
});
const one = Joi.object({
  jobName: Joi.string().regex(/^[A-Za-z0-9\-._]+$/).required(), image: Joi.string().required(),
  authFile: url(), dataDir: url(), outputDir: url(), codeDir: url(), virtualCluster: url(), gpuType: url(),
  retryCount: whole().min(-2), killAllOnCompletedTaskNumber: whole(), jobEnvs: Joi.object(), extras: Joi.object(),
  taskRoles: Joi.array().items(role).min(1).unique("name").required(),
}).required();

function acceptsOne(text) {
  const { error, value } = Joi.validate(JSON.parse(text), one);
  if (error) return false;
  return value.taskRoles.every((r) => [r.minFailedTaskCount, r.minSucceededTaskCount].every((n) => !(n > r.taskNumber)));
}

const id = "^[a-zA-Z_][a-zA-Z0-9_]*$";
const only = (properties, required = []) => ({ type: "object", properties, required, additionalProperties: false });
const byName = (value) => ({ patternProperties: { [id]: value }, minProperties: 1, additionalProperties: false });
const text = { type: "string" }, int = { type: "integer" }, maybe = { type: ["integer", "null"] };
const lines = { type: "array", items: text, minItems: 1 };
const texts = { type: "array", items: text };
const about = { protocolVersion: { enum: ["2", 2] }, version: { type: ["string", "number"] }, contributor: text, description: text };
const jobName = { type: "string", pattern: "^[a-zA-Z0-9_-]+$", maxLength: 255 };
const more = { plugin: text, require: texts, failurePolicy: { enum: ["ignore", "fail"] } };
const prerequisite = {
  oneOf: [
    only({ ...about, name: text, type: { enum: ["dockerimage"] }, uri: text,
      auth: { type: "object", properties: { username: text, password: text, registryuri: text } } }, ["name", "type", "uri"]),
    { type: "object", required: ["name", "type"],
      properties: { ...about, ...more, name: text, type: { enum: ["script", "output"] }, uri: text } },
    { type: "object", required: ["name", "type"],
      properties: { ...about, ...more, name: text, type: { enum: ["data"] }, uri: texts } },
  ],
};
const two = only({
  ...about, name: jobName, type: { enum: ["job"] },
  prerequisites: { type: "array", items: prerequisite, minItems: 1 },
  parameters: { type: "object" }, secrets: { type: "object" }, extras: { type: "object" },
  jobRetryCount: { type: "integer", minimum: 0 },
  taskRoles: { type: "object", ...byName(only({
    protocolVersion: about.protocolVersion, instances: { type: "integer", minimum: 1 },
    completion: only({ minFailedInstances: maybe, minSucceededInstances: maybe }), taskRetryCount: int,
    dockerImage: text, data: text, output: text, script: text, prerequisites: texts, commands: lines,
    extraContainerOptions: { type: "object", properties: { shmMB: int, infiniband: { type: "boolean" } } },
    resourcePerInstance: only({ cpu: int, memoryMB: int, gpu: int, ports: byName(int) }, ["cpu", "memoryMB", "gpu"]),
  }, ["dockerImage", "resourcePerInstance", "commands"])) },
  deployments: { type: "array", minItems: 1, items: { type: "object", required: ["name", "taskRoles"],
    properties: { name: jobName, taskRoles: byName(only({ preCommands: lines, postCommands: lines })) } } },
  defaults: { type: "object", properties: { deployment: text, virtualCluster: text } },
}, ["protocolVersion", "name", "type", "taskRoles"]);
const validTwo = new Ajv({ allErrors: true }).compile(two);

function acceptsTwo(source) {
  const job = yaml.safeLoad(source);
  if (!validTwo(job)) return false;
  const known = new Set(), names = new Set();
  for (const each of job.prerequisites || []) {
    const key = each.type + " " + each.name;
    if (known.has(key)) return false;
    known.add(key);
    names.add(each.name);
  }
  const deployments = (job.deployments || []).map((each) => each.name);
  if (new Set(deployments).size !== deployments.length) return false;
  for (const each of Object.values(job.taskRoles)) {
    if (!(each.prerequisites || []).every((name) => names.has(name))) return false;
    for (const field of ["script", "output", "data", "dockerImage"])
      if (field in each && !known.has(field.toLowerCase() + " " + each[field])) return false;
  }
  const chosen = (job.defaults || {}).deployment;
  return chosen === undefined || deployments.includes(chosen);
}

const verdicts = {};
for (const [name, source] of Object.entries(JSON.parse(require("fs").readFileSync(0, "utf8")))) {
  try {
    verdicts[name] = name.startsWith("1") ? acceptsOne(source) : acceptsTwo(source);
  } catch (error) {
    verdicts[name] = false;
  }
}
process.stdout.write(JSON.stringify(verdicts, null, 1) + "\n");
