// Keeps a page as it is in the database: the server sends the live part again whenever it has changed, and only what differs
// is touched, so that focus, ticked boxes and opened details stay. Everything works without this as well.

const live = document.querySelector("[data-live]");
const liveness = document.getElementById("liveness");
let source = null;

function say(text, bad) {
  if (!liveness) return;
  liveness.hidden = false;
  liveness.textContent = text;
  liveness.className = bad ? "bad" : "good";
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  attributes(old, fresh);
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const known = wanted.id ? named.get(wanted.id) : undefined;
    if (known && known !== place) {
      old.insertBefore(known, place);
      place = known;
    }
    if (place && same(place, wanted)) {
      morph(place, wanted);
      place = place.nextSibling;
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function show(text) {
  const fresh = live.cloneNode(false);
  fresh.innerHTML = text;
  const tails = [...live.querySelectorAll("[data-tail]")].filter(
    (one) => one.scrollTop + one.clientHeight > one.scrollHeight - 40);
  morph(live, fresh);
  for (const one of tails) one.scrollTop = one.scrollHeight;
  document.dispatchEvent(new CustomEvent("shown"));
}

function begin() {
  if (!live || source || document.hidden) return;
  source = new EventSource(location.href);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("part", (event) => { show(event.data); say("live"); });
  source.addEventListener("trouble", (event) => say(event.data, true));
  source.addEventListener("error", () => say("not live: waiting for the console", true));
}

function end() {
  if (source) source.close();
  source = null;
}

// A browser keeps few connections to a host: pages that nobody looks at give theirs back.
document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
addEventListener("pagehide", end);
addEventListener("pageshow", begin);
for (const one of document.querySelectorAll("[data-tail]")) one.scrollTop = one.scrollHeight;
begin();

// A form with data-preview shows in the place it names what the server makes of its fields, while they are typed.
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

// Picking runs: how many, and all at once.
function counted() {
  const picked = document.querySelectorAll('input[name="id"][form="many"]:checked').length;
  for (const one of document.querySelectorAll("[data-picked]")) one.textContent = picked || "";
  for (const one of document.querySelectorAll("[data-needs-picked]")) one.disabled = !picked;
}
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) {
    for (const one of document.querySelectorAll('input[name="id"][form="many"]')) one.checked = event.target.checked;
  }
  if (event.target.matches('[data-pick-all], input[form="many"]')) counted();
});
document.addEventListener("shown", counted);
counted();
