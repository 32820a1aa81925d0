/* The replay of a run.  The trace comes in windows, each with the state before its first event; events are then applied one
   by one.  What is drawn changes only where the state has, so the work of a frame does not depend on the run's length. */
(upl => {
  const {data, state, hooks, keys, $, element, mark, row, groups, titleOf, nameOf} = upl, trace = data.trace;
  if (!trace) return;
  const tagText = tag => `<${tag.map(i => i === null ? '*' : i).join(',')}>`;
  const names = trace.targets.map((name, i) => {
    const at = name.lastIndexOf('.');
    return i >= trace.inputs ? [name, name] : [name.slice(0, at), name.slice(at + 1)];
  });

  /* ---- the state after `at` events ---- */
  const loaded = new Map();
  let at = 0, now = null;
  const windowOf = t => Math.min(Math.floor(Math.max(0, t - 1) / trace.window), trace.chunks.length - 1);
  async function load(number) {
    if (!loaded.has(number)) {
      const text = atob(trace.chunks[number]), bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      const found = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
      loaded.set(number, {found, chunk: null});
      for (const old of loaded.keys()) if (loaded.size > 4 && Math.abs(old - number) > 1) loaded.delete(old);
    }
    const entry = loaded.get(number);
    return entry.chunk = await entry.found;
  }
  function beginning(chunk, number) {
    const begun = {chunk, number, t: chunk.start, source: null, last: null, waiting: chunk.waiting.slice(), fired: chunk.fired.slice(),
      alive: trace.targets.map(() => new Map()), stuck: trace.targets.map(() => 0)};
    for (const a of chunk.alive) arrive(begun, a);
    return begun;
  }
  function arrive(s, token) {
    s.alive[token[1]].set(token[0], token);
    if (token[4]) s.stuck[token[1]]++;
  }
  function apply(s) {
    const e = s.last = s.chunk.events[s.t - s.chunk.start];
    if (e[0] === 'f') {
      s.source = e[1];
      s.fired[e[1]]++;
      for (const [token, target] of e[3]) { s.waiting[target]--; s.alive[target].delete(token); }
    } else {
      s.waiting[e[1]]++;
      if (e[1] < trace.inputs) arrive(s, [s.t, e[1], e[2], e[3], e[4]]);
    }
    s.t++;
  }
  function move(chunk, number) {
    if (!now || now.number !== number || now.t > at) now = beginning(chunk, number);
    while (now.t < at) apply(now);
    draw();
  }
  function seek(t) {
    at = Math.max(0, Math.min(trace.count, t));
    $('time').value = at;
    const number = windowOf(at), entry = loaded.get(number);
    if (entry && entry.chunk) move(entry.chunk, number);
    else load(number).then(chunk => { if (windowOf(at) === number) move(chunk, number); });
    if (number + 1 < trace.chunks.length && at - number * trace.window > trace.window / 2) load(number + 1);
  }
  async function nextFiring(node) {
    stop();
    for (let number = windowOf(at + 1), t = at; number < trace.chunks.length; number++) {
      const chunk = await load(number);
      for (t = Math.max(t, chunk.start); t < chunk.start + chunk.events.length; t++) {
        const e = chunk.events[t - chunk.start];
        if (e[0] === 'f' && e[1] === node) return seek(t + 1);
      }
    }
    $('event').value = `${trace.nodes[node]} does not fire any more`;
  }

  /* ---- drawing: where things stand is looked up once for each picture ---- */
  let frame = 0, told = 0;  // of playing; when the details were told
  let spots = [], boxes = new Map(), arrows = new Map(), badges = [], active = [], chip = null;
  function look() {
    const svg = upl.svg(), overlay = mark('g', {class: 'u-overlay', 'pointer-events': 'none'});
    boxes = new Map(); arrows = new Map(); badges = []; active = [];
    const ovals = new Map();
    for (const g of groups()) {
      if (g.classList.contains('u-box')) {
        boxes.set(g.dataset.name, [...boxes.get(g.dataset.name) || [], g]);
        for (const o of g.querySelectorAll('ellipse')) {
          const key = `${g.dataset.name}.${o.dataset.port}`;
          if (!ovals.has(key)) ovals.set(key, {x: +o.getAttribute('cx') + .72 * o.getAttribute('rx'), y: +o.getAttribute('cy') - +o.getAttribute('ry')});
        }
      } else for (const from of ['', nameOf(g.dataset.source)]) {
        const key = `${from}>${nameOf(g.dataset.target)}.${g.dataset.port}`;
        if (!arrows.has(key)) arrows.set(key, g);
      }
    }
    spots = names.map(([node, port], i) => i < trace.inputs ? ovals.get(`${node}.${port}`) : undefined);
    chip = {box: mark('rect', {class: 'u-chip', height: 20, rx: 10}), text: mark('text', {class: 'u-chip-text'})};
    overlay.append(chip.box, chip.text);
    svg.append(overlay);
  }
  function badge(i) {
    const n = now.waiting[i], stuck = now.stuck[i], text = !n ? '' : stuck ? `${n}!` : String(n), old = badges[i];
    if (!spots[i] || (old ? old.shown : '') === text) return;
    const b = badges[i] = old || {g: mark('g', {}), box: mark('rect', {height: 16, rx: 8}), text: mark('text', {class: 'u-badge-text'})};
    if (!old) b.g.append(b.box, b.text);
    b.shown = text;
    if (!text) return b.g.remove();
    const w = Math.max(18, text.length * 7.2 + 9), {x, y} = spots[i];
    for (const [k, v] of Object.entries({class: stuck ? 'u-badge stuck' : 'u-badge', x: x - w / 2, y: y - 9, width: w})) b.box.setAttribute(k, v);
    b.text.setAttribute('x', x); b.text.setAttribute('y', y + 3);
    b.text.textContent = text;
    if (!b.g.isConnected) chip.box.before(b.g);
  }
  function light(found) {
    for (const g of active) if (!found.includes(g)) g.classList.remove('active');
    for (const g of found) g.classList.add('active');
    active = found;
  }
  function label(arrow, text) {
    const path = arrow && arrow.querySelector('.u-line'), shown = path ? 'inline' : 'none';
    chip.box.setAttribute('display', shown); chip.text.setAttribute('display', shown);
    if (!path) return;
    const p = arrow.middle = arrow.middle || path.getPointAtLength(path.getTotalLength() / 2), w = text.length * 7.3 + 14;
    chip.box.setAttribute('x', p.x - w / 2); chip.box.setAttribute('y', p.y - 34); chip.box.setAttribute('width', w);
    chip.text.setAttribute('x', p.x); chip.text.setAttribute('y', p.y - 20);
    chip.text.textContent = text;
  }
  function line(svg, x) {
    const here = svg.querySelector('.now');
    here.setAttribute('x1', x); here.setAttribute('x2', x);
  }
  function draw() {
    const e = now.last;
    let text = 'before the first event', found = [], arrow = null, on = '';
    if (e && e[0] === 'f') {
      text = `${trace.nodes[e[1]]}${tagText(e[2])} fires`;
      found = boxes.get(trace.nodes[e[1]]) || [];
    } else if (e) {
      const [node, port] = names[e[1]], from = now.source === null ? '' : trace.nodes[now.source];
      on = `${tagText(e[2])} = ${e[3]}`;
      text = `${from} → ${trace.targets[e[1]]}${on}`;
      arrow = arrows.get(`${from}>${node}.${port}`);
      found = arrow ? [arrow] : [];
    }
    light(found);
    label(arrow, on);
    for (let i = 0; i < trace.inputs; i++) badge(i);
    const spot = at ? now.chunk.places[at - 1 - now.chunk.start] : null;
    if (spot) text = `${spot[0] < 0 ? 'host' : `core ${spot[0]}, cycle ${spot[1]}`}   ${text}`;
    if (trace.lanes.length) {
      line($('lanes'), spot ? (spot[1] + .5) / trace.cycles * 400 : 0);
      for (const g of $('lanes').querySelectorAll('.lane')) g.classList.toggle('active', Boolean(spot) && +g.dataset.core === spot[0]);
    }
    $('event').value = `${at} / ${trace.count}   ${text}` + (trace.failed && at === trace.count ? `   ${trace.failed.split('\n')[0]}` : '');
    line($('plot'), trace.count ? at / trace.count * 400 : 0);
    if (state.picked && (!frame || performance.now() - told > 500)) {  // nobody reads a list faster
      told = performance.now();
      upl.describe(state.picked, new Set(upl.related(state.picked)));
    }
  }
  hooks.drawn.push(() => { look(); if (now) draw(); });

  hooks.described.push((g, box) => {
    if (!now || !g.classList.contains('u-box')) return;
    const own = names.flatMap(([node], i) => node === g.dataset.name && i < trace.inputs ? [i] : []);
    const list = element('dl'), node = trace.nodes.indexOf(g.dataset.name), total = own.reduce((n, i) => n + now.waiting[i], 0);
    if (node >= 0) row(list, 'fired', now.fired[node]);
    let left = 40;
    for (const i of own) for (const a of now.alive[i].values()) {
      if (!left--) break;
      row(list, names[i][1], `${tagText(a[2])} = ${a[3]}${a[4] ? '  stuck' : ''}`, a[4] ? 'token stuck' : 'token');
    }
    if (total > 40) row(list, '', `and ${total - 40} more`);
    box.append(element('p', {}, total ? 'Waiting tokens:' : 'No tokens wait.'), list);
    if (node < 0 || g !== state.picked) return;
    const button = element('button', {title: 'Go to its next firing ( f )'}, 'Next firing');
    button.addEventListener('click', () => nextFiring(node));
    box.append(button);
  });

  /* ---- playing ---- */
  function stop() {
    if (!frame) return;
    cancelAnimationFrame(frame);
    frame = 0;
    draw();
    $('play').setAttribute('aria-pressed', 'false');
    $('play').textContent = 'Play';
  }
  function play() {
    if (frame) return stop();
    if (at >= trace.count) seek(0);
    let before = null, exact = at;
    const next = time => {
      const passed = before === null ? 0 : Math.min(time - before, 250);
      before = time;
      if (now && now.t === at) exact += passed * $('speed').value / 1000;  // else its window is still to come
      if (Math.floor(exact) > at) seek(Math.floor(exact));
      if (at >= trace.count) stop(); else frame = requestAnimationFrame(next);
    };
    frame = requestAnimationFrame(next);
    $('play').setAttribute('aria-pressed', 'true');
    $('play').textContent = 'Stop';
  }
  const jump = t => { stop(); seek(t); };
  function drawPlot() {
    const plot = $('plot'), n = trace.overview.length || 1, xs = trace.overview.map((o, i) => (i + .5) / n * 400);
    plot.setAttribute('viewBox', '0 0 400 40');
    const most = Math.max(1, ...trace.overview.map(o => o[0])), top = Math.max(1, ...trace.overview.map(o => o[1]));
    plot.append(
      mark('path', {class: 'waits', d: `M0 40${trace.overview.map((o, i) => `L${xs[i]} ${40 - 38 * o[0] / most}`).join('')}L400 40Z`}),
      mark('polyline', {class: 'fires', points: trace.overview.map((o, i) => `${xs[i]},${40 - 38 * o[1] / top}`).join(' ')}),
      mark('line', {class: 'now', x1: 0, x2: 0, y1: 0, y2: 40}));
    const go = e => { const b = plot.getBoundingClientRect(); jump(Math.round((e.clientX - b.left) / b.width * trace.count)); };
    plot.addEventListener('pointerdown', e => { plot.setPointerCapture(e.pointerId); go(e); });
    plot.addEventListener('pointermove', e => { if (plot.hasPointerCapture(e.pointerId)) go(e); });
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
  function start() {
    $('replay').hidden = false;
    $('time').max = trace.count;
    $('time').addEventListener('input', () => jump(+$('time').value));
    for (const [id, where] of Object.entries({next: () => at + 1, back: () => at - 1, first: () => 0, last: () => trace.count}))
      $(id).addEventListener('click', () => jump(where()));
    $('play').addEventListener('click', play);
    const speeds = [2, 8, 40, 400, 4000, 40000].filter(s => s <= Math.max(400, trace.count / 5));
    $('speed').append(...speeds.map(s => element('option', {value: s}, `${s.toLocaleString('en')}/s`)));
    $('speed').value = speeds.find(s => s >= 8 && trace.count / s <= 60) || speeds[speeds.length - 1];  // a minute at most
    drawPlot();
    drawLanes();
    Object.assign(keys, {
      '.': () => jump(at + 1), ',': () => jump(at - 1), ' ': play, 'Home': () => jump(0), 'End': () => jump(trace.count),
      'f': () => { const n = state.picked ? trace.nodes.indexOf(state.picked.dataset.name) : -1; if (n >= 0) nextFiring(n); },
    });
    seek(0);
  }
  start();
})(upl);
