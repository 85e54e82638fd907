// What Mustache makes of templates, as OpenPAI's server uses it: names are filled in, unknown ones stay as a tag.
// node templates.js < TEMPLATES.json > templates.json; a list of [template, values] becomes one of texts.
const mustache = require("mustache");
const writer = new mustache.Writer();

function filled([template, values]) {
  const context = new mustache.Context(values);
  return writer.parse(template, ["<%", "%>"]).map(([kind, name]) => {
    if (kind === "text") return name;
    if (kind !== "name") return "";
    const path = name.replace(/\[(\d+)\]/g, ".$1"), value = context.lookup(path);
    return value == null ? `<% ${path} %>` : String(value);
  }).join("").trim();
}

const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(cases.map((each) => [...each, filled(each)]), null, 1) + "\n");
