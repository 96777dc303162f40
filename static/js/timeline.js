/* The timeline: cores by time on a canvas.  Panels of one group share their view, each from its own step's start.
   <div class="tln" data-timeline="id of the JSON" data-group="name"> with the controls inside it.
   The tables beside it say the same in words; this script asks the server for them as the view or selection changes. */
"use strict";
(function () {
  const Tiles = window.asapTiles, GUTTER = 118, NARROW = 74, RULER = 24;
  const { Group, LEAST_PS, clamp, ink, rgb, time } = window.asapTimeline;
  const LANE_HEIGHT = { ops: 1, async: .55, host: .5 };

  class Panel {
    constructor(root, group) {
      this.root = root; this.group = group;
      this.data = JSON.parse(document.getElementById(root.dataset.timeline).textContent);
      this.$ = selector => root.querySelector(selector);
      this.box = this.$(".tln__box"); this.canvas = this.$("canvas"); this.space = this.$(".tln__space");
      this.context = this.canvas.getContext("2d");
      this.lanes = new Set(this.data.lanes); this.match = this.data.op ? "op=" + encodeURIComponent(this.data.op) : this.data.q ? "q=" + encodeURIComponent(this.data.q) : "";
      this.tiles = new Tiles(`${this.data.tiles}?profile=${this.data.profile}&`, () => group.draw());
      this.place = new Map();
      const counts = {};
      [...this.data.rows].sort((a, b) => a.track - b.track).forEach(row => { counts[row.lane] = counts[row.lane] || 0; this.place.set(row.track, counts[row.lane]++); });
      this.cursor = 0; this.event = null; this.spans = []; this.span = -1; this.mode = "pan";
      group.add(this);
      this.root.classList.add("is-live");  /* shown first: what is hidden has no width */
      this.colour(); this.layout(); this.listen();
      if (this.match) this.find();
      group.draw();
    }
    colour() {
      this.tiles.recolour(this.data.classes.map(each => rgb(each.css)));
      this.ink = Object.fromEntries(["text", "text-2", "text-3", "line", "line-2", "surface", "inset", "focus"].map(name => [name, ink(name)]));
      this.font = getComputedStyle(document.body).fontFamily;
    }
    layout() {
      const rows = this.data.rows.filter(row => this.lanes.has(row.lane)), ops = rows.filter(row => row.lane === "ops").length || rows.length;
      const unit = ops > 40 ? 11 : ops > 16 ? 15 : ops > 6 ? 20 : 26;
      let y = 0;
      this.rows = rows.map(row => { const height = Math.max(5, Math.round(unit * LANE_HEIGHT[row.lane])), at = { ...row, y, height }; y += height + (row.lane === "ops" ? 2 : 3); return at; });
      this.total = y;
      const width = this.box.clientWidth, visible = Math.min(y + RULER + 4, Math.max(180, Math.min(560, innerHeight * .6)));
      this.gutter = width < 560 ? NARROW : GUTTER;
      this.width = width; this.height = visible; this.scale = devicePixelRatio || 1;
      this.canvas.width = Math.round(width * this.scale); this.canvas.height = Math.round(visible * this.scale);
      this.canvas.style.width = width + "px"; this.canvas.style.height = visible + "px";
      this.box.style.height = visible + "px"; this.space.style.height = Math.max(0, y + RULER + 4 - visible) + "px";
      this.cursor = clamp(this.cursor, 0, Math.max(this.rows.length - 1, 0));
    }
    x(t) { return this.gutter + (t - this.group.t0) / (this.group.t1 - this.group.t0) * (this.width - this.gutter); }
    t(x) { return this.group.t0 + (x - this.gutter) / (this.width - this.gutter) * (this.group.t1 - this.group.t0); }
    rowAt(y) { const at = y - RULER + this.box.scrollTop; return y < RULER ? -1 : this.rows.findIndex(row => at >= row.y && at < row.y + row.height + 2); }

    draw() {
      const c = this.context, { width, height, gutter, ink } = this, group = this.group;
      if (width <= gutter + 20) return;
      c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      c.imageSmoothingEnabled = false;
      c.fillStyle = ink.surface; c.fillRect(0, 0, width, height);
      const t0 = group.t0 + this.origin, t1 = group.t1 + this.origin, perPixel = (t1 - t0) / ((width - gutter) * this.scale), level = Tiles.level(perPixel);
      const top = this.box.scrollTop, shown = this.rows.filter(row => row.y + row.height >= top && row.y <= top + height);
      c.save(); c.beginPath(); c.rect(gutter, RULER, width - gutter, height - RULER); c.clip();
      c.fillStyle = ink.inset;
      shown.forEach(row => c.fillRect(gutter, RULER + row.y - top, width - gutter, row.height));
      c.globalAlpha = this.match ? .22 : 1;
      this.layer(shown, level, t0, t1, "");
      c.globalAlpha = 1;
      if (this.match) this.layer(shown, level, t0, t1, this.match);
      this.labels(shown, level, t0, t1);
      this.marks(shown, top);
      c.restore();
      this.frame(shown, top);
      const state = this.tiles.failed ? "failed" : this.tiles.busy ? "loading" : "ready";
      if (this.root.dataset.state !== state) this.root.dataset.state = state;
    }
    /* rows of tiles; where one has not come, what a coarser level knows of it */
    layer(shown, level, t0, t1, match) {
      const c = this.context, length = 2 ** level, first = Math.max(0, Math.floor(t0 / length)), last = Math.floor(t1 / length);
      const ends = this.data.span[1] - this.data.span[0];
      for (let index = first; index <= last && index * length <= ends + length; index++) {
        for (const row of shown) {
          const place = this.place.get(row.track), block = Math.floor(place / Tiles.BLOCK), line = place % Tiles.BLOCK;
          let entry = this.tiles.get(row.lane, block, level, index, match, true), from = 0, part = Tiles.BINS;
          for (let up = 1; !entry && up <= 12; up++) {
            entry = this.tiles.get(row.lane, block, level + up, Math.floor(index / 2 ** up), match, false);
            if (entry) { part = Tiles.BINS / 2 ** up; from = (index % 2 ** up) * part; }
          }
          if (!entry || line >= entry.tile.rows) continue;
          const left = this.x(index * length - this.origin), right = this.x((index + 1) * length - this.origin);
          c.drawImage(entry.canvas, from, line, part, 1, left, RULER + row.y - this.box.scrollTop, right - left, row.height);
        }
      }
    }
    labels(shown, level, t0, t1) {
      const c = this.context, length = 2 ** level, bin = length / Tiles.BINS;
      c.font = `11px ${this.font}`; c.textBaseline = "middle";
      for (const row of shown) {
        if (row.height < 13) continue;
        const place = this.place.get(row.track), block = Math.floor(place / Tiles.BLOCK), line = place % Tiles.BLOCK;
        let before = null, taken = -1;
        for (let index = Math.max(0, Math.floor(t0 / length)); index <= Math.floor(t1 / length); index++) {
          const entry = this.tiles.get(row.lane, block, level, index, "", false);
          if (!entry || line >= entry.tile.rows) continue;
          const tile = entry.tile;
          for (let item = tile.firsts[line]; item < tile.firsts[line + 1]; item++) {
            const name = tile.names[item], word = tile.words[name];
            if (name === Tiles.CELL || !word) continue;
            const start = index * length + tile.x[item] / Tiles.PARTS * bin - this.origin, end = start + tile.width[item] / Tiles.PARTS * bin;
            const left = Math.max(this.x(start), this.gutter), right = Math.min(this.x(end), this.width);
            const goesOn = before === name && tile.x[item] === 0;
            before = tile.x[item] + tile.width[item] >= Tiles.BINS * Tiles.PARTS ? name : null;
            if (right - left < 44 || goesOn || left < taken) continue;
            taken = Math.min(right, left + 8 + c.measureText(word).width);
            const [r, g, b] = this.tiles.colours[tile.kinds[item]];
            c.fillStyle = .299 * r + .587 * g + .114 * b > 140 ? "#10151c" : "#fff";
            c.save(); c.beginPath(); c.rect(left + 3, RULER + row.y - this.box.scrollTop, right - left - 6, row.height); c.clip();
            c.fillText(word, left + 4, RULER + row.y - this.box.scrollTop + row.height / 2 + .5); c.restore();
          }
        }
      }
    }
    marks(shown, top) {
      const c = this.context, { ink, group } = this;
      c.lineWidth = 1;
      this.data.steps.forEach(([, start, end]) => [start, end].forEach(edge => {
        const x = Math.round(this.x(edge - this.origin)) + .5;
        if (x > this.gutter && x < this.width) { c.strokeStyle = ink["line-2"]; c.beginPath(); c.moveTo(x, RULER); c.lineTo(x, this.height); c.stroke(); }
      }));
      const row = this.rows[this.cursor];
      if (row && document.activeElement === this.box) { c.strokeStyle = ink.focus; c.strokeRect(this.gutter + .5, RULER + row.y - top + .5, this.width - this.gutter - 1, row.height - 1); }
      if (this.event) {
        const at = this.rows.find(each => each.track === this.event.track);
        if (at) { const x = this.x(this.event.t0 - this.origin); c.strokeStyle = ink.text; c.lineWidth = 2; c.strokeRect(x - 1, RULER + at.y - top - 1, Math.max(this.x(this.event.t1 - this.origin) - x, 2) + 2, at.height + 2); }
      }
      if (group.selection) {
        const [left, right] = group.selection.map(t => this.x(t));
        c.fillStyle = ink.focus; c.globalAlpha = .16; c.fillRect(left, RULER, right - left, this.height); c.globalAlpha = 1;
        c.fillRect(left - 1, RULER, 2, this.height); c.fillRect(right - 1, RULER, 2, this.height);
      }
    }
    frame(shown, top) {
      const c = this.context, { ink, gutter, width, height, group } = this, zero = group.home[0], length = group.t1 - group.t0;
      c.fillStyle = ink.surface; c.fillRect(0, 0, width, RULER); c.fillRect(0, RULER, gutter, height);
      c.font = `10.5px ${this.font}`; c.textBaseline = "middle"; c.fillStyle = ink["text-2"];
      const room = gutter - 12;
      shown.forEach((row, nth) => {
        const y = RULER + row.y - top + row.height / 2;
        if (y < RULER || (row.height < 10 && row.lane !== "ops")) return;
        if (row.height < 12 && nth % 2) return;
        let words = row.label;
        while (words.length > 4 && c.measureText(words).width > room) words = words.slice(0, -2) + "…";
        c.fillText(words, 6, y);
      });
      const wanted = (width - gutter) / 110, raw = length / Math.max(wanted, 1), base = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map(times => times * base).find(each => each >= raw);
      c.fillStyle = ink["text-3"]; c.strokeStyle = ink.line;
      for (let at = Math.ceil((group.t0 - zero) / step) * step; at <= group.t1 - zero; at += step) {
        const x = this.x(at + zero);
        c.beginPath(); c.moveTo(Math.round(x) + .5, RULER - 5); c.lineTo(Math.round(x) + .5, RULER); c.stroke();
        if (x < width - 36) c.fillText(Math.abs(at) < step / 2 ? "0" : time(at, step), x + 3, RULER / 2 - 1);
      }
      c.strokeStyle = ink["line-2"]; c.beginPath(); c.moveTo(0, RULER - .5); c.lineTo(width, RULER - .5); c.stroke();
    }

    listen() {
      const group = this.group, box = this.box, on = (what, does, options) => box.addEventListener(what, does, options);
      const place = event => { const at = this.canvas.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };
      const held = new Map();
      let from = null, moved = 0, pinch = 0;
      on("wheel", event => {
        const across = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (across) { event.preventDefault(); group.pan((event.deltaX || event.deltaY) / (this.width - this.gutter)); return; }
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== box) return;  /* the page scrolls until it is clicked */
        event.preventDefault();
        group.zoom(Math.exp(clamp(event.deltaY, -120, 120) * .0022), this.t(place(event)[0]));
      }, { passive: false });
      on("pointerdown", event => {
        if (event.button) return;
        const [x, y] = place(event);
        if (x > this.canvas.clientWidth) return;
        held.set(event.pointerId, x); this.canvas.setPointerCapture(event.pointerId);
        from = { x, y, t: this.t(x), t0: group.t0, t1: group.t1, top: box.scrollTop, selects: event.shiftKey || this.mode === "select" || y < RULER };
        moved = 0;
        if (held.size === 2) pinch = Math.abs([...held.values()][0] - [...held.values()][1]);
      });
      on("pointermove", event => {
        if (!held.has(event.pointerId) || !from) { this.hover(...place(event)); return; }
        const [x, y] = place(event);
        held.set(event.pointerId, x);
        moved = Math.max(moved, Math.abs(x - from.x) + Math.abs(y - from.y));
        if (held.size === 2) {
          const now = Math.abs([...held.values()][0] - [...held.values()][1]);
          if (pinch > 8 && now > 8) group.zoom(pinch / now, this.t(([...held.values()][0] + [...held.values()][1]) / 2));
          pinch = now; return;
        }
        if (moved < 4) return;
        if (from.selects) { group.selection = [Math.min(from.t, this.t(x)), Math.max(from.t, this.t(x))]; group.draw(); }
        else {
          const by = (from.x - x) / (this.width - this.gutter) * (from.t1 - from.t0);
          group.see(from.t0 + by, from.t1 + by);
          if (event.pointerType === "mouse") box.scrollTop = from.top + from.y - y;
        }
      });
      const release = event => {
        if (!held.delete(event.pointerId) || !from) return;
        const [x, y] = place(event);
        if (event.type === "pointerup" && moved < 4 && !held.size) this.pick(x, y);
        else if (from.selects) group.settle();
        if (!held.size) from = null;
      };
      on("pointerup", release); on("pointercancel", release);
      on("pointerleave", () => { this.$(".tln__tip").hidden = true; });
      on("scroll", () => group.draw()); on("focus", () => group.draw()); on("blur", () => group.draw());
      on("keydown", event => this.key(event));
      new ResizeObserver(() => { this.layout(); group.draw(); }).observe(box);
      document.addEventListener("themechange", () => { this.colour(); group.draw(); });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colour(); group.draw(); });
      this.root.addEventListener("click", event => {
        const button = event.target.closest("button[data-do]");
        if (button) this.act(button.dataset.do, button);
      });
      this.root.querySelectorAll("[data-lane]").forEach(box => box.addEventListener("change", () => {
        if (box.checked) this.lanes.add(box.dataset.lane); else this.lanes.delete(box.dataset.lane);
        this.layout(); group.draw();
      }));
      const form = this.$("form[data-find]");
      if (form) form.addEventListener("submit", event => { event.preventDefault(); this.search(form.elements.q.value.trim()); });
      const step = this.$("select[data-step]");
      if (step) step.addEventListener("change", () => this.toStep(Number(step.value)));
    }
    act(what, button) {
      const group = this.group;
      if (what === "in") group.zoom(.5);
      else if (what === "out") group.zoom(2);
      else if (what === "left") group.pan(-.4);
      else if (what === "right") group.pan(.4);
      else if (what === "home") { group.selection = null; group.see(...group.home); }
      else if (what === "next" || what === "previous") this.jump(what === "next" ? 1 : -1);
      else if (what === "clear") this.search("");
      else if (what === "range") group.select(group.selection ? null : group.t0, group.t1);
      else if (what === "select") { this.mode = this.mode === "select" ? "pan" : "select"; button.setAttribute("aria-pressed", String(this.mode === "select")); }
    }
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const group = this.group, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const does = {
        w: () => group.zoom(.6), "+": () => group.zoom(.6), "=": () => group.zoom(.6), s: () => group.zoom(1 / .6), "-": () => group.zoom(1 / .6),
        a: () => group.pan(-.2), ArrowLeft: () => group.pan(-.2), d: () => group.pan(.2), ArrowRight: () => group.pan(.2),
        ArrowUp: () => this.row(-1), ArrowDown: () => this.row(1), Home: () => this.act("home"), 0: () => this.act("home"),
        n: () => this.jump(event.shiftKey ? -1 : 1), r: () => this.act("range"), "[": () => this.step(-1), "]": () => this.step(1),
        Enter: () => this.ask({ t: (group.t0 + group.t1) / 2, slack: (group.t1 - group.t0) / 2 }),
        f: () => { const at = this.event ? [this.event.t0 - this.origin, this.event.t1 - this.origin] : group.selection; if (at) { const pad = (at[1] - at[0]) * .3 + LEAST_PS; group.see(at[0] - pad, at[1] + pad); } },
        Escape: () => { this.event = null; group.select(null); }
      }[key];
      if (does) { event.preventDefault(); does(); }
    }
    row(by) {
      this.cursor = clamp(this.cursor + by, 0, this.rows.length - 1);
      const row = this.rows[this.cursor], room = this.height - RULER;
      if (row.y < this.box.scrollTop) this.box.scrollTop = row.y;
      else if (row.y + row.height > this.box.scrollTop + room) this.box.scrollTop = row.y + row.height - room;
      this.tell(row.label);
      this.group.draw();
    }
    hover(x, y) {
      const tip = this.$(".tln__tip"), row = this.rows[this.rowAt(y)];
      tip.hidden = true;
      if (!row || x < this.gutter) return;
      const t = this.t(x) + this.origin, level = Tiles.level((this.group.t1 - this.group.t0) / ((this.width - this.gutter) * this.scale)), length = 2 ** level;
      const place = this.place.get(row.track), entry = this.tiles.get(row.lane, Math.floor(place / Tiles.BLOCK), level, Math.floor(t / length), "", false), line = place % Tiles.BLOCK;
      let words = "";
      if (entry && line < entry.tile.rows) {
        const tile = entry.tile, at = (t / length % 1) * Tiles.BINS * Tiles.PARTS;
        for (let item = tile.firsts[line]; item < tile.firsts[line + 1]; item++) if (tile.x[item] <= at && at < tile.x[item] + tile.width[item]) {
          const kind = this.data.classes[tile.kinds[item]].label;
          words = tile.names[item] === Tiles.CELL ? `${kind}, events shorter than a pixel` : `${tile.words[tile.names[item]] || kind}`;
        }
      }
      tip.textContent = `${time(t - this.origin - this.group.home[0], (this.group.t1 - this.group.t0) / 500)} · ${row.label}${words ? " · " + words : " · idle"}`;
      tip.hidden = false;
    }
    pick(x, y) {
      const at = this.rowAt(y);
      if (at < 0 || x < this.gutter) return;
      this.cursor = at;
      this.ask({ t: this.t(x), slack: (this.group.t1 - this.group.t0) / (this.width - this.gutter) * 4 });
    }
    /* one event, in words beside the canvas */
    async ask({ t, slack, number }) {
      const row = this.rows[this.cursor];
      if (!row) return;
      const query = new URLSearchParams({ track: row.track, profile: this.data.profile });
      if (number !== undefined) query.set("number", number); else { query.set("t", (t + this.origin) / 1e12); query.set("slack", slack / 1e12); }
      await window.htmx.ajax("GET", `${this.data.event}?${query}`, { target: this.$(".tln__event"), swap: "innerHTML" });
      const found = this.$("[data-event]");
      this.event = found ? { track: Number(found.dataset.track), number: Number(found.dataset.number), t0: Number(found.dataset.t0), t1: Number(found.dataset.t1) } : null;
      if (this.event) this.show(this.event.t0, this.event.t1);
      this.group.draw();
    }
    step(by) { if (this.event) { this.cursor = Math.max(0, this.rows.findIndex(row => row.track === this.event.track)); this.ask({ number: Math.max(0, this.event.number + by) }); } else this.ask({ t: this.group.t0, slack: this.group.t1 - this.group.t0 }); }
    show(t0, t1) {
      const group = this.group, a = t0 - this.origin, b = t1 - this.origin;
      if (a >= group.t0 && b <= group.t1) return;
      const length = Math.max(group.t1 - group.t0, (b - a) * 1.4);
      group.see((a + b - length) / 2, (a + b + length) / 2);
    }
    toStep(number) {
      const step = this.data.steps.find(each => each[0] === number);
      if (!step) return;
      if (this.root.dataset.aligned !== undefined) this.origin = step[1];
      this.data.home = [step[1], step[2]];
      this.group.home = [step[1] - this.origin, Math.max(...this.group.panels.map(panel => panel.data.home[1] - panel.origin))];
      this.group.selection = null;
      this.group.see(...this.group.home);
      if (this.match) this.find();
    }

    search(words) {
      this.match = words ? "q=" + encodeURIComponent(words) : "";
      const form = this.$("form[data-find]");
      if (form) form.elements.q.value = words;
      this.spans = []; this.span = -1;
      if (words) this.find(); else { this.count(""); this.group.settle(); }
      this.group.draw();
    }
    async find() {
      const [t0, t1] = this.data.home.map(ps => ps / 1e12);
      const answer = await fetch(`${this.data.spans}?${this.match}&profile=${this.data.profile}&t0=${t0}&t1=${t1}`, { credentials: "same-origin" });
      if (!answer.ok) return;
      const found = await answer.json();
      this.spans = found.spans; this.span = -1;
      const many = this.spans.length >= 2000 ? "at least " : "";
      this.count(this.spans.length ? `${many}${this.spans.length.toLocaleString("en-US")} span${this.spans.length > 1 ? "s" : ""} of ${found.names} op${found.names > 1 ? "s" : ""}` : found.names ? "no span here" : "no op of that name");
      this.group.settle();
    }
    count(words) {
      const at = this.$(".tln__count");
      if (at) at.textContent = words;
      this.root.querySelectorAll("[data-do=next], [data-do=previous], [data-do=clear]").forEach(button => { button.disabled = !this.match; });
    }
    jump(by) {
      if (!this.spans.length) return;
      this.span = (this.span + by + this.spans.length) % this.spans.length;
      if (this.span < 0) this.span += this.spans.length;
      const [track, start, length] = this.spans[this.span], group = this.group, middle = start + length / 2 - this.origin;
      const half = Math.max(length * 4, Math.min((group.t1 - group.t0) / 2, length * 40), LEAST_PS);
      group.see(middle - half, middle + half);
      const at = this.rows.findIndex(row => row.track === track);
      if (at >= 0) { this.cursor = at; this.row(0); this.ask({ t: middle, slack: length }); }
      this.count(`${this.span + 1} of ${this.spans.length.toLocaleString("en-US")}`);
    }
    tell(words) { const at = this.$(".tln__said"); if (at) at.textContent = words; }

    /* tables and address follow */
    say() {
      const group = this.group, target = document.getElementById(this.root.dataset.sums);
      const [t0, t1] = (group.selection || [group.t0, group.t1]).map(t => ((t + this.origin) / 1e12).toFixed(12));
      const query = new URLSearchParams({ t0, t1, profile: this.data.profile });
      if (this.root.dataset.aligned !== undefined) query.set("brief", "1");
      if (group.selection) query.set("selected", "1");
      if (this.match) { const [key, value] = this.match.split("="); query.set(key, decodeURIComponent(value)); }
      if (target) window.htmx.ajax("GET", `${this.data.sums}?${query}`, { target, swap: "innerHTML" });
      if (this.root.dataset.address !== undefined) {
        const address = new URL(location);
        ["t0", "t1", "q", "op", "step"].forEach(key => address.searchParams.delete(key));
        const [shown0, shown1] = (group.selection || [group.t0, group.t1]);
        if (Math.abs(shown0 - group.home[0]) + Math.abs(shown1 - group.home[1]) > 1000) { address.searchParams.set("t0", t0); address.searchParams.set("t1", t1); }
        const step = this.$("select[data-step]");
        if (step) address.searchParams.set("step", step.value);
        if (this.match) { const [key, value] = this.match.split("="); address.searchParams.set(key, decodeURIComponent(value)); }
        history.replaceState(history.state, "", address);
      }
    }
  }

  const groups = new Map();
  document.querySelectorAll("[data-timeline]").forEach(root => {
    const key = root.dataset.group || root.dataset.timeline;
    if (!groups.has(key)) groups.set(key, new Group());
    new Panel(root, groups.get(key));
  });
  /* rows of the tables lead to their place */
  document.addEventListener("click", event => {
    const link = event.target.closest && event.target.closest("a[data-see]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const group = groups.get(link.dataset.see) || groups.values().next().value;
    if (!group) return;
    event.preventDefault();
    const panel = group.panels[0], t0 = Number(link.dataset.t0) * 1e12 - panel.origin, t1 = Number(link.dataset.t1) * 1e12 - panel.origin, pad = (t1 - t0) * 1.5 + LEAST_PS;
    group.see(t0 - pad, t1 + pad);
    if (link.dataset.track !== undefined) {
      const at = panel.rows.findIndex(row => row.track === Number(link.dataset.track));
      if (at >= 0) { panel.cursor = at; panel.row(0); panel.ask({ number: Number(link.dataset.number) }); }
    }
    panel.box.scrollIntoView({ block: "nearest" }); panel.box.focus({ preventScroll: true });
  });
  window.asapTimelines = groups;
})();
