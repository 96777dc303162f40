/* Upload: files are collected, looked at before they are sent, and sent with their progress. */
"use strict";
(function () {
  const form = document.getElementById("upload-form");
  if (!form) return;
  const input = document.getElementById("files"), zone = form.querySelector(".dropzone");
  const list = document.getElementById("file-list"), rows = list.querySelector("tbody"), row = document.getElementById("file-row");
  const errors = document.getElementById("upload-error"), start = document.getElementById("start");
  const limit = +form.dataset.limit;
  const PROFILE = /\.(xplane\.pb|xplane\.pb\.gz|pb|pb\.gz|zip|tar|tar\.gz|tgz|json|json\.gz)$/i, CONFIG = /\.(ya?ml)$/i;
  let files = [];

  const size = bytes => bytes >= 1e9 ? (bytes / 1e9).toFixed(2) + " GB" : bytes >= 1e6 ? (bytes / 1e6).toFixed(1) + " MB" : bytes >= 1e3 ? (bytes / 1e3).toFixed(1) + " kB" : bytes + " B";

  /* only what can be seen from here; the server reads the content */
  async function look(file) {
    if (file.size === 0) return ["failed", "Empty", "The file is empty; copy it again from the host."];
    if (file.size > limit) return ["failed", "Too large", "The limit is " + size(limit) + " together."];
    if (CONFIG.test(file.name)) return ["ready", "Configuration", "Used as the configuration."];
    if (!PROFILE.test(file.name)) return ["failed", "Not a profile", "Expected .xplane.pb, .zip, .tar.gz or XProf’s JSON."];
    const head = new Uint8Array(await file.slice(0, 4).arrayBuffer());
    const gzip = head[0] === 0x1f && head[1] === 0x8b, zip = head[0] === 0x50 && head[1] === 0x4b;
    if (/\.(gz|tgz)$/i.test(file.name) && !gzip) return ["failed", "Not gzip", "The file name ends in gz, but the content is not gzip."];
    if (/\.zip$/i.test(file.name) && !zip) return ["failed", "Not a zip", "The file name ends in zip, but the content is not a zip."];
    if (/\.json$/i.test(file.name) && ![0x7b, 0x5b, 0x20, 0x0a, 0xef].includes(head[0])) return ["failed", "Not JSON", "The content is not JSON."];
    if (/xplane\.pb$/i.test(file.name) && head[0] !== 0x0a) return ["review", "Unexpected content", "Not an XSpace header; the server will check it."];
    return ["plain", "Accepted", ""];
  }

  async function draw() {
    const looks = await Promise.all(files.map(look));
    rows.replaceChildren(...files.map((file, at) => {
      const line = row.content.firstElementChild.cloneNode(true), [kind, word, text] = looks[at];
      line.cells[0].textContent = file.name;
      line.cells[1].textContent = size(file.size);
      const badge = line.querySelector(".badge");
      badge.classList.add("badge--" + kind); badge.textContent = word;
      line.querySelector(".said span:last-child").textContent = text;
      const remove = line.querySelector("button");
      remove.setAttribute("aria-label", "Remove " + file.name);
      remove.addEventListener("click", () => { files.splice(at, 1); keep(); input.focus(); });
      return line;
    }));
    list.hidden = files.length === 0;
    const total = files.reduce((sum, file) => sum + file.size, 0);
    if (total > limit) say("Together the files have " + size(total) + "; at most " + size(limit) + " can be sent. Profile fewer steps, or send the hosts’ files compressed."); else say("");
  }

  /* the input holds what will be sent, so that a plain submit sends the same */
  function keep() {
    const box = new DataTransfer();
    files.forEach(file => box.items.add(file));
    input.files = box.files;
    draw();
  }
  function add(more) {
    for (const file of more) {
      const same = files.findIndex(known => known.name === file.name);
      if (same >= 0) files[same] = file; else files.push(file);
    }
    keep();
  }
  function say(text) {
    errors.replaceChildren();
    if (!text) return;
    const box = document.createElement("div");
    box.className = "callout callout--err callout--bare"; box.textContent = text;
    errors.append(box);
  }

  input.addEventListener("change", () => add([...input.files]));
  ["dragenter", "dragover"].forEach(name => zone.addEventListener(name, event => { event.preventDefault(); zone.classList.add("is-over"); }));
  ["dragleave", "drop"].forEach(name => zone.addEventListener(name, event => { event.preventDefault(); zone.classList.remove("is-over"); }));
  zone.addEventListener("drop", event => add([...event.dataTransfer.files]));
  ["dragover", "drop"].forEach(name => document.addEventListener(name, event => event.preventDefault()));

  form.addEventListener("submit", event => {
    event.preventDefault();
    if (!files.length) { say("Choose at least one profile file first."); input.focus(); return; }
    const request = new XMLHttpRequest(), sending = document.getElementById("sending"), bar = document.getElementById("sending-bar");
    const word = document.getElementById("sending-word"), bytes = document.getElementById("sending-bytes");
    sending.hidden = false; start.disabled = true; say("");
    request.open("POST", form.action || location.href);
    request.setRequestHeader("Accept", "application/json");
    request.upload.addEventListener("progress", step => {
      if (!step.lengthComputable) return;
      bar.setAttribute("width", (100 * step.loaded / step.total).toFixed(1) + "%");
      bytes.textContent = size(step.loaded) + " of " + size(step.total);
      word.textContent = step.loaded < step.total ? "Uploading" : "Storing and hashing";
    });
    const failed = text => { sending.hidden = true; start.disabled = false; say(text); errors.scrollIntoView({ block: "center" }); };
    request.addEventListener("load", () => {
      let answer = {};
      try { answer = JSON.parse(request.responseText); } catch (error) { /* not ours */ }
      if (answer.location) location.href = answer.location;
      else if (answer.error) failed(answer.error);
      else if (answer.detail) failed(answer.detail);
      else if (request.status === 413) failed("Together the files are larger than the " + size(limit) + " that can be sent. Profile fewer steps, or send the hosts’ files compressed.");
      else failed("The server rejected the upload (" + request.status + "). Reload the page and try again.");
    });
    request.addEventListener("error", () => failed("The connection broke during the upload. Check it and start again."));
    request.send(new FormData(form));
  });
})();
