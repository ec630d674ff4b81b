// Keeps a page up to date with the database. The page works without this script as well.
//
// Promises, each with a browser test in tests/e2e/web/browser/test_live_promises.py:
// 1. An event touches only what differs: focus, typed text, ticked boxes, selected text and opened details stay.
// 2. An output that was scrolled to its end stays at its end; an output that was scrolled up stays where it is.
// 3. While runs are ticked or pointed at, no row of the list moves or disappears. A button counts the new runs.
// 4. Figures that cannot be updated are dimmed, and the page says how old they are.
// 5. A stream that ends, is refused or falls silent is opened again, after a longer pause each time.
// 6. Ages are counted here: when only time has passed, the server need not send anything.
// 7. A browser has at most STREAMS streams. Further pages poll every few seconds instead, so that no page hangs.

import { morph } from "./morph.js";

const live = document.querySelector("[data-live]");
const liveness = document.getElementById("liveness");
const stale = document.getElementById("stale");
const STREAMS = 4, LOOK_S = 5, GRACE_S = 5, FIRST_WAIT_S = 1, LONGEST_WAIT_S = 30;

// ---- updating the page

function parsed(text) {
  const fresh = live.cloneNode(false);
  fresh.innerHTML = text;
  return fresh;
}

function show(text) {
  held = null;
  follow(() => {
    morph(live, parsed(text));
    stamp(live);
  });
}

function follow(change) {
  const focused = document.activeElement;
  const tails = [...live.querySelectorAll("[data-tail]")].filter(
    (one) => one.scrollTop + one.clientHeight > one.scrollHeight - 40);
  const before = new Set(live.querySelectorAll("[data-tail]"));
  change();
  for (const one of live.querySelectorAll("[data-tail]")) {
    if (tails.includes(one) || !before.has(one)) one.scrollTop = one.scrollHeight;
  }
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  count();
  document.dispatchEvent(new CustomEvent("shown"));
}

// ---- ages

const begun = performance.now();

function stamp(root) {
  for (const one of root.querySelectorAll("[data-age]")) one.saidAt = performance.now();
}

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"], [1, "s", 0, ""]];

function span(seconds) {
  for (const [size, unit, part, small] of UNITS) {
    if (seconds < size) continue;
    const rest = part ? Math.floor((seconds % size) / part) : 0;
    return `${Math.floor(seconds / size)}${unit}${rest ? ` ${rest}${small}` : ""}`;
  }
  return "0s";
}

function count() {
  for (const one of document.querySelectorAll("[data-age]")) {
    const age = Number(one.dataset.age) + (performance.now() - (one.saidAt ?? begun)) / 1000;
    const way = one.dataset.as;
    const text = way === "span" ? span(age) : way === "left" ? (age < 0 ? span(-age) : "now")
      : age < 0 ? `in ${span(-age)}` : `${span(age)} ago`;
    if (one.textContent !== text) one.textContent = text;
  }
}
setInterval(count, 1000);

// ---- a list does not move while its runs are ticked or pointed at

const CAN_POINT = matchMedia("(hover: hover)").matches; // touch screens hover on after the finger has gone
let held = null; // the newest text, which waits to be shown

function holding() {
  const list = live.querySelector("[data-hold]");
  return list && (picked.size > 0 || (CAN_POINT && list.matches(":hover")));
}

function hold(text) {
  held = text;
  const fresh = parsed(text), rows = [...fresh.querySelectorAll("[data-hold] tr[id]")];
  let more = 0;
  const known = new Map([...live.querySelectorAll("[data-hold] tr[id]")].map((row) => [row.id, row]));
  follow(() => {
    for (const row of rows) {
      if (known.has(row.id)) {
        morph(known.get(row.id), row);
        stamp(known.get(row.id));
      } else more += 1;
    }
  });
  offer(more);
}

function offer(more) {
  const button = document.getElementById("newer");
  if (!button) return;
  button.hidden = !more;
  button.textContent = `${more} new run${more === 1 ? "" : "s"}: show`;
}

function release() {
  if (held !== null) show(held);
  offer(0);
}

function got(text) {
  if (holding()) hold(text);
  else {
    show(text);
    offer(0);
  }
}

document.getElementById("newer")?.addEventListener("click", release);
document.addEventListener("pointerout", () => setTimeout(() => { if (held !== null && !holding()) release(); }, 300));

// ---- the status of the page: live or not

let asOf = new Date(), trouble = null, silentSince = null;

function say(text, bad) {
  if (!liveness) return;
  liveness.hidden = false;
  liveness.textContent = text;
  liveness.className = bad ? "bad" : "good";
}

function fine() {
  asOf = new Date();
  trouble = silentSince = null;
  say("live");
  shade();
}

function wrong(text) {
  trouble = text;
  say("not live", true);
  shade();
}

function shade() {
  if (!live) return;
  const lost = trouble || (silentSince && performance.now() - silentSince > GRACE_S * 1000 && "the console does not answer");
  live.classList.toggle("stale", Boolean(lost));
  stale.hidden = !lost;
  if (!lost) return;
  const text = `Not live: the figures below are of ${asOf.toLocaleTimeString("en-GB")}, ${span((Date.now() - asOf) / 1000)} ago. ${lost}`;
  if (stale.textContent !== text) stale.textContent = text;
  say("not live", true);
}
setInterval(shade, 1000);

