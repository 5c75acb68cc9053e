//! The read-out: values beneath the pointer, or the arrow keys, in any figure with lines.
//!
//! The page is complete without it. It reads no second copy of the numbers: each panel carries its
//! axes (`data-x`, `data-y`: kind, domain, range, unit) and each line its name, so that values are
//! computed back from the drawn coordinates, to the precision of a tenth of a figure unit.

/// The whole script, inlined into the page.
pub const READOUT: &str = r#"
(() => {
  'use strict';
  const PREFIXES = [[1e15,'P'],[1e12,'T'],[1e9,'G'],[1e6,'M'],[1e3,'k'],[1,''],[1e-3,'m'],
    [1e-6,'µ'],[1e-9,'n']];
  const si = (value, unit) => {
    if (value === 0) return '0 ' + unit;
    const size = Math.abs(value);
    const [factor, prefix] = PREFIXES.find(([f]) => size >= f) || PREFIXES[8];
    return Number((value / factor).toPrecision(3)) + ' ' + prefix + unit;
  };
  const say = (value, unit) => {
    if (unit === '%') return Number((value * 100).toPrecision(3)) + ' %';
    if (unit === 'ns') return si(value / 1e9, 's');
    if (unit === 'count') return value < 1e4 ? String(Number(value.toPrecision(3))) : si(value, '');
    if (unit === 's' && value >= 1) return Number(value.toPrecision(3)) + ' s';
    return si(value, unit);
  };
  const axis = (text) => {
    const [kind, low, high, from, to, unit] = text.split(' ');
    const [l, h, f, t] = [low, high, from, to].map(Number);
    const back = (at) => {
      const share = (at - f) / (t - f);
      return kind === 'log' ? l * Math.pow(h / l, share) : l + share * (h - l);
    };
    return { back, from: f, to: t, unit };
  };
  const points = (path) => Array.from(
    path.getAttribute('d').matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g),
    (m) => [Number(m[1]), Number(m[2])]);
  const at = (list, x) => {
    let best = null;
    for (const p of list) if (best === null || Math.abs(p[0] - x) <= Math.abs(best[0] - x)) best = p;
    return best;
  };
  for (const svg of document.querySelectorAll('figure svg')) {
    const panels = Array.from(svg.querySelectorAll('g.panel'), (g) => ({
      g, x: axis(g.dataset.x), y: axis(g.dataset.y),
      lines: Array.from(g.querySelectorAll('path[data-name]'),
        (path) => ({ name: path.dataset.name, list: points(path) })).filter((l) => l.list.length > 1),
    })).filter((p) => p.lines.length);
    if (!panels.length) continue;
    const out = document.createElement('output');
    out.className = 'read';
    out.setAttribute('aria-live', 'polite');
    out.hidden = true;
    svg.after(out);
    const rule = document.createElementNS(svg.namespaceURI, 'path');
    rule.setAttribute('class', 'cursor');
    svg.append(rule);
    let where = null;
    const show = (panel, x) => {
      where = { panel, x: Math.min(Math.max(x, panel.x.from), panel.x.to) };
      rule.setAttribute('d', 'M' + where.x + ' ' + panel.y.from + 'V' + panel.y.to);
      const parts = panel.lines.filter((l) => {
        const near = at(l.list, where.x);
        return Math.abs(near[0] - where.x) < 40;
      }).map((l) => l.name + ' ' + say(panel.y.back(at(l.list, where.x)[1]), panel.y.unit));
      out.textContent = 'at ' + say(panel.x.back(where.x), panel.x.unit) + ': ' + parts.join(' · ');
      out.hidden = false;
    };
    const hide = () => { out.hidden = true; rule.removeAttribute('d'); where = null; };
    svg.addEventListener('pointermove', (event) => {
      const frame = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / frame.width;
      const [x, y] = [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
      const panel = panels.find((p) => y <= p.y.from + 8 && x <= p.x.to + 20) || panels[panels.length - 1];
      show(panel, x);
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('blur', hide);
    svg.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -6, ArrowRight: 6 }[event.key];
      if (event.key === 'Escape') return hide();
      if (!step) return;
      event.preventDefault();
      const panel = where ? where.panel : panels[0];
      show(panel, where ? where.x + step : (panel.x.from + panel.x.to) / 2);
    });
  }
})();
"#;
