/* Results that are walked with the arrows, groups of one tab stop, and the card of a number.  Pages work without it. */
"use strict";
(function () {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  /* one tab stop for a group of numbers or questions; arrows go through it */
  const MEMBERS = ".nb, .qs a, .next a, .hits [data-row]";
  const groupOf = item => item.closest("[data-rove], [data-results]");
  const members = group => $$(MEMBERS, group).filter(item => groupOf(item) === group && item.offsetParent);
  function rove(root) {
    for (const group of $$("[data-rove], [data-results]", root).concat(root.matches?.("[data-rove], [data-results]") ? [root] : []))
      $$(MEMBERS, group).filter(item => groupOf(item) === group).forEach((item, at) => stop(item, !at));
    for (const number of $$(".nb[data-of]", root)) number.setAttribute("aria-haspopup", "dialog");
  }
  /* of a result, its arguments are reached by Tab when it is the one that is reached */
  function stop(item, here) {
    item.tabIndex = here ? 0 : -1;
    const hit = item.matches("[data-row]") && item.closest(".hit");
    if (hit) for (const argument of $$("[data-arguments] input", hit)) argument.tabIndex = here ? 0 : -1;
  }
  document.addEventListener("keydown", event => {
    const item = event.target.closest?.(MEMBERS), step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!item || !step || event.ctrlKey || event.metaKey || event.altKey || !groupOf(item)) return;
    const group = groupOf(item), list = members(group), to = list.indexOf(item) + step;
    event.preventDefault();
    const field = group.matches("[data-results]") && to < 0 && fieldOf(group);
    if (field) { field.focus(); return; }
    const next = list[(to + list.length) % list.length];
    stop(item, false); stop(next, true); next.focus();
  });

  /* the field over a list of results: Enter presses the first one */
  const resultsOf = field => $(field.getAttribute("hx-target"));
  const fieldOf = results => $$("[data-palette] input[name=q]").find(field => resultsOf(field) === results);
  document.addEventListener("keydown", event => {
    const field = event.target.closest?.("[data-palette] input[name=q]");
    if (!field || event.isComposing) return;
    const results = resultsOf(field), first = results && !results.hidden && $("[data-row]", results);
    if (event.key === "Enter" && first && results.dataset.of === field.value) { event.preventDefault(); first.click(); }
    else if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
    else if (event.key === "Escape" && results && !field.closest("dialog") && field.value) { event.preventDefault(); field.value = ""; results.hidden = results.hasAttribute("data-folds"); }
  });
  document.addEventListener("htmx:afterSwap", event => {
    const results = event.target.closest?.("[data-results]");
    if (results === event.target) {
      const field = fieldOf(results);
      results.dataset.of = field ? field.value : "";
      results.hidden = results.hasAttribute("data-folds") && !(field && field.value);
    }
    if (event.target.isConnected) rove(event.target);
  });
  document.addEventListener("htmx:load", event => { if (event.target.isConnected) rove(event.target); });
  document.addEventListener("submit", event => { if (event.target.matches("dialog [data-palette]")) event.preventDefault(); });

  /* the card of a number: what it is of, where it comes from, how; pressed, it stays, with where to look and what to ask */
  let card, timer, pressed;
  function close() {
    card?.remove(); card = null;
    if (pressed) { pressed.removeAttribute("aria-expanded"); pressed = null; }
    $$(".nb[aria-describedby=number-card]").forEach(item => item.removeAttribute("aria-describedby"));
  }
  function place(number) {
    const at = number.getBoundingClientRect(), size = card.getBoundingClientRect();
    card.style.left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8)) + "px";
    card.style.top = (at.bottom + 6 + size.height > innerHeight ? Math.max(8, at.top - size.height - 6) : at.bottom + 6) + "px";
  }
  function open(number, stays = false) {
    if (!number.dataset.of) return;
    close();
    const make = (tag, text, css) => { const made = document.createElement(tag); if (css) made.className = css; made.textContent = text; return made; };
    card = make("div", "", "ncard"); card.id = "number-card"; card.setAttribute("role", stays ? "dialog" : "tooltip");
    const head = make("p", number.dataset.of, "ncard__h"); head.append(make("span", number.dataset.origin, "ncard__k"));
    card.append(head, make("p", number.textContent, number.classList.contains("p") ? "ncard__v p" : "ncard__v"));
    if (number.dataset.interval) card.append(make("p", "80 % interval " + number.dataset.interval));
    if (number.dataset.formula) card.append(make("code", number.dataset.formula));
    if (!stays && number.dataset.target) card.append(make("p", "Press for where to look and what to ask.", "ncard__go"));
    (number.closest("dialog") || document.body).append(card);
    if (stays) {
      pressed = number; number.setAttribute("aria-expanded", "true");
      card.setAttribute("aria-label", "About " + number.dataset.of); card.tabIndex = -1; card.focus({ preventScroll: true });
      const about = number.closest("[data-about]")?.dataset.about, slot = make("div", "");
      if (about && number.dataset.target) {
        card.append(slot);
        htmx.ajax("GET", about + "&target=" + encodeURIComponent(number.dataset.target), { target: slot, swap: "innerHTML" }).then(() => { if (pressed === number) place(number); });
      }
    } else number.setAttribute("aria-describedby", "number-card");
    place(number);
  }
  const numberOf = event => event.target.closest?.(".nb[data-of]");
  document.addEventListener("mouseover", event => { const number = numberOf(event); if (number && !pressed) { clearTimeout(timer); timer = setTimeout(() => open(number), 120); } });
  document.addEventListener("mouseout", event => { if (numberOf(event) && !pressed) { clearTimeout(timer); timer = setTimeout(close, 100); } });
  document.addEventListener("focusin", event => { if (event.target.matches?.(".nb:focus-visible")) open(event.target); else if (!card?.contains(event.target)) close(); });
  document.addEventListener("click", event => {
    const number = numberOf(event);
    if (number && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); clearTimeout(timer); open(number, true); }
    else if (pressed && !card?.contains(event.target)) close();
  });
  document.addEventListener("keydown", event => {
    const number = numberOf(event);
    if (number && (event.key === " " || (event.key === "Enter" && !number.href))) { event.preventDefault(); open(number, true); }
    else if (event.key === "Escape" && card) { const back = pressed; event.preventDefault(); close(); back?.focus(); }
  });
  addEventListener("scroll", event => { if (!card?.contains(event.target)) close(); }, { passive: true, capture: true });

  rove(document.documentElement);
})();
