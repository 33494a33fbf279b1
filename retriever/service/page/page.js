// The search page. The address holds the whole state; every change of it is a new search.

const $ = (id) => document.getElementById(id);
const DEFAULTS = { q: "", index: "", mode: "hybrid", alpha: 0.6, recency: 0, sort: "score", fold: 0, raw: 0, k: 10, where: "", f: [], like: "", at: 0, open: "" };
const TYPING = 180; // Milliseconds of a pause in typing.
const SLIDING = 60;
const SLOW = 400; // Milliseconds until the page says that it is searching.
const STEP = 10;
const READING = 1500; // Milliseconds after which a query was more than a word that is being typed.
const VALUES = 8;
const MANY = 1000; // Values of a field that is shown as a range, or was opened.
const SEEK = 20; // From so many values on, an opened field has a box to search them.
const BARS = 40;
const MONTHS = 12; // The newest months of a field of dates.
const DISTINCT = 3; // Numbers of more values are ranges if they are far from each other.
const BUCKETS = 6;
const SCORES = "retriever-scores"; // Where the browser remembers whether scores are shown.
const FIELDS = 16;
const TOKEN = "retriever-token";

let info = null;
let state = { ...DEFAULTS };
let asked = null; // Aborts the request that runs.
let timer = 0;
let nested = new Set(); // Fields inside of objects, as hits showed them.
let typed = -Infinity; // When the last key was struck whose query is the last history entry.
let wide = new Set(); // Fields whose values are all shown.
const sought = new Map(); // What is typed into the box of such a field.
let revealed = ""; // The opened hit that was scrolled to.

// --- Elements and text -------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const number = (value) => value.toLocaleString("en");
const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;

// The service counts Unicode characters, JavaScript UTF-16 units.
function slicer(text) {
  const characters = /[\ud800-\udbff]/.test(text) ? Array.from(text) : text;
  return (start, stop) => {
    const part = characters.slice(start, stop);
    return typeof part === "string" ? part : part.join("");
  };
}

function marked(text, marks) {
  const slice = slicer(text);
  const parts = [];
  let last = 0;
  for (const [start, stop] of marks) {
    parts.push(slice(last, start), element("mark", { title: "Matches a word of the query" }, slice(start, stop)));
    last = stop;
  }
  return [...parts, slice(last)];
}

// The part of a passage where the first marked words are.
function excerpt(text, marks) {
  const first = marks.length ? marks[0][0] : 0;
  if (first < 160) return marked(text, marks);
  const slice = slicer(text);
  const start = slice(0, first - 80).lastIndexOf(" ") + 1;
  const shift = Array.from(text.slice(0, start)).length;
  const inside = marks.filter((mark) => mark[0] >= shift).map((mark) => mark.map((at) => at - shift));
  return ["… ", ...marked(slice(shift), inside)];
}

// --- The service -------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Paths are relative to the page, since a proxy may serve it below any folder.
async function call(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    signal,
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, content.message || `status ${answer.status}`);
  return content;
}

// --- The state and the address -----------------------------------------------------------------

function addressOf(one) {
  const parameters = new URLSearchParams();
  for (const [name, fallback] of Object.entries(DEFAULTS)) {
    if (Array.isArray(fallback)) one[name].forEach((value) => parameters.append(name, value));
    else if (one[name] !== fallback) parameters.set(name, one[name]);
  }
  const query = parameters.toString();
  return query ? `?${query}` : location.pathname;
}

function stateOf(search) {
  const parameters = new URLSearchParams(search);
  const found = { ...DEFAULTS, f: parameters.getAll("f") };
  for (const name of Object.keys(DEFAULTS)) {
    const value = parameters.get(name);
    if (value === null || name === "f") continue;
    found[name] = typeof DEFAULTS[name] === "number" ? Number(value) : value;
  }
  if (!["hybrid", "dense", "bm25"].includes(found.mode)) found.mode = DEFAULTS.mode;
  if (!(found.alpha >= 0 && found.alpha <= 1)) found.alpha = DEFAULTS.alpha;
  if (!(found.recency > 0 && found.recency < 1e6)) found.recency = DEFAULTS.recency;
  if (found.sort !== "date") found.sort = DEFAULTS.sort;
  if (!Number.isInteger(found.k) || found.k < 1) found.k = DEFAULTS.k;
  return found;
}

function remember(replace) {
  const address = addressOf(state);
  if (address === location.search || (address === location.pathname && !location.search)) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
}

// A change by the user. What changes the ranking starts a search after a pause.
function change(changes, { pause = 0, replace = false } = {}) {
  state = { ...state, ...changes };
  remember(replace);
  if (!replace) typed = -Infinity;
  showControls();
  soon(pause);
}

function soon(pause) {
  $("results").setAttribute("aria-busy", "true");
  // What was said of the last search may not be true of this one.
  if ($("notice").contains(document.activeElement)) $("results").focus();
  quiet();
  clearTimeout(timer);
  timer = setTimeout(search, pause);
}

