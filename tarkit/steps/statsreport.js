const labels = data.labels;
const several = labels.length > 1;
const whole = new Intl.NumberFormat("en");
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const shown = (number) => (number >= 1000 || Number.isInteger(number) ? whole.format(Math.round(number)) : precise.format(number));
const caption = (measure) => measure.replace("_", " ");
const note = (text) => element("p", { className: "muted" }, text);
const mark = (number) => element("span", {}, element("span", { className: `mark set${number}` }), element("b", {}, labels[number]));

function shape(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A plot of the parts of the numbers between each two edges; two data sets stand side by side. */
function histogram({ field, measure, edges, sets }) {
  const shares = sets.map((set) => (set ? set.bars.map((count) => count / set.count) : []));
  const highest = Math.max(...shares.flat());
  const width = 100 / (edges.length - 1) / sets.length;
  const name = visible(`Histogram of ${field || "sample"} ${measure}`);
  const picture = shape("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": name });
  shares.forEach((set, number) => set.forEach((share, place) => {
    if (!share) return;
    const height = Math.max(0.6, 40 * share / highest);
    const title = shape("title", {});
    title.textContent = `${several ? `${labels[number]}: ` : ""}${shown(edges[place])} to ${shown(edges[place + 1])}: ` +
      `${shown(sets[number].bars[place])} (${percent(share)})`;
    const x = (place * sets.length + number) * width;
    picture.append(shape("rect", { class: `set${number}`, x, y: 40 - height, width: width * 0.92, height }, title));
  }));
  const last = edges.length - 1;
  const scale = edges[last] - edges[last - 1] > 2 * (edges[1] - edges[0]) ? " (logarithmic scale)" : "";
  const texts = [shown(edges[0]), `${shown(edges[Math.floor(edges.length / 2)])}${scale}`, shown(edges[last])];
  return element("div", { className: "plot" }, picture,
    element("div", { className: "axis muted" }, ...texts.map((text) => element("span", {}, text))));
}

function numbers(found) {
  const columns = { count: "count", min: "min", p5: "5 %", median: "median", p95: "95 %", max: "max", mean: "mean", total: "total" };
  const summaries = found.sets.map((set, number) => set && element("p", { className: "summary" }, ...(several ? [mark(number)] : []),
    ...Object.entries(columns).map(([column, title]) => element("span", {}, element("span", { className: "muted" }, `${title} `),
      `${set.about && /^p|median/.test(column) ? "~" : ""}${shown(set[column])}`))));
  const differ = Math.min(...found.sets.map((set) => (set ? set.min : Infinity))) < Math.max(...found.sets.map((set) => (set ? set.max : 0)));
  return element("figure", {}, element("figcaption", {}, caption(found.measure)), ...(differ ? [histogram(found)] : []),
    ...summaries.filter((each) => each),
    ...(found.sets.some((set) => set && set.about) ? [note("~ about: there are more than a million numbers")] : []));
}

function values({ measure, distinct, rest, rows }) {
  const problem = /^(unreadable|not_measured)$/.test(measure);
  const most = problem ? 5 : 20;
  const highest = rows.reduce((high, [, sets]) => Math.max(high, ...sets.map(([, share]) => share)), 1e-9);
  const bar = (share, number) => {
    const made = element("div", { className: `bar set${number}` });
    made.style.width = `${100 * share / highest}%`;
    return made;
  };
  const row = ([value, sets]) => element("tr", {}, element("td", { className: "value" }, value),
    ...(problem ? [] : [element("td", { className: "bars" }, ...sets.map(([, share], number) => bar(share, number)))]),
    ...(several && !problem ? [] : sets.map(([times]) => element("td", {}, shown(times)))),
    ...(problem ? [] : sets.map(([times, share]) => element("td", { title: shown(times) }, percent(share)))));
  const body = element("tbody", {}, ...rows.slice(0, most).map(row));
  const head = [...(problem ? [""] : ["", ""]), ...labels].map((text) => element("th", {}, text));
  const table = element("table", { className: "values" }, ...(several ? [element("thead", {}, element("tr", {}, ...head))] : []), body);
  const made = [element("figcaption", { className: problem ? "bad" : "" }, `${caption(measure)} (${whole.format(distinct)})`),
    element("div", { className: "wide" }, table)];
  if (rows.length > most) {
    const button = element("button", {}, `Show ${rows.length < distinct ? "the first" : "all"} ${whole.format(rows.length)}`);
    button.onclick = () => {
      body.append(...rows.slice(most).map(row));
      button.remove();
    };
    made.push(button);
  }
  if (rest) made.push(note(`${whole.format(rest)} times a value that is not counted by itself`));
  return element("figure", {}, ...made);
}

const fields = [...new Set(data.numbers.map((each) => each.field))].sort();
document.getElementById("report").append(
  element("h1", {}, "Statistics"),
  ...labels.map((label, number) => element("p", { className: "set" }, ...(several ? [mark(number), " "] : []), element("code", {}, data.names[number]),
    `: ${whole.format(data.sizes[number][0])} ${data.sizes[number][0] === 1 ? "sample" : "samples"}, ${whole.format(data.sizes[number][1])} bytes of content`)),
  ...(several ? [element("section", {}, element("h2", {}, "Differences"),
    data.differences.length ? element("ul", {}, ...data.differences.map((text) => element("li", {}, text)))
      : note("none of fields, values, shares or medians"))] : []),
  ...fields.map((field) => element("section", {}, element("h2", {}, field || "Samples"), element("div", { className: "figures" },
    ...data.numbers.filter((each) => each.field === field).map(numbers), ...data.values.filter((each) => each.field === field).map(values)))));
