/* Tiles of a timeline: fetched by level and place, decoded, and painted once into a small picture, a pixel per bin and
   track, which panning and zooming only stretch.  The format is that of experiments/trace/tiles.py. */
"use strict";
(function () {
  const BINS = 512, BIN_BITS = 9, PARTS = 64, CELL = 0xFFFFFFFF, BLOCK = 128, LEAST = 9, MOST = 60, KEPT = 500, AT_ONCE = 6;

  function decode(buffer) {
    const head = new Uint32Array(buffer, 0, 4), rows = head[0], items = head[1];
    let at = 16;
    const take = (Kind, count) => { const part = new Kind(buffer, at, count); at += count * Kind.BYTES_PER_ELEMENT; return part; };
    const tile = { rows, counts: take(Uint32Array, rows), names: take(Uint32Array, items), x: take(Uint16Array, items), width: take(Uint16Array, items), kinds: take(Uint8Array, items), fill: take(Uint8Array, items) };
    tile.words = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at, head[2])) || "{}");
    tile.firsts = new Uint32Array(rows + 1);
    for (let row = 0; row < rows; row++) tile.firsts[row + 1] = tile.firsts[row] + tile.counts[row];
    return tile;
  }

  /* colours: [r, g, b] by class; solid: matches, which are to be seen however short they are */
  function paint(tile, colours, solid) {
    const canvas = document.createElement("canvas");
    canvas.width = BINS; canvas.height = Math.max(tile.rows, 1);
    const context = canvas.getContext("2d"), image = context.createImageData(BINS, canvas.height), pixels = image.data;
    for (let row = 0; row < tile.rows; row++) {
      for (let item = tile.firsts[row]; item < tile.firsts[row + 1]; item++) {
        const colour = colours[tile.kinds[item]] || [128, 128, 128], merged = tile.names[item] === CELL;
        const first = tile.x[item] / PARTS | 0, last = Math.max(first + 1, Math.min(BINS, Math.round((tile.x[item] + tile.width[item]) / PARTS)));
        const alpha = merged && !solid ? 70 + 185 * tile.fill[item] / 255 : 255;
        for (let bin = first; bin < last; bin++) {
          const at = (row * BINS + bin) * 4;
          pixels[at] = colour[0]; pixels[at + 1] = colour[1]; pixels[at + 2] = colour[2];
          /* a hairline keeps neighbours of one colour apart */
          pixels[at + 3] = bin === last - 1 && last - first > 5 ? alpha * .55 : alpha;
        }
      }
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  class Tiles {
    /* address: with {level} and {index}, ends with ? or &; changed: called when a tile has come */
    constructor(address, changed) {
      this.address = address; this.changed = changed; this.kept = new Map(); this.waiting = []; this.running = 0; this.colours = []; this.failed = false;
    }
    static level(psPerPixel) { return Math.min(MOST, Math.max(LEAST, Math.floor(Math.log2(Math.max(psPerPixel, 1e-6))) + BIN_BITS)); }
    recolour(colours) { this.colours = colours; for (const entry of this.kept.values()) entry.canvas = null; }

    /* what is known of a tile: {tile, canvas}, null while it is on its way; wanted: ask for it */
    get(lane, block, level, index, match, wanted) {
      const key = `${lane}|${block}|${level}|${index}|${match}`;
      let entry = this.kept.get(key);
      if (!entry) {
        if (!wanted) return null;
        entry = { key, lane, block, level, index, match, tile: null, canvas: null };
        this.kept.set(key, entry); this.waiting.push(entry); this.next();
        return null;
      }
      if (wanted) { this.kept.delete(key); this.kept.set(key, entry); }
      if (!entry.tile) return null;
      if (!entry.canvas) entry.canvas = paint(entry.tile, this.colours, Boolean(match));
      return entry;
    }
    next() {
      while (this.running < AT_ONCE && this.waiting.length) this.load(this.waiting.pop());  /* the newest is what is looked at */
    }
    async load(entry) {
      this.running += 1;
      try {
        const address = this.address.replace("{level}", entry.level).replace("{index}", entry.index);
        const answer = await fetch(`${address}lane=${entry.lane}&block=${entry.block}${entry.match ? "&" + entry.match : ""}`, { credentials: "same-origin" });
        if (!answer.ok) throw new Error(String(answer.status));
        entry.tile = decode(await answer.arrayBuffer());
        this.failed = false;
      } catch (error) {
        this.kept.delete(entry.key); this.failed = true;
      }
      this.running -= 1;
      while (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
      this.next(); this.changed();
    }
    get busy() { return this.running + this.waiting.length; }
    forget() { this.waiting.forEach(entry => this.kept.delete(entry.key)); this.waiting = []; }
  }
  Object.assign(Tiles, { BINS, PARTS, CELL, BLOCK });
  window.asapTiles = Tiles;
})();