function showControls() {
  if ($("query").value !== state.q) $("query").value = state.q;
  document.querySelector(`input[name=mode][value=${state.mode}]`).checked = true;
  $("alpha").value = state.alpha;
  $("alpha-shown").value = Number(state.alpha).toFixed(2);
  $("fold").checked = state.fold === 1;
  showRecency();
  $("sort").value = state.sort;
  $("weight").hidden = state.mode !== "hybrid";
  if (document.activeElement !== $("where")) $("where").value = state.where;
  const name = state.index || (info ? info.default : "");
  $("index").value = name;
  $("name").textContent = name;
  const active = state.f.length + (state.where ? 1 : 0);
  $("active").textContent = active ? `(${active})` : "";
  $("active").title = active ? plural(active, "filter in use", "filters in use") : "";
  document.title = [state.q, name, "Search"].filter(Boolean).join(" – ");
}

// An address may name other days than the list has.
function showRecency() {
  const value = String(state.recency);
  const list = $("recency");
  if (![...list.options].some((option) => option.value === value)) list.append(element("option", { value }, plural(state.recency, "day", "days")));
  list.value = value;
}

// --- Filters -----------------------------------------------------------------------------------

const KEYWORDS = ["and", "or", "not", "in", "like", "contains", "exists", "true", "false", "null"];

function fieldName(name, alone = true) {
  const own = alone && ["id", "title"].includes(name);
  const plain = /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && !KEYWORDS.includes(name.toLowerCase());
  return plain && !own ? name : `\`${name.replace(/[\\`]/g, "\\$&")}\``;
}

// A chosen value is its field and its filter, with a tab between them.
const chosenOf = (field, where) => `${field}\t${where}`;

// Filters that documents pass all of; those of one field are alternatives.
function filters(except) {
  const byField = new Map();
  for (const one of state.f) {
    const [field, where] = one.split("\t");
    if (field !== except) byField.set(field, [...(byField.get(field) || []), where]);
  }
  const parts = [...byField.values()].map((one) => one.join(" or "));
  return state.where ? [...parts, state.where] : parts;
}

const indexName = () => state.index || info.default;
const held = () => info.indexes[indexName()];

function fieldsToCount() {
  const { fields, segments } = held();
  const few = Object.entries(fields).filter(([, one]) => one.distinct <= MANY * Math.max(1, segments.length));
  return [...new Set([...few.map(([name]) => fieldName(name)), ...nested])].slice(0, FIELDS);
}

// Fields that are ranges: of many numbers or dates, of dates with times, or of a few numbers far from each other, such as
// the pages of some PDFs.
function ranges() {
  const found = new Map();
  for (const [name, { types, values, range, distinct }] of Object.entries(held().fields)) {
    if (types.length !== 1) continue;
    const far = types[0] === "number" && range[1] - range[0] > 2 * VALUES && distinct > DISTINCT;
    if (types[0] === "number" && range[0] < range[1] && (far || distinct > VALUES)) found.set(fieldName(name), { kind: "number", least: range[0], most: range[1] });
    else if (types[0] === "string" && values.every((one) => /^\d{4}-\d\d(-\d\d.*)?$/.test(one)) && (distinct > VALUES || values.some((one) => one.includes("T")))) found.set(fieldName(name), { kind: "date" });
  }
  return found;
}

const monthly = (field) => `${field}:month`;

// The counts of a field are those without its own filters, so that another value can be added.
async function countFields(path, body, signal) {
  const groups = new Map();
  const ranged = ranges();
  for (const field of fieldsToCount()) {
    const key = JSON.stringify([ranged.has(field) || wide.has(field) ? MANY : VALUES, filters(field)]);
    groups.set(key, [...(groups.get(key) || []), field]);
  }
  for (const [field, { kind }] of ranged) {
    const key = JSON.stringify([MONTHS, filters(field)]);
    if (kind === "date") groups.set(key, [...(groups.get(key) || []), monthly(field)]);
  }
  const whole = JSON.stringify([VALUES, filters()]);
  const main = { ...body, facets: groups.get(whole) || fieldsToCount().slice(0, 1), facet_limit: VALUES };
  groups.delete(whole);
  const counting = { ...body, k: 1, highlight: undefined, collapse: undefined, recency: undefined, sort: undefined };
  if (body.mode) Object.assign(counting, { mode: "bm25", alpha: undefined });
  const answers = await Promise.all([
    call(path, main, signal),
    ...[...groups].map(([key, facets]) => {
      const [facet_limit, where] = JSON.parse(key);
      return call(path, { ...counting, facets, facet_limit, where }, signal);
    }),
  ]);
  const counted = new Map();
  for (const { results: [{ facets }] } of answers)
    for (const [name, facet] of Object.entries(facets?.fields || {})) counted.set(name, { ...facet, documents: facets.documents });
  // A range needs no counts where there are too many values to count.
  const uncounted = (field) => ranged.has(field) && { field, values: [], distinct: Infinity, documents: 0 };
  const names = new Set([...fieldsToCount(), ...ranged.keys()]);
  const withMonths = (name) => ({ ...(counted.get(name) || uncounted(name)), months: counted.get(monthly(name))?.values || [] });
  return [answers[0], [...names].map(withMonths).filter(({ field }) => field)];
}

