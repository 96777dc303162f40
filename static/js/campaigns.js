/* Charts of a campaign.  points: [number, status, step s, predicted s, low s, high s, cause, values] */
"use strict";
(function () {
  const { kinds, base, axis, plots, time, rich } = window.charts;
  /* more intervals than this would cover one another */
  const MOST_INTERVALS = 80;
  const ms = seconds => seconds >= 1 ? +seconds.toPrecision(3) + " s" : time(seconds * 1000);

  kinds.trajectory = function (d, c) {
    const ran = d.points.filter(point => point[2]), failed = d.points.filter(point => point[1] === "failed");
    const open = d.points.filter(point => !point[2] && point[1] !== "failed" && point[3]);
    const told = d.points.length > MOST_INTERVALS ? [] : d.points.filter(point => point[3] && point[4] && point[5]);
    const named = [...ran.map(point => point[2]), ...told.map(point => point[3]), ...open.map(point => point[3]), ...(d.expert ? [d.expert] : [])];
    /* intervals are followed as far as step times leave room */
    const room = Math.max(Math.max(...named) / Math.min(...named), 1.1) ** 1.5;
    const min = Math.max(Math.min(...named, ...told.map(point => point[4])), Math.min(...named) / room) * .97;
    const max = Math.min(Math.max(...named, ...told.map(point => point[5])), Math.max(...named) * room) * 1.03;
    const low = failed.length ? min / (max / min) ** .1 : min;
    let best = Infinity;
    const better = [], worse = [], line = [];
    ran.forEach(point => {
      (point[2] < best ? better : worse).push(point);
      best = Math.min(best, point[2]);
      line.push([point[0], best]);
    });
    if (line.length) line.push([Math.max(...ran.map(point => point[0]), ...failed.map(point => point[0])), best]);
    const dots = (points, y) => points.map(point => ({ value: [point[0], y(point)], point }));
    const first = ran.find(point => point[0] === 0), is = d.modelled ? "predicted" : "measured";
    const lines = [...(first ? [{ yAxis: first[2], name: "current configuration " + ms(first[2]) }] : []), ...(d.expert ? [{ yAxis: d.expert, name: "hand-tuned " + ms(d.expert), lineStyle: { color: c.host }, label: { position: "insideMiddleTop" } }] : [])];
    const tip = p => {
      const point = p.data && p.data.point;
      if (!point) return "";
      const came = point[1] === "failed" ? point[6] || "failed" : point[2] ? `${ms(point[2])} ${is}` : point[1];
      const before = point[3] && point[4] && point[5] ? `\nbefore the trial ${ms(point[3])} predicted, 80 % interval ${ms(point[4])} to ${ms(point[5])}` : "";
      return `{b|${point[0] ? "Trial " + point[0] : "Current configuration"}}\n${rich(came)}${before}`;
    };
    const bar = (params, api) => {
      const [x, top] = api.coord([api.value(0), Math.min(api.value(2), max)]), bottom = api.coord([api.value(0), Math.max(api.value(1), min)])[1];
      return { type: "rect", shape: { x: x - 3.5, y: top, width: 7, height: bottom - top }, style: { fill: c.line_2 } };
    };
    return {
      ...base(c), animation: false, grid: { left: 62, right: 22, top: 34, bottom: 42 }, tooltip: { ...base(c).tooltip, formatter: tip },
      legend: { top: 0, right: 0, itemWidth: 10, itemHeight: 10, textStyle: { color: c.text_2, fontSize: 11 }, type: "scroll" },
      xAxis: axis(c, { type: "value", name: "trial", minInterval: 1, min: 0, max: Math.max(1, ...d.points.map(point => point[0])) }),
      yAxis: axis(c, { type: "log", min: low, max, name: "step time (log)", nameGap: 46, axisLabel: { color: c.text_3, fontSize: 11, hideOverlap: true, formatter: value => value < min ? "" : ms(value) } }),
      series: [
        ...(told.length ? [
          { type: "custom", name: "predicted, 80 % interval", color: c.line_2, silent: true, renderItem: bar, data: told.map(point => [point[0], point[4], point[5]]) },
          { type: "scatter", name: "predicted, 80 % interval", silent: true, symbol: "rect", symbolSize: [12, 1.5], color: c.text_2, data: dots(told, point => point[3]) }
        ] : []),
        { type: "line", name: "best so far", silent: true, symbol: "none", step: "end", color: c.compute, lineStyle: { width: 2 }, data: line, markLine: { silent: true, symbol: "none", animation: false, data: lines, lineStyle: { color: c.text_2, type: "dashed" }, label: { position: "insideEndTop", formatter: p => p.name, color: c.text_2, fontSize: 11 } } },
        { type: "scatter", name: "new best", color: c.compute, symbolSize: 10, z: 4, data: dots(better, point => point[2]) },
        ...(worse.length ? [{ type: "scatter", name: "not faster", symbolSize: 8, itemStyle: { color: c.surface, borderColor: c.text_3, borderWidth: 1.5 }, data: dots(worse, point => point[2]) }] : []),
        ...(open.length ? [{ type: "scatter", name: "not ended", symbolSize: 8, itemStyle: { color: "transparent", borderColor: c.text_3, borderType: "dashed", borderWidth: 1.5 }, data: dots(open, point => point[3]) }] : []),
        ...(failed.length ? [{ type: "scatter", name: "failed", symbol: "path://M0,0L10,10M10,0L0,10", symbolSize: 8, itemStyle: { color: "transparent", borderColor: c.failed, borderWidth: 2 }, data: dots(failed, () => low * (min / low) ** .4) }] : [])
      ]
    };
  };

  kinds.parallel = function (d, c) {
    const ran = d.points.filter(point => point[2]).sort((a, b) => b[2] - a[2]);
    const look = place => place === ran.length - 1 ? { color: c.compute, width: 2.5, opacity: 1 } : { color: place > .8 * ran.length ? c.text_3 : c.line_2, width: 1, opacity: .7 };
    const shared = { nameTextStyle: { color: c.text_2, fontSize: 11 }, axisLine: { lineStyle: { color: c.line_2 } }, axisTick: { show: false }, axisLabel: { color: c.text, fontSize: 11, hideOverlap: true } };
    const times = ran.map(point => point[2]);
    return {
      ...base(c), animation: false, parallel: { left: 40, right: 60, top: 34, bottom: 18 },
      tooltip: { ...base(c).tooltip, formatter: p => `{b|${rich(p.name)}}` },
      parallelAxis: [
        ...d.names.map((name, dim) => ({ dim, name, type: "category", data: d.values[dim], ...shared })),
        { dim: d.names.length, name: "step time", type: "log", min: Math.min(...times) * .99, max: Math.max(...times) * 1.01, ...shared, axisLabel: { ...shared.axisLabel, formatter: ms } }
      ],
      series: [{ type: "parallel", data: ran.map((point, place) => ({ value: [...point[7], point[2]], name: `trial ${point[0]}: ${ms(point[2])}`, lineStyle: look(place) })) }]
    };
  };
  plots();
})();
