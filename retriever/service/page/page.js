// The search page. The address holds the whole state; every change of it is a new search.

const $ = (id) => document.getElementById(id);
const DEFAULTS = { q: "", index: "", mode: "hybrid", alpha: 0.6, fold: 0, k: 10, where: "", f: [], like: "", at: 0, open: "" };
const TYPING = 180; // Milliseconds of a pause in typing.
const SLIDING = 60;
const SLOW = 400; // Milliseconds until the page says that it is searching.
const STEP = 10;
const VALUES = 8;
const FIELDS = 16;
const TOKEN = "retriever-token";

let info = null;
let state = { ...DEFAULTS };
let asked = null; // Aborts the request that runs.
let timer = 0;
let nested = new Set(); // Fields inside of objects, as hits showed them.
let typing = false; // Whether the last history entry is of the word that is being typed.

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
    parts.push(slice(last, start), element("mark", {}, slice(start, stop)));
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
  if (!replace) typing = false;
  showControls();
  soon(pause);
}

function soon(pause) {
  $("results").setAttribute("aria-busy", "true");
  clearTimeout(timer);
  timer = setTimeout(search, pause);
}

function showControls() {
  if ($("query").value !== state.q) $("query").value = state.q;
  document.querySelector(`input[name=mode][value=${state.mode}]`).checked = true;
  $("alpha").value = state.alpha;
  $("alpha-shown").value = Number(state.alpha).toFixed(2);
  $("fold").checked = state.fold === 1;
  $("weight").hidden = state.mode !== "hybrid";
  if (document.activeElement !== $("where")) $("where").value = state.where;
  $("index").value = state.index || (info ? info.default : "");
  document.title = state.q ? `${state.q} – Search` : "Search";
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

// Filters that documents pass all of.
function filters() {
  const byField = new Map();
  for (const one of state.f) {
    const [field, where] = one.split("\t");
    byField.set(field, [...(byField.get(field) || []), where]);
  }
  const parts = [...byField.values()].map((one) => one.join(" or "));
  return state.where ? [...parts, state.where] : parts;
}

function fieldsToCount() {
  const { fields, segments } = info.indexes[state.index || info.default];
  const few = Object.entries(fields).filter(([, one]) => one.distinct <= 200 * Math.max(1, segments.length));
  return [...new Set([...few.map(([name]) => fieldName(name)), ...nested])].slice(0, FIELDS);
}

function showFacets(facets) {
  const shown = $("facets");
  const focused = document.activeElement?.dataset?.value;
  shown.replaceChildren();
  for (const facet of Object.values(facets?.fields || {})) {
    const chosen = state.f.filter((one) => one.startsWith(`${facet.field}\t`));
    const useful = facet.distinct > 1 && facet.distinct < Math.max(3, facets.documents);
    if (!chosen.length && !useful) continue;
    const values = facet.values.filter((one) => one.where);
    const rows = values.map((one) => {
      const value = chosenOf(facet.field, one.where);
      return valueRow(value, String(one.value), one, chosen.includes(value));
    });
    // A value that is chosen stays, so that it can be taken back.
    const listed = values.map((one) => chosenOf(facet.field, one.where));
    for (const value of chosen.filter((one) => !listed.includes(one)))
      rows.push(valueRow(value, value.split("\t")[1], { documents: 0, matches: 0 }, true));
    const rest = facet.distinct - facet.values.length;
    if (rest > 0) rows.push(element("div", { class: "rest" }, `${number(rest)} more`));
    shown.append(element("fieldset", {}, element("legend", {}, facet.field), ...rows));
  }
  if (!shown.children.length)
    shown.append(element("p", { class: "rest" }, "No field has values to choose from here."));
  if (focused) shown.querySelector(`[data-value="${CSS.escape(focused)}"]`)?.focus();
}

function valueRow(value, text, counts, checked) {
  const { documents, matches } = counts;
  const words = state.mode === "bm25" || matches === null;
  const shown = matches === null ? number(documents) : words ? number(matches) : `${number(matches)} / ${number(documents)}`;
  const title = matches === null ? "" : `${number(matches)} share a word with the query, of ${number(documents)}`;
  const box = element("input", {
    type: "checkbox",
    checked,
    "data-value": value,
    onchange: (event) => {
      const others = state.f.filter((one) => one !== value);
      change({ f: event.target.checked ? [...others, value] : others, k: DEFAULTS.k });
    },
  });
  return element("label", { class: "value" }, box, element("span", { dir: "auto" }, text),
    element("span", { class: "count", title }, shown));
}

function showChosen() {
  const chips = state.f.map((one) =>
    element("li", {}, element("button", {
      type: "button",
      "aria-label": `Remove the filter ${one.split("\t")[1]}`,
      onclick: () => change({ f: state.f.filter((other) => other !== one) }),
    }, `${one.split("\t")[1]} ×`)));
  if (state.where)
    chips.push(element("li", {}, element("button", {
      type: "button",
      "aria-label": `Remove the filter ${state.where}`,
      onclick: () => change({ where: "" }),
    }, `${state.where} ×`)));
  if (state.like)
    chips.push(element("li", {}, element("button", {
      type: "button",
      "aria-label": `Stop searching for documents like ${state.like}`,
      onclick: () => change({ like: "", at: 0 }),
    }, `like ${state.like} ×`)));
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
  const held = info.indexes[state.index || info.default];
  if (!held) return fault(`There is no index ${state.index}.`, "Choose another one above.");
  if (!state.q.trim() && !state.like) {
    showHits([], null);
    showFacets(null);
    $("status").textContent = plural(held.documents, "document", "documents");
    if (held.documents) return notice("Type a question or some words: hits appear as you type.");
    return emptyIndex();
  }
  const begun = performance.now();
  const slow = setTimeout(() => ($("status").textContent = "Searching …"), SLOW);
  const body = { index: state.index || info.default, mode: state.mode, k: state.k, highlight: true, facets: fieldsToCount(), facet_limit: VALUES };
  if (state.like) body.like = { id: state.like, start: state.at };
  else body.query = state.q;
  if (state.mode === "hybrid") body.alpha = state.alpha;
  if (state.fold === 1) body.collapse = true;
  const where = filters();
  if (where.length) body.where = where;
  try {
    const found = await call("/search", body, controller.signal);
    if (controller.signal.aborted) return;
    clearTimeout(slow);
    const [result] = found.results;
    const fields = nested.size;
    learnFields(result.hits);
    showHits(result.hits, found);
    showFacets(result.facets);
    showStatus(result, performance.now() - begun);
    // Once, to count the values of fields that no search before has shown.
    if (nested.size > fields) return search();
    const said = [...found.warnings, ...meant(result), ...unanswered(result)];
    if (result.hits.length) said.length ? notice(...said) : quiet();
    else if (!held.documents && !(await stillEmpty())) search();
    else nothing(said, where.length > 0);
  } catch (error) {
    if (error.name === "AbortError" || controller.signal.aborted) return;
    failed(error);
  } finally {
    clearTimeout(slow);
  }
}

async function readInfo() {
  try {
    info = await call("/info");
  } catch (error) {
    failed(error);
    return false;
  }
  const names = Object.keys(info.indexes);
  $("index").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  $("index-label").hidden = names.length < 2;
  showControls();
  return true;
}

async function stillEmpty() {
  info = await call("/info");
  return !info.indexes[state.index || info.default].documents;
}

function learnFields(hits) {
  for (const { metadata } of hits)
    for (const [name, value] of Object.entries(metadata))
      if (value && typeof value === "object" && !Array.isArray(value))
        for (const [inner, leaf] of Object.entries(value))
          if (typeof leaf !== "object") nested.add(`${fieldName(name, false)}.${fieldName(inner, false)}`);
}

function showStatus(result, milliseconds) {
  const parts = [plural(result.hits.length, "hit", "hits")];
  if (result.facets) {
    parts.push(`${plural(result.facets.documents, "document", "documents")} to rank`);
    if (result.facets.matches !== null)
      parts.push(`${number(result.facets.matches)} with a word of the query`);
  }
  parts.push(`${Math.round(milliseconds)} ms`);
  $("status").textContent = parts.join(" · ");
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

// Hits are behind a button where they probably hold no answer.
function unanswered({ hits, has_answer, probability }) {
  const withheld = has_answer === false && hits.length > 0;
  $("hits").hidden = withheld;
  if (!withheld) return [];
  $("more").hidden = true;
  const show = element("button", { type: "button", onclick: () => { $("hits").hidden = false; show.remove(); } }, "Show the nearest documents");
  return [`Nothing relevant was found (probability of an answer ${(100 * probability).toFixed(1)}%).`, show];
}

function nothing(lines, filtered) {
  if (!info.indexes[state.index || info.default].documents) return emptyIndex();
  if (filtered) lines.push("No document passes the filter and can be ranked. Remove a filter above.");
  else lines.push("No document shares a word with the query.");
  if (state.mode === "bm25")
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
  if (focused) $("hits").querySelector(`[data-hit="${CSS.escape(focused)}"]`)?.focus();
}

function hitItem(hit, most) {
  const button = element("button", {
    type: "button",
    "data-hit": hit.id,
    "aria-expanded": "false",
    onclick: () => toggle(hit),
  }, hit.title || hit.id);
  return element("li", { class: "hit", "data-item": hit.id },
    element("h2", { dir: "auto" }, button, ...(hit.place ? [where(hit.place)] : [])),
    element("p", { class: "excerpt", dir: "auto" }, ...excerpt(hit.passage, hit.marks || [])),
    element("p", { class: "scores" }, ...scores(hit, most)));
}

// The pages, message, headings and lines of a passage.
function where(place) {
  const range = (name, ends) => ends && name + (ends[0] === ends[1] ? ` ${ends[0]}` : `s ${ends.join("-")}`);
  const parts = [range("page", place.pages), place.message, (place.headings || []).join(" › "), range("line", place.lines)];
  return element("span", { class: "where" }, parts.filter(Boolean).join(", "));
}

function scores(hit, most) {
  const parts = [element("span", {}, `score ${hit.score.toFixed(3)}`)];
  if (hit.dense !== null)
    parts.push(component("embeddings", hit.dense, hit.dense_rank, 1, ""));
  if (hit.bm25 !== null) parts.push(component("words", hit.bm25, hit.bm25_rank, most, "words"));
  if (hit.copies) parts.push(element("span", {}, plural(hit.copies.length, "near-copy", "near-copies")));
  if (hit.first_rank) parts.push(element("span", {}, `rank ${hit.first_rank} before reranking`));
  return parts;
}

function component(name, value, rank, most, kind) {
  const label = `${name} ${value.toFixed(3)}, ${rank ? `rank ${rank}` : "no word of the query"}`;
  return element("span", {}, label,
    element("meter", { class: kind, min: 0, max: most || 1, value: Math.max(0, value), "aria-label": label }));
}

function item(id) {
  return $("hits").querySelector(`[data-item="${CSS.escape(id)}"]`);
}

function toggle(hit) {
  const before = state.open;
  const panel = item(before)?.querySelector(".opened");
  panel?.remove();
  item(before)?.querySelector("button").setAttribute("aria-expanded", "false");
  state = { ...state, open: before === hit.id ? "" : hit.id };
  remember(false);
  if (state.open) open(hit);
}

async function open(hit) {
  const place = item(hit.id);
  place.querySelector("button").setAttribute("aria-expanded", "true");
  const around = element("div", {}, "Reading the document …");
  const buttons = element("div", { class: "buttons" },
    element("button", {
      type: "button",
      onclick: () => {
        window.scrollTo(0, 0);
        change({ like: hit.id, at: hit.start, q: "", open: "", k: DEFAULTS.k });
      },
    }, "More like this"));
  const weights = element("section", {});
  const panel = element("div", { class: "opened" },
    element("section", {}, element("h3", {}, "In the document"), around), weights, metadata(hit), buttons);
  if (info.indexes[state.index || info.default].word_weights) addWeights(hit, weights);
  else weights.remove();
  place.append(panel);
  // Not as a path, of which browsers take `..` for the folder above.
  const parameters = new URLSearchParams({ id: hit.id, index: state.index || info.default });
  try {
    const found = await call(`/documents?${parameters}`);
    around.replaceChildren(...passages(found, hit, buttons));
  } catch (error) {
    around.replaceChildren(error instanceof Refused ? error.message : "The document cannot be read; try again.");
  }
}

// The passage with its neighbors; they overlap, so each ends where the next begins.
function passages(found, hit, buttons) {
  const slice = slicer(found.text);
  const at = found.passages.findIndex(([start]) => start === hit.start);
  if (at < 0) return [element("p", {}, "The document has changed since the search.")];
  const part = (text, kind, ...children) =>
    text && element("p", { class: `passage ${kind}`, dir: "auto" }, ...(children.length ? children : [text]));
  const before = at > 0 ? slice(found.passages[at - 1][0], hit.start) : "";
  const after = at + 1 < found.passages.length ? slice(hit.stop, found.passages[at + 1][1]) : "";
  const parts = [
    element("p", { class: "rest" }, `passage ${at + 1} of ${found.passages.length}, characters ${number(hit.start)} to ${number(hit.stop)}`),
    part(before, ""),
    part(hit.passage, "found", ...marked(hit.passage, hit.marks || [])),
    part(after, ""),
  ].filter(Boolean);
  if (found.passages.length > 3) {
    const all = element("button", {
      type: "button",
      onclick: () => {
        all.remove();
        parts[1].parentNode.replaceChildren(parts[0], part(slice(0, hit.start), "") || "",
          part(hit.passage, "found", ...marked(hit.passage, hit.marks || [])), part(slice(hit.stop), "") || "");
      },
    }, "Whole document");
    buttons.append(all);
  }
  return parts;
}

function metadata(hit) {
  const rows = [["id", hit.id], ...Object.entries(hit.metadata)].map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name),
      element("td", { dir: "auto" }, typeof value === "string" ? value : JSON.stringify(value))));
  return element("section", {}, element("h3", {}, "Metadata"), element("table", {}, element("tbody", {}, ...rows)));
}