function showFacets(facets) {
  const shown = $("facets");
  const focused = document.activeElement?.dataset?.value;
  const ranged = ranges();
  shown.replaceChildren();
  for (const facet of facets) {
    const chosen = state.f.filter((one) => one.startsWith(`${facet.field}\t`));
    const range = ranged.get(facet.field);
    const useful = facet.distinct > 1 && (range || facet.distinct < Math.max(3, facet.documents));
    if (!chosen.length && !useful) continue;
    const content = range ? rangeOf(facet, range, chosen) : rowsOf(facet, chosen);
    shown.append(element("fieldset", {}, element("legend", {}, facet.field), ...content));
  }
  if (!shown.children.length) {
    const none = facets.length ? "No field tells these documents apart." : "The documents have no fields to choose from.";
    shown.append(element("p", { class: "rest" }, none));
  }
  if (focused) shown.querySelector(`[data-value="${CSS.escape(focused)}"]`)?.focus();
}

function rowsOf(facet, chosen) {
  const values = facet.values.filter((one) => one.where);
  const rows = values.map((one) => {
    const value = chosenOf(facet.field, one.where);
    return valueRow(value, String(one.value), one, chosen.includes(value));
  });
  // A value that is chosen stays, so that it can be taken back.
  const listed = values.map((one) => chosenOf(facet.field, one.where));
  for (const value of chosen.filter((one) => !listed.includes(one)))
    rows.push(valueRow(value, value.split("\t")[1], { documents: 0, matches: state.q ? 0 : null }, true));
  const open = wide.has(facet.field);
  const rest = facet.distinct - facet.values.length;
  const list = element("div", { class: open ? "values wide" : "values", tabindex: open && "0" }, ...rows);
  const parts = [list];
  if (open && rows.length >= SEEK) {
    const narrow = () => {
      const text = (sought.get(facet.field) || "").toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text);
    };
    parts.unshift(element("input", {
      type: "search", placeholder: "Find a value", "aria-label": `Find a value of ${facet.field}`,
      "data-value": `find ${facet.field}`, value: sought.get(facet.field) || "",
      oninput: (event) => { sought.set(facet.field, event.target.value); narrow(); },
    }));
    narrow();
  }
  if (open || rest > 0)
    parts.push(element("button", {
      type: "button", class: "plain", "aria-expanded": String(open), "data-value": `more ${facet.field}`,
      onclick: () => { open ? wide.delete(facet.field) : wide.add(facet.field); soon(0); },
    }, open ? "Fewer" : `${number(rest)} more`));
  if (open && rest > 0) parts.push(element("p", { class: "rest" }, `The ${number(facet.values.length)} most frequent of ${number(facet.distinct)} values.`));
  return parts;
}

