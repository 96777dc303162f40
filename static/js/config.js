/* The configuration form: checked on the server as one types; axes are added, custom ones ask for their role. */
"use strict";
(function () {
  const box = document.getElementById("config-form");
  if (!box) return;
  const form = box.closest("form");
  const names = () => [...document.querySelectorAll("#axis-names option")].map(option => option.value);
  let touched = new Set(), timer = 0, flight = null;

  const chosenWay = () => { const way = form.querySelector("input[name=config_way]:checked"); return way ? way.value : "form"; };

  async function check() {
    if (chosenWay() !== "form") return;
    if (flight) flight.abort();
    flight = new AbortController();
    const data = new FormData(form);
    data.delete("files"); data.delete("config_file");
    touched.forEach(name => data.append("touched", name));
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body: data, headers: { "HX-Request": "true" }, signal: flight.signal });
      if (!answer.ok) return;
      show(await answer.text());
    } catch (error) { if (error.name !== "AbortError") throw error; }
  }

  /* sentences go to their fields; a field that nobody has touched yet is not scolded for being empty */
  function show(html) {
    const parts = new DOMParser().parseFromString(html, "text/html");
    parts.querySelectorAll("[hx-swap-oob]").forEach(part => {
      part.removeAttribute("hx-swap-oob");
      const here = document.getElementById(part.id);
      if (!here) return;
      if (part.id.startsWith("err-")) {
        const input = form.querySelector('[aria-describedby~="' + part.id + '"]');
        const quiet = input && !input.value && !touched.has(input.name);
        const text = quiet ? "" : part.textContent;
        if (here.textContent !== text) here.textContent = text;
        const fields = [...form.querySelectorAll('[aria-describedby~="' + part.id + '"]')], filled = fields.filter(field => field.value);
        fields.forEach(field => {
          if (text && (field.value || !filled.length)) field.setAttribute("aria-invalid", "true"); else field.removeAttribute("aria-invalid");
        });
      } else if (here.isEqualNode(part) === false) {
        here.replaceWith(part);
      }
    });
  }

  form.addEventListener("input", event => {
    if (event.target.type === "file" || event.target.id === "config_text") return;
    touched.add(event.target.name);
    if (event.target.name === "ici_size") touched.add("ici_size");
    if (/_name$/.test(event.target.name)) role(event.target);
    clearTimeout(timer);
    timer = setTimeout(check, 180);
  });

  function role(name) {
    const select = name.closest(".axis").querySelector("select");
    const known = !name.value || names().includes(name.value.trim());
    select.hidden = known;
    if (known) select.value = "";
  }

  document.addEventListener("click", event => {
    const button = event.target.closest("[data-add-axis]");
    if (!button) return;
    const rows = form.querySelector('[data-axes="' + button.dataset.addAxis + '"]');
    const all = rows.querySelectorAll(".axis"), last = all[all.length - 1];
    const copy = last.cloneNode(true), number = all.length + 1;
    copy.querySelectorAll("input, select").forEach(field => { field.value = ""; field.id = field.id.replace(/\d+$/, number); });
    copy.querySelectorAll("label").forEach(label => { label.htmlFor = label.htmlFor.replace(/\d+$/, number); });
    copy.querySelector("select").hidden = true;
    const times = document.createElement("span");
    times.className = "x"; times.setAttribute("aria-hidden", "true"); times.textContent = "×";
    last.after(times, copy);
    copy.querySelector("input").focus();
  });

  /* what the server sent is checked once, so that the preview and the product are there from the start */
  if (chosenWay() === "form") { form.querySelectorAll('[aria-invalid="true"]').forEach(field => touched.add(field.name)); check(); }
  form.addEventListener("change", event => { if (event.target.name === "config_way") check(); });
})();
