/* Explore: sliders over the sizes an axis may have; the server keeps the product and answers.  Charts of Explore and Accuracy. */
"use strict";
(function () {
  const { kinds, clicks, base, axis, plots, fmt, time, rich } = window.charts;
  const names = (axes, sizes) => axes.map((name, at) => name + " " + sizes[at]).join(" · ");

  /* dots: [GB, ms, sizes, kind] with kind 0 legal, 1 on the front, 2 too large */
  kinds.pareto = function (d, c) {
    const by = kind => d.dots.filter(dot => dot[3] === kind).map(dot => ({ value: [dot[0], dot[1]], sizes: dot[2] }));
    const front = by(1).sort((a, b) => a.value[0] - b.value[0]), dots = [...d.dots, ...(d.yours ? [d.yours] : [])];
    const gb = dots.map(dot => dot[0]), ms = dots.map(dot => dot[1]);
    /* a capacity far beyond all dots would press them together: then it is only named */
    const far = d.cap > 2 * Math.max(...gb), right = far ? Math.max(...gb) * 1.1 : Math.max(d.cap * 1.08, ...gb), left = Math.min(...gb);
    const wide = left < right / 12, long = Math.max(...ms) / Math.min(...ms) > 8, inS = Math.max(...ms) >= 20000;
    const shown = value => Math.round(inS ? value / 1000 : value).toLocaleString("en-US");
    const ticks = { color: c.text_3, fontSize: 11, hideOverlap: true };
    const tip = p => p.data && p.data.sizes ? `{b|${rich(names(d.axes, p.data.sizes))}}\n${time(p.value[1])} · ${fmt(p.value[0])} GB per chip${p.seriesName ? "\n" + p.seriesName : ""}` : "";
    return {
      ...base(c), animation: false, grid: { left: 62, right: 22, top: 22, bottom: 42 }, tooltip: { ...base(c).tooltip, formatter: tip },
      xAxis: axis(c, { type: wide ? "log" : "value", name: "HBM per chip, GB" + (far ? ", of " + fmt(d.cap) : "") + (wide ? " (log)" : ""), scale: true, ...(wide ? { min: left * .9, max: right } : { max: far ? null : Math.ceil(right) }), axisLabel: { ...ticks, formatter: value => fmt(value) } }),
      yAxis: axis(c, { type: long ? "log" : "value", name: "predicted step time, " + (inS ? "s" : "ms") + (long ? " (log)" : ""), nameGap: 46, scale: true, ...(long ? { min: Math.min(...ms) * .9, max: Math.max(...ms) * 1.1 } : {}), axisLabel: { ...ticks, formatter: shown } }),
      series: [
        { type: "line", silent: true, step: "end", symbol: "none", data: front.map(dot => dot.value), lineStyle: { color: c.text_3, type: "dashed", width: 1.2 }, markLine: { silent: true, symbol: "none", animation: false, data: far ? [] : [{ xAxis: d.cap }], lineStyle: { color: c.failed, type: "solid", width: 1.4 }, label: { formatter: d.cap.toFixed(d.cap < 100 ? 1 : 0) + " GB", color: c.failed, fontSize: 11 } } },
        { type: "scatter", name: "does not fit", symbol: "path://M0,0L10,10M10,0L0,10", data: by(2), symbolSize: 7, itemStyle: { color: "transparent", borderColor: c.text_3, borderWidth: 1.2 } },
        { type: "scatter", data: by(0), symbolSize: 9, itemStyle: { color: c.surface, borderColor: c.text_3, borderWidth: 1.4 }, emphasis: { itemStyle: { color: c.text_3 } } },
        { type: "scatter", name: "on the front", data: front, symbolSize: 9, itemStyle: { color: c.text_2, borderColor: c.surface, borderWidth: 1 } },
        { type: "scatter", name: "this mesh", silent: true, z: 5, data: d.yours ? [{ value: [d.yours[0], d.yours[1]], sizes: d.yours[2] }] : [], symbolSize: 15, itemStyle: { color: c.ink, borderColor: c.surface, borderWidth: 2 }, label: { show: true, position: d.yours && d.yours[0] > (left + right) / 2 ? "left" : "right", distance: 6, color: c.text, backgroundColor: c.surface, padding: [1, 3], borderRadius: 3, fontWeight: 600, fontSize: 11, formatter: "this mesh" } }
      ]
    };
  };
  clicks.pareto = function (el, point) {
    const data = JSON.parse(document.getElementById(el.dataset.src).textContent), sizes = point.data && point.data.sizes;
    if (!sizes) return;
    const query = new URLSearchParams(data.query), custom = Object.keys(data.roles).length > 0;
    data.axes.forEach((name, at) => { query.append("ici_name", name); query.append("ici_size", sizes[at]); if (custom) query.append("ici_role", data.roles[name] || ""); });
    take("?" + query);
  };

  /* predicted against measured: points [measured s, estimate s, model, chip, id] */
  kinds.agreement = function (d, c) {
    const all = d.groups.flatMap(group => group.points), values = all.flatMap(point => [point[0], point[1]]);
    const low = Math.min(...values) / 1.3, high = Math.max(...values) * 1.3, line = factor => [[low, low * factor], [high, high * factor]];
    const looks = [{ symbol: "circle", itemStyle: { color: c.text_2, opacity: .75, borderColor: c.surface, borderWidth: .8 } }, { symbol: "diamond", itemStyle: { color: c.surface, borderColor: c.text_2, borderWidth: 1.3 } }];
    const ticks = { color: c.text_3, fontSize: 11, hideOverlap: true, formatter: value => String(+value.toPrecision(2)) };
    return {
      ...base(c), animation: false, grid: { left: 58, right: 18, top: 34, bottom: 42 },
      legend: { top: 0, right: 0, itemWidth: 10, itemHeight: 10, textStyle: { color: c.text_2, fontSize: 11 }, data: d.groups.map(group => group.name) },
      tooltip: { ...base(c).tooltip, formatter: p => p.seriesType === "scatter" ? `{b|${rich(p.data.about[0])} on ${rich(p.data.about[1])}}\npredicted ${fmt(p.value[0])} s · measured ${fmt(p.value[1])} s\nerror ${((p.value[0] / p.value[1] - 1) * 100).toFixed(1).replace("-", "−")} % · ${rich(p.data.about[2])}` : "" },
      xAxis: axis(c, { type: "log", min: low, max: high, name: "predicted step time, s (log)", axisLabel: ticks }),
      yAxis: axis(c, { type: "log", min: low, max: high, name: "measured, s (log)", nameGap: 42, axisLabel: ticks }),
      series: [
        ...[[1, "solid"], [1.1, "dashed"], [1 / 1.1, "dashed"]].map(([factor, type]) => ({ type: "line", silent: true, symbol: "none", data: line(factor), lineStyle: { color: factor === 1 ? c.text_3 : c.line_2, width: factor === 1 ? 1.4 : 1, type } })),
        ...d.groups.map((group, at) => ({ name: group.name, type: "scatter", symbolSize: 8, ...looks[at % 2], data: group.points.map(point => ({ value: [point[1], point[0]], about: point.slice(2) })) }))
      ]
    };
  };

  plots();

  const form = document.getElementById("explore");
  if (!form) return;
  const answer = () => document.getElementById("answer");
  const take = address => htmx.ajax("GET", form.action + address, { target: "#answer", source: form, values: {}, headers: { "X-Take": "1" } });
  const axes = () => [...form.querySelectorAll(".x-axis")];
  const size = row => row.querySelector("[name=ici_size]"), range = row => row.querySelector(".x-range");
  let moved = "";

  function slide(row, stops, value) {
    const slider = range(row);
    if (stops) slider.dataset.stops = stops.join(" ");
    const all = slider.dataset.stops.split(" ").filter(Boolean).map(Number);
    slider.max = Math.max(0, all.length - 1);
    slider.disabled = all.length < 2;
    let at = all.indexOf(Number(value));
    if (at < 0) at = Math.max(0, all.filter(stop => stop <= Number(value)).length - 1);
    if (Number(slider.value) !== at) slider.value = at;
    slider.setAttribute("aria-valuetext", String(all[at] || value));
  }
  const ready = () => axes().forEach(row => slide(row, null, size(row).value));
  ready();

  form.addEventListener("input", event => {
    if (!event.target.matches(".x-range")) return;
    const row = event.target.closest(".x-axis"), stops = event.target.dataset.stops.split(" ");
    size(row).value = stops[event.target.value];
    event.target.setAttribute("aria-valuetext", stops[event.target.value]);
    moved = row.dataset.axis;
    htmx.trigger(form, "explore:live");
  });
  /* in the capture phase: before htmx reads the form */
  form.addEventListener("change", event => {
    const row = event.target.closest(".x-axis");
    moved = row ? row.dataset.axis : "";
  }, true);

  document.addEventListener("htmx:configRequest", event => {
    const detail = event.detail;
    if (detail.elt === form && !detail.headers["X-Take"]) {
      if (moved) detail.parameters.moved = moved;
      const trigger = detail.triggeringEvent && detail.triggeringEvent.type;
      if (trigger !== "explore:live") detail.headers["X-Commit"] = "1";
    } else if (detail.headers["X-Take"]) {
      detail.headers["X-Commit"] = "1";
      for (const name of Object.keys(detail.parameters)) delete detail.parameters[name];
    }
  });

  /* the server's answer moves the other sliders, and says how the list is sorted */
  document.addEventListener("htmx:afterSettle", event => {
    const target = event.detail.target || event.target;
    if (target.id === "answer") apply();
    if (target.id === "answer" || target.id === "meshes") listed();
  });
  function apply() {
    const script = document.getElementById("x-state");
    if (!script) return;
    const state = JSON.parse(script.textContent);
    axes().forEach(row => {
      const value = state.sizes[row.dataset.axis];
      if (value === undefined) return;
      if (document.activeElement !== size(row)) size(row).value = value;
      slide(row, state.stops[row.dataset.axis], value);
    });
    const check = document.getElementById("x-check");
    if (check && state.product) { check.textContent = state.product.text; check.dataset.ok = state.product.ok; }
    const chips = form.querySelector("[name=chips]");
    if (chips) chips.value = state.total || "";
    document.getElementById("x-query").value = state.query;
  }
  function listed() {
    const now = new URLSearchParams(location.search);
    document.getElementById("x-show").value = now.get("show") || "";
    document.getElementById("x-sort").value = now.get("sort") || "";
  }
  document.addEventListener("htmx:pushedIntoHistory", listed);
  document.addEventListener("htmx:oobAfterSwap", event => { if (event.target.id === "x-axes") ready(); });
  answer();
})();