// ---- the stream

let source = null, lines = [], wait = FIRST_WAIT_S, again = 0, expected = 0;

function begin() {
  if (live && !source && !document.hidden) open(place());
}

// Returns whether this page may keep its stream open. A browser has six connections to a host, and pages must load as
// well: there are STREAMS places. A place is an item of the storage that all pages of this console share. It says which
// page has the place, and when that page last confirmed it.
const me = Math.random().toString(36).slice(2);
let taken = null;

function place() {
  try {
    for (let n = 0; n < STREAMS; n++) {
      const key = `pgsched stream ${n}`, [who, at] = (localStorage.getItem(key) || "").split(" ");
      if (who && who !== me && Date.now() - at < 6000 && Date.now() >= at) continue;
      taken = key;
      keep();
      return true;
    }
    return false;
  } catch {
    taken = null;
    return true; // without storage, each page keeps its stream
  }
}

function keep() {
  if (taken) localStorage.setItem(taken, `${me} ${Date.now()}`);
}

function open(streams) {
  source = new EventSource(location.href);
  const on = (name, act) => source.addEventListener(name, (event) => {
    const [value, pauseS] = JSON.parse(event.data);
    wait = FIRST_WAIT_S;
    expected = performance.now() + (pauseS + 15) * 1000;
    act(value);
    if (!streams) later(LOOK_S);
  });
  on("part", (text) => { lines = text.split("\n"); got(text); fine(); });
  on("delta", (pieces) => {
    lines = pieces.flatMap((piece) => typeof piece === "string" ? piece.split("\n") : lines.slice(piece[0], piece[0] + piece[1]));
    got(lines.join("\n"));
    fine();
  });
  on("still", fine);
  on("trouble", wrong);
  source.addEventListener("error", () => {
    silentSince ||= performance.now();
    if (source && source.readyState === EventSource.CLOSED) later(); // refused: the browser does not try again
  });
  expected = performance.now() + 30_000;
}

function later(seconds) {
  end();
  const pause = seconds || wait * (0.75 + Math.random() / 2);
  if (!seconds) wait = Math.min(wait * 2, LONGEST_WAIT_S);
  again = setTimeout(begin, pause * 1000);
}

function end() {
  clearTimeout(again);
  if (source) source.close();
  if (taken) localStorage.removeItem(taken);
  source = taken = null;
}

setInterval(() => {
  keep();
  if (source && performance.now() > expected) {
    silentSince ||= performance.now();
    later();
  }
}, 1000);

// Hidden pages give their connection back.
document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
addEventListener("pagehide", end);
addEventListener("pageshow", begin);
for (const one of document.querySelectorAll("[data-tail]")) one.scrollTop = one.scrollHeight;

// A form with data-preview shows, while you type, what the server makes of its fields: in the element of data-place.
for (const form of document.querySelectorAll("form[data-preview]")) {
  const place = document.querySelector(form.dataset.place);
  let waiting, asked = 0;
  const ask = async () => {
    const mine = ++asked;
    const fields = [...new FormData(form)].filter(([name, value]) => name !== "csrf" && value !== "" && name !== "args");
    try {
      const answer = await fetch(`${form.dataset.preview}?${new URLSearchParams(fields)}`);
      const text = await answer.text();
      if (mine === asked) place.innerHTML = text;
    } catch {
      if (mine === asked) place.textContent = "no preview: the console does not answer";
    }
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 200); });
  ask();
}

// ---- ticking of runs, one by one or all. A ticked run stays ticked when its row has left the list.

const many = document.getElementById("many");
const picked = new Set();
const BOXES = 'input[name="id"][form="many"]';

function remember() {
  for (const one of document.querySelectorAll(BOXES)) {
    if (one.checked) picked.add(one.value);
    else picked.delete(one.value);
  }
  tell();
}

function tell() {
  const boxes = new Map([...document.querySelectorAll(BOXES)].map((one) => [one.value, one]));
  for (const one of many?.querySelectorAll("[data-gone]") || []) one.remove();
  for (const id of picked) {
    const box = boxes.get(id);
    if (box) box.checked = true;
    else many?.append(Object.assign(document.createElement("input"), { type: "hidden", name: "id", value: id }));
  }
  for (const one of many?.querySelectorAll('input[type="hidden"][name="id"]') || []) one.dataset.gone = "";
  for (const one of document.querySelectorAll("[data-picked]")) one.textContent = picked.size || "";
  for (const one of document.querySelectorAll("[data-needs-picked]")) one.disabled = !picked.size;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) {
    if (!event.target.checked) picked.clear();
    for (const one of document.querySelectorAll(BOXES)) one.checked = event.target.checked;
  }
  if (event.target.matches('[data-pick-all], input[form="many"]')) remember();
});
document.addEventListener("shown", tell);
addEventListener("pageshow", remember); // the browser's Back button ticks the boxes again
remember();
begin();