// What a field has too many values of to list them: buckets of its numbers, or bars over its dates;
// and the two ends of another range.
function rangeOf(facet, range, chosen) {
  const dates = range.kind === "date";
  const buckets = dates ? facet.months.map((month) => ({ ...month, name: month.value })) : bucketsOf(facet, range);
  const listed = buckets.map((bucket) => chosenOf(facet.field, bucket.where));
  const custom = chosen.find((filter) => !listed.includes(filter));
  const current = custom ? custom.split("\t")[1] : "";
  const [from, to] = dates ? (current.match(/"[^"]*"/g) || []).map((date) => date.slice(1, -1).replace(/^0001$/, ""))
    : [/>= (\S+)/, /<= (\S+)/].map((pattern) => current.match(pattern)?.[1]);
  const bins = !dates || facet.values.length < facet.distinct ? [] : datesOf(facet.values);
  const ends = [[from, "from", range.least ?? bins[0]?.name], [to, "to", range.most ?? bins.at(-1)?.name]].map(([value, name, hint]) =>
    element("input", {
      type: "text", inputmode: dates ? "text" : "decimal", size: 6, value: value || "", placeholder: hint ?? name,
      pattern: dates ? "\\d{4}(-\\d\\d){0,2}" : "-?\\d+(\\.\\d+)?", title: dates ? "Such as 2020, 2020-03 or 2020-03-31" : "A number",
      "aria-label": `${facet.field} ${name}`, "data-value": `${name} ${facet.field}`, onchange: () => choose(),
    }));
  const choose = () => {
    if (!ends.every((end) => end.reportValidity())) return;
    const [least, greatest] = ends.map((end) => end.value.trim());
    const parts = [least && `${facet.field} >= ${least}`, greatest && `${facet.field} <= ${greatest}`].filter(Boolean);
    const where = !dates ? parts.join(" and ")
      : greatest ? `${facet.field} between "${least || "0001"}" and "${greatest}"` : least && `${facet.field} >= "${least}"`;
    const others = state.f.filter((one) => !one.startsWith(`${facet.field}\t`));
    change({ f: where ? [...others, chosenOf(facet.field, where)] : others, k: DEFAULTS.k });
  };
  const rows = buckets.map((bucket, number) => [listed[number], bucket])
    .filter(([value, { documents }]) => documents !== 0 || chosen.includes(value))
    .map(([value, bucket]) => valueRow(value, bucket.name, bucket, chosen.includes(value)));
  return [...rows, ...(bins.length ? [barsOf(bins)] : []), element("div", { class: "ends" }, ends[0], " to ", ends[1])];
}

function barsOf(bins) {
  const most = Math.max(...bins.map((bin) => bin.documents));
  return element("div", { class: "bars", "aria-hidden": "true" }, ...bins.map(({ name, documents }) => {
    const bar = element("span", { title: `${name}: ${plural(documents, "document", "documents")}` });
    bar.style.blockSize = `${Math.max(4, (100 * documents) / most)}%`;
    return bar;
  }));
}

// A few ranges of a field's numbers. The first and the last have no other end, so that they hold
// what is added later. Their borders depend on the index alone, so that a bucket stays one whatever
// is searched for.
function bucketsOf({ field, values, distinct }, { least, most }) {
  const borders = bordersOf(least, most);
  const whole = [least, most, ...values.map(({ value }) => value)].every(Number.isInteger) && borders.every(Number.isInteger);
  const counted = values.length >= distinct;
  return [-Infinity, ...borders].map((start, at) => {
    const stop = borders[at] ?? Infinity;
    const inside = values.filter(({ value }) => value >= start && value < stop);
    const sum = (name) => inside.reduce((total, counts) => total + counts[name], 0);
    const where = [start > -Infinity && `${field} >= ${start}`, stop < Infinity && `${field} < ${stop}`].filter(Boolean).join(" and ");
    const name = start === -Infinity ? `under ${stop}` : stop === Infinity ? `${start} and more`
      : !whole ? `${start} to under ${stop}` : start === stop - 1 ? `${start}` : `${start} to ${stop - 1}`;
    const matches = values.length && values[0].matches !== null ? sum("matches") : null;
    return { where, name, documents: counted ? sum("documents") : null, matches: counted ? matches : null };
  });
}

// Round numbers that part a range: in equal steps, or 1, 3, 10, 30 … where it spans powers of ten,
// as numbers of pages or bytes do.
function bordersOf(least, most) {
  if (least >= 0 && most >= 30 * Math.max(1, least)) {
    const powers = Math.log10(most / Math.max(1, least));
    const step = powers > BUCKETS - 1 ? Math.ceil(powers / (BUCKETS - 1)) : powers > BUCKETS / 2 ? 1 : 0.5;
    const borders = [];
    for (let power = step * Math.floor(Math.log10(Math.max(1, least)) / step) + step; 10 ** power <= most; power += step)
      borders.push(Number((10 ** power).toPrecision(1)));
    return borders.slice(-BUCKETS + 1);
  }
  const rough = (most - least) / BUCKETS;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * unit >= rough * (1 - 1e-9)) * unit;
  const borders = [];
  for (let number = Math.floor(least / step) + 1; number * step <= most; number++)
    borders.push(Number((number * step).toPrecision(12)));
  return borders;
}

// By years; by months or days where these are few.
function datesOf(values) {
  for (const length of [10, 7, 4]) {
    const bins = new Map();
    for (const { value, documents } of values) bins.set(String(value).slice(0, length), (bins.get(String(value).slice(0, length)) || 0) + documents);
    if (bins.size <= BARS || length === 4) return [...bins].sort().slice(-2 * BARS).map(([name, documents]) => ({ name, documents }));
  }
}

function valueRow(value, text, counts, checked) {
  const { documents, matches } = counts;
  const words = state.mode === "bm25" || matches === null;
  // There are too many values to count them.
  const shown = documents === null ? "" : matches === null ? number(documents) : words ? number(matches) : `${number(matches)} / ${number(documents)}`;
  const title = documents === null ? "" : matches === null ? plural(documents, "document", "documents") : `${number(matches)} share a word with the query, of ${number(documents)}`;
  const box = element("input", {
    type: "checkbox",
    checked,
    "data-value": value,
    onchange: (event) => {
      const others = state.f.filter((one) => one !== value);
      change({ f: event.target.checked ? [...others, value] : others, k: DEFAULTS.k });
    },
  });
  return element("label", { class: "value" }, box, element("span", { dir: "auto", title: text }, text),
    element("span", { class: "count", title }, shown));
}

