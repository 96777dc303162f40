/* The challenge dialogue: answers as they are written.  The page of its own works without this file. */
"use strict";
(function () {
  const BESIDE = matchMedia("(min-width: 1100px)"), WIDE = matchMedia("(min-width: 1500px)"), KEY = "ask-is-open";
  const $ = (selector, root = document) => root.querySelector(selector);
  const streams = new Map(); // by address: what is being followed

  /* the panel beside the proposals is loaded where both have room, or where somebody wants it */
  function open() {
    const place = $("#dock > #dialogue");
    const wanted = WIDE.matches ? sessionStorage.getItem(KEY) !== "0" : BESIDE.matches && sessionStorage.getItem(KEY) === "1";
    document.documentElement.dataset.ask = wanted ? "1" : "0";
    if (wanted && place && place.hidden) htmx.trigger(place, "dialogue:open");
  }
  WIDE.addEventListener("change", open);
  document.addEventListener("click", event => {
    const button = event.target.closest && event.target.closest(".dock__open, .dock__close");
    if (!button || !BESIDE.matches) return;
    const closes = button.matches(".dock__close");
    event.preventDefault();
    sessionStorage.setItem(KEY, closes ? "0" : "1");
    open();
  });

  /* the end of the conversation stays in sight, unless somebody has scrolled up to read */
  const scroller = () => { const chat = $("#chat"); return chat && getComputedStyle(chat).overflowY !== "visible" ? chat : null; };
  function atEnd() {
    const box = scroller() || document.scrollingElement;
    return box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  }
  function toEnd() {
    const chat = scroller();
    if (chat) { chat.scrollTo({ top: chat.scrollHeight, behavior: "instant" }); return; }
    /* on a narrow screen the page itself scrolls, and the form to ask covers its lower edge */
    if ($("#chat > [id]")) document.scrollingElement.scrollTo({ top: document.scrollingElement.scrollHeight, behavior: "instant" });
  }

  function follow(message) {
    const address = message.dataset.stream;
    if (streams.has(address)) streams.get(address).close();
    const source = new EventSource(address + "?after=" + encodeURIComponent(message.dataset.after));
    streams.set(address, source);
    const said = $("[data-said]", message), steps = $("[data-steps]", message);
    let text = said.textContent;
    const change = work => { const follows = atEnd(); work(); if (follows) toEnd(); };
    source.addEventListener("text", event => change(() => {
      const data = JSON.parse(event.data);
      text = [...text].slice(0, data.at).join("") + data.text; /* the server counts characters, not UTF-16 units */
      said.textContent = text;
    }));
    source.addEventListener("reset", () => { text = said.textContent = ""; steps.replaceChildren(); });
    source.addEventListener("steps", event => change(() => steps.replaceChildren(...JSON.parse(event.data).steps.map(line))));
    source.addEventListener("end", () => { stop(address); finish(message); });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) { stop(address); finish(message); } };
  }
  function stop(address) {
    if (streams.has(address)) streams.get(address).close();
    streams.delete(address);
  }
  function line(step) {
    const box = document.createElement("div"), name = document.createElement("code"), took = document.createElement("time");
    box.className = "tool tool--live";
    name.textContent = step.tool;
    took.textContent = step.ok === null ? "…" : step.duration_s < 1 ? Math.round(step.duration_s * 1000) + " ms" : step.duration_s.toFixed(1) + " s";
    box.append(name, took);
    return box;
  }
  function finish(message) {
    if (message.isConnected) htmx.ajax("GET", message.dataset.done, { target: "#" + message.id, swap: "outerHTML" });
  }
  function start() {
    const panel = $("#dialogue");
    if (!panel || panel.hidden) return;
    const shown = [...panel.querySelectorAll("[data-stream]")];
    for (const address of [...streams.keys()]) if (!shown.some(message => message.dataset.stream === address)) stop(address);
    for (const message of shown) if (!message.dataset.followed) { message.dataset.followed = "1"; follow(message); }
  }

  /* what somebody types, where they read and what they have unfolded survives an exchange of the panel */
  let kept = null;
  const mine = event => { const elt = event.detail.elt; return elt && elt.closest && (elt.closest("#dialogue") || elt.id === "dialogue" || elt.id.startsWith("m-")); };
  const inMenu = () => $("#dialogue details[data-menu][open]");
  document.addEventListener("htmx:beforeOnLoad", event => {
    /* an answer whose thread has been left */
    const target = event.detail.target;
    if (target && !target.isConnected) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", event => {
    const asker = (event.detail.requestConfig || {}).elt;
    /* news for somebody who is choosing or renaming a thread, or asked for before the panel was exchanged: they are
       asked again.  Here and not before, since the events of an element that is gone do not arrive */
    if (asker && asker.id === "news" && (!asker.isConnected || inMenu())) { event.preventDefault(); return; }
    if (!mine(event)) return;
    const field = $("#ask-panel"), chat = scroller();
    const config = event.detail.requestConfig || {}, form = config.elt;
    const sent = form && config.verb === "post" && event.detail.xhr.status < 300;
    kept = {
      draft: field && !sent ? field.value : "", refused: event.detail.xhr.status >= 400,
      focus: document.activeElement === field || sent, at: field ? field.selectionStart : 0,
      end: sent || atEnd(), top: chat ? chat.scrollTop : 0,
      open: [...document.querySelectorAll("#dialogue details.tool[open]")].map(part => part.id),
      thread: ($("#composer-box [name=thread]") || {}).value, sent,
    };
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (kept) {
      const now = kept, field = $("#ask-panel"), chat = scroller();
      kept = null;
      const other = now.thread !== ($("#composer-box [name=thread]") || {}).value && !now.sent;
      if (field && now.draft && !field.value && !now.refused) field.value = now.draft;
      if (field && now.focus && document.activeElement !== field) { field.focus({ preventScroll: true }); try { field.setSelectionRange(now.at, now.at); } catch (error) { /* nothing to select */ } }
      for (const id of now.open) { const part = document.getElementById(id); if (part) part.open = true; }
      if (now.end || other) toEnd(); else if (chat) chat.scrollTop = now.top;
    }
    start();
  });
  document.addEventListener("htmx:load", event => { if (event.target.id === "dialogue" && !event.target.hidden) { if (!kept) toEnd(); start(); } });
  document.addEventListener("htmx:beforeRequest", event => { if (event.target.id === "news" && (document.hidden || streams.size || inMenu())) event.preventDefault(); });

  /* after htmx has looked over the page, which it does at this same event */
  document.addEventListener("DOMContentLoaded", () => {
    open();
    start();
    if (!location.hash) toEnd();
  });
})();
