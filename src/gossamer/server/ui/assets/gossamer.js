// What pages do beyond what they are without a script: live regions, the reader's own time, keys, copying.
// Nothing here is needed to read a page or to send a form.
"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// -- times in the reader's zone --------------------------------------------------------------------------------------

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const second = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long", hour12: false });
const FORMS = { day, clock, second };
const STEPS = [[60, "s"], [60, "min"], [24, "h"], [7, "d"]];

function distance(at) {
  let amount = Math.abs(Date.now() - at) / 1000;
  if (amount < 1) return "now";
  let unit = "d";
  for (const [size, name] of STEPS) {
    unit = name;
    if (amount < size || name === "d") break;
    amount /= size;
  }
  const words = `${Math.floor(amount)} ${unit}`;
  return at > Date.now() ? `in ${words}` : `${words} ago`;
}

function short(at) {
  const days = Math.abs(Date.now() - at) / 86400000;
  if (days < 1) return distance(at);
  return days < 300 ? `${day.format(at)}, ${clock.format(at)}` : new Date(at).toLocaleDateString();
}

function tellTimes(within = document) {
  for (const time of $$("time[datetime]", within)) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const words = time.dataset.form ? (FORMS[time.dataset.form] ?? exact).format(at) : short(at);
    if (time.textContent !== words) time.textContent = words;
    time.title = `${exact.format(at)} (${time.dateTime})`;
  }
  for (const text of $$("svg [data-at][data-form]", within)) {
    const at = Date.parse(text.dataset.at);
    text.textContent = (FORMS[text.dataset.form] ?? clock).format(at);
  }
}

// -- live regions ----------------------------------------------------------------------------------------------------

const connection = $("#connection");
let source = null;
let lost = null; // the timer after which a broken stream is told
let told = false;

function tell(words, kind) {
  if (!connection) return;
  connection.textContent = words;
  connection.className = `connection ${kind}`;
}

function connect() {
  const address = document.body.dataset.live;
  if (!address || source || document.hidden) return;
  const url = new URL(address, location.href);
  url.searchParams.set("seen", $$(".region").map((one) => `${one.id.slice(7)}:${one.dataset.version}`).join(","));
  source = new EventSource(url);
  source.addEventListener("open", () => {
    clearTimeout(lost);
    lost = null;
    tell(told ? "Connected again" : "Live", "on");
    if (told) setTimeout(() => source && !told && tell("Live", "on"), 4000);
    told = false;
  });
  source.addEventListener("regions", (event) => {
    const versions = Object.fromEntries(event.lastEventId.split(",").map((pair) => pair.split(":")));
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const region = document.getElementById(`region-${name}`);
      if (region) refresh(region, html, versions[name]);
    }
  });
  source.addEventListener("gone", () => {
    disconnect();
    tell("What this page showed is gone", "off");
  });
  source.addEventListener("error", () => {
    lost ??= setTimeout(() => {
      told = true;
      tell("No connection. Trying again …", "off");
    }, 4500);
    if (source.readyState === EventSource.CLOSED) retry();
  });
}

// The browser has given up: the answer was no stream. Somebody who is not signed in any more is told so.
async function retry() {
  disconnect();
  if ((await signedIn()) === "no") {
    clearTimeout(lost);
    tell("Signed out", "off");
    const here = encodeURIComponent(location.pathname + location.search);
    const link = Object.assign(document.createElement("a"), { href: `/ui/sign-in?next=${here}`, textContent: "Sign in" });
    connection?.append(" · ", link);
  } else {
    setTimeout(connect, 3000);
  }
}

// "yes" or "no"; nothing when the server does not say.
async function signedIn() {
  const answer = await fetch("/ui/signed-in").catch(() => null);
  return answer?.ok ? answer.text() : null;
}

function disconnect() {
  source?.close();
  source = null;
}

// A tab that nobody looks at asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    clearTimeout(lost);
    lost = null;
  } else {
    connect();
  }
});