function showChosen() {
  const chip = (text, label, onclick) =>
    element("li", {}, element("button", { type: "button", "aria-label": label, onclick }, `${text} ×`));
  const chips = state.f.map((one) => {
    const where = one.split("\t")[1];
    return chip(where, `Remove the filter ${where}`, () => change({ f: state.f.filter((other) => other !== one) }));
  });
  if (state.where) chips.push(chip(state.where, `Remove the filter ${state.where}`, () => change({ where: "" })));
  if (state.like)
    chips.push(chip(`like ${state.like}`, `Stop searching for documents like ${state.like}`, () => change({ like: "", at: 0 })));
  $("chosen").replaceChildren(...chips);
  $("chosen").hidden = !chips.length;
}

// --- Searching ---------------------------------------------------------------------------------

async function search() {
  asked?.abort();
  const controller = (asked = new AbortController());
  await answer(controller);
  // A later search goes on.
  if (asked === controller) $("results").setAttribute("aria-busy", "false");
}

async function answer(controller) {
  showChosen();
  if (!info && !(await readInfo())) return;
  if (!held()) return fault(`There is no index ${state.index}.`, "Choose another one above.");
  const begun = performance.now();
  const slow = setTimeout(() => ($("status").textContent = "Searching …"), SLOW);
  const browsing = !state.q.trim() && !state.like;
  const body = { index: indexName(), k: state.k, where: filters() };
  if (!browsing) Object.assign(body, { mode: state.mode, highlight: true });
  if (state.like) body.like = { id: state.like, start: state.at };
  else if (!browsing) body.query = state.q;
  if (!browsing && state.mode === "hybrid") body.alpha = state.alpha;
  if (!browsing && state.recency) body.recency = state.recency;
  if (!browsing && state.sort === "date") body.sort = "date";
  if (!browsing && state.fold === 1) body.collapse = true;
  if (!browsing && state.raw === 1) body.raw = true;
  try {
    const [found, facets] = await countFields(browsing ? "browse" : "search", body, controller.signal);
    if (controller.signal.aborted) return;
    clearTimeout(slow);
    const [result] = found.results;
    const fields = nested.size;
    learnFields(result.hits);
    showHits(result.hits, found);
    showFacets(facets);
    showStatus(result, browsing, performance.now() - begun);
    // Once, to count the values of fields that no search before has shown.
    if (nested.size > fields) return search();
    const said = [...found.warnings, ...leftOut(result), ...meant(result), ...unanswered(result)];
    if (result.hits.length) said.length ? notice(...said) : quiet();
    else if (!held().documents && !(await stillEmpty())) search();
    else nothing(said, body.where.length > 0, result.no_hits);
  } catch (error) {
    if (error.name === "AbortError" || controller.signal.aborted) return;
    failed(error);
  } finally {
    clearTimeout(slow);
  }
}

async function readInfo() {
  try {
    info = await call("info");
  } catch (error) {
    failed(error);
    return false;
  }
  const names = Object.keys(info.indexes);
  $("index").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  $("index-label").hidden = names.length < 2;
  $("name").hidden = names.length > 1;
  showControls();
  return true;
}

async function stillEmpty() {
  info = await call("info");
  return !held().documents;
}

function learnFields(hits) {
  for (const { metadata } of hits)
    for (const [name, value] of Object.entries(metadata))
      if (value && typeof value === "object" && !Array.isArray(value))
        for (const [inner, leaf] of Object.entries(value))
          if (typeof leaf !== "object") nested.add(`${fieldName(name, false)}.${fieldName(inner, false)}`);
}

function showStatus({ hits, facets }, browsing, milliseconds) {
  const filtered = filters().length > 0;
  const [documents, matches] = facets ? [facets.documents, facets.matches] : [filtered ? null : held().documents, null];
  const which = documents === null ? "the documents" : plural(documents, "document", "documents");
  const all = filtered ? `${which} that pass the filters` : which;
  const said = !hits.length && (!documents || matches === null) ? "No document" : browsing ? all
    : matches === null ? `The nearest of ${all}`
    : `${matches ? number(matches) : "None"} of ${all} ${matches > 1 ? "contain" : "contains"} a word of the query`;
  $("status").textContent = `${said} · ${Math.round(milliseconds)}\u00a0ms`;
}

function notice(...lines) {
  $("notice").className = "";
  $("notice").hidden = false;
  $("notice").replaceChildren(...lines.map((line) => (line instanceof Node ? line : element("p", {}, line))));
}

function quiet() {
  $("notice").hidden = true;
  $("notice").replaceChildren();
}

function fault(...lines) {
  showHits([], null);
  $("status").textContent = "";
  notice(...lines);
  $("notice").className = "fault";
}

function emptyIndex() {
  notice("The index is empty.", element("p", {}, "Add documents in a terminal: ",
    element("code", {}, "retriever index SOURCE -i FOLDER"), ". They are found at once."));
}

function meant({ did_you_mean: q }) {
  return q ? [element("p", {}, "Did you mean ", element("button", { type: "button", onclick: () => change({ q }) }, q), "?")] : [];
}

