/* The page of `upl view`: the picture that can be moved, searched and asked, the passes step by step, and the replay. */
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = id => document.getElementById(id);
  const stage = $('stage'), canvas = $('canvas');
  const state = {step: 0, form: 'text', picked: null, x: 0, y: 0, k: 1, t: 0, playing: 0};
  let svg = null;

  function element(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
  }
  function mark(tag, attributes, text) {
    const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    return e;
  }
  const groups = () => svg ? [...svg.querySelectorAll('.u-box, .u-arrow')] : [];
  const titleOf = g => g.querySelector('title').textContent;

  /* ---- moving ---- */
  function place() { canvas.style.transform = `translate(${state.x}px,${state.y}px) scale(${state.k})`; }
  function zoom(factor, cx = stage.clientWidth / 2, cy = stage.clientHeight / 2) {
    const k = Math.min(6, Math.max(.02, state.k * factor));
    state.x = cx - (cx - state.x) * k / state.k;
    state.y = cy - (cy - state.y) * k / state.k;
    state.k = k;
    place();
  }
  function fit() {
    const w = +svg.getAttribute('width'), h = +svg.getAttribute('height');
    state.k = Math.min(stage.clientWidth / w, stage.clientHeight / h, 1.4);
    state.x = (stage.clientWidth - w * state.k) / 2;
    state.y = (stage.clientHeight - h * state.k) / 2;
    place();
  }
  function show(g) {
    const a = g.getBoundingClientRect(), b = stage.getBoundingClientRect();
    if (a.left < b.left || a.right > b.right || a.top < b.top || a.bottom > b.bottom) {
      state.x += b.left + b.width / 2 - (a.left + a.width / 2);
      state.y += b.top + b.height / 2 - (a.top + a.height / 2);
      place();
    }
  }
  stage.addEventListener('wheel', e => {
    e.preventDefault();
    const b = stage.getBoundingClientRect();
    zoom(Math.exp(-e.deltaY * .0015), e.clientX - b.left, e.clientY - b.top);
  }, {passive: false});
  let held = null;
  stage.addEventListener('pointerdown', e => { held = {x: e.clientX - state.x, y: e.clientY - state.y, far: 0}; });
  window.addEventListener('pointermove', e => {
    if (!held) return;
    const x = e.clientX - held.x, y = e.clientY - held.y;
    held.far += Math.abs(x - state.x) + Math.abs(y - state.y);
    if (held.far < 4) return;
    stage.classList.add('held');
    state.x = x; state.y = y;
    place();
  });
  window.addEventListener('pointerup', () => { stage.classList.remove('held'); setTimeout(() => { held = null; }, 0); });

  /* ---- what is selected ---- */
  function related(g) {
    const same = {};
    if (g.classList.contains('u-arrow')) {
      const where = g.dataset.where;
      return groups().filter(o => o === g || where && o.classList.contains('u-arrow') && o.dataset.where === where);
    }
    same[g.dataset.name] = 1;
    if (g.dataset.primal) same[g.dataset.primal] = 1;
    const own = o => same[o.dataset.name] || o.dataset.primal && same[o.dataset.primal];
    return groups().filter(o => o.classList.contains('u-box') && own(o));
  }
  function pick(g) {
    state.picked = g;
    const lit = new Set(g ? related(g) : []);
    for (const o of groups()) o.classList.toggle('lit', lit.has(o));
    svg.classList.toggle('picked', !!g);
    describe(g, lit);
    writeText();
  }
  function row(list, name, value, style) {
    if (value === undefined || value === null || value === '') return;
    list.append(element('dt', {}, name), element('dd', style ? {class: style} : {}, String(value)));
  }
  function sourceLine(where) {
    const found = /^(.*):(\d+):(\d+)$/.exec(where || '');
    const lines = found && data.sources[found[1]];
    return lines ? `${found[2]}: ${(lines[found[2] - 1] || '').trim()}` : '';
  }
  function describe(g, lit) {
    const list = element('dl');
    if (!g) {
      $('detail').replaceChildren(element('p', {}, 'Point at a node or an arrow, or choose one with Tab and Enter. '
        + 'An arrow of the derivative lights up with the arrow that it comes from.'));
      return;
    }
    const [head, ...rest] = titleOf(g).split('\n');
    if (g.classList.contains('u-box')) {
      const facts = data.boxes[g.dataset.name] || {};
      for (const line of rest) if (line !== g.dataset.where) row(list, '', line);
      row(list, 'firings', facts.firings);
      row(list, 'tokens', facts.tokens);
      row(list, 'source', sourceLine(g.dataset.where));
      for (const [kind, status, message] of facts.obligations || [])
        row(list, status, `${kind}${status === 'proved' ? '' : ': ' + message}`, status);
    } else {
      row(list, 'rule', g.dataset.rule);
      row(list, 'source', sourceLine(g.dataset.where));
      const why = data.kept[`${nameOf(g.dataset.source)}>${nameOf(g.dataset.target)}.${g.dataset.port}`];
      row(list, 'kept', why);
      for (const o of lit) if (o !== g)
        row(list, o.dataset.rule ? 'derivative' : 'comes from', titleOf(o).split('\n')[0]);
    }
    $('detail').replaceChildren(element('h2', {}, element('code', {}, head)), list);
    waitingList(g);
  }
  const nameOf = id => { const b = svg.querySelector(`.u-box[data-id="${id}"]`); return b ? b.dataset.name : ''; };

  /* ---- search ---- */
  function search(go) {
    const q = $('search').value.trim().toLowerCase();
    const hits = q ? groups().filter(g => (g.dataset.name || titleOf(g)).toLowerCase().includes(q)) : [];
    const exact = hits.filter(g => (g.dataset.name || '').toLowerCase() === q);
    for (const g of groups()) g.classList.toggle('found', hits.includes(g));
    $('hits').value = q ? `${hits.length} found` : '';
    const first = exact[0] || hits[0];
    if (go && first) { pick(first); show(first); }
  }

  /* ---- steps and texts ---- */
  function writeText() {
    const step = data.steps[state.step], box = $('text');
    if (state.form === 'rules') {
      const body = data.rules.map(r => element('tr', {}, ...r.map(c => element('td', {}, c))));
      const top = element('tr', {}, ...['derivative', 'comes from', 'rule'].map(c => element('th', {}, c)));
      box.replaceChildren(data.rules.length ? element('table', {}, top, ...body) : 'This program has no derivative.');
      return;
    }
    const before = new Set(state.step ? data.steps[state.step - 1][state.form].split('\n') : []);
    const picked = state.picked && state.picked.dataset.name;
    box.replaceChildren(...step[state.form].split('\n').map(line => {
      const classes = ['line'];
      if (state.step && line.trim() && !before.has(line)) classes.push('new');
      if (picked && /^\s*(node|input|output|upl\.)/.test(line) && line.split(/[\s<{@]+/).includes(picked)) classes.push('here');
      return element('span', {class: classes.join(' ')}, line || ' ');
    }));
    const here = box.querySelector('.here');
    if (here) box.scrollTop = here.offsetTop - box.offsetTop - 40;
  }
  function goTo(step) {
    state.step = step;
    for (const b of $('steps').children) b.removeAttribute('aria-current');
    $('steps').children[step].setAttribute('aria-current', 'step');
    const parsed = new DOMParser().parseFromString(data.pictures[data.steps[step].picture], 'image/svg+xml');
    svg = document.importNode(parsed.documentElement, true);
    canvas.replaceChildren(svg);
    for (const g of groups()) {
      g.addEventListener('click', () => { if (!held || held.far < 4) pick(state.picked === g ? null : g); });
      g.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); e.stopPropagation(); pick(state.picked === g ? null : g); } });
      g.addEventListener('pointerenter', () => { if (!state.picked) describe(g, new Set(related(g))); });
      g.addEventListener('focus', () => { show(g); if (!state.picked) describe(g, new Set(related(g))); });
    }
    pick(null);
    search(false);
    fit();
    draw();
  }
  data.steps.forEach((s, i) => {
    const b = element('button', {title: s.note}, s.name);
    b.addEventListener('click', () => { stop(); goTo(i); });
    $('steps').append(b);
  });

  /* ---- replay ---- */
  const trace = data.trace;
  let current = null, wanted = null;
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
  }
  async function seek(t) {
    state.t = Math.max(0, Math.min(trace.count, t));
    $('time').value = state.t;
    wanted = Math.min(Math.floor(Math.max(0, state.t - 1) / trace.window), trace.chunks.length - 1);
    if (!current || current.number !== wanted) {
      const number = wanted, found = await unpack(trace.chunks[number]);
      if (wanted !== number) return;
      current = Object.assign(found, {number});
    }
    draw();
  }
  function replayed() {
    /* The state after `state.t` events: from the beginning of the window on. */
    const waiting = current.waiting.slice(), fired = current.fired.slice();
    const alive = new Map(current.alive.map(a => [a[0], a]));
    let source = null, last = null;
    for (let i = current.start; i < state.t; i++) {
      const e = last = current.events[i - current.start];
      if (e[0] === 'f') {
        source = e[1];
        fired[e[1]]++;
        for (const [token, target] of e[3]) { waiting[target]--; alive.delete(token); }
      } else {
        waiting[e[1]]++;
        if (e[1] < trace.inputs) alive.set(i, [i, e[1], e[2], e[3], e[4]]);
      }
    }
    return {waiting, fired, alive, source, last};
  }
  const tagText = tag => `<${tag.map(i => i === null ? '*' : i).join(',')}>`;
  let now = null;
  function draw() {
    if (!trace || !current || !svg) return;
    now = replayed();
    for (const g of groups()) g.classList.remove('active');
    const old = svg.querySelector('.u-overlay');
    if (old) old.remove();
    const overlay = mark('g', {class: 'u-overlay', 'pointer-events': 'none'});
    svg.append(overlay);
    let text = 'before the first event';
    if (now.last && now.last[0] === 'f') {
      const name = trace.nodes[now.last[1]];
      text = `${name}${tagText(now.last[2])} fires`;
      for (const g of groups()) if (g.dataset.name === name) g.classList.add('active');
    } else if (now.last) {
      const target = trace.targets[now.last[1]], [node, port] = split(now.last[1]);
      const from = now.source === null ? null : trace.nodes[now.source];
      text = `${from || ''} → ${target}${tagText(now.last[2])} = ${now.last[3]}`;
      const arrow = groups().find(g => g.classList.contains('u-arrow') && g.dataset.port === port
        && nameOf(g.dataset.target) === node && (from === null || nameOf(g.dataset.source) === from));
      if (arrow) chip(overlay, arrow, `${tagText(now.last[2])} = ${now.last[3]}`);
    }
    const stuck = new Map();
    for (const a of now.alive.values()) if (a[4]) stuck.set(a[1], (stuck.get(a[1]) || 0) + 1);
    now.waiting.forEach((n, i) => { if (n && i < trace.inputs) badge(overlay, i, n, stuck.get(i)); });
    const spot = state.t ? current.places[state.t - 1 - current.start] : null;
    if (spot) text = `${spot[0] < 0 ? 'host' : `core ${spot[0]}, cycle ${spot[1]}`}   ${text}`;
    if (trace.lanes.length) {
      const x = spot ? (spot[1] + .5) / trace.cycles * 400 : 0, here = $('lanes').querySelector('.now');
      here.setAttribute('x1', x); here.setAttribute('x2', x);
      for (const g of $('lanes').querySelectorAll('.lane')) g.classList.toggle('active', Boolean(spot) && +g.dataset.core === spot[0]);
    }
    $('event').value = `${state.t} / ${trace.count}   ${text}` + (trace.failed && state.t === trace.count ? `   ${trace.failed.split('\n')[0]}` : '');
    const line = $('plot').querySelector('.now');
    const x = trace.count ? state.t / trace.count * 400 : 0;
    line.setAttribute('x1', x); line.setAttribute('x2', x);
    if (state.picked) describe(state.picked, new Set(related(state.picked)));
  }
  function split(target) {
    const name = trace.targets[target];
    if (target >= trace.inputs) return [name, name];
    const at = name.lastIndexOf('.');
    return [name.slice(0, at), name.slice(at + 1)];
  }
  function chip(overlay, arrow, text) {
    arrow.classList.add('active');
    const path = arrow.querySelector('.u-line'), p = path.getPointAtLength(path.getTotalLength() / 2);
    const w = text.length * 7.3 + 14;
    overlay.append(mark('rect', {class: 'u-chip', x: p.x - w / 2, y: p.y - 34, width: w, height: 20, rx: 10}),
      mark('text', {class: 'u-chip-text', x: p.x, y: p.y - 20}, text));
  }
  function badge(overlay, target, n, stuck) {
    const [node, port] = split(target);
    const boxes = groups().filter(g => g.dataset.name === node);
    const oval = boxes.map(g => [...g.querySelectorAll('ellipse')].find(o => o.dataset.port === port)).find(o => o);
    if (!oval) return;
    const text = stuck ? `${n}!` : String(n), w = Math.max(18, text.length * 7.2 + 9);
    const x = +oval.getAttribute('cx') + .72 * oval.getAttribute('rx'), y = +oval.getAttribute('cy') - +oval.getAttribute('ry');
    overlay.append(mark('rect', {class: stuck ? 'u-badge stuck' : 'u-badge', x: x - w / 2, y: y - 9, width: w, height: 16, rx: 8}),
      mark('text', {class: 'u-badge-text', x, y: y + 3}, text));
  }
  function waitingList(g) {
    if (!trace || !now || !g.classList.contains('u-box')) return;
    const own = [...now.alive.values()].filter(a => split(a[1])[0] === g.dataset.name);
    const list = element('dl');
    const at = trace.nodes.indexOf(g.dataset.name);
    if (at >= 0) row(list, 'fired', now.fired[at]);
    for (const a of own.slice(0, 40)) row(list, split(a[1])[1], `${tagText(a[2])} = ${a[3]}${a[4] ? '  stuck' : ''}`, a[4] ? 'token stuck' : 'token');
    if (own.length > 40) row(list, '', `and ${own.length - 40} more`);
    $('detail').append(element('p', {}, own.length ? 'Waiting tokens:' : 'No tokens wait.'), list);
  }
  function stop() {
    clearInterval(state.playing);
    state.playing = 0;
    $('play').setAttribute('aria-pressed', 'false');
    $('play').textContent = 'Play';
  }
  function play() {
    if (state.playing) return stop();
    if (state.t >= trace.count) seek(0);
    const speed = +$('speed').value, tick = Math.max(1, Math.round(speed / 30));
    state.playing = setInterval(() => { if (state.t >= trace.count) stop(); else seek(state.t + tick); }, 1000 * tick / speed);
    $('play').setAttribute('aria-pressed', 'true');
    $('play').textContent = 'Stop';
  }
  function drawLanes() {
    /* A lane for each core of the machine: how many firings in each part of its time. */
    const box = $('lanes'), height = 8, most = Math.max(1, ...trace.lanes.flat());
    if (!trace.lanes.length) return;
    box.removeAttribute('hidden');
    box.setAttribute('viewBox', `0 0 400 ${height * trace.lanes.length}`);
    box.style.height = `${Math.min(160, 14 * trace.lanes.length)}px`;
    trace.lanes.forEach((lane, core) => {
      const g = mark('g', {class: 'lane', 'data-core': core}), w = 400 / lane.length;
      g.append(mark('title', {}, `core ${core}: ${lane.reduce((a, b) => a + b, 0)} firings in ${trace.cycles} cycles`),
        mark('rect', {class: 'ground', x: 0, y: core * height + 1, width: 400, height: height - 2}));
      lane.forEach((n, i) => { if (n) g.append(mark('rect', {class: 'fired', x: i * w, y: core * height + 1, width: w, height: height - 2, 'fill-opacity': .25 + .75 * n / most})); });
      box.append(g);
    });
    box.append(mark('line', {class: 'now', x1: 0, x2: 0, y1: 0, y2: height * trace.lanes.length}));
    box.setAttribute('aria-label', 'firings of each core over the cycles');
  }
  function startReplay() {
    $('replay').hidden = false;
    const time = $('time');
    time.max = trace.count;
    time.addEventListener('input', () => { stop(); seek(+time.value); });
    $('next').addEventListener('click', () => { stop(); seek(state.t + 1); });
    $('back').addEventListener('click', () => { stop(); seek(state.t - 1); });
    $('first').addEventListener('click', () => { stop(); seek(0); });
    $('last').addEventListener('click', () => { stop(); seek(trace.count); });
    $('play').addEventListener('click', play);
    const plot = $('plot'), n = trace.overview.length || 1;
    plot.setAttribute('viewBox', '0 0 400 40');
    const most = Math.max(1, ...trace.overview.map(o => o[0])), top = Math.max(1, ...trace.overview.map(o => o[1]));
    const xs = trace.overview.map((o, i) => (i + .5) / n * 400);
    plot.append(
      mark('path', {class: 'waits', d: `M0 40${trace.overview.map((o, i) => `L${xs[i]} ${40 - 38 * o[0] / most}`).join('')}L400 40Z`}),
      mark('polyline', {class: 'fires', points: trace.overview.map((o, i) => `${xs[i]},${40 - 38 * o[1] / top}`).join(' ')}),
      mark('line', {class: 'now', x1: 0, x2: 0, y1: 0, y2: 40}));
    drawLanes();
    plot.setAttribute('aria-label', 'waiting tokens (area) and firings (line) over the run');
    seek(0);
  }

  /* ---- keys and buttons ---- */
  $('in').addEventListener('click', () => zoom(1.25));
  $('out').addEventListener('click', () => zoom(.8));
  $('fit').addEventListener('click', fit);
  $('search').addEventListener('input', () => search(false));
  $('search').addEventListener('keydown', e => { if (e.key === 'Enter') search(true); });
  function theme(dark) {
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    $('theme').setAttribute('aria-pressed', dark);
  }
  $('theme').addEventListener('click', () => theme(document.documentElement.dataset.theme !== 'dark'));
  for (const b of $('forms').children) b.addEventListener('click', () => {
    state.form = b.dataset.form;
    for (const o of $('forms').children) o.setAttribute('aria-pressed', o === b);
    writeText();
  });
  const keys = {
    '+': () => zoom(1.25), '=': () => zoom(1.25), '-': () => zoom(.8), '0': fit, 'Escape': () => pick(null),
    '/': () => $('search').focus(),
  };
  if (trace) Object.assign(keys, {'.': () => { stop(); seek(state.t + 1); }, ',': () => { stop(); seek(state.t - 1); }, ' ': play});
  const moves = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]};
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.matches('input, select, button');
    if (e.key === 'Escape' || !typing && keys[e.key]) { e.preventDefault(); keys[e.key](); }
    else if (e.target === stage && moves[e.key]) {
      e.preventDefault();
      state.x += moves[e.key][0]; state.y += moves[e.key][1];
      place();
    }
  });
  new ResizeObserver(fit).observe(stage);  // the window, or the footer of a replay, takes or gives room

  theme(window.matchMedia('(prefers-color-scheme: dark)').matches);
  goTo(data.steps.length - 1);
  if (trace) startReplay();
  window.uplReady = true;
})();