// --- The weights of SBERT-WK -------------------------------------------------------------------

async function addWeights(hit, shown) {
  // The text as it was encoded.
  const text = hit.title ? `${hit.title} ${hit.passage}` : hit.passage;
  try {
    const found = await call("/weights", { index: state.index || info.default, text });
    shown.replaceChildren(element("h3", {}, "Weights of words"), shaded(text, found.words), layers(found));
  } catch (error) {
    shown.replaceChildren(error instanceof Refused ? error.message : "The weights cannot be read.");
  }
}

function shaded(text, words) {
  const slice = slicer(text);
  const placed = words.filter((word) => word.start !== null);
  const most = Math.max(...placed.map((word) => word.weight));
  const parts = [];
  let last = 0;
  for (const word of placed) {
    const level = Math.round((9 * word.weight) / most);
    parts.push(slice(last, word.start), element("span",
      { class: `w${level}`, title: `weight ${word.weight.toFixed(4)}` }, slice(word.start, word.stop)));
    last = word.stop;
  }
  return element("p", { class: "passage", dir: "auto" }, ...parts, slice(last));
}

function layers({ first_layer: first, words }) {
  const count = words[0].layers.length;
  const means = Array.from({ length: count }, (_, at) =>
    words.reduce((sum, word) => sum + word.weight * word.layers[at], 0));
  const rows = means.map((mean, at) =>
    element("tr", {}, element("th", { scope: "row" }, `layer ${first + at}`),
      element("td", {}, `${mean.toFixed(3)} `, element("meter", { min: 0, max: 1, value: mean, "aria-label": `weight of layer ${first + at}` }))));
  return element("details", {}, element("summary", {}, "Weights of layers"),
    element("table", {}, element("tbody", {}, ...rows)));
}

// --- What the user does ------------------------------------------------------------------------

$("query").addEventListener("input", () => {
  const replace = typing;
  change({ q: $("query").value, like: "", at: 0, open: "", k: DEFAULTS.k }, { pause: TYPING, replace });
  typing = true;
});
$("query").addEventListener("blur", () => (typing = false));
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  typing = false;
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
$("fold").addEventListener("change", () => change({ fold: Number($("fold").checked), k: DEFAULTS.k }));
$("index").addEventListener("change", () => {
  nested = new Set();
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
  typing = false;
  showControls();
  soon(0);
});

if (window.matchMedia("(max-width: 45rem)").matches) $("filters").open = false;
state = stateOf(location.search);
showControls();
soon(0);