// Quotation marks and a minus sign are text, then.
const asItIs = () => element("button", { type: "button", onclick: () => change({ raw: 1, k: DEFAULTS.k }) }, "Search for the query as it is");

function leftOut({ excluded, query, hits }) {
  if (excluded) return [`Documents with ${excluded.map((text) => `“${text}”`).join(" or ")} are left out.`, asItIs()];
  return !hits.length && !state.raw && /(^|\s)["“”]/.test(query || "") ? [asItIs()] : [];
}

// Hits are behind a button where they probably hold no answer.
function unanswered({ hits, has_answer, probability }) {
  const withheld = has_answer === false && hits.length > 0;
  $("hits").hidden = withheld;
  if (!withheld) return [];
  $("more").hidden = true;
  const show = element("button", { type: "button", onclick: () => { $("hits").hidden = false; show.remove(); } }, "Show the nearest documents");
  return [`Nothing relevant was found (probability of an answer ${(100 * probability).toFixed(1)}%).`, show];
}

function nothing(lines, filtered, reason) {
  if (!held().documents) return emptyIndex();
  if (reason) lines.unshift(`${reason[0].toUpperCase()}${reason.slice(1)}.`);
  else if (filtered) lines.push("No document passes the filters and can be ranked. Remove a filter above.");
  else lines.push("No other document shares a word with this one.");
  if (state.mode === "bm25" && (!reason || reason.includes("hybrid")))
    lines.push(element("button", { type: "button", onclick: () => change({ mode: "hybrid" }) }, "Rank by both"));
  notice(...lines);
}

function failed(error) {
  const again = element("button", { type: "button", onclick: search }, "Try again");
  if (error.status === 401) return askForToken();
  if (error instanceof Refused) return fault(error.message, again);
  return fault("The service cannot be reached. Is retriever serve still running?", again);
}

function askForToken() {
  const field = element("input", { id: "token", type: "password", autocomplete: "off" });
  fault(element("form", {
    onsubmit: (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, field.value);
      search();
    },
  }, element("p", {}, element("label", { for: "token" }, "The service asks for a token: ")), field, " ",
    element("button", { type: "submit" }, "Use it")));
  field.focus();
}

// --- Hits --------------------------------------------------------------------------------------

function showHits(hits, answer) {
  const focused = document.activeElement?.dataset?.hit;
  const most = Math.max(0, ...hits.map((hit) => hit.bm25 || 0));
  $("hits").replaceChildren(...hits.map((hit) => hitItem(hit, most)));
  $("more").hidden = !answer || hits.length < state.k || state.k >= info.limits.max_k;
  const opened = hits.find((hit) => hit.id === state.open);
  if (opened) open(opened);
  else revealed = "";
  if (focused) $("hits").querySelector(`[data-hit="${CSS.escape(focused)}"]`)?.focus();
}

function hitItem(hit, most) {
  const button = element("button", {
    type: "button",
    "data-hit": hit.id,
    "aria-expanded": "false",
    title: hit.title || hit.id,
    onclick: () => toggle(hit),
  }, hit.title || hit.id);
  return element("li", { class: "hit", "data-item": hit.id },
    element("h2", { dir: "auto" }, button, ...(hit.place || dayOf(hit) ? [where(hit)] : [])),
    // Without a title the heading is the id.
    ...(hit.title ? [element("p", { class: "path" }, element("span", { dir: "auto" }, hit.id), " ", copyButton(hit.id))] : []),
    element("p", { class: "excerpt", dir: "auto" }, ...excerpt(hit.passage, hit.marks || [])),
    ...(hit.copies ? [element("p", { class: "rest" }, plural(hit.copies.length, "near-copy", "near-copies"))] : []),
    ...(hit.score || hit.dense !== null || hit.bm25 !== null ? [element("p", { class: "scores" }, ...scores(hit, most))] : []));
}

// The day of the date that the document states, else of its last change.
function dayOf({ date, metadata }) {
  const isDate = (value) => typeof value === "string" && /^\d{4}(-\d\d){0,2}(T|$)/.test(value);
  const value = [date, metadata.date, metadata.modified].find(isDate);
  return value ? value.slice(0, 10) : "";
}

function copyButton(text) {
  const button = element("button", {
    type: "button",
    class: "plain",
    title: `Copy ${text}`,
    "aria-label": `Copy ${text}`,
    onclick: async () => {
      button.textContent = (await copyText(text)) ? "Copied" : "Not copied: select it";
      $("said").textContent = button.textContent;
      setTimeout(() => (button.textContent = "Copy"), 2000);
    },
  }, "Copy");
  return button;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers have a clipboard only at https and on this machine.
    const field = element("textarea", { class: "hidden", readonly: true }, text);
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return copied;
  }
}

