/* Charts read the design tokens, so they follow the theme.  One factory per kind; data comes from a JSON script element.
   <div class="chart h-320" data-chart="roofline" data-src="id" role="img" aria-label="…"></div>
   Tooltips are drawn, not HTML: a strict content policy allows no style attributes. */
"use strict";
(function () {
  const probe = document.createElement("i");
  probe.hidden = true; document.body.append(probe);
  const css = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const FONT = getComputedStyle(document.body).fontFamily;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches || new URLSearchParams(location.search).has("still");
  const NAMES = ["text", "text-2", "text-3", "line", "line-2", "surface", "inset", "hover", "ink", "control", "compute", "hbm", "ici", "ici-2", "ici-3", "dcn", "host", "idle", "measured", "failed", "mem-1", "mem-2", "mem-3", "mem-4", "mem-5"];
  const tokens = () => Object.fromEntries(NAMES.map(name => [name.replace("-", "_"), css(name)]));
  const fmt = n => n === 0 ? "0" : Math.abs(n) >= 100 ? Math.round(n).toLocaleString("en-US") : Math.abs(n) >= 10 ? n.toFixed(1) : Math.abs(n) >= 0.001 ? String(+n.toPrecision(2)) : n.toExponential(1);
  const time = ms => ms >= 10000 ? fmt(ms / 1000) + " s" : ms >= 1 ? fmt(ms) + " ms" : ms >= 0.001 ? fmt(ms * 1000) + " µs" : fmt(ms * 1e6) + " ns";
  /* powers of ten in the axis's own unit: 0.01, 1, 100 */
  const decade = value => value >= 1 ? value.toLocaleString("en-US") : value >= 0.001 ? String(+value.toPrecision(1)) : value.toExponential(0);

  function base(c) {
    return {
      animation: !still, animationDuration: 260, textStyle: { fontFamily: FONT, fontSize: 12, color: c.text_2 },
      aria: { enabled: false },
      tooltip: { renderMode: "richText", confine: true, backgroundColor: c.surface, borderColor: c.line_2, borderWidth: 1, padding: [7, 10], textStyle: { color: c.text, fontSize: 12, lineHeight: 17, rich: { b: { color: c.text, fontWeight: 600, fontSize: 12, lineHeight: 17 } } } }
    };
  }
  const axis = (c, more = {}) => ({ nameLocation: "middle", nameGap: 28, nameTextStyle: { color: c.text_3, fontSize: 11 }, axisLine: { show: true, lineStyle: { color: c.line_2 } }, axisTick: { show: false }, axisLabel: { color: c.text_3, fontSize: 11, hideOverlap: true }, splitLine: { lineStyle: { color: c.line } }, ...more });
  const rich = text => String(text).replace(/[{}|]/g, " ");
  const short = text => text.length > 34 ? text.slice(0, 33) + "…" : text;

  const kinds = {
    /* points: [name, FLOP/byte, TFLOP/s, time, bound, rank], the time in ms per step or percent; peak in TFLOP/s, bw in GB/s, either may be null */
    roofline(d, c, el) {
      const shades = [["Compute", c.compute], ["HBM", c.hbm], ["VMEM", c.ici_3], ["Unknown", c.idle]];
      const colour = bound => (shades.find(([word]) => bound.toLowerCase().includes(word.toLowerCase().split(" ")[0])) || [0, /compute|flops/i.test(bound) ? c.compute : /mem|bandwidth/i.test(bound) ? c.hbm : c.control])[1];
      const groups = [...new Set(d.points.map(point => point[4] || "not reported"))];
      const down = value => 10 ** Math.floor(Math.log10(value)), up = value => 10 ** Math.ceil(Math.log10(value) + 1e-9);
      const xs = d.points.map(point => point[1]), ys = d.points.map(point => point[2]);
      const roof = d.peak && d.bw, ridge = roof ? d.peak * 1000 / d.bw : null;
      const x0 = down(Math.min(...xs, ridge || Infinity)), x1 = up(Math.max(...xs, (ridge || 0) * 3));
      const y1 = up(Math.max(...ys, d.peak || 0)), y0 = Math.max(down(Math.min(...ys)), y1 / 1e7);
      const start = roof ? Math.max(x0, y0 * 1000 / d.bw) : x0;
      const longest = Math.max(...d.points.map(point => point[3]));
      /* names of the longest ops, above or below their dots, as far as they cover neither each other nor the roof */
      const across = value => Math.log(value / x0) / Math.log(x1 / x0), upward = value => Math.log(Math.max(value, y0) / y0) / Math.log(y1 / y0);
      const inner = roof && across(ridge) < .3, taken = !roof ? [] : [inner ? { from: across(ridge), to: across(ridge) + .32, y: upward(d.peak) - .06 } : { from: across(ridge) - .3, to: across(ridge) + .02, y: upward(d.peak) }];
      const roofAt = at => upward(Math.min(d.peak, x0 * (x1 / x0) ** at * d.bw / 1000)), crosses = box => roof && roofAt(box.from) < box.y + .04 && roofAt(box.to) > box.y - .04;
      const places = new Map();
      [...d.points].sort((a, b) => b[3] - a[3]).slice(0, 60).forEach(point => {
        if (point[3] < longest * .1 || places.size >= 7) return;
        const above = (14 + 10.5 * Math.sqrt(point[3] / longest)) / Math.max(el.clientHeight - 70, 1);
        const x = across(point[1]), wide = short(point[0]).length * 5.8 / Math.max(el.clientWidth - 72, 1);
        const aligned = x > .8 ? "right" : "center", back = { right: 1, center: .5, left: 0 };
        for (const [side, align] of [[1, aligned], [-1, aligned], [-1, "left"]]) {
          const from = x - wide * back[align], box = { from, to: from + wide, y: upward(point[2]) + side * above };
          if (places.has(point[5]) || box.y < .03 || box.to > 1.02 || crosses(box) || taken.some(other => other.from < box.to && box.from < other.to && Math.abs(other.y - box.y) < .065)) continue;
          taken.push(box); places.set(point[5], { side, align, at: back[align] });
        }
      });
      const narrow = el.clientWidth < 480;
      const lines = roof ? [{ type: "line", silent: true, symbol: "none", data: [[start, start * d.bw / 1000], [ridge, d.peak], [x1, d.peak]], lineStyle: { color: c.text_3, width: 1.5 }, markPoint: { silent: true, symbol: "circle", symbolSize: 5, itemStyle: { color: c.text }, data: [{ coord: [ridge, d.peak] }], label: { show: true, position: inner ? [8, 10] : "left", distance: 8, color: c.text_2, fontSize: 11, formatter: `ridge ${fmt(ridge)} FLOP/byte` } }, z: 1 }] : [];
      return {
        ...base(c), grid: { left: 54, right: 18, top: 30, bottom: 40 },
        legend: { top: 0, right: 0, itemWidth: 9, itemHeight: 9, icon: "roundRect", textStyle: { color: c.text_2, fontSize: 11 }, data: groups, type: "scroll" },
        tooltip: { ...base(c).tooltip, formatter: p => p.seriesType === "scatter" ? `{b|${rich(short(p.value[2]))}}\n${fmt(p.value[0])} FLOP/byte · ${fmt(p.value[1])} TFLOP/s\n${d.unit === "percent" ? fmt(p.value[3]) + " % of device time" : time(p.value[3]) + " per step"}, bound by ${rich(p.seriesName)}` : "" },
        xAxis: axis(c, { type: "log", min: x0, max: x1, name: "FLOPs per HBM byte (log)", axisLabel: { color: c.text_3, fontSize: 11, hideOverlap: true, formatter: decade } }),
        yAxis: axis(c, { type: "log", min: y0, max: y1, name: "TFLOP/s per core (log)", nameGap: 40, axisLabel: { color: c.text_3, fontSize: 11, hideOverlap: true, formatter: decade } }),
        series: [...lines, ...groups.map(group => ({
          name: group, type: "scatter", cursor: "pointer",
          data: d.points.filter(point => (point[4] || "not reported") === group).map(point => ({ value: [point[1], Math.max(point[2], y0), point[0], point[3], point[5]] })),
          symbolSize: value => 5 + 21 * Math.sqrt(value[3] / longest), itemStyle: { color: colour(group), opacity: .78, borderColor: c.surface, borderWidth: 1 }, emphasis: { itemStyle: { opacity: 1, borderColor: c.text } },
          label: { show: !narrow, distance: 4, fontSize: 10.5, color: c.text_2, textBorderColor: c.surface, textBorderWidth: 3, formatter: p => places.has(p.value[4]) ? short(p.value[2]) : "" },
          labelLayout: p => {
            const place = places.get(d.points.filter(point => (point[4] || "not reported") === group)[p.dataIndex][5]), r = p.rect;
            return place ? { align: place.align, x: r.x + r.width * place.at, y: place.side > 0 ? r.y - 9 : r.y + r.height + 9, verticalAlign: "middle" } : {};
          }
        }))]
      };
    }
  };
  const clicks = {
    roofline(el, point) {
      if (point.seriesType !== "scatter" || !el.dataset.op) return;
      const address = el.dataset.op + point.value[4] + "/";
      if (window.htmx) htmx.ajax("GET", address, { target: "#drawer-body", swap: "innerHTML" }); else location.href = address;
    }
  };

  const live = new Map();
  function draw(el, data) {
    const d = data || JSON.parse(document.getElementById(el.dataset.src).textContent);
    let chart = live.get(el)?.chart;
    if (!chart) {
      chart = echarts.init(el, null, { renderer: el.dataset.renderer || "canvas" });
      new ResizeObserver(() => chart.resize()).observe(el);
      if (clicks[el.dataset.chart]) chart.on("click", point => clicks[el.dataset.chart](el, point));
    }
    live.set(el, { chart, d });
    chart.setOption(kinds[el.dataset.chart](d, tokens(), el), { notMerge: true });
    el.dataset.drawn = "1";
    return chart;
  }
  const redraw = () => live.forEach((value, el) => draw(el, value.d));
  // A folded chart has no size: it is drawn when its fold opens.
  const drawAll = (root = document) => root.querySelectorAll("[data-chart]").forEach(el => { if (el.offsetParent) draw(el); });
  document.addEventListener("toggle", event => { if (event.target.open) drawAll(event.target); }, true);
  drawAll();
  document.addEventListener("htmx:load", event => { if (event.target !== document.body) drawAll(event.target); });
  document.addEventListener("themechange", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Kinds of other scripts come later: `data-plot` becomes `data-chart` once its kind is known.
  function plots(root = document) {
    root.querySelectorAll("[data-plot]:not([data-chart])").forEach(el => { el.dataset.chart = el.dataset.plot; draw(el); });
    if (root === document) document.addEventListener("htmx:load", event => { if (event.target !== document.body) plots(event.target.parentNode || event.target); });
  }
  window.charts = { draw, plots, redraw, kinds, clicks, base, axis, tokens, fmt, time, rich };
})();
