/* The editor of `upl view --edit`.  The server has the text; this page shows its states, and asks for acts on them. */
(upl => {
  const {$, data, state, hooks, keys, element, mark, groups, stage} = upl;
  let now = data.edit;
  const name = g => g && g.classList.contains('u-box') ? g.dataset.name : null;
  const say = (text, bad) => { $('status').value = text; $('status').classList.toggle('bad', Boolean(bad)); };

  /* ---- the server ---- */
  async function asked(path, body) {
    const how = body ? {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)} : {};
    const answer = await fetch(path, how);
    if (!answer.ok) throw new Error(await answer.text());
    const {refused, ...found} = await answer.json();
    if (!refused) return found;
    take(found);
    throw new Error(refused.message + (refused.help ? `\n${refused.help}` : ''));
  }
  let busy = Promise.resolve();
  function act(what, version) {
    /* One after the other; the answer is the state afterwards. */
    const done = busy.then(() => asked('act', {version: version ?? now.version, act: what})).then(found => { take(found); return found; });
    busy = done.catch(() => {});
    return done;
  }
  const quietly = (what, text) => act(what).then(() => { if (text) say(text); }).catch(e => say(e.message, true));
  async function follow() {
    for (;;) {
      try {
        take(await asked(`state?${now.number}`));
      } catch (e) {
        say('the server has ended: start `upl view --edit` again', true);
        await new Promise(on => setTimeout(on, 1000));
      }
    }
  }

  /* ---- a state is shown ---- */
  function take(next) {
    if (next.number < now.number) return;
    const old = now, same = next.picture === old.picture;
    now = next;
    Object.assign(data.steps[0], {text: now.text, ir: now.ir});
    data.boxes = now.boxes;
    if (!same) redraw();
    else if (state.picked) upl.describe(state.picked, new Set(upl.related(state.picked)));
    if (next.number !== old.number || !same) show();
  }
  const keyOf = g => g && (name(g) ? `box ${name(g)}` : `arrow ${g.dataset.id}`);
  const find = key => groups().find(g => keyOf(g) === key);
  function redraw() {
    /* What was chosen stays chosen, and stays in its place on the screen. */
    const chosen = keyOf(state.picked), within = upl.svg().contains(document.activeElement);
    const focused = within ? keyOf(document.activeElement.closest('.u-box, .u-arrow')) : null;
    const before = (find(chosen || focused) || upl.svg()).getBoundingClientRect();
    data.pictures[0] = now.picture;
    upl.goTo(0, true);
    const again = find(chosen), after = (find(chosen || focused) || upl.svg()).getBoundingClientRect();
    state.x += before.x - after.x; state.y += before.y - after.y;
    upl.place();
    if (again) upl.pick(again);
    if (within) (find(focused) || stage).focus();
  }
  function show() {
    for (const [tool, can] of Object.entries({undo: now.undo, redo: now.redo}))
      document.querySelector(`[data-tool="${tool}"]`).disabled = !can;
    upl.canvas.classList.toggle('stale', !now.current);
    const n = now.errors.length;
    say(n ? `${n} error${n > 1 ? 's' : ''}: ${now.errors[0].message}` : now.proving ? 'Saved; proving …' : 'Saved; nothing is refuted', n);
    showErrors();
    flag();
    upl.writeText();
  }
  const at = error => error.on && groups().filter(g => error.on.arrow ? g.dataset.id === error.on.arrow : name(g) === error.on.box);
  function showErrors() {
    const items = now.errors.map((e, number) => {
      const button = element('button', {}, `line ${e.line}: ${e.message}`), item = element('li', {}, button);
      button.addEventListener('click', () => {
        const [g] = at(e) || [];
        if (g) { upl.pick(g); upl.show(g); g.focus(); }
        reveal(e.range);
      });
      for (const more of [e.help && `help: ${e.help}`, ...e.notes.map(n => `note: ${n}`), e.code]) if (more) item.append(element('p', {}, more));
      if (e.help) item.append(mending(number));
      return item;
    });
    $('errors').replaceChildren(...unsaved ? offer() : [], ...items.length ? [element('ul', {'aria-label': 'Errors'}, ...items)] : []);
  }
  function mending(number) {
    /* The edits that the help describes are looked for when somebody asks: each is tried. */
    const box = element('p', {}), ask = element('button', {class: 'mend'}, 'Fix'), version = now.version;
    ask.addEventListener('click', async () => {
      try {
        const {titles} = await asked(`fixes?${version},${number}`);
        const mend = title => act({do: 'mend', error: number, title}, version).then(() => stage.focus()).catch(e => say(e.message, true));
        if (titles.length === 1) return mend(titles[0]);
        box.replaceChildren(...titles.length ? titles.flatMap(title => {
          const button = element('button', {class: 'mend'}, title);
          button.addEventListener('click', () => mend(title));
          return [button, ' '];
        }) : ['no edit follows from the help']);
        if (titles.length) box.firstChild.focus();
      } catch (e) {
        say(e.message, true);
      }
    });
    box.append(ask);
    return box;
  }
  function flag() {
    /* Errors on the picture: by colour, by a sign, and in the name that a screen reader says. */
    for (const g of groups()) {
      g.classList.remove('wrong');
      g.setAttribute('aria-label', upl.label(g));
      for (const old of g.querySelectorAll('.sign')) old.remove();
    }
    for (const e of now.errors) for (const g of at(e) || []) {
      g.setAttribute('aria-label', `${g.getAttribute('aria-label')}; error: ${e.message}`);
      if (g.classList.contains('wrong')) continue;
      g.classList.add('wrong');
      const line = g.querySelector('.u-line'), box = g.getBBox();
      const p = line ? line.getPointAtLength(Math.min(22, line.getTotalLength() / 2)) : {x: box.x + box.width, y: box.y};
      const sign = mark('g', {class: 'sign'});
      sign.append(mark('circle', {class: 'u-wrong', cx: p.x, cy: p.y, r: 9}), mark('text', {class: 'u-wrong-text', x: p.x, y: p.y + 5}, '!'));
      g.append(sign);
    }
  }

  /* ---- the text ---- */
  const code = element('textarea', {id: 'code', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', 'aria-label': 'Text of the program, which can be edited'});
  const shade = element('pre', {id: 'shade', 'aria-hidden': 'true'});
  let typing = 0, mine = now.text;  // what was typed last and is in the file: where there is more, nothing is put over it
  code.value = now.text;
  hooks.texts.text = box => {
    if (code.parentNode !== box) box.replaceChildren(shade, code);
    box.classList.add('code');
    if (code.value === mine) { if (code.value !== now.text) code.value = now.text; mine = now.text; }
    paint();
    const marked = shade.querySelector('mark.here');
    if (marked && document.activeElement !== code) reveal(rangesOf(state.picked)[0]);
  };
  hooks.texts.ir = box => {
    box.classList.remove('code');
    box.replaceChildren(now.ir);
  };
  function rangesOf(g) {
    if (!g) return [];
    return name(g) ? now.places.boxes[name(g)] || [] : [now.places.arrows[g.dataset.id]].filter(Boolean);
  }
  function paint() {
    /* The text once more under what is typed, with what is chosen and what is wrong marked. */
    const text = code.value, cuts = new Set([0, text.length]), known = text === now.text;
    const here = known ? rangesOf(state.picked) : [], wrong = known ? now.errors.map(e => e.range) : [];
    for (const [a, b] of [...here, ...wrong]) { cuts.add(a); cuts.add(b); }
    const ends = [...cuts].sort((a, b) => a - b), within = (list, a) => list.some(r => r[0] <= a && a < r[1]);
    shade.replaceChildren(...ends.slice(1).map((end, i) => {
      const piece = text.slice(ends[i], end), classes = [within(here, ends[i]) && 'here', within(wrong, ends[i]) && 'wrong'].filter(Boolean);
      return classes.length ? element('mark', {class: classes.join(' ')}, piece) : piece;
    }), '\n');
  }
  function reveal(range) {
    if (state.form !== 'text' || !range) return;
    const box = $('text'), span = document.createRange();
    let left = range[0];
    for (const node of shade.childNodes) {
      const inner = node.firstChild || node, n = inner.length || 0;
      if (left <= n) { span.setStart(inner, left); span.collapse(true); break; }
      left -= n;
    }
    const y = span.getBoundingClientRect().top - box.getBoundingClientRect().top;
    if (y < 0 || y > box.clientHeight - 40) box.scrollTop += y - 40;
  }
  let unsaved = '';  // why what is typed here is not in the file
  function offer() {
    const keep = element('button', {}, 'Keep mine'), leave = element('button', {}, 'Take the file\'s');
    keep.addEventListener('click', () => sendText());
    leave.addEventListener('click', () => { unsaved = ''; mine = code.value = now.text; show(); });
    return [element('p', {class: 'refusal', role: 'alert'}, `What you typed is not saved: ${unsaved}`), keep, ' ', leave];
  }
  async function sendText(version) {
    typing = 0;
    const text = code.value;
    if (text === now.text) return;
    const before = unsaved;
    unsaved = '';
    try {
      await act({do: 'type', text}, version);
      mine = text;
      if (before) show();
    } catch (e) {
      unsaved = e.message;
      show();
      say('what you typed is not saved', true);
    }
  }
  let typed = 0;  // the version of the text that somebody began to type in
  code.addEventListener('input', () => {
    if (!typing) typed = now.version;
    clearTimeout(typing);
    typing = setTimeout(() => sendText(typed), 400);
    paint();
  });
  code.addEventListener('blur', () => { if (typing) { clearTimeout(typing); sendText(typed); } });

  /* ---- a text in its place on the picture ---- */
  let open = null;
  function close(back) {
    if (!open) return;
    const key = open.key;
    open.form.remove();
    open = null;
    if (back) (find(key) || stage).focus();
  }
  function editInPlace(g) {
    close(false);
    if (!g) return say('choose a node or an arrow first');
    upl.tab('picture');
    const arrow = !name(g), what = arrow ? `Arrow of ${upl.nameOf(g.dataset.source)}` : `${g.dataset.kind === 'lone' ? 'node' : g.dataset.kind} ${name(g)}`;
    const form = element('form', {class: 'own', role: 'dialog', 'aria-label': what}), refusal = element('output', {class: 'refusal', role: 'alert'});
    const texts = rangesOf(g).map(([a, b]) => now.text.slice(a, b)), boxes = texts.map((text, i) => {
      const lines = text.split('\n'), rows = Math.min(16, lines.length + (arrow ? 0 : 1));
      const area = element('textarea', {rows, spellcheck: 'false', autocomplete: 'off', 'aria-label': `Text of ${what}${texts.length > 1 ? `, block ${i + 1}` : ''}`});
      area.cols = Math.min(72, Math.max(24, ...lines.map(l => l.length + 2)));
      area.value = text;
      return area;
    });
    if (!boxes.length) return say('this is not in the text any more', true);
    const cancel = element('button', {type: 'button'}, 'Cancel'), apply = element('button', {title: arrow ? 'Enter' : 'Ctrl+Enter'}, 'Apply');
    form.append(element('h2', {}, what), ...boxes, refusal, element('p', {class: 'buttons'}, cancel, apply));
    stage.append(form);
    open = {key: keyOf(g), form, version: now.version};
    const r = g.getBoundingClientRect(), s = stage.getBoundingClientRect();
    const x = arrow ? r.left - s.left + r.width / 2 - form.offsetWidth / 2 : r.left - s.left, y = r.top - s.top + Math.min(r.height / 2, 40);
    form.style.left = `${Math.max(6, Math.min(x, s.width - form.offsetWidth - 6))}px`;
    form.style.top = `${Math.max(6, Math.min(y, s.height - form.offsetHeight - 6))}px`;
    cancel.addEventListener('click', () => close(true));
    form.addEventListener('submit', async e => {
      e.preventDefault();
      const own = open;
      try {
        for (const [block, area] of boxes.entries()) {
          if (area.value.trim() === texts[block].trim()) continue;
          const where = arrow ? {arrow: g.dataset.id} : {box: name(g), block};
          await act({do: 'rewrite', text: area.value, ...where}, own.version);
          own.version = now.version;
          texts[block] = area.value;
        }
        if (open === own) close(true);
      } catch (problem) {
        refusal.value = problem.message;
        own.version = now.version;  // who has read the message may do it all the same
      }
    });
    form.addEventListener('keydown', e => {
      if (e.key === 'Escape') { e.preventDefault(); e.stopPropagation(); close(true); }
      else if (e.key === 'Enter' && e.target.matches('textarea') && (e.ctrlKey || e.metaKey || arrow && !e.shiftKey)) { e.preventDefault(); form.requestSubmit(); }
    });
    boxes[0].focus();
    if (arrow) boxes[0].select(); else boxes[0].setSelectionRange(texts[0].length, texts[0].length);
  }

  /* ---- dialogs ---- */
  const chosen = () => {
    const g = document.activeElement && document.activeElement.closest('.u-box, .u-arrow');
    return g || state.picked;
  };
  function dialog(id, submit) {
    const box = $(id), form = box.querySelector('form'), refusal = box.querySelector('.refusal');
    box.querySelector('.cancel').addEventListener('click', () => box.close());
    form.addEventListener('submit', async e => {
      e.preventDefault();
      try {
        const then = await submit(form.elements);
        box.close();
        if (then) then();
      } catch (problem) {
        refusal.value = problem.message;
      }
    });
    form.addEventListener('keydown', e => {
      if (e.key === 'Enter' && e.target.matches('select')) { e.preventDefault(); form.requestSubmit(); }
    });
    box.addEventListener('close', () => { refusal.value = ''; });
    return {box, fields: form.elements};
  }
  const options = list => list.map(([value, text]) => element('option', {value}, text));
  const choose = key => () => { const g = find(key); if (g) { upl.pick(g); g.focus(); } else stage.focus(); };

  const adding = dialog('adding', async f => {
    const kind = f.kind.value, after = now.names[name(state.picked)] ? name(state.picked) : null;
    const inputs = kind === 'node' ? f.inputs.value : '';
    await act({do: 'add', kind, name: f.name.value, fields: f.fields.value, inputs, domain: f.domain.value, after});
    return choose(`box ${f.name.value.trim()}`);
  });
  adding.fields.kind.addEventListener('change', () => { document.querySelector('[data-for="node"]').hidden = adding.fields.kind.value !== 'node'; });

  async function draw(source, target, port) {
    const found = await act({do: 'draw', source, target, port});
    const made = Object.entries(now.places.arrows).find(([, [start]]) => start === found.made);
    if (!made || !now.current) return choose(`box ${source}`);
    return () => { choose(`arrow ${made[0]}`)(); editInPlace(find(`arrow ${made[0]}`)); };
  }
  const drawing = dialog('drawing', f => draw(f.source.value, ...JSON.parse(f.target.value)));
  function openDrawing(from) {
    const all = Object.entries(now.names), goals = all.flatMap(([n, s]) =>
      s.kind === 'host output' ? [[n, null]] : s.kind === 'node' ? s.inputs.map(i => [n, i]) : []);
    drawing.fields.source.replaceChildren(...options(all.filter(([, s]) => s.kind !== 'host output').map(([n]) => [n, n])));
    if (from && now.names[from] && now.names[from].kind !== 'host output') drawing.fields.source.value = from;
    drawing.fields.target.replaceChildren(...options(goals.map(([n, p]) => [JSON.stringify([n, p]), p ? `${n}.${p}` : n])));
    drawing.box.showModal();
    (from ? drawing.fields.target : drawing.fields.source).focus();
  }

  const renaming = dialog('renaming', async f => {
    const [of, old] = JSON.parse(f.what.value), next = f.new.value.trim(), picked = keyOf(state.picked);
    await act({do: 'rename', of, name: old, new: next});
    return choose(of ? picked : `box ${next}`);
  });
  function openRenaming(g) {
    const n = name(g), s = now.names[n];
    if (!s) return say('choose a node or a host port first');
    renaming.fields.what.replaceChildren(...options([[JSON.stringify(['', n]), `${s.kind} ${n}`],
      ...s.variables.map(v => [JSON.stringify([n, v]), `${s.fields.includes(v) ? 'index field' : s.inputs.includes(v) ? 'input' : 'variable'} ${v}`])]));
    renaming.fields.new.value = n;
    renaming.box.showModal();
    renaming.fields.new.select();
  }
  renaming.fields.what.addEventListener('change', () => { renaming.fields.new.value = JSON.parse(renaming.fields.what.value)[1]; });

  function remove(g) {
    if (!g) return say('choose a node or an arrow first');
    const where = name(g) ? {box: name(g)} : {arrow: g.dataset.id}, next = name(g) ? null : `box ${upl.nameOf(g.dataset.source)}`;
    act({do: 'delete', ...where}).then(() => { choose(next)(); say('Deleted; Ctrl+Z brings it back'); }).catch(e => say(e.message, true));
  }

  /* ---- an arrow by dragging the handle of a node ---- */
  let handle = null, rubber = null;
  const inside = e => { const m = upl.svg().getScreenCTM().inverse(); return new DOMPoint(e.clientX, e.clientY).matrixTransform(m); };
  function offerHandle(g) {
    if (rubber) return;
    if (handle) handle.remove();
    handle = null;
    if (!name(g) || g.dataset.kind === 'output') return;
    const shape = [...g.querySelectorAll('rect, polygon, ellipse')][0].getBBox();
    handle = mark('circle', {class: 'u-handle own', cx: shape.x + shape.width, cy: shape.y + 8, r: 8, 'data-from': name(g)});
    handle.append(mark('title', {}, 'drag to draw an arrow'));
    upl.svg().append(handle);
    handle.addEventListener('pointerdown', e => {
      const held = handle, p = inside(e);
      e.preventDefault();
      held.setPointerCapture(e.pointerId);
      rubber = mark('path', {class: 'u-rubber'});
      upl.svg().append(rubber);
      const over = event => {
        const g = document.elementsFromPoint(event.clientX, event.clientY).map(o => o.closest('.u-box')).find(o => o);
        return g && g.dataset.kind !== 'input' ? g : null;
      };
      const drag = event => {
        const q = inside(event), g = over(event);
        rubber.setAttribute('d', `M${p.x} ${p.y}L${q.x} ${q.y}`);
        for (const o of groups()) o.classList.toggle('goal', o === g);
      };
      const drop = event => {
        const g = over(event), q = inside(event);
        for (const o of groups()) o.classList.remove('goal');
        rubber.remove();
        rubber = null;
        held.removeEventListener('pointermove', drag);
        if (event.type !== 'pointerup' || !g) return;
        const far = o => Math.hypot(o.cx.baseVal.value - q.x, o.cy.baseVal.value - q.y);
        const [oval] = [...g.querySelectorAll('ellipse')].sort((a, b) => far(a) - far(b));
        draw(held.dataset.from, name(g), oval ? oval.dataset.port : null).then(then => then()).catch(x => say(x.message, true));
      };
      held.addEventListener('pointermove', drag);
      held.addEventListener('pointerup', drop, {once: true});
      held.addEventListener('pointercancel', drop, {once: true});
    });
  }
  hooks.drawn.push(() => {
    handle = null;
    for (const g of groups()) {
      g.addEventListener('pointerenter', () => offerHandle(g));
      g.addEventListener('focus', () => offerHandle(g));
      g.addEventListener('dblclick', () => { upl.pick(g); editInPlace(g); });
    }
    flag();
  });

  /* ---- tools and keys ---- */
  const tools = {
    add: () => { adding.box.showModal(); adding.fields.name.select(); },
    draw: () => openDrawing(name(chosen())), edit: () => editInPlace(chosen()), rename: () => openRenaming(chosen()),
    delete: () => remove(chosen()), undo: () => quietly({do: 'undo'}), redo: () => quietly({do: 'redo'}),
    help: () => $('help').showModal(),
  };
  for (const b of document.querySelectorAll('[data-tool]')) {
    b.addEventListener('pointerdown', e => e.preventDefault());  // what is focused in the picture stays so
    b.addEventListener('click', () => tools[b.dataset.tool]());
  }
  Object.assign(keys, {n: tools.add, a: tools.draw, e: tools.edit, F2: tools.edit, r: tools.rename, Delete: tools.delete,
    Backspace: tools.delete, '?': tools.help, t: () => { upl.tab('text'); code.focus(); }});
  document.addEventListener('keydown', e => {
    if (!(e.ctrlKey || e.metaKey) || e.target.closest('textarea, input, dialog')) return;
    const key = e.key.toLowerCase(), tool = key === 'z' ? (e.shiftKey ? 'redo' : 'undo') : key === 'y' ? 'redo' : null;
    if (tool) { e.preventDefault(); tools[tool](); }
  });
  const told = [['Tab, Shift+Tab', 'to the next node or arrow, and back'], ['→ ←', 'from a node along its arrow to the next node, and back'],
    ['↓ ↑', 'among nodes, or among the arrows of one node'], ['Enter', 'choose, or choose no more'], ['n', 'add a node or a host port'],
    ['a', 'draw an arrow from what is chosen'], ['e, F2', 'edit the text of what is chosen, in its place'],
    ['Enter, Ctrl+Enter', 'in that text: apply it (an arrow, a node)'], ['r', 'rename'], ['Delete', 'delete what is chosen'],
    ['Ctrl+Z, Ctrl+Shift+Z', 'undo, redo'], ['t', 'to the text'], ['/', 'search'], ['+ - 0', 'zoom in, zoom out, show all'],
    ['Esc', 'leave, choose nothing'], ['?', 'this list']];
  $('keys').append(...told.flatMap(([k, what]) => [element('dt', {}, k), element('dd', {}, what)]));

  $('detail').before(element('section', {id: 'errors', 'aria-label': 'What is wrong', tabindex: '-1'}));
  const begin = upl.begin;
  upl.begin = () => { begin(); show(); follow(); };
})(upl);