// The day of a hit, and the pages, message, headings but the title, and lines of its passage.
function where(hit) {
  const { place = {}, title } = hit;
  const headings = (place.headings || []).filter((heading, level) => level || heading !== title);
  const range = (name, ends) => ends && name + (ends[0] === ends[1] ? ` ${ends[0]}` : `s ${ends.join("-")}`);
  const parts = [dayOf(hit), range("page", place.pages), place.message, headings.join(" › "), range("line", place.lines)];
  return element("span", { class: "where" }, parts.filter(Boolean).join(", "));
}

function scores(hit, most) {
  const parts = [element("span", { title: "Orders the hits; compare it only within one search" }, `score ${hit.score.toFixed(3)}`)];
  if (hit.dense !== null) parts.push(component("embeddings", hit.dense, hit.dense_rank, 1, "", "Closeness in meaning: the cosine of query and passage, at most 1"));
  if (hit.bm25 !== null) parts.push(component("words", hit.bm25, hit.bm25_rank, most, "words", "BM25: how rare and how frequent the query's words are in the passage; the bar compares it with the highest of these hits"));
  if (hit.first_rank) parts.push(element("span", {}, `rank ${hit.first_rank} before reranking`));
  return parts;
}

function component(name, value, rank, most, kind, title) {
  const label = `${name} ${value.toFixed(3)}, ${rank ? `rank ${rank}` : "no word of the query"}`;
  return element("span", { title }, label,
    element("meter", { class: kind, min: 0, max: most || 1, value: Math.max(0, value), "aria-label": label }));
}

function item(id) {
  return $("hits").querySelector(`[data-item="${CSS.escape(id)}"]`);
}

function toggle(hit) {
  const before = state.open;
  const panel = item(before)?.querySelector(".opened");
  panel?.remove();
  item(before)?.classList.remove("open");
  item(before)?.querySelector("button").setAttribute("aria-expanded", "false");
  state = { ...state, open: before === hit.id ? "" : hit.id };
  revealed = "";
  remember(false);
  if (state.open) open(hit);
}

async function open(hit) {
  const place = item(hit.id);
  place.querySelector("button").setAttribute("aria-expanded", "true");
  place.classList.add("open");
  // The passage at once, in place of the excerpt; its neighbors when they are read.
  const around = element("div", {}, element("p", { class: "passage found", dir: "auto" }, ...marked(hit.passage, hit.marks || [])));
  const buttons = element("div", { class: "buttons" },
    element("button", {
      type: "button",
      onclick: () => {
        window.scrollTo(0, 0);
        change({ like: hit.id, at: hit.start, q: "", open: "", k: DEFAULTS.k });
      },
    }, "More like this"));
  place.append(element("div", { class: "opened" }, around, buttons, metadata(hit)));
  // Once: whoever has scrolled on is not taken back by the next search.
  const reveals = revealed !== hit.id;
  revealed = hit.id;
  if (reveals) reveal(place);
  // Not as a path, of which browsers take `..` for the folder above.
  const parameters = new URLSearchParams({ id: hit.id, index: indexName() });
  try {
    const stored = await call(`documents?${parameters}`);
    around.replaceChildren(...passages(stored, hit, buttons));
    // A link sends no token.
    if (stored.file && !sessionStorage.getItem(TOKEN)) buttons.prepend(fileLink(stored, hit, parameters));
    if (reveals && state.open === hit.id) reveal(place);
  } catch (error) {
    around.append(element("p", { class: "rest" }, error instanceof Refused ? error.message : "The document cannot be read; try again."));
  }
}

// A PDF opens at the page of the first marked word, counted from 1, whatever the page's own label is.
function fileLink({ file, outline = [] }, hit, parameters) {
  const at = hit.start + (hit.marks?.[0]?.[0] ?? 0);
  const page = outline.filter(([start, kind]) => kind === "page" && start <= at).length;
  const place = file === "application/pdf" && page ? `#page=${page}` : "";
  return element("a", { class: "button", href: `file?${parameters}${place}`, target: "_blank", rel: "noopener noreferrer" },
    file === "application/octet-stream" ? "Download file" : "Open file");
}

// Scrolls to an opened hit as far as needed: to its heading where not all of it fits, and to the
// first marked word where that is too far below.
function reveal(place) {
  place.scrollIntoView({ block: place.offsetHeight > innerHeight ? "start" : "nearest" });
  const mark = place.querySelector(".passage.found mark") || place.querySelector(".passage.found");
  if (mark.getBoundingClientRect().top > 0.8 * innerHeight) mark.scrollIntoView({ block: "center" });
}