function refresh(region, html, version) {
  const fresh = new DOMParser().parseFromString(`<div>${html}</div>`, "text/html").body.firstElementChild;
  tellTimes(fresh);
  addCopyButtons(fresh);
  morph(region, fresh);
  region.dataset.version = version;
}

// Make `old` look like `fresh` by changing only what differs: focus, scrolling, selections and open details stay.
function morph(old, fresh) {
  const waiting = new Map();
  for (const child of old.children) if (child.id) waiting.set(child.id, child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    let found = wanted.id ? waiting.get(wanted.id) : undefined;
    if (!found && place && same(place, wanted)) found = place;
    if (!found) {
      old.insertBefore(wanted, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    patch(found, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id || "") === (other.id || "");

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  const typed = old.matches("input:not([type=hidden]), select, textarea, option");
  for (const { name, value } of [...fresh.attributes]) {
    if (!(typed && ["value", "checked", "selected"].includes(name)) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS") && !typed) old.removeAttribute(name);
  }
  if (old.nodeName === "SELECT" || old.nodeName === "TEXTAREA") return;
  if (old.classList.contains("readout")) return;
  morph(old, fresh);
}

// -- charts: the figures at the pointer ------------------------------------------------------------------------------

// The moment of a point, as exact as the marks of its chart.
function moment(hit) {
  const at = Date.parse(hit.dataset.at);
  const chart = hit.closest("svg");
  if (chart.classList.contains("daily")) return day.format(at);
  return `${day.format(at)}, ${($("[data-form=second]", chart) ? second : clock).format(at)}`;
}

// A line through every chart at the moment under the pointer, and the figures of that moment under each.
document.addEventListener("pointerover", (event) => {
  const hit = event.target.closest?.(".hit");
  for (const line of $$("line.cross")) line.remove();
  if (!hit) return;
  const at = Date.parse(hit.dataset.at);
  for (const chart of $$("svg.chart")) {
    const own = chart === hit.closest("svg") ? hit : nearest(chart, at);
    if (!own) continue;
    const x = Number(own.getAttribute("x")) + Number(own.getAttribute("width")) / 2;
    const line = document.createElementNS(SVG, "line");
    for (const [name, value] of Object.entries({ class: "cross", x1: x, x2: x, y1: own.getAttribute("y"), y2: Number(own.getAttribute("y")) + Number(own.getAttribute("height")) })) line.setAttribute(name, value);
    chart.append(line);
    const readout = $(".readout", chart.closest(".chart-box"));
    if (readout) readout.textContent = `${moment(own)} · ${own.textContent.split(": ").slice(1).join(": ")}`;
  }
});

const SVG = "http://www.w3.org/2000/svg";

// The point of a chart at a moment, unless that lies outside of it.
function nearest(chart, at) {
  const hits = $$(".hit", chart);
  if (hits.length < 2) return null;
  const step = Date.parse(hits[1].dataset.at) - Date.parse(hits[0].dataset.at);
  const best = hits.reduce((one, other) => (Math.abs(Date.parse(other.dataset.at) - at) < Math.abs(Date.parse(one.dataset.at) - at) ? other : one));
  return Math.abs(Date.parse(best.dataset.at) - at) <= step ? best : null;
}

// Dragging over a chart shows that part of the time.
let drag = null;

function chosenPart(event) {
  const hits = $$(".hit", drag.chart);
  const other = event.target.closest?.(".hit");
  const end = other && hits.includes(other) ? other : drag.end;
  const [from, to] = hits.indexOf(drag.begin) <= hits.indexOf(end) ? [drag.begin, end] : [end, drag.begin];
  return { end, from, to };
}

document.addEventListener("pointerdown", (event) => {
  const hit = event.pointerType === "mouse" && event.button === 0 && event.target.closest?.("[data-zoom] .hit");
  if (!hit) return;
  const shade = document.createElementNS(SVG, "rect");
  shade.setAttribute("class", "chosen");
  hit.closest("svg").append(shade);
  drag = { begin: hit, end: hit, chart: hit.closest("svg"), shade };
  event.preventDefault();
});

document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const { end, from, to } = chosenPart(event);
  drag.end = end;
  const left = Number(from.getAttribute("x"));
  const room = { x: left, width: Number(to.getAttribute("x")) + Number(to.getAttribute("width")) - left, y: from.getAttribute("y"), height: from.getAttribute("height") };
  for (const [name, value] of Object.entries(room)) drag.shade.setAttribute(name, value);
});

document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { from, to } = chosenPart(event);
  const [since, until] = [from, to].map((hit) => Math.floor(Date.parse(hit.dataset.at) / 1000));
  const zoom = drag.chart.closest("[data-zoom]").dataset.zoom;
  drag.shade.remove();
  drag = null;
  if (until <= since) return;
  const url = new URL(zoom, location.href);
  url.searchParams.set("since", since);
  url.searchParams.set("until", until);
  location.assign(url);
});

