/* Small behaviours over pages that read correctly without this file. */
"use strict";
(function () {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  /* theme */
  function toggleTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* storage may be off */ }
    document.dispatchEvent(new Event("themechange"));
  }

  /* toasts: what the server said stays until it is closed; what this page says goes by itself */
  function toast(text, isError) {
    const box = document.createElement("p");
    box.className = "toast" + (isError ? " toast--err" : "");
    const words = document.createElement("span");
    words.textContent = text;
    const close = document.createElement("button");
    close.type = "button"; close.textContent = "Close"; close.dataset.dismiss = "";
    box.append(words, close);
    $("#toasts").replaceChildren(box);
    if (!isError) setTimeout(() => box.remove(), 6000);
  }
  window.asapToast = toast;
  $$("#toasts [data-toast]:not(.toast--err)").forEach(box => setTimeout(() => box.remove(), 8000));

  /* one listener for everything that may also arrive later by htmx */
  document.addEventListener("click", event => {
    const at = selector => event.target.closest && event.target.closest(selector);
    let hit;
    if ((hit = at("[data-theme-toggle]"))) { toggleTheme(); hit.closest("dialog")?.close(); return; }
    if ((hit = at("[data-dismiss]"))) { hit.closest(".toast").remove(); return; }
    if ((hit = at("[data-open]"))) {
      const dialog = document.getElementById(hit.dataset.open);
      if (dialog) { event.preventDefault(); openDialog(dialog); }
      return;
    }
    if ((hit = at("[data-close]"))) { hit.closest("dialog").close(); return; }
    if ((hit = at("[data-copy]"))) { copy(hit); return; }
    if ((hit = at("[data-print]"))) { window.print(); return; }
    if (event.target.matches("dialog[open]")) event.target.close();
  });
  function openDialog(dialog) {
    if (!dialog.open) dialog.showModal();
    if (dialog.id === "palette") { $("input[name=q]", dialog).select(); htmx.trigger($("input[name=q]", dialog), "palette:open"); }
  }
  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    try { await navigator.clipboard.writeText(source.textContent.trim()); toast("Copied."); }
    catch (error) {
      const range = document.createRange(); range.selectNodeContents(source);
      getSelection().removeAllRanges(); getSelection().addRange(range);
      toast("Selected. Press Ctrl C to copy.");
    }
  }

  /* palette: Ctrl K opens it; palette.js walks through its results */
  const palette = $("#palette");
  if (palette) {
    document.addEventListener("keydown", event => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (palette.open) palette.close(); else openDialog(palette);
      }
    });
  }

  /* menus close on Escape and on a click elsewhere */
  /* a link to something folded unfolds it */
  const unfold = () => { const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))), fold = at && at.closest("details"); if (fold && !fold.open) { fold.open = true; at.scrollIntoView(); } };
  addEventListener("hashchange", unfold); unfold();
  document.addEventListener("click", event => { const to = event.target.closest && event.target.closest('a[href^="#"]'); if (to && to.hash === location.hash) unfold(); });
  document.addEventListener("click", event => $$("details[data-menu][open]").forEach(menu => { if (!menu.contains(event.target) || event.target.closest("a, button")) menu.open = false; }));
  document.addEventListener("keydown", event => {
    const menu = event.key === "Escape" && $("details[data-menu][open]");
    if (menu) { menu.open = false; $("summary", menu).focus(); }
  });

  /* what htmx brought: the evidence panel opens, a failed request says so */
  document.addEventListener("htmx:afterSwap", event => {
    if (event.target.id === "drawer-body") {
      const title = $("[data-drawer-title]", event.target);
      $("#drawer-h").textContent = title ? title.dataset.drawerTitle : "Evidence";
      openDialog($("#drawer"));
      $("#drawer").scrollTop = 0;
    }
  });
  document.addEventListener("htmx:responseError", event => {
    const status = event.detail.xhr.status;
    toast(status === 403 ? "Your role does not permit this." : status === 404 ? "This no longer exists; reload the page." : "The server failed (" + status + "). Reload the page and try again.", true);
  });
  document.addEventListener("htmx:sendError", () => toast("The server cannot be reached. Check the connection and try again.", true));
  document.addEventListener("htmx:configRequest", event => {
    /* empty filters do not belong in an address that people share */
    if (event.detail.verb !== "get") return;
    const values = event.detail.parameters;
    for (const name of Object.keys(values)) if (values[name] === "") delete values[name];
  });

  /* a page whose run moved on loads itself again, but never over what its reader does: it would cancel a link that was
     just clicked, shut an open panel, lose a half-written sentence; it asks again soon anyway */
  let leftAt = -Infinity;
  document.addEventListener("click", event => { if (event.target.closest && event.target.closest("a[href]")) leftAt = performance.now(); });
  document.addEventListener("submit", () => { leftAt = performance.now(); });
  const isBusy = () => performance.now() - leftAt < 10000 || $("dialog[open]") ||
    $$("textarea, input:not([type=hidden])").some(field => field.type === "file" ? field.files.length : field.value !== field.defaultValue);
  document.addEventListener("htmx:beforeOnLoad", event => {
    if (event.detail.xhr.getResponseHeader("HX-Refresh") === "true" && isBusy()) event.preventDefault();
  });

  /* a submitted form cannot be submitted twice */
  document.addEventListener("submit", event => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || form.dataset.sent) return;
    form.dataset.sent = "1";
    setTimeout(() => $$("button:not([type=button])", form).forEach(button => { button.disabled = true; }), 0);
  });
  addEventListener("pageshow", event => {
    if (!event.persisted) return;
    $$("form[data-sent]").forEach(form => { delete form.dataset.sent; $$("button", form).forEach(button => { button.disabled = false; }); });
  });

  /* clock of the running step; the server gave the moment it began */
  setInterval(() => $$("time[data-since]").forEach(clock => {
    const seconds = Math.max(0, (Date.now() - Date.parse(clock.dataset.since)) / 1000);
    clock.textContent = seconds < 60 ? seconds.toFixed(0) + " s" : Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
  }), 1000);

  /* small screens: bring the current tab into view, fold what is folded there */
  $$(".tabs [aria-current]").forEach(tab => { const bar = tab.parentElement; bar.scrollLeft = tab.offsetLeft - bar.clientWidth / 2 + tab.offsetWidth / 2; });
  if (matchMedia("(max-width: 1080px)").matches) $$("details[data-fold]").forEach(part => { part.open = false; });
})();
