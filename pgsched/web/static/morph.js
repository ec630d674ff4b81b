// Makes one tree of nodes like another. Only what differs is touched, so that typing, selecting and scrolling go on.
// Nodes with an id are found again wherever they moved. An open <details> stays open.

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
}

function pairs(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function signature(one) {
  return one.nodeType === Node.ELEMENT_NODE ? `${one.nodeName}.${one.className}` : "#text";
}

export function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  attributes(old, fresh);
  const wanted = [...fresh.childNodes], named = new Map(), staying = new Set(), ahead = new Map();
  for (const one of old.children) if (one.id) named.set(one.id, one);
  for (const one of wanted) {
    if (one.id) staying.add(one.id);
    else ahead.set(signature(one), (ahead.get(signature(one)) || 0) + 1);
  }
  let place = old.firstChild;
  const drop = () => {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  };
  // Returns the node that becomes `one`, after dropping nodes that `fresh` does not have; null: `one` is new.
  const partner = (one) => {
    while (place && place.id && !staying.has(place.id)) drop();
    if (one.id) return named.get(one.id) || null;
    ahead.set(signature(one), ahead.get(signature(one)) - 1);
    while (place && !place.id && signature(place) !== signature(one)) {
      const blank = place.nodeType === Node.TEXT_NODE && !place.data.trim();
      if (one.nodeType === Node.TEXT_NODE || (!blank && ahead.get(signature(place)) > 0)) return null;
      if (pairs(place, one)) break;
      drop();
      while (place && place.id && !staying.has(place.id)) drop();
    }
    return place && pairs(place, one) ? place : null;
  };
  for (const one of wanted) {
    const found = partner(one);
    if (!found) {
      old.insertBefore(one, place);
      continue;
    }
    if (found !== place) old.insertBefore(found, place); // the order has changed
    else place = place.nextSibling;
    morph(found, one);
  }
  while (place) drop();
}
