
const AT_ONCE = 120, AHEAD = 800;
const [sheet, more, words, choice, whole] = ["sheet", "more", "words", "class", "whole"].map((id) => document.getElementById(id));
let found = [];

/** The field of a sample, as elements. */
function part(field) {
  const name = element("span", { className: "name" }, field.name);
  if (field.src && !field.type) {
    const image = element("img", { alt: visible(field.name), loading: "lazy", decoding: "async", src: field.src });
    return element("figure", {}, image, element("figcaption", {}, `${field.name}  ${field.note}`));
  }
  if (field.src) {
    const player = element(field.type.startsWith("audio/") ? "audio" : "video", { controls: true, preload: "none", src: field.src });
    return element("div", { className: "part" }, name, player);
  }
  if (field.broken) return element("p", { className: "part bad" }, name, field.broken);
  if ((field.text ?? null) !== null) return element("p", { className: "part" }, name, field.text);
  return element("p", { className: "part muted" }, name, [`${field.bytes.toLocaleString()} bytes`, field.why].filter(Boolean).join(", "));
}

function reveal(sample) {
  document.getElementById("key").textContent = visible(sample.key);
  const place = element("p", { className: "part muted" }, sample.url);
  const sizes = sample.fields.map((field) => `${field.name} ${field.bytes.toLocaleString()}`).join(", ");
  whole.querySelector("section").replaceChildren(...sample.fields.map(part), place, element("p", { className: "part muted" }, `bytes: ${sizes}`));
  whole.showModal();
}

function card(sample) {
  const key = element("button", { type: "button", className: "key", onclick: () => reveal(sample) }, sample.key);
  return element("li", {}, ...sample.fields.filter((field) => field.src && !field.type).map(part), key,
    ...sample.fields.filter((field) => !field.src || field.type).map(part));
}

function grow() {
  sheet.append(...found.slice(sheet.childElementCount, sheet.childElementCount + AT_ONCE).map(card));
  more.hidden = sheet.childElementCount >= found.length;
}

/** The samples that have all words, of the chosen class. */
function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = data.samples.filter((sample) =>
    (!choice.value || sample.class === choice.value.slice(1)) && wanted.every((word) => sample.searched.includes(word)));
  document.getElementById("count").textContent = `${found.length.toLocaleString()} of ${data.samples.length.toLocaleString()} samples`;
  sheet.replaceChildren();
  grow();
}

function begin() {
  const classes = new Map();
  for (const sample of data.samples) {
    sample.searched = [sample.key, ...sample.fields.map((field) => field.text || field.broken || "")].join("\n").toLowerCase();
    if (sample.class !== null) classes.set(sample.class, (classes.get(sample.class) || 0) + 1);
  }
  const sorted = [...classes].sort(([one], [other]) => one.localeCompare(other, undefined, { numeric: true }));
  choice.append(element("option", { value: "" }, `all ${classes.size}`));
  choice.append(...sorted.map(([name, count]) => element("option", { value: `=${name}` }, `${name} (${count.toLocaleString()})`)));
  document.getElementById("classes").hidden = !classes.size;
  document.querySelector("h1").textContent = visible(data.title);
  sheet.style.setProperty("--edge", `${Math.max(data.edge, 150)}px`);
  const lacks = document.getElementById("lacks");
  lacks.append(...data.lacks.map((sentence) => element("li", {}, sentence)));
  lacks.hidden = !data.lacks.length;
  words.addEventListener("input", filter);
  choice.addEventListener("change", filter);
  document.querySelector("form[role=search]").addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", grow);
  new IntersectionObserver(() => {
    while (!more.hidden && more.getBoundingClientRect().top < innerHeight + AHEAD) grow();
  }, { rootMargin: `${AHEAD}px` }).observe(more);
  filter();
}
begin();
