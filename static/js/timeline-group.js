/* What the panels of a timeline share: the part of time that a group of them shows, times in words, colours. */
"use strict";
(function () {
  const LEAST_PS = 200;
  const probe = document.createElement("i");
  probe.hidden = true; document.body.append(probe);
  function rgb(name) {
    probe.className = name; probe.style.color = name === "mute" ? "var(--text-3)" : "var(--c)";
    const found = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
    return /^color\(/.test(getComputedStyle(probe).color) ? found.slice(0, 3).map(part => part * 255) : found.slice(0, 3);
  }
  function ink(name) { probe.className = ""; probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; }
  const UNITS = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3], ["ps", 1]];
  function time(ps, step = Math.abs(ps)) {
    const [word, size] = UNITS.find(([, size]) => Math.abs(step) >= size || size === 1);
    const value = ps / size, digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) + 1e-9)));
    return `${value.toLocaleString("en-US", { maximumFractionDigits: step === Math.abs(ps) ? 3 : digits, minimumFractionDigits: 0 })} ${word}`;
  }
  const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

  class Group {
    constructor() { this.panels = []; this.t0 = 0; this.t1 = 1; this.selection = null; this.dirty = true; this.frames = 0; }
    add(panel) {
      this.panels.push(panel);
      const [home0, home1] = panel.data.home;
      panel.origin = panel.root.dataset.aligned !== undefined ? home0 : 0;
      const [t0, t1] = panel.data.view;
      if (this.panels.length === 1) { this.t0 = t0 - panel.origin; this.t1 = t1 - panel.origin; this.home = [home0 - panel.origin, home1 - panel.origin]; }
      else { this.t1 = Math.max(this.t1, t1 - panel.origin); this.home[1] = Math.max(this.home[1], home1 - panel.origin); }
      if (panel.data.selected) this.selection = [t0 - panel.origin, t1 - panel.origin];
      if (panel.data.selected) { const pad = (t1 - t0) * .15; this.t0 -= pad; this.t1 += pad; }
    }
    get limits() {
      const ends = this.panels.map(panel => [panel.data.span[0] - panel.origin, panel.data.span[1] - panel.origin]);
      return [Math.min(...ends.map(end => end[0])), Math.max(...ends.map(end => end[1]))];
    }
    see(t0, t1, quiet) {
      const [least, most] = this.limits, length = clamp(t1 - t0, LEAST_PS, (most - least) * 1.1 || 1);
      const middle = (t0 + t1) / 2, slack = (most - least) * .05 + length * .5;
      const start = clamp(middle - length / 2, least - slack, most + slack - length);
      this.t0 = start; this.t1 = start + length;
      this.draw();
      if (!quiet) this.settle();
    }
    zoom(factor, at = (this.t0 + this.t1) / 2) { this.see(at - (at - this.t0) * factor, at + (this.t1 - at) * factor); }
    pan(part) { const by = (this.t1 - this.t0) * part; this.see(this.t0 + by, this.t1 + by); }
    select(t0, t1) { this.selection = t0 === null ? null : [Math.min(t0, t1), Math.max(t0, t1)]; this.draw(); this.settle(); }
    /* the words follow once the hand rests */
    settle() { clearTimeout(this.timer); this.timer = setTimeout(() => this.panels.forEach(panel => panel.say()), 350); }
    draw() {
      if (this.asked) return;
      this.asked = true;
      requestAnimationFrame(() => { this.asked = false; this.frames += 1; this.panels.forEach(panel => panel.draw()); });
    }
  }

  window.asapTimeline = { Group, LEAST_PS, clamp, ink, rgb, time };
})();