// -- copying ---------------------------------------------------------------------------------------------------------

function addCopyButtons(within = document) {
  if (!navigator.clipboard) return;
  for (const code of $$("[data-copy]:not(:has(+ .copy))", within)) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "copy" });
    code.after(button);
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.(".copy");
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});

// -- keys ------------------------------------------------------------------------------------------------------------

const GO = { o: "overview", b: "boards/spiders", j: "jobs", q: "queue", d: "dead", y: "why", a: "attempts", r: "records", s: "schedules", w: "workers", k: "spiders",
  l: "alerts", u: "quality", x: "try", p: "routes", c: "callbacks", e: "keys", t: "settings" };
const HELP = [
  ["/", "to the search of everything"], ["n", "to the next page of a list"], ["?", "these words"], ["Esc", "closes them"],
  ...Object.entries(GO).map(([key, view]) => [`g ${key}`, `to ${view}`]),
];
let going = false;

function showKeys() {
  let dialog = $("dialog.keys");
  if (!dialog) {
    dialog = Object.assign(document.createElement("dialog"), { className: "keys" });
    dialog.setAttribute("aria-label", "Keyboard shortcuts");
    const list = Object.assign(document.createElement("dl"), { className: "facts" });
    for (const [keys, words] of HELP) {
      const term = document.createElement("dt");
      for (const key of keys.split(" ")) term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
      list.append(term, Object.assign(document.createElement("dd"), { textContent: words }));
    }
    const heading = Object.assign(document.createElement("h2"), { textContent: "Keyboard shortcuts" });
    const close = Object.assign(document.createElement("button"), { textContent: "Close" });
    close.addEventListener("click", () => dialog.close());
    dialog.append(heading, list, close);
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
  if (going && GO[event.key]) {
    const entry = $(`.menu a[href="/ui/${GO[event.key]}"]`);
    if (entry) entry.click();
  } else if (event.key === "?") {
    showKeys();
  } else if (event.key === "/") {
    const field = $("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "n") {
    $("a[rel=next]")?.click();
  }
  going = event.key === "g";
});

// -- signing in ------------------------------------------------------------------------------------------------------

async function signIn(form) {
  const token = decodeURIComponent(location.hash.slice(1));
  if (token.startsWith("gos_")) {
    history.replaceState(null, "", location.pathname + location.search); // the token does not stay in the history
    form.elements.key.value = token;
    form.submit();
    return;
  }
  // A link on another site comes without the cookie of somebody who is signed in.
  if ((await signedIn()) === "yes") location.replace(form.dataset.next);
}

// -- begin -----------------------------------------------------------------------------------------------------------

tellTimes();
addCopyButtons();
connect();
setInterval(() => document.hidden || tellTimes(), 10000);
const keys = $("#show-keys");
if (keys) {
  keys.hidden = false;
  keys.addEventListener("click", showKeys);
}
const form = $("#sign-in");
if (form) signIn(form);