// The passage between its neighbors, which are folded; they overlap, so each ends where the next begins.
function passages(stored, hit, buttons) {
  const slice = slicer(stored.text);
  const at = stored.passages.findIndex(([start]) => start === hit.start);
  const passage = element("p", { class: "passage found", dir: "auto" }, ...marked(hit.passage, hit.marks || []));
  if (at < 0) return [passage, element("p", { class: "rest" }, "The document has changed since the search.")];
  const near = (summary, text) => element("details", { class: "near", hidden: !text },
    element("summary", {}, summary), element("p", { class: "passage", dir: "auto" }, text));
  const before = near("Text before", at > 0 ? slice(stored.passages[at - 1][0], hit.start) : "");
  const after = near("Text after", at + 1 < stored.passages.length ? slice(hit.stop, stored.passages[at + 1][1]) : "");
  const place = stored.passages.length === 1 ? "the whole document" : `passage ${at + 1} of ${number(stored.passages.length)}`;
  if (stored.passages.length > 3) {
    const all = element("button", {
      type: "button",
      onclick: () => {
        all.remove();
        for (const [part, text] of [[before, slice(0, hit.start)], [after, slice(hit.stop)]]) {
          part.querySelector("p").textContent = text;
          part.hidden = !text;
          part.open = true;
        }
        // What opens above it would push it out of sight.
        (passage.querySelector("mark") || passage).scrollIntoView({ block: "center" });
      },
    }, "Whole document");
    buttons.append(all);
  }
  return [element("p", { class: "rest" }, place), before, passage, after];
}

function metadata(hit) {
  const copies = hit.copies ? [["near-copies", hit.copies]] : [];
  const row = (name, ...values) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", { dir: "auto" }, ...values));
  const rows = [row("id", hit.id, " ", copyButton(hit.id)),
    ...[...Object.entries(hit.metadata), ...copies].map(([name, value]) => row(name, shownValue(value)))];
  return element("section", {}, element("h3", {}, "Metadata"), element("table", {}, element("tbody", {}, ...rows)));
}

function shownValue(value) {
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ");
  if (typeof value !== "string") return JSON.stringify(value);
  return /^https?:\/\/\S+$/.test(value) ? element("a", { href: value, rel: "noreferrer" }, value) : value;
}

// --- What the user does ------------------------------------------------------------------------

$("query").addEventListener("input", () => {
  const now = performance.now();
  const replace = now - typed < READING;
  change({ q: $("query").value, raw: 0, like: "", at: 0, open: "", k: DEFAULTS.k }, { pause: TYPING, replace });
  typed = now;
});
$("query").addEventListener("blur", () => (typed = -Infinity));
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  typed = -Infinity;
  change({ q: $("query").value, like: "" });
});
$("where-form").addEventListener("submit", (event) => {
  event.preventDefault();
  change({ where: $("where").value.trim(), k: DEFAULTS.k });
});
for (const radio of document.querySelectorAll("input[name=mode]"))
  radio.addEventListener("change", () => change({ mode: radio.value, k: DEFAULTS.k }));
let sliding = false;
$("alpha").addEventListener("input", () => {
  change({ alpha: Number($("alpha").value) }, { pause: SLIDING, replace: sliding });
  sliding = true;
});
$("alpha").addEventListener("change", () => (sliding = false));
$("recency").addEventListener("change", () => change({ recency: Number($("recency").value), k: DEFAULTS.k }));
$("sort").addEventListener("change", () => change({ sort: $("sort").value, k: DEFAULTS.k }));
$("fold").addEventListener("change", () => change({ fold: Number($("fold").checked), k: DEFAULTS.k }));
$("index").addEventListener("change", () => {
  nested = new Set();
  wide = new Set();
  change({ index: $("index").value, f: [], where: "", like: "", open: "", k: DEFAULTS.k });
});
$("more").addEventListener("click", () => change({ k: Math.min(state.k + STEP, info.limits.max_k) }));

document.addEventListener("keydown", (event) => {
  const inField = event.target.matches("input[type=search], input[type=text], input[type=password], select");
  if (event.key === "/" && !inField) {
    event.preventDefault();
    $("query").focus();
    $("query").select();
  }
  if (event.key === "Escape" && state.open) item(state.open)?.querySelector("button").click();
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const fromQuery = event.target === $("query");
  if (!step || (!fromQuery && !event.target.matches("[data-hit]"))) return;
  const all = [$("query"), ...$("hits").querySelectorAll("[data-hit]")];
  const next = all[all.indexOf(event.target) + step];
  if (next) {
    event.preventDefault();
    next.focus();
  }
});

window.addEventListener("popstate", () => {
  state = stateOf(location.search);
  typed = -Infinity;
  showControls();
  soon(0);
});

// A browser that keeps nothing for pages refuses to give what is stored, too.
function storedSwitch(value) {
  try {
    return value === undefined ? localStorage.getItem(SCORES) : localStorage.setItem(SCORES, value);
  } catch {
    return null;
  }
}
const showScores = () => $("hits").classList.toggle("numbers", $("scores").checked);
$("scores").checked = storedSwitch() === "1";
$("scores").addEventListener("change", () => {
  storedSwitch($("scores").checked ? "1" : "0");
  showScores();
});
showScores();

const narrow = window.matchMedia("(max-width: 45rem)");
const fold = () => ["filters", "ranking"].forEach((one) => ($(one).open = !narrow.matches));
narrow.addEventListener("change", fold);
fold();
state = stateOf(location.search);
showControls();
soon(0);
