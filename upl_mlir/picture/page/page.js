/* The page of `upl view`: the picture that can be moved, searched and asked, and the passes step by step.  What it returns,
   `replay.js` and `edit.js` use. */
'use strict';
const upl = (() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = id => document.getElementById(id);
  const stage = $('stage'), canvas = $('canvas');
  const state = {step: 0, form: 'text', picked: null, x: 0, y: 0, k: 1};
  const hooks = {drawn: [], described: [], texts: {}, labels: []};  // what other files do when this one has done something
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
    if (!stage.clientWidth) return;  // another tab is shown
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
  /* One pointer moves the picture; two zoom it, and move it with what is between them. */
  let held = null;
  const touching = new Map();
  function between() {
    const [a, b] = [...touching.values()], r = stage.getBoundingClientRect();
    return {x: (a.x + b.x) / 2 - r.left, y: (a.y + b.y) / 2 - r.top, apart: Math.hypot(a.x - b.x, a.y - b.y)};
  }
  function grip() {
    const first = [...touching.values()][0];
    held = first ? {x: first.x - state.x, y: first.y - state.y, far: held ? held.far : 0} : null;
  }
  stage.addEventListener('pointerdown', e => {
    if (e.target.closest('.own')) return;
    if (!touching.size) held = null;
    touching.set(e.pointerId, {x: e.clientX, y: e.clientY});
    grip();
  });
  window.addEventListener('pointermove', e => {
    if (!held || !touching.has(e.pointerId)) return;
    const two = touching.size === 2, was = two && between();
    touching.set(e.pointerId, {x: e.clientX, y: e.clientY});
    if (two) {
      const now = between();
      state.x += now.x - was.x; state.y += now.y - was.y;
      zoom(now.apart / Math.max(1, was.apart), now.x, now.y);
      held.far = 9;
      return;
    }
    const x = e.clientX - held.x, y = e.clientY - held.y;
    held.far += Math.abs(x - state.x) + Math.abs(y - state.y);
    if (held.far < 4) return;
    stage.classList.add('held');
    state.x = x; state.y = y;
    place();
  });
  for (const end of ['pointerup', 'pointercancel']) window.addEventListener(end, e => {
    if (!touching.delete(e.pointerId)) return;
    if (touching.size) return grip();
    stage.classList.remove('held');
    setTimeout(() => { if (!touching.size) held = null; }, 0);
  });

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
      $('detail').replaceChildren(element('p', {}, 'Point at a node or an arrow, or choose one with Tab and Enter. ' + (data.edit
        ? 'A double click or the key e edits its text; the key ? lists all keys.'
        : 'An arrow of the derivative lights up with the arrow that it comes from.')));
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
    for (const more of hooks.described) more(g, $('detail'));
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
    if (hooks.texts[state.form]) return hooks.texts[state.form](box);
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
  function label(g) {
    const [head, ...rest] = titleOf(g).split('\n');
    return (g.classList.contains('u-arrow') ? 'arrow from ' : '') + [head, ...rest].join('; ');
  }
  function goTo(step, stay = false) {
    state.step = step;
    for (const b of $('steps').children) b.removeAttribute('aria-current');
    $('steps').children[step].setAttribute('aria-current', 'step');
    const parsed = new DOMParser().parseFromString(data.pictures[data.steps[step].picture], 'image/svg+xml');
    svg = document.importNode(parsed.documentElement, true);
    svg.setAttribute('role', 'group');  // a picture that is one image hides its parts from a screen reader
    canvas.replaceChildren(svg);
    for (const g of groups()) {
      g.setAttribute('role', 'button');
      g.setAttribute('aria-label', label(g));
      g.addEventListener('click', () => { if (!held || held.far < 4) pick(state.picked === g ? null : g); });
      g.addEventListener('keydown', e => {
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        if (e.key === 'Enter' || e.key === ' ') pick(state.picked === g ? null : g);
        else if (!walk(g, e.key)) return;
        e.preventDefault();
        e.stopPropagation();
      });
      g.addEventListener('pointerenter', () => { if (!state.picked) describe(g, new Set(related(g))); });
      g.addEventListener('focus', () => { show(g); if (!state.picked) describe(g, new Set(related(g))); });
    }
    pick(null);
    search(false);
    if (!stay) fit();
    for (const more of hooks.drawn) more();
  }
  function walk(g, key) {
    /* With the arrow keys from a node along its arrows, and up and down among nodes, or arrows of one node. */
    if (!moves[key]) return false;
    const all = groups(), boxes = all.filter(o => o.classList.contains('u-box')), arrows = all.filter(o => o.classList.contains('u-arrow'));
    const box = id => boxes.find(b => b.dataset.id === id), along = key === 'ArrowRight';
    let next = null;
    if (key === 'ArrowUp' || key === 'ArrowDown') {
      const ring = g.classList.contains('u-box') ? boxes : arrows.filter(a => a.dataset.source === g.dataset.source);
      next = ring[(ring.indexOf(g) + (key === 'ArrowDown' ? 1 : ring.length - 1)) % ring.length];
    } else if (g.classList.contains('u-arrow')) next = box(along ? g.dataset.target : g.dataset.source);
    else next = arrows.find(a => (along ? a.dataset.source : a.dataset.target) === g.dataset.id);
    if (next) next.focus();
    return true;
  }
  data.steps.forEach((s, i) => {
    const b = element('button', {title: s.note}, s.name);
    b.addEventListener('click', () => goTo(i));
    $('steps').append(b);
  });
  $('steps').hidden = data.steps.length < 2;

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
  const moves = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]};
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target.closest('dialog, .own')) return;
    if (e.target.id === 'text' && ['Home', 'End', ' '].includes(e.key)) return;  // they scroll it
    const typing = e.target.matches('input, select, button, textarea');
    if (e.key === 'Escape' || !typing && keys[e.key]) { e.preventDefault(); keys[e.key](); }
    else if (e.target === stage && moves[e.key]) {
      e.preventDefault();
      state.x += moves[e.key][0]; state.y += moves[e.key][1];
      place();
    }
  });
  new ResizeObserver(fit).observe(stage);  // the window, or the footer of a replay, takes or gives room

  /* ---- a narrow window shows one of these at a time ---- */
  function tab(name) {
    document.body.dataset.tab = name;
    for (const b of $('tabs').children) b.setAttribute('aria-selected', b.dataset.tab === name);
    if (name === 'text') writeText();
  }
  for (const b of $('tabs').children) b.addEventListener('click', () => tab(b.dataset.tab));
  tab('picture');

  theme(window.matchMedia('(prefers-color-scheme: dark)').matches);
  return {
    data, state, stage, canvas, hooks, keys, $, element, mark, row, groups, titleOf, nameOf, related, label, pick, describe, show, place,
    fit, goTo, writeText, tab, svg: () => svg, begin() { goTo(data.steps.length - 1); window.uplReady = true; },
  };
})();
