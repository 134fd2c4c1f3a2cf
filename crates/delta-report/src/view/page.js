// The page of `delta view`. All text of a run becomes text nodes; data never becomes markup.

const $ = id => document.getElementById(id);
const data = JSON.parse($('data').textContent);
$('data').remove();

// ---- making elements --------------------------------------------------------------------------------------------

function h(tag, props, ...inside) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') el.className = value;
    else if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? '' : value);
  }
  put(el, inside);
  return el;
}
function put(el, inside) {
  for (const one of inside.flat(Infinity)) {
    if (one === undefined || one === null || one === false || one === '') continue;
    el.append(one instanceof Node ? one : textNode(String(one)));
  }
}
function svg(tag, props) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in props) el.setAttribute(name, props[name]);
  return el;
}

// Control characters, bidirectional controls and invisible characters are shown by name; colours are applied.
const ODD = /\x1b\[[0-9;:]*m|\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/;
function textNode(text) {
  if (!CONTROL.test(text)) return document.createTextNode(text);
  const out = document.createDocumentFragment();
  let at = 0, style = new Set();
  const add = piece => {
    if (!piece) return;
    if (!style.size) return out.append(piece);
    const span = document.createElement('span');
    span.className = [...style].join(' ');
    span.append(piece);
    out.append(span);
  };
  for (const found of text.matchAll(ODD)) {
    add(text.slice(at, found.index));
    at = found.index + found[0].length;
    const odd = found[0];
    if (odd === '\r\n') add('\n');
    else if (odd.length > 2) style = applySgr(style, odd.slice(2, -1));
    else {
      const code = odd.codePointAt(0);
      const name = 'U+' + code.toString(16).toUpperCase().padStart(4, '0');
      const span = document.createElement('span');
      span.className = 'odd';
      span.title = name;
      span.textContent = code < 32 ? '^' + String.fromCharCode(64 + code) : code === 127 ? '^?' : name;
      out.append(span);
    }
  }
  add(text.slice(at));
  return out;
}
function applySgr(style, parameters) {
  const next = new Set(style), codes = parameters.split(/[;:]/).map(Number);
  const colour = n => { for (const c of [...next]) if (c[0] === 'c') next.delete(c); if (n !== undefined) next.add('c' + n); };
  for (let i = 0; i < codes.length; i++) {
    const n = codes[i];
    if (n === 0) next.clear();
    else if (n >= 1 && n <= 4) next.add('g' + n);
    else if (n === 22) { next.delete('g1'); next.delete('g2'); }
    else if (n === 23 || n === 24) next.delete('g' + (n - 20));
    else if (n >= 30 && n <= 37) colour(n - 30);
    else if (n >= 90 && n <= 97) colour(n - 82);
    else if (n === 39) colour();
    else if (n === 38 || n === 48) i += codes[i + 1] === 5 ? 2 : 4;
  }
  return next;
}

// ---- numbers and words ------------------------------------------------------------------------------------------

const round = (n, digits) => n.toLocaleString('en', {maximumFractionDigits: digits});
const count = n => n < 10000 ? round(n, 0) : n < 1e6 ? round(n / 1e3, n < 1e5 ? 1 : 0) + 'k' : round(n / 1e6, 2) + 'M';
const bytes = n => n < 1024 ? n + ' B' : n < 1048576 ? round(n / 1024, 1) + ' KiB' : round(n / 1048576, 1) + ' MiB';
const usd = n => '$' + (n === 0 ? '0' : n < 0.01 ? n.toPrecision(2) : n < 1 ? n.toFixed(4) : n.toFixed(2));
const pad = n => String(n).padStart(2, '0');
function span(ms) {
  if (ms < 1000) return Math.round(ms) + ' ms';
  const s = ms / 1000;
  if (s < 60) return round(s, 1) + ' s';
  const m = Math.floor(s / 60);
  return m < 60 ? m + ' min ' + pad(Math.floor(s % 60)) + ' s' : Math.floor(m / 60) + ' h ' + pad(m % 60) + ' min';
}
const plural = (n, word) => round(n, 0) + ' ' + word + (n === 1 ? '' : 's');
const clock = at => at ? at.slice(0, 10) + ' ' + at.slice(11, 19) + ' UTC' : '';
const moment = at => at && h('span', {class: 'when', title: at}, clock(at));
const json = value => JSON.stringify(value, null, 2);
const asText = value => typeof value === 'string' ? value : json(value);
const word = text => text !== '' && /^[A-Za-z0-9/._\-+:@%,=]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
const parsed = text => { try { return JSON.parse(text); } catch { return undefined; } };
const HOOK_SUBJECTS = {pre_llm_request: 'request', post_llm_response: 'response', pre_tool_execution: 'arguments', post_tool_execution: 'observation'};
// The value of an argument on one line: a string is quoted where its end or its type would be unclear, line ends as ⏎.
function quoted(value, most) {
  if (typeof value !== 'string') { const line = JSON.stringify(value); return line.length > most ? line.slice(0, most) + '…' : line; }
  const line = value.slice(0, most).replace(/\r\n|[\r\n]/g, '⏎') + (value.length > most ? '…' : '');
  return /^[^\s="⏎]+$/.test(line) && parsed(line) === undefined ? line : '"' + line.replaceAll('"', '\\"') + '"';
}
const oneLine = (text, most) => { const line = text.replace(/\s+/g, ' ').trim(); return line.length > most ? line.slice(0, most) + '…' : line; };

function copyButton(text, label) {
  return h('button', {type: 'button', onclick: async event => {
    event.preventDefault();
    const button = event.currentTarget, whole = typeof text === 'function' ? text() : text;
    try { await navigator.clipboard.writeText(whole); } catch {
      const area = h('textarea');
      area.value = whole;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    const before = button.textContent;
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = before; }, 1200);
  }}, label || 'copy');
}

// Splits Markdown at its code fences, which get an element of their own with the fences in it.
function fenced(whole) {
  const pieces = [];
  let from = 0, begin = 0, fence = null;
  for (const line of whole.matchAll(/^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/gm)) {
    const [all, mark, info] = line;
    if (fence === null) {
      if (mark[0] === '`' && info.includes('`')) continue;
      [fence, begin] = [mark, line.index];
    } else if (mark[0] === fence[0] && mark.length >= fence.length && !info.trim()) {
      const end = line.index + all.length;
      pieces.push(whole.slice(from, begin), h('span', {class: 'fenced'}, whole.slice(begin, end)));
      [from, fence] = [end, null];
    }
  }
  if (fence !== null) return [...pieces, whole.slice(from, begin), h('span', {class: 'fenced'}, whole.slice(begin))];
  return [...pieces, whole.slice(from)];
}
// A text of the run: whole, or its first lines with a button for the rest. `cut` is a string or {text, tail, bytes, ...}.
function text(cut, {lines = 16, tail = 0, prose = false, plain = false} = {}) {
  if (typeof cut === 'string') cut = {text: cut};
  const drawn = piece => prose ? fenced(piece) : [piece];
  const box = h('div', {class: 'text'}), pre = h('pre', {class: 't'});
  box.append(pre);
  const whole = () => {
    pre.replaceChildren();
    put(pre, drawn(cut.text));
    if (cut.tail !== undefined) {
      const left = cut.bytes - new Blob([cut.text + cut.tail]).size;
      pre.append(h('span', {class: 'left-out'}, '… ' + bytes(Math.max(left, 0)) + ' left out' + (cut.file ? '; see ' + cut.file : '')), textNode(cut.tail));
    }
  };
  const all = cut.text.split('\n', lines + tail + 3);
  const long = cut.tail !== undefined || all.length > lines + tail + 2 || cut.text.length > lines * 240;
  if (!long) whole();
  else {
    let head = all.slice(0, lines).join('\n'), end = '';
    if (head.length > lines * 240) head = head.slice(0, lines * 240);
    if (tail) end = (cut.tail ?? cut.text.slice(head.length)).trimEnd().split('\n').slice(-tail).join('\n').slice(-tail * 240);
    put(pre, drawn(head));
    if (end) pre.append('\n…\n', textNode(end)); else pre.append(' …');
    const size = cut.bytes || new Blob([cut.text]).size;
    const number = cut.text.split('\n').length;
    const button = h('button', {type: 'button', class: 'all', onclick: () => { whole(); button.remove(); }}, 'show all · ' + (number > 1 && cut.tail === undefined ? plural(number, 'line') + ' · ' : '') + bytes(size));
    box.append(button);
  }
  if (cut.note && !plain) box.append(h('div', {class: 'row warn'}, cut.note));
  return box;
}
const part = (caption, inside, ...details) => h('div', {class: 'part'}, h('div', {class: 'cap'}, h('span', {}, caption), ...details), inside);
const fold = (caption, fill, props) => {
  const more = h('div', {class: 'more'});
  const box = h('details', {class: 'fold', ...props, ontoggle: () => { if (box.open) box.fill(); }}, h('summary', {}, caption), more);
  box.fill = () => { if (!more.hasChildNodes()) put(more, [fill()]); };
  return box;
};

// ---- a run, prepared --------------------------------------------------------------------------------------------

const keys = new Map();
const home = data.runs[data.roots[0]];
// Computes what the page needs of its runs; again after an update.
function prepareRuns() {
  keys.clear();
  for (const run of data.runs) {
    let key = run.id, number = 2;
    while (keys.has(key)) key = run.id + '~' + number++;
    keys.set(key, run);
    run.key = key;
  }
  for (const run of data.runs) {
    for (const child of run.children) {
      if (child.run === null) continue;
      const other = data.runs[child.run];
      if (!other.above && other !== run && !data.roots.includes(child.run)) other.above = run;
    }
    prepareRun(run);
  }
}
function prepareRun(run) {
  run.requests = [];
  run.all_rest = run.all_rest || run.rest;
  run.rest = [...run.all_rest];
  for (const it of run.iterations) {
    it.recorded = it.recorded || {before: it.before, around: it.around};
    it.before = [...it.recorded.before];
    it.around = [...it.recorded.around];
  }
  const events = run.iterations.flatMap(it => [...it.before, ...it.around]).concat(run.rest);
  run.fork = events.filter(event => event.type === 'FORK').pop();
  run.starts = events.filter(event => event.type === 'ENGINE_START');
  // Everything before the fork was copied from another run.
  const since = run.fork ? run.fork.seq : 0;
  run.own = run.iterations.filter(it => it.seq > since);
  run.processes = run.start && events.filter(event => event.type === 'ENGINE_START' && event.seq > since).length;
  const earliest = run.iterations.length ? run.iterations[0].before[0] || run.iterations[0] : run.rest[0];
  run.startTime = earliest ? Date.parse(earliest.at) : 0;
  // The journal has the events that close an iteration after it; show them at its end.
  run.iterations.forEach((it, i) => {
    const after = i + 1 < run.iterations.length ? run.iterations[i + 1].before : run.rest;
    const closes = event => event.iteration === it.n && (event.type === 'SNAPSHOT' ? !event.found : event.type === 'HOOK_EXECUTION' && event.hook === 'on_iteration_end');
    let k = 0;
    while (k < after.length && closes(after[k])) k++;
    it.around.push(...after.splice(0, k));
  });
  const first = run.iterations.length ? run.iterations[0].before : run.rest;
  const task = first.find(event => event.type === 'USER_MESSAGE') || {};
  run.taskSeq = task.seq;
  run.taskImages = task.images;
  const add = llm => { if (llm && llm.request) { llm.request.place = run.requests.length; run.requests.push(llm.request); } };
  for (const it of run.iterations) {
    it.before.forEach(event => add(event.llm));
    add(it.llm);
    it.around.forEach(event => add(event.llm));
    const record = it.llm && it.llm.record;
    it.llmMs = record ? record.duration_ms : 0;
    it.toolMs = groupsOf(it).reduce((sum, group) => sum + longest(group), 0);
    it.failed = it.calls.some(isFailed);
  }
  run.rest.forEach(event => add(event.llm));
}
prepareRuns();
// The calls of an iteration, each with the calls that ran at the same time.
function groupsOf(it) {
  const groups = [];
  it.calls.forEach(call => call.together ? groups[groups.length - 1].push(call) : groups.push([call]));
  return groups;
}
function longest(group) { return Math.max(...group.map(call => call.result ? call.result.duration_ms : 0)); }
// A call that an interruption ended has no exit code, and did not fail.
function isFailed(call) {
  return !!call.result && call.result.exit_code !== 0 && !(call.result.exit_code === null && call.io && call.io.ended === 'interrupted');
}
// The messages of a request as indexes into run.texts. Each request refers to messages of the previous one.
function messagesOf(run, place) {
  let from = place;
  while (from >= 0 && !run.requests[from].list) from--;
  let list = from >= 0 ? run.requests[from].list : [];
  for (let i = from + 1; i <= place; i++) {
    const next = [];
    for (const piece of run.requests[i].messages) {
      if (typeof piece === 'number') next.push(piece);
      else for (let k = 0; k < piece[1]; k++) next.push(list[piece[0] + k]);
    }
    list = next;
    if (i % 64 === 0 || i === place) run.requests[i].list = list;
  }
  return list;
}
function exactText(run, request) {
  const list = messagesOf(run, request.place).map(place => run.texts[place]);
  return run.texts[request.head] + list.join(',') + (request.tail === undefined ? '' : run.texts[request.tail]);
}
const hash = (run, rest) => '#' + (run === home ? '' : run.key + ':') + rest;

let run = home;

// ---- the head and the side --------------------------------------------------------------------------------------

const chip = (status, shown = status) => h('span', {class: 'chip ' + shown}, (status || 'unknown').replaceAll('_', ' '));
// What COMPLETED does not say: whether the graders of a sweep passed the run. One that did not pass is not green.
const hasFailedGrade = run => !!run.sweep && run.sweep.grades.some(grade => grade.pass === false);
const shownStatus = run => run.status === 'COMPLETED' && hasFailedGrade(run) ? 'FAILED' : run.status;
const verdictChips = run => hasFailedGrade(run) ? [h('span', {class: 'chip FAILED'}, 'NOT PASSED')] : [];
function gradeBox(grade) {
  const said = grade.score === null ? 'no score' : (grade.pass ? 'passed' : 'not passed') + ', score ' + grade.score.toFixed(2);
  return h('div', {class: 'task ' + (grade.pass === false ? 'bad-box' : 'calm')}, h('div', {class: 'who ' + (grade.pass === false ? 'bad' : '')}, 'Grader ' + grade.grader + ' · ' + said), grade.why && text(grade.why, {lines: 8}));
}
function inputFields(input) {
  const fields = Object.entries(input).filter(([name]) => !['id', 'task', 'files', 'from', 'tree', 'group'].includes(name));
  return fields.map(([name, value]) => part('Input ' + name, text(asText(value), {lines: 8})));
}
const config = () => (run.start && run.start.config) || {};

function drawBar() {
  const start = run.start || {};
  $('where').replaceChildren(h('b', {}, start.agent_name || run.id), idElement(run.id, 'dim mono'), chip(run.status, shownStatus(run)), ...verdictChips(run));
  document.title = (start.agent_name ? start.agent_name + ' · ' : '') + run.id + ' · delta';
}

// Generated ids begin with a time, so they differ at their ends: the end is as long as the runs of this page need it,
// and stays visible where the id is cut.
let idEnd = 6;
function measureIds() {
  const ids = [...new Set(data.runs.flatMap(one => [one.id, ...one.children.map(child => child.run_id)]))];
  for (let length = 6; length <= 12; length++) if (new Set(ids.map(id => id.slice(-length))).size === ids.length) { idEnd = length; return; }
  idEnd = 6;
}
measureIds();
function idElement(id, kind) {
  const el = h('span', {class: 'id ' + (kind || ''), title: id}, h('span', {}, id.slice(0, -idEnd)), h('span', {}, id.slice(-idEnd)));
  el.style.setProperty('--chars', Math.min(id.length, idEnd + 4));
  return el;
}

function tree(list, seen) {
  return h('ul', {}, list.map(one => {
    const other = one.run;
    if (!other) return h('li', {}, h('span', {class: 'gone dim', title: 'no child run at ' + one.known.run_dir}, h('i', {class: 'dot'}), idElement(one.known.run_id), h('span', {class: 'why'}, ' (not found)')));
    const known = seen.has(other);
    const item = h('li', {}, h('a', {href: hash(other, ''), 'aria-current': other === run && 'page', title: other.id + ' · ' + other.status}, h('i', {class: 'dot ' + shownStatus(other)}), h('span', {class: 'agent'}, (other.start ? other.start.agent_name : '?') + ' '), idElement(other.id, 'dim')));
    if (!known) {
      seen.add(other);
      if (other.children.length) item.append(tree(childrenOf(other), seen));
    }
    return item;
  }));
}
const childrenOf = parent => parent.children.map(child => ({run: child.run === null ? null : data.runs[child.run], known: child}));

function descendants(owner, seen = new Set()) {
  if (!seen.has(owner)) {
    seen.add(owner);
    childrenOf(owner).forEach(child => { if (child.run) descendants(child.run, seen); });
  }
  return seen;
}

function facts(list, kind) {
  return h('dl', {class: kind}, list.filter(([, value]) => value !== undefined && value !== null && value !== '').map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function sideParts() {
  const start = run.start || {}, llm = config().llm || {};
  const inside = [];
  if (data.runs.length > 1 || run.children.length) {
    const list = tree(data.roots.map(place => ({run: data.runs[place]})), new Set());
    list.className = 'tree';
    inside.push(h('h2', {}, 'Runs'), list);
  }
  inside.push(h('h2', {}, 'Run'), facts([
    ['model', llm.model], ['provider', llm.provider], ['started', moment(run.created_at)], ['last event', moment(run.updated_at)],
    ['processes', run.processes], ['limit', start.max_iterations && plural(start.max_iterations, 'iteration')], ['delta', start.engine_version], ['sandbox', run.start && !config().sandbox ? 'none' : ''],
  ]));
  const origin = run.fork && run.fork.from;
  inside.push(facts([
    ['workspace', start.work_dir], ['run directory', run.dir], ['agent', start.agent_home],
    ['started by', run.parent && h('span', {}, 'run ', run.above ? h('a', {href: hash(run.above, '')}, run.parent.run_id) : run.parent.run_id, run.parent.call_id && ', call ' + run.parent.call_id)],
    ['forked from', origin && 'run ' + origin.run_id + ' after iteration ' + origin.iteration + ', ' + origin.run_dir],
  ], 'path'));
  const tools = new Map();
  for (const it of run.own) for (const call of it.calls) {
    const sum = tools.get(call.tool) || {calls: 0, failed: 0, ms: 0};
    sum.calls++;
    if (isFailed(call)) sum.failed++;
    if (call.result) sum.ms += call.result.duration_ms;
    tools.set(call.tool, sum);
  }
  if (tools.size) {
    const rows = [...tools].sort((a, b) => b[1].calls - a[1].calls).map(([name, sum]) => h('tr', {}, h('td', {class: 'mono'}, name), h('td', {}, round(sum.calls, 0)), h('td', {class: sum.failed ? 'bad' : 'dim'}, round(sum.failed, 0)), h('td', {}, span(sum.ms))));
    inside.push(h('h2', {}, 'Tools'), h('table', {}, h('thead', {}, h('tr', {}, ['', 'calls', 'failed', 'time'].map(name => h('th', {scope: 'col'}, name)))), h('tbody', {}, rows)));
  }
  if (config().sandbox) inside.push(h('h2', {}, 'Sandbox'), sandboxParts(config()));
  const models = Object.entries((run.result && run.result.metrics.usage.model_usage) || {});
  if (models.length > 1) {
    inside.push(h('h2', {}, 'Models'), h('table', {}, h('tbody', {}, models.map(([name, use]) => h('tr', {}, h('td', {}, name), h('td', {}, count(use.input_tokens)), h('td', {}, count(use.output_tokens)), h('td', {}, use.cost_usd === null ? '–' : usd(use.cost_usd)))))));
  }
  if (run.agent.length) inside.push(h('h2', {}, 'Agent'), run.agent.map(([name, cut]) => Object.assign(fold(name, () => text(cut, {lines: 400})), {source: json(cut)})));
  const narrow = matchMedia('(max-width:960px)').matches;
  return narrow ? [h('details', {class: 'plain'}, h('summary', {}, 'Run, tools, agent'), inside)] : inside;
}
function drawSide() {
  $('side').replaceChildren();
  put($('side'), sideParts());
}

// ---- sandboxes ----------------------------------------------------------------------------------------------------

// What is enforced, from the `config` of an ENGINE_START.
function sandboxParts({sandbox, tools = []}) {
  const profiles = Object.entries(sandbox.profiles), free = tools.filter(tool => !(tool in sandbox.tools));
  const users = name => [
    ...Object.keys(sandbox.tools).filter(tool => sandbox.tools[tool] === name),
    sandbox.generators === name && 'the generators', sandbox.llm === name && 'the command of llm',
    ...Object.keys(sandbox.hooks || {}).filter(hook => sandbox.hooks[hook] === name).map(hook => 'the hook ' + hook),
  ].filter(Boolean);
  const waived = [...new Set(profiles.flatMap(([, profile]) => waivedOf(sandbox, profile)))];
  return [
    facts([['kernel', sandbox.kernel], ['Landlock', sandbox.landlock === null ? 'none' : sandbox.landlock], ['limited by', sandbox.policy.length ? sandbox.policy.map(source => h('div', {title: source.sha256}, source.file)) : '']]),
    waived.length > 0 && h('div', {class: 'row'}, h('span', {class: 'warn'}, 'not enforced, as --sandbox-without says: ' + waived.join(', '))),
    profiles.map(([name, profile]) => fold(h('span', {}, byWords(profile), ' · ', h('span', {class: 'mono'}, users(name).join(', '))), () => profileFacts(profile))),
    free.length > 0 && h('div', {class: 'row'}, h('span', {class: 'warn'}, 'no sandbox · ', h('span', {class: 'mono'}, free.join(', ')))),
  ];
}
const byWords = profile => profile.by === 'none' ? h('span', {class: 'warn'}, 'not enforced') : 'by ' + profile.by;
const waivedOf = (sandbox, profile) => sandbox.without.filter(name => !profile.holds.includes(name) && !(profile.watched || []).includes(name));
function profileFacts({by, line, holds, watched = [], ...keys}) {
  const value = one => Array.isArray(one) ? one.map(piece => h('div', {}, piece)) : one !== null && typeof one === 'object' ? Object.entries(one).map(([name, amount]) => h('div', {}, name + ' ' + amount)) : String(one);
  const rows = Object.entries(keys).map(([name, one]) => [name, value(one)]);
  return [h('div', {class: 'row'}, line), facts([...rows, ['holds', holds.join(', ')], ['watched', watched.join(', ')]].map(([name, one]) => [name, Array.isArray(one) && !one.length ? 'none' : one]), 'path')];
}
// The profile that surrounded a call, in the words of the process that started it.
function callProfile(call) {
  const start = run.starts.filter(one => one.seq < call.seq).pop(), sandbox = start && (start.config || {}).sandbox;
  const profile = sandbox && sandbox.profiles[call.sandbox];
  return profile && {profile, waived: waivedOf(sandbox, profile)};
}
const refusals = call => {
  const sandbox = (call.result && call.result.sandbox) || {}, refused = Object.entries(sandbox.refused || {}).map(([host, times]) => host + ' (' + times + ')');
  return refused.length ? refused : sandbox.attempts ? ['the network, ' + (sandbox.attempts === 1 ? 'once' : sandbox.attempts + ' times')] : [];
};
// What is unusual about the sandbox of a call; nothing where all is as its profile says.
function sandboxMark(call) {
  const known = callProfile(call), refused = refusals(call);
  const mark = call.sandbox === 'off' ? 'no sandbox' : !known ? '' : known.profile.by === 'none' ? 'sandbox not enforced' : known.waived.length ? 'sandbox without ' + known.waived.join(', ') : '';
  return [mark, refused.length && 'refused ' + refused.join(', ')].filter(Boolean).map(one => h('span', {class: 'how warn unusual', title: one}, oneLine(one, 60)));
}
function sandboxDetails(call) {
  if (!call.sandbox) return [];
  const known = callProfile(call), refused = refusals(call), reached = Object.entries((call.io && call.io.reached) || {});
  const rows = [
    !known && (call.sandbox === 'off' ? 'none' : call.sandbox), known && known.profile.line, known && known.waived.length && 'not enforced, as --sandbox-without says: ' + known.waived.join(', '),
    refused.length && 'refused: ' + refused.join(', '), ...reached.map(([host, one]) => 'reached ' + host + ': ' + plural(one.connections, 'connection') + ', ' + bytes(one.sent) + ' sent, ' + bytes(one.received) + ' received'),
  ];
  return [part('Sandbox', [text(rows.filter(Boolean).join('\n')), known && fold('the whole profile', () => profileFacts(known.profile))], known && h('span', {class: 'note'}, byWords(known.profile)))];
}

// ---- the overview -----------------------------------------------------------------------------------------------

function drawTop() {
  const top = $('top'), inside = [];
  run.notes.forEach(note => inside.push(h('p', {class: 'banner bad'}, note)));
  if (data.live !== undefined) inside.push(liveBanner());
  else if (run.status === 'RUNNING') inside.push(h('p', {class: 'banner RUNNING'}, 'This run is still active. The page shows it as of ' + clock(data.made_at) + '; run `delta view` again for an update.'));
  if (run.hides) inside.push(h('p', {class: 'banner'}, 'Sensitive answers are hidden on this page. The hashes are of the requests as sent.'));
  if (run.task || run.taskImages) inside.push(h('div', {class: 'task'}, prose(run.task, run.markdown.task, {lines: 8}), pictures(run.taskImages)));
  const result = run.result;
  if (result && run.status !== 'RUNNING') {
    const asks = result.interaction, error = run.status === 'KILLED' ? null : result.error;
    if (result.result !== undefined) inside.push(h('div', {class: 'task result'}, h('div', {class: 'who'}, 'Result'), prose(asText(result.result), run.markdown.result, {lines: 8})));
    if (asks && asks.kind === 'approval') {
      const where = ' ' + word(run.id) + ' -w ' + word((run.start || {}).work_dir || '.');
      const commands = ['delta approve' + where, 'delta deny' + where + " -m 'REASON'"];
      inside.push(h('div', {class: 'task ask'}, h('div', {class: 'who warn'}, 'Waiting for an approval'), text(asks.prompt, {lines: 8}), ...commands.map((command, k) => part(k ? 'Deny with' : 'Approve with', text(command), copyButton(command)))));
    } else if (asks) {
      const command = 'delta continue ' + word(run.id) + ' -w ' + word((run.start || {}).work_dir || '.') + (asks.sensitive ? ' -i' : " -m 'YOUR ANSWER'");
      inside.push(h('div', {class: 'task ask'}, h('div', {class: 'who warn'}, 'Waiting for an answer'), prose(asks.prompt, run.markdown.prompt, {lines: 8}), part(asks.sensitive ? 'Answer at a terminal with' : 'Answer with', text(command), copyButton(command))));
    }
    if (error && run.status === 'INTERRUPTED') inside.push(h('div', {class: 'task calm'}, h('div', {class: 'who'}, 'Interrupted', error.type && error.type !== 'interrupted' && ' · ' + error.type), text(error.message, {lines: 8}), error.details && h('div', {class: 'row'}, error.details)));
    else if (error) inside.push(h('div', {class: 'task bad-box'}, h('div', {class: 'who bad'}, 'Error', error.type && ' · ' + error.type), text(error.message, {lines: 8}), error.details && h('div', {class: 'row'}, error.details)));
  }
  if (run.sweep) inside.push(...run.sweep.grades.map(gradeBox), ...inputFields(run.sweep.input));
  if (result) {
    const usage = result.metrics.usage, copied = run.iterations.length - run.own.length, sum = key => run.own.reduce((total, it) => total + ((it.usage && it.usage[key]) || 0), 0);
    const cached = sum('cached_input_tokens'), written = sum('cache_write_tokens'), reasoned = sum('reasoning_tokens'), below = [...descendants(run)].filter(other => other !== run);
    const costs = [run, ...below].map(other => other.result && other.result.metrics.usage.total_cost_usd);
    const treeCost = costs.some(cost => typeof cost !== 'number') ? null : costs.reduce((total, cost) => total + cost, 0);
    inside.push(h('dl', {class: 'figures'}, [
      ['iterations' + (copied ? ', after ' + round(copied, 0) + ' copied' : ''), round(run.own.length, 0)],
      ['tokens in' + (cached ? ', ' + round(100 * cached / Math.max(usage.input_tokens, 1), 0) + '% cached' : '') + (written ? ', ' + round(100 * written / Math.max(usage.input_tokens, 1), 0) + '% written' : ''), count(usage.input_tokens)],
      ['tokens out' + (reasoned ? ', ' + round(100 * reasoned / Math.max(usage.output_tokens, 1), 0) + '% reasoning' : ''), count(usage.output_tokens)],
      ['cost', usage.total_cost_usd === null ? '–' : usd(usage.total_cost_usd)],
      ...(below.length ? [['cost with ' + plural(below.length, 'child run'), treeCost === null ? '–' : usd(treeCost)]] : []),
      ['active time', span(run.active_ms)],
      ['LLM', span(run.own.reduce((total, it) => total + it.llmMs, 0))],
      ['tools', span(run.own.reduce((total, it) => total + it.toolMs, 0))],
    ].map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))));
  }
  top.replaceChildren();
  put(top, inside);
  if (run.iterations.length > 1) top.append(charts());
}

let marker = null;
function charts() {
  const its = run.iterations, n = its.length;
  const use = (it, key) => (it.usage && it.usage[key]) || 0;
  const strips = [
    ['tokens in', 'h64', count, [['cached', it => use(it, 'cached_input_tokens')], ['fresh', it => Math.max(use(it, 'input_tokens') - use(it, 'cached_input_tokens'), 0)]]],
    ['tokens out', 'h30', count, [['out', it => use(it, 'output_tokens')]]],
    ['cost', 'h30', usd, [['cost', it => use(it, 'cost_usd')]]],
    ['time', 'h40', span, [['llm', it => it.llmMs], ['tool', it => it.toolMs]]],
  ];
  const box = h('div', {id: 'charts'}), used = new Set();
  const cursors = [], heres = [];
  const readout = h('div', {id: 'readout', class: 'dim'}, 'Hover over an iteration for details; click to open it.');
  const describeIteration = i => {
    const it = its[i], at = it && it.usage;
    readout.replaceChildren();
    if (!it) return put(readout, ['Hover over an iteration for details; click to open it.']);
    put(readout, [h('b', {}, 'iteration ' + it.n), at ? ' · ' + count(at.input_tokens) + ' in (' + count(at.cached_input_tokens || 0) + ' cached' + (at.cache_write_tokens ? ', ' + count(at.cache_write_tokens) + ' written' : '') + ') · ' + count(at.output_tokens) + ' out' + (at.reasoning_tokens ? ' (' + count(at.reasoning_tokens) + ' reasoning)' : '') + (at.cost_usd !== undefined ? ' · ' + usd(at.cost_usd) : '') : '', ' · LLM ' + span(it.llmMs) + ' · tools ' + span(it.toolMs), it.calls.length ? ' · ' + oneLine([...new Set(it.calls.map(call => call.tool))].join(', '), 60) : '']);
  };
  for (const [name, height, format, series] of strips) {
    const tops = its.map(it => series.reduce((sum, [, of]) => sum + of(it), 0));
    const sorted = Float64Array.from(tops).sort(), largest = sorted[n - 1], usual = sorted[Math.floor(n * 0.98)];
    if (!largest) continue;
    // Cut off outliers, so that the other bars stay distinguishable.
    const most = n > 60 && usual && largest > 4 * usual ? 2 * usual : largest;
    const picture = svg('svg', {viewBox: `0 0 ${n} 100`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
    const low = new Float64Array(n), width = n > 400 ? 1 : n > 120 ? 0.9 : 0.76;
    for (const [kind, of] of series) {
      let path = '';
      for (let i = 0; i < n; i++) {
        const value = Math.min(of(its[i]), most - low[i]);
        if (value <= 0) continue;
        const y = 100 - 100 * (low[i] + value) / most, tall = 100 * value / most;
        path += `M${i} ${y.toFixed(2)}h${width}v${tall.toFixed(2)}h-${width}z`;
        low[i] += value;
      }
      if (!path) continue;
      used.add(kind);
      picture.append(svg('path', {d: path, class: 'f-' + kind}));
    }
    const cursor = h('div', {class: 'cursor'}), here = h('div', {class: 'here'});
    cursors.push(cursor);
    const plot = h('div', {class: 'plot ' + height, role: 'img', 'aria-label': name + ' per iteration, maximum ' + format(largest)}, picture, cursor);
    // Keep a few bars narrow.
    plot.style.maxWidth = n < 40 ? n * 26 + 'px' : '';
    plot.addEventListener('pointermove', event => {
      const area = plot.getBoundingClientRect();
      const i = Math.min(n - 1, Math.max(0, Math.floor((event.clientX - area.left) / area.width * n)));
      cursors.forEach(one => { one.style.visibility = 'visible'; one.style.left = 100 * (i + 0.4) / n + '%'; });
      plot.dataset.i = i;
      describeIteration(i);
    });
    plot.addEventListener('pointerleave', () => { cursors.forEach(one => { one.style.visibility = ''; }); describeIteration(-1); });
    plot.addEventListener('click', () => { if (plot.dataset.i) location.hash = hash(run, 'i' + its[plot.dataset.i].n); });
    box.append(h('div', {class: 'strip'}, h('div', {class: 'label'}, h('b', {}, h('span', {}, largest > most ? 'cut at ' : 'max '), format(most)), name), plot));
    heres.push([plot, here]);
  }
  if (n < 40) box.className = 'few';
  if (!heres.length) return box.replaceChildren() || document.createTextNode('');
  const [plot, here] = heres[heres.length - 1];
  plot.append(here);
  marker = i => { here.style.left = 100 * (i + 0.4) / n + '%'; };
  const names = {cached: 'cached input', fresh: 'uncached input', out: 'output', cost: 'cost', llm: 'LLM', tool: 'tools'};
  box.append(h('div', {class: 'legend'}, [...used].map(kind => h('span', {}, h('i', {class: 'k-' + kind}), names[kind]))), readout);
  return box;
}

// ---- the timeline -----------------------------------------------------------------------------------------------

let articles = [], watcher = null;

function drawTimeline() {
  const timeline = $('timeline');
  if (watcher) watcher.disconnect();
  watcher = new IntersectionObserver(entries => { for (const entry of entries) if (entry.isIntersecting) fill(entry.target); }, {rootMargin: '1200px 0px'});
  articles = run.iterations.map(newArticle);
  timeline.replaceChildren(...articles);
  drawEnd();
  articles.forEach(article => watcher.observe(article));
  // Fill the first screen at once, so that nothing moves.
  articles.slice(0, 8).forEach(fill);
}
function newArticle(it, i) {
  const article = h('article', {id: 'i' + it.n, tabindex: '-1', 'aria-label': 'Iteration ' + it.n});
  article.it = it;
  article.place = i;
  const lines = Math.min(it.thought.length / 90 + (it.thought ? 1 : 0), 40) + it.before.length * 2;
  const calls = it.calls.reduce((sum, call) => sum + 50 + 18 * Math.min(((call.result && call.result.seen.text) || '').split('\n', 8).length, 7), 0);
  article.style.containIntrinsicSize = 'auto ' + Math.round(70 + lines * 22 + calls) + 'px';
  return article;
}
function drawEnd() {
  const before = $('end');
  if (before) before.remove();
  if (!run.rest.length && articles.length) return;
  const end = h('div', {class: 'end', id: 'end'});
  put(end, eventList(run.rest, 'a'));
  if (!articles.length && !run.rest.length) end.append(h('p', {class: 'empty'}, 'Nothing to show.'));
  $('timeline').append(end);
}

function fill(article) {
  if (article.filled) return;
  article.filled = true;
  watcher.unobserve(article);
  const it = article.it, use = it.usage;
  const since = Math.max(Date.parse(it.at) - run.startTime, 0);
  article.append(
    h('div', {class: 'gut'}, h('a', {class: 'n', href: hash(run, 'i' + it.n), title: it.at}, it.n),
      h('div', {title: 'since the first event shown'}, '+' + span(since)),
      run.fork && it.seq < run.fork.seq && h('div', {title: 'from run ' + run.fork.from.run_id}, 'copied'),
      use && h('div', {title: 'tokens in'}, count(use.input_tokens) + ' in'), use && h('div', {title: 'tokens out'}, count(use.output_tokens) + ' out'),
      use && use.cost_usd !== undefined && h('div', {}, usd(use.cost_usd))),
    h('div', {class: 'body'}, eventList(it.before, 'b'), attempts(it.llm, 'tries'),
      it.reasoning && fold('Reasoning · ' + bytes(it.reasoning.length), () => text(it.reasoning, {lines: 4000, prose: true}), {'data-u': 'why'}),
      it.thought && h('div', {class: 'said' + (isResult(it) ? ' result' : ''), 'data-u': 'said'}, isResult(it) && h('div', {class: 'who'}, 'Result'), prose(it.thought, it.markdown, {lines: 60})),
      (it.cut_off || it.finish_reason === 'length') && h('div', {class: 'row warn'}, 'The answer was cut off at the token limit.'),
      it.left_out > 0 && h('div', {class: 'row warn'}, 'The request left out the oldest ' + plural(it.left_out, 'iteration') + ' to stay within the context budget.'),
      drawCalls(it),
      eventList(it.around, 'a'),
      it.llm ? requestFold(it.llm, it) : h('div', {class: 'row'}, 'No record of the request.')));
}

const isResult = it => !it.calls.length && run.status === 'COMPLETED' && it === run.iterations[run.iterations.length - 1];
// The failed tries of a call. A call that did not end with an error had one more, which succeeded.
function attempts(llm, unit) {
  const record = llm && llm.record, list = record && record.attempts;
  if (!list || !list.length) return null;
  const all = list.length + (record.error ? 0 : 1), last = list[list.length - 1];
  const reason = one => (one.status ? 'HTTP ' + one.status + ' ' : '') + one.error;
  return fold([round(all, 0) + (record.error ? ' failed' : '') + (all === 1 ? ' try' : ' tries'), ' · ', h('span', {class: 'reason'}, oneLine(reason(last), 160))], () => h('ol', {class: 'tries'}, list.map(one => h('li', {}, h('span', {class: 't'}, reason(one)), h('span', {class: 'dim'}, ' · after ' + span(one.duration_ms) + (one.retry_in_ms ? ', the next one ' + span(one.retry_in_ms) + ' later' : '')))), !record.error && h('li', {}, 'answered')), {'data-u': unit, class: 'fold attempts'});
}

// Events in order; consecutive small ones share a line.
function eventList(events, prefix) {
  const out = [];
  let line = null;
  events.forEach((event, k) => {
    let el = eventElement(event, prefix + k);
    if (event.type === 'ROLLBACK') el = h('div', {}, el);
    if (!el.matches('.row,.fold')) { line = null; out.push(el); return; }
    if (!line) out.push(line = h('div', {class: 'small'}));
    line.append(el);
  });
  return out;
}

const STATUS_CLASS = {COMPLETED: 'good', FAILED: 'bad', WAITING_FOR_INPUT: 'warn'};
function eventElement(event, unit) {
  const time = h('span', {class: 'num', title: 'event ' + event.seq}, clock(event.at).slice(11, 19));
  const row = (...inside) => h('div', {class: 'row'}, time, ' · ', ...inside);
  switch (event.type) {
    case 'ENGINE_START':
      return startRow(event, row);
    case 'ENGINE_END':
      return row(h('span', {class: STATUS_CLASS[event.status] || ''}, event.status.toLowerCase().replaceAll('_', ' ')), ' after ' + plural(event.final_iteration, 'iteration'));
    case 'USER_MESSAGE':
      if (event.content === run.task && event.seq === run.taskSeq) return row('the task (see above)');
      return h('div', {class: 'said user', 'data-u': unit}, h('div', {class: 'who'}, 'User'), prose(event.content, event.markdown, {lines: 24}), pictures(event.images));
    case 'ERROR': {
      const more = event.error_details || {};
      return h('div', {class: 'bad-box', 'data-u': unit}, h('div', {class: 'who bad'}, 'Error', more.type && ' · ' + more.type), text(event.error_message), more.hint && h('div', {class: 'row'}, more.hint), attempts(event.llm, unit + 't'), event.llm && requestFold(event.llm, event));
    }
    case 'HOOK_EXECUTION': {
      const io = event.io || {}, bad = event.exit_code !== 0;
      const how = event.end ? 'ended the run' : event.changed ? 'changed the ' + (HOOK_SUBJECTS[event.hook] || 'input') : bad ? (event.exit_code === null ? 'had no exit code' : 'exited with ' + event.exit_code) : 'ran';
      return fold(h('span', {class: bad ? 'warn' : ''}, 'hook ' + event.hook + ' ' + how + (io.duration_ms !== undefined ? ' · ' + span(io.duration_ms) : '')), () => execution(io, true), {'data-u': unit});
    }
    case 'FORK':
      return row('forked from run ' + event.from.run_id + ' after iteration ' + event.from.iteration + '; everything above is copied from it');
    case 'APPLY':
      return row('staged changes applied to the workspace', event.paths && ': ' + event.paths.join(', '), event.rest && '; others stay staged');
    case 'APPLY_END':
      return row(event.rest ? 'the apply was interrupted; what was not applied stays staged' : 'the changes are in the workspace');
    case 'DISCARD':
      return row('staged changes discarded');
    case 'SNAPSHOT':
    case 'ROLLBACK':
      return snapshot(event, unit);
    default: {
      const {type, seq, at, ...rest} = event;
      return fold(type.toLowerCase().replaceAll('_', ' '), () => text(json(rest), {lines: 60}), {'data-u': unit});
    }
  }
}
// A process of the run, with its sandbox if the last process has another one.
function startRow(event, row) {
  const words = row(event.epoch > 1 ? 'process ' + event.pid + ' continued the run (epoch ' + event.epoch + ')' : 'process ' + event.pid + ' started the run', ' on ' + event.hostname);
  const one = event.config || {}, isUsual = JSON.stringify(one.sandbox) === JSON.stringify(config().sandbox);
  if (isUsual) return words;
  return h('div', {class: 'small'}, words, one.sandbox ? fold('with another sandbox', () => sandboxParts(one)) : h('div', {class: 'row'}, h('span', {class: 'warn'}, 'without a sandbox')));
}
// A snapshot or rollback with the changes since the previous snapshot.
function snapshot(event, unit) {
  const changes = event.changes;
  const to = event.to === undefined ? 'snapshot ' + event.tree : event.to === 0 ? 'the beginning of the run' : 'the end of iteration ' + event.to;
  const what = event.type === 'ROLLBACK' ? clock(event.at).slice(11, 19) + ' · workspace rolled back to ' + to : event.found ? 'workspace changed outside of the run' : 'workspace';
  if (!changes) return h('div', {class: 'row'}, what + (event.files === undefined ? '' : ' · ' + plural(event.files, 'file') + ' · ' + bytes(event.bytes)));
  if (changes.missing) return h('div', {class: 'row warn'}, what + ': ' + changes.missing);
  const list = changes.files, all = list.length + changes.more;
  const few = list.slice(0, 4).flatMap(one => [' ', h('span', {class: 'files ' }, h('b', {class: one.how}, one.how), ' ', one.path)]);
  return fold(h('span', {}, what + (event.type === 'ROLLBACK' || event.found ? '' : ' changed') + ' · ' + plural(all, 'file') + ' ·', few, all > 4 ? ' …' : ''), () => [
    list.map(one => h('div', {class: 'part files'}, h('div', {class: 'cap'}, h('b', {class: one.how}, one.how), h('span', {class: 't'}, one.path), h('span', {class: 'note'}, one.before === null ? bytes(one.after) : one.after === null ? 'was ' + bytes(one.before) : bytes(one.before) + ' → ' + bytes(one.after))), one.diff && diffText(one.diff))),
    changes.more > 0 && h('div', {class: 'row'}, 'and ' + plural(changes.more, 'more file'))], {'data-u': unit, class: 'fold work'});
}
function diffText(diff) {
  const box = h('div', {class: 'text'}), pre = h('pre', {class: 't'});
  const lines = diff.trimEnd().split('\n');
  const draw = most => {
    pre.replaceChildren();
    for (const line of lines.slice(0, most)) pre.append(h('span', {class: line[0] === '+' ? 'A' : line[0] === '-' ? 'D' : line[0] === '@' ? 'dim' : ''}, line + '\n'));
  };
  box.append(pre);
  draw(80);
  if (lines.length > 80) {
    const button = h('button', {type: 'button', class: 'all', onclick: () => { draw(lines.length); button.remove(); }}, 'show all · ' + plural(lines.length, 'line'));
    box.append(button);
  }
  return box;
}

function callStatus(call) {
  const result = call.result;
  const decision = call.approval_decision;
  if (!result) return h('span', {class: 'how warn'}, call.approval_request && !decision ? 'waiting for an approval' : !call.at ? 'not started' : call.question ? 'waiting for an answer' : run.status === 'RUNNING' ? 'running' : 'no result');
  const code = result.exit_code, io = call.io || {};
  const ended = io.ended || (code === null && call.argv ? 'no exit code' : code === null ? (decision && !decision.approved ? 'denied' : 'not started') : 'exit ' + code);
  return h('span', {class: 'how'}, h('span', {class: isFailed(call) ? 'bad' : ''}, result.ends ? 'result' : isFailed(call) ? h('b', {}, ended) : call.question ? 'answered' : ended), (call.question ? ' after ' + span(Date.parse(result.at) - Date.parse(call.at)) : ' · ' + span(result.duration_ms)));
}
function argsLine(call) {
  const args = call.at ? call.args : call.asked && (parsed(call.asked) ?? call.asked);
  if (args === null || args === undefined) return '';
  if (typeof args !== 'object') return oneLine(String(args), 200);
  const line = Object.entries(args).map(([name, value]) => oneLine(name, 80) + '=' + quoted(value, 80)).join(' ');
  return line.length > 300 ? line.slice(0, 300) + '…' : line;
}

function pictures(images) {
  return (images || []).map(one => h('figure', {class: 'picture'}, one.image_data && h('img', {src: one.image_data, alt: one.text, width: one.width, height: one.height}), h('figcaption', {class: 'row mono'}, one.text, one.note && h('span', {class: 'warn'}, ' ' + one.note))));
}

function drawCalls(it) {
  let number = 0;
  return groupsOf(it).map(group => {
    const boxes = group.map(call => drawCall(it, call, ++number));
    return group.length < 2 ? boxes : h('div', {class: 'together'}, h('div', {class: 'cap'}, plural(group.filter(call => call.argv || !call.result).length, 'call') + ' at the same time' + (group.every(call => call.result) ? ' · ' + span(longest(group)) : '')), boxes);
  });
}
function drawCall(it, call, number) {
  const id = 'i' + it.n + '-c' + number, failed = isFailed(call), result = call.result;
  const more = h('div', {class: 'more'});
  const details = h('details', {ontoggle: () => { if (details.open) details.fill(); }}, h('summary', {}, h('span', {class: 'name'}, call.tool), h('span', {class: 'args'}, argsLine(call)), sandboxMark(call), callStatus(call)), more);
  details.fill = () => { if (!more.hasChildNodes()) put(more, [callDetails(call, id)]); };
  const box = h('div', {class: 'call' + (failed ? ' failed' : (call.question || call.approval_request) && !result ? ' waits' : ''), id, 'data-u': 'c' + number}, details);
  const seen = result ? result.seen : call.io && call.io.stdout;
  if (seen && (seen.text || seen.tail)) {
    const preview = h('div', {class: 'preview'}, text({...seen, note: undefined}, {lines: 6, tail: failed ? 2 : 0}));
    const all = preview.querySelector('button');
    if (all) all.remove();
    box.append(preview);
  }
  if (result) box.append(...pictures(result.images));
  const below = childrenOf(run).filter(child => child.known.call_id === call.id);
  below.forEach(child => box.append(h('div', {class: 'below'}, childRow(child))));
  if (call.approval_request && !result) {
    const stage = call.approval_request.stage;
    box.append(h('div', {class: 'preview question'}, text(stage ? stage.diff : call.approval_request.argv.map(word).join(' '), {lines: 40})));
  }
  if (call.question && !(result && result.seen.text)) box.append(h('div', {class: 'preview question'}, prose(call.question.prompt, call.question.markdown, {lines: 16})));
  return box;
}
function childRow(child) {
  const other = child.run;
  if (!other) return h('span', {class: 'dim'}, '↳ run ' + child.known.run_id + ' was not found at ' + child.known.run_dir);
  const usage = other.result && other.result.metrics.usage;
  return h('span', {}, '↳ ', h('a', {href: hash(other, ''), class: 'child'}, h('span', {}, other.start ? other.start.agent_name + ' ' : ''), idElement(other.id)), ' ', chip(other.status), h('span', {class: 'dim'}, ' ' + plural(other.own.length, 'iteration') + (usage && usage.total_cost_usd !== null ? ' · ' + usd(usage.total_cost_usd) : '') + ' · ' + span(other.active_ms)));
}

function approvalText(call) {
  const decision = call.approval_decision, approval = call.approval, lines = [];
  const by = name => ({terminal: 'at the terminal', operator: 'by the operator', rule: 'by a rule of the agent', flag: 'by --approve-all'}[name] || 'by ' + name);
  if (call.approval_request) lines.push('asked about: ' + call.approval_request.argv.map(word).join(' '));
  if (call.approval_request && !decision) lines.push('not decided');
  if (decision && !decision.approved) lines.push('denied ' + by(decision.by) + (decision.reason ? ': ' + decision.reason : ''));
  if (decision && decision.for_tool) lines.push('and every later call of the tool');
  if (approval) lines.push('approved ' + by(approval.by) + (approval.rule ? ', rule ' + approval.rule : '') + ', ' + clock(approval.at));
  return lines.join('\n');
}
function callDetails(call, id) {
  const inside = [], io = call.io || {}, result = call.result;
  inside.push(h('div', {class: 'tools'}, h('a', {class: 'row', href: hash(run, id)}, '#' + id), h('span', {class: 'row mono'}, call.id), io.file && h('span', {class: 'row mono'}, io.file)));
  if (call.at) inside.push(part('Arguments', args(call.args), copyButton(() => json(call.args), 'copy JSON')));
  if (call.asked) inside.push(part(call.at ? 'Arguments as the LLM wrote them' : 'Arguments (not started)', text(call.asked)));
  if (call.argv) { const line = call.argv.map(word).join(' '); inside.push(part('Command', text(line, {lines: 12}), copyButton(line))); }
  if (call.approval_request || call.approval) inside.push(part('Approval', text(approvalText(call))));
  inside.push(...sandboxDetails(call));
  if (call.question) inside.push(part('Question · ' + call.question.input_type + (call.question.sensitive ? ', sensitive' : ''), prose(call.question.prompt, call.question.markdown, {lines: 16})));
  if (call.answer !== undefined) inside.push(part('Answer', text(call.answer)));
  if (io.stdin) inside.push(part('Standard input', text(io.stdin)));
  if (result) {
    const note = (result.truncated ? 'truncated' : '');
    inside.push(part(result.ends ? 'Result of the run' : 'Observation', text(result.seen, {lines: 40}), note && h('span', {class: 'note'}, note), copyButton(() => result.seen.text)));
  }
  inside.push(...execution(io, false));
  return inside;
}
function execution(io, whole) {
  const inside = [];
  if (whole && io.argv) { const line = io.argv.map(word).join(' '); inside.push(part('Command', text(line), copyButton(line))); }
  if (io.missing && !(io.stdout && run.status === 'RUNNING')) inside.push(h('div', {class: 'row warn part'}, 'could not read the record ' + io.file + ': ' + io.missing));
  if (whole && io.stdin) inside.push(part('Standard input', text(io.stdin)));
  if (io.stdout) inside.push(part(io.missing ? 'Standard output so far' : 'Standard output', io.stdout.text || io.stdout.tail ? text(io.stdout) : h('div', {class: 'row'}, 'same as the observation' + (io.stdout.note ? '; ' + io.stdout.note : '')), io.stdout.file && h('span', {class: 'note mono'}, io.stdout.file)));
  if (io.stderr) inside.push(part('Standard error', text(io.stderr), io.stderr.file && h('span', {class: 'note mono'}, io.stderr.file)));
  if (io.failure) inside.push(part('Failure', text(io.failure)));
  if (io.ended) inside.push(h('div', {class: 'row part warn'}, io.ended));
  if (io.cwd) inside.push(h('div', {class: 'row part mono'}, 'in ' + io.cwd));
  return inside;
}
function args(value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return text(asText(value));
  const entries = Object.entries(value);
  if (!entries.length) return h('div', {class: 'row'}, 'none');
  return h('div', {class: 'kv'}, entries.map(([name, one]) => [h('div', {class: 'key t'}, name), text(asText(one), {lines: 24})]));
}

// ---- the request ------------------------------------------------------------------------------------------------

function requestFold(llm, it) {
  const record = llm.record || {}, request = llm.request;
  let caption = 'Request';
  if (request) {
    const fresh = request.messages.filter(piece => typeof piece === 'number').length;
    const all = request.messages.reduce((sum, piece) => sum + (typeof piece === 'number' ? 1 : piece[1]), 0);
    caption += ' · ' + plural(all, 'message') + (request.place ? ', ' + fresh + ' new' : '') + ' · ' + bytes(request.bytes);
  }
  if (record.duration_ms) caption += ' · answered in ' + span(record.duration_ms);
  if (llm.missing) caption += ' · no record';
  return fold(caption, () => requestDetails(llm), {'data-u': 'req', class: 'fold req'});
}
function requestDetails(llm) {
  const inside = [], record = llm.record || {}, request = llm.request;
  if (llm.missing) inside.push(h('div', {class: 'row warn'}, 'could not read the record ' + llm.file + ': ' + llm.missing));
  if (llm.no_request) inside.push(h('div', {class: 'row warn'}, 'request not shown: ' + llm.no_request));
  const about = [record.provider, record.model, record.status && 'HTTP ' + record.status, llm.file].filter(Boolean).join(' · ');
  inside.push(h('div', {class: 'row'}, about));
  if (record.error) inside.push(h('div', {class: 'row bad'}, record.error));
  if (!request) return inside;
  const list = messagesOf(run, request.place);
  inside.push(h('div', {class: 'row mono'}, 'sha256 ' + request.sha256, !request.is_exact && h('span', {class: 'bad'}, ' · the recorded text has a different hash')));
  const blocks = record.context || [];
  const given = blocks.reduce((sum, block) => sum + block.messages, 0);
  const sources = [];
  if (given === list.length) blocks.forEach(block => { for (let i = 0; i < block.messages; i++) sources.push(block.source); });
  if (blocks.length) inside.push(blockTable(blocks, request));
  const fresh = new Set(request.messages.filter(piece => typeof piece === 'number'));
  const box = h('div', {});
  const draw = all => {
    box.replaceChildren();
    let repeated = 0;
    const flush = () => { if (repeated) box.append(h('div', {class: 'row msg'}, plural(repeated, 'message') + ' as in the previous request')); repeated = 0; };
    list.forEach((place, i) => {
      const isNew = fresh.has(place) || !request.place;
      if (!isNew && !all) { repeated++; return; }
      flush();
      box.append(message(run.texts[place], i + 1, sources[i], isNew && request.place > 0));
    });
    flush();
  };
  draw(false);
  const exact = h('div', {});
  inside.push(h('div', {class: 'tools'}, request.place > 0 && h('button', {type: 'button', onclick: event => { draw(true); event.currentTarget.remove(); }}, 'all ' + plural(list.length, 'message')),
    h('button', {type: 'button', onclick: event => { event.currentTarget.remove(); exact.append(part('Exact text', text(exactText(run, request), {lines: 40}))); }}, 'exact text'),
    copyButton(() => exactText(run, request), 'copy exact text')), exact, box);
  return inside;
}
function blockTable(blocks, request) {
  const known = request.blocks.length > 0;
  let names = [];
  try { names = (JSON.parse(run.texts[request.head] + run.texts[request.tail]).tools || []).map(tool => tool.function.name); } catch { /* the names stay unknown */ }
  const all = blocks.map((block, i) => ({name: block.source, kind: block.type, messages: block.messages, bytes: known ? request.blocks[i] : block.bytes, tokens: block.tokens, note: block.cut || (block.skipped && 'skipped: ' + block.skipped) || '', colour: 'p' + i % 8}));
  if (request.tools.bytes) all.push({name: 'tools', kind: plural(names.length, 'definition'), ...request.tools, title: names.join(', '), colour: 'p-tools'});
  all.push({name: 'rest', kind: 'model, settings', ...request.rest, colour: 'p-rest'});
  const total = all.reduce((sum, one) => sum + one.tokens, 0) || 1;
  const bar = h('div', {class: 'share', 'aria-hidden': 'true'}, all.filter(one => one.tokens).map(one => {
    const el = h('span', {class: one.colour, title: one.name});
    el.style.flex = one.tokens / total + ' 0 0';
    return el;
  }));
  const rows = all.map(one => h('tr', {title: one.title}, h('td', {}, h('i', {class: 'sw ' + one.colour}), one.name), h('td', {class: 'dim'}, one.kind), h('td', {}, one.messages), h('td', {}, bytes(one.bytes)), h('td', {}, count(one.tokens)), h('td', {class: 'warn'}, one.note)));
  const sum = h('tr', {class: 'sum'}, h('td', {}, 'total'), h('td', {}), h('td', {}, all.reduce((sum, one) => sum + (one.messages || 0), 0)), h('td', {}, bytes(request.bytes)), h('td', {}, count(total)), h('td', {}));
  return h('div', {class: 'part'}, !known && h('div', {class: 'row warn'}, 'A hook replaced the messages; these are the blocks of its input.'), bar, h('table', {class: 'blocks'}, h('thead', {}, h('tr', {}, ['block', 'kind', 'messages', 'size', 'tokens', ''].map(name => h('th', {scope: 'col'}, name)))), h('tbody', {}, rows, known && sum)));
}
function message(source, number, block, isNew) {
  let one = null;
  try { one = JSON.parse(source); } catch { /* shown as plain text */ }
  const inside = [];
  if (one === null || typeof one !== 'object') inside.push(text(source));
  else {
    if (one.reasoning_content) inside.push(part('reasoning', text(one.reasoning_content)));
    if (one.content !== undefined && one.content !== null && one.content !== '') inside.push(text(asText(one.content), {lines: 24}));
    for (const call of one.tool_calls || []) inside.push(text((call.function ? call.function.name + ' ' + call.function.arguments : json(call))));
  }
  return h('div', {class: 'msg' + (isNew ? ' new' : '')}, h('div', {class: 'cap'}, h('span', {}, number), h('span', {class: 'role'}, (one && one.role) || 'message'), one && one.tool_call_id && h('span', {class: 'mono'}, one.tool_call_id), block && h('span', {}, block)), inside);
}

// ---- navigation -------------------------------------------------------------------------------------------------

function show(next) {
  if (next === run && articles.shown === run) return;
  run = next;
  marker = null;
  drawBar();
  drawSide();
  drawTop();
  drawTimeline();
  articles.shown = run;
  scrollTo(0, 0);
}
// The bar has two lines on a phone.
const barHeight = () => $('bar').offsetHeight;
function settle(el, tries = 4) {
  el.scrollIntoView({block: 'start'});
  const again = left => requestAnimationFrame(() => {
    const off = el.getBoundingClientRect().top - barHeight() - 8;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    if (Math.abs(off) > 8 && !atEnd) el.scrollIntoView({block: 'start'});
    if (left) again(left - 1);
  });
  again(tries);
}
function goTo(place) {
  const article = articles[place];
  if (!article) return null;
  for (let i = Math.max(0, place - 2); i <= Math.min(articles.length - 1, place + 3); i++) fill(articles[i]);
  return article;
}
function flash(article) {
  article.classList.remove('flash');
  void article.offsetWidth;
  article.classList.add('flash');
}
function followHash() {
  const parts = decodeURIComponent(location.hash.slice(1)).match(/^(?:([^:]*):)?(?:i(\d+)(?:-c(\d+)|-(req))?)?$/);
  if (!parts) return false;
  const next = parts[1] === undefined ? home : keys.get(parts[1]);
  if (!next) return false;
  show(next);
  if (!parts[2]) return true;
  const place = run.iterations.findIndex(it => it.n === Number(parts[2]));
  const article = goTo(place);
  if (!article) return false;
  let target = article;
  document.querySelectorAll('.target').forEach(one => one.classList.remove('target'));
  if (parts[3]) {
    const call = $('i' + parts[2] + '-c' + parts[3]);
    if (call) { call.querySelector('details').open = true; call.querySelector('details').fill(); call.classList.add('target'); target = call; }
  }
  if (parts[4]) { const fold = article.querySelector('.req'); if (fold) { fold.open = true; fold.fill(); target = fold; } }
  settle(target);
  flash(article);
  article.focus({preventScroll: true});
  return true;
}
addEventListener('hashchange', followHash);
document.addEventListener('click', event => {
  const link = event.target.closest && event.target.closest('a[href^="#"]');
  if (link && link.getAttribute('href') === location.hash) { event.preventDefault(); followHash(); }
  if (link && link.getAttribute('href') === '#' && !location.hash) { event.preventDefault(); show(home); }
});

function current() {
  let low = 0, high = articles.length - 1;
  const edge = barHeight() + 42;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (articles[middle].getBoundingClientRect().top <= edge) low = middle; else high = middle - 1;
  }
  return low;
}
let waiting = false, lit = null;
addEventListener('scroll', () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (!articles.length) return;
    const place = current();
    if (marker) marker(place);
    if (lit !== articles[place]) {
      if (lit) lit.classList.remove('here-now');
      lit = articles[place];
      lit.classList.add('here-now');
    }
  });
}, {passive: true});

// ---- search -----------------------------------------------------------------------------------------------------

const MAX_MATCHES = 20000;
let matches = [], at = -1, needle = '';

// The searchable texts of an iteration in display order.
function unitsOf(owner, it) {
  if (it.units) return it.units;
  const units = [], add = (unit, ...texts) => { const one = texts.filter(Boolean).join('\n').toLowerCase(); if (one) units.push([unit, one]); };
  const whole = cut => cut ? cut.text + '\n' + (cut.tail || '') : '';
  const tries = (unit, llm) => add(unit, ...((llm && llm.record && llm.record.attempts) || []).map(one => (one.status ? 'HTTP ' + one.status + ' ' : '') + one.error));
  const event = (unit, one) => {
    if (one.type === 'USER_MESSAGE') add(unit, readText(one.content, one.markdown));
    else if (one.type === 'ERROR') { add(unit, one.error_message); tries(unit + 't', one.llm); }
    else if (one.type === 'HOOK_EXECUTION') { const io = one.io || {}; add(unit, (io.argv || []).map(word).join(' '), whole(io.stdin), whole(io.stdout), whole(io.stderr), io.failure); }
    else if (one.changes) add(unit, ...(one.changes.files || []).flatMap(file => [file.path, file.diff]));
    else if (one.type !== 'ENGINE_START' && one.type !== 'ENGINE_END') add(unit, json(one));
  };
  (it.before || []).forEach((one, k) => event('b' + k, one));
  tries('tries', it.llm);
  add('why', it.reasoning);
  add('said', readText(it.thought, it.markdown));
  (it.calls || []).forEach((call, k) => {
    const io = call.io || {}, given = call.args;
    const list = call.at === null ? [] : given !== null && typeof given === 'object' && !Array.isArray(given) ? Object.entries(given).flatMap(([name, value]) => [name, asText(value)]) : [asText(given)];
    add('c' + (k + 1), call.tool, ...list, call.asked, (call.argv || []).map(word).join(' '), refusals(call).join(', '), call.question && readText(call.question.prompt, call.question.markdown), call.answer, whole(io.stdin), whole(call.result && call.result.seen), whole(io.stdout), whole(io.stderr));
  });
  (it.around || []).forEach((one, k) => event('a' + k, one));
  const request = it.llm && it.llm.request;
  if (request) {
    const fresh = request.messages.filter(piece => typeof piece === 'number').map(place => owner.texts[place]);
    const said = fresh.filter(one => !/"role":"(assistant|tool)"/.test(one.slice(0, 400))).map(one => { try { return asText(JSON.parse(one).content); } catch { return one; } });
    add('req', ...said);
  }
  return it.units = units;
}
function search() {
  clearMarks();
  findMatches();
  at = -1;
  updateCount();
}
function findMatches() {
  needle = $('query').value.toLowerCase();
  matches = [];
  if (needle.length > 1 || (needle && needle.charCodeAt(0) > 127)) {
    const order = [run, ...data.runs.filter(other => other !== run)];
    all: for (const owner of order) {
      const rest = {before: [], calls: [], around: owner.rest, isRest: true};
      const list = owner.rest.length ? [...owner.iterations, owner.restUnits = owner.restUnits || rest] : owner.iterations;
      for (let i = 0; i < list.length; i++) for (const [unit, hay] of unitsOf(owner, list[i])) {
        for (let from = hay.indexOf(needle), k = 0; from >= 0; from = hay.indexOf(needle, from + needle.length), k++) {
          matches.push([owner, i, unit, k]);
          if (matches.length === MAX_MATCHES) break all;
        }
      }
    }
  }
}
// Goes to the first match if it is in this run. Matches in other runs are only counted.
function seek() {
  search();
  const first = matches.length ? firstFromHere() : -1;
  const own = first >= 0 && matches[first][0] === run ? first : matches.length && matches[0][0] === run ? 0 : -1;
  if (own >= 0) go(own);
}
function updateCount() {
  const total = matches.length === MAX_MATCHES ? MAX_MATCHES.toLocaleString('en') + '+' : matches.length.toLocaleString('en');
  $('count').textContent = !needle ? '' : !matches.length ? 'no matches' : at < 0 ? total : (at + 1).toLocaleString('en') + ' / ' + total;
}
function clearMarks() {
  if (window.CSS && CSS.highlights) { CSS.highlights.delete('hits'); CSS.highlights.delete('hit'); }
}
function step(by) {
  if (!matches.length) return;
  go(at < 0 ? (by > 0 ? firstFromHere() : matches.length - 1) : (at + by + matches.length) % matches.length);
}
function go(next) {
  at = next;
  updateCount();
  const [owner, place, unit, number] = matches[at];
  show(owner);
  const article = place < articles.length ? goTo(place) : $('end');
  if (!article) return;
  let el = article;
  if (unit) el = article.querySelector(`[data-u="${unit}"]`) || [...article.children][Number(unit.slice(1))] || article;
  const details = el.matches('details') ? el : el.querySelector('details');
  if (details && details.fill) { details.fill(); details.open = true; }
  el.querySelectorAll('button.all').forEach(button => button.click());
  mark(el, number, article);
}
function firstFromHere() {
  const place = articles.length ? current() : 0;
  const found = matches.findIndex(([owner, i]) => owner !== run || i >= place);
  return found < 0 ? 0 : found;
}
function mark(el, number, article) {
  const ranges = [];
  for (const holder of el.querySelectorAll('.call .name, .t')) {
    if (holder.closest('.preview')) continue;
    const {nodes, whole} = flatten(holder);
    const low = whole.toLowerCase();
    const point = offset => { let i = nodes.length - 1; while (i > 0 && nodes[i][0] > offset) i--; return [nodes[i][1], Math.min(offset - nodes[i][0], nodes[i][1].length)]; };
    for (let from = low.indexOf(needle); from >= 0; from = low.indexOf(needle, from + needle.length)) {
      const range = document.createRange();
      range.setStart(...point(from));
      range.setEnd(...point(from + needle.length - 1));
      range.setEnd(range.endContainer, Math.min(range.endOffset + 1, range.endContainer.length));
      ranges.push(range);
    }
  }
  const hit = ranges[Math.min(number, ranges.length - 1)];
  if (hit && window.CSS && CSS.highlights && window.Highlight) {
    CSS.highlights.set('hits', new Highlight(...ranges));
    const one = new Highlight(hit);
    one.priority = 1;
    CSS.highlights.set('hit', one);
  }
  const bring = left => {
    const area = (hit || el).getBoundingClientRect();
    if (area.top < barHeight() + 32 || area.bottom > innerHeight - 40) scrollBy(0, area.top - innerHeight / 3);
    if (left) requestAnimationFrame(() => bring(left - 1));
  };
  article.scrollIntoView({block: 'nearest'});
  bring(4);
  flash(article);
}
let pause = 0;
$('query').addEventListener('input', () => { clearTimeout(pause); pause = setTimeout(seek, 120); });
$('query').addEventListener('keydown', event => {
  if (event.key === 'Enter') { event.preventDefault(); clearTimeout(pause); if ($('query').value.toLowerCase() !== needle) search(); step(event.shiftKey ? -1 : 1); }
  if (event.key === 'Escape') { $('query').value = ''; search(); $('query').blur(); }
});
$('next').addEventListener('click', () => step(1));
$('previous').addEventListener('click', () => step(-1));

// ---- keys, light, print -----------------------------------------------------------------------------------------

const KEYS = [['/', 'search'], ['Enter, Shift+Enter', 'next and previous match'], ['j, k', 'next and previous iteration'], ['e', 'open or close the calls of the iteration'], ['r', 'open or close its request'], ['g, G', 'top and last iteration'], ['m', 'messages as Markdown or as they are'], ['t', 'toggle dark mode'], ['?', 'this list']];
const help = $('help');
help.append(facts(KEYS.map(([key, what]) => [h('kbd', {}, key), what])), h('p', {class: 'row'}, 'Created by delta ' + data.version + ', ' + clock(data.made_at)));
help.addEventListener('click', () => help.close());
$('keys').addEventListener('click', () => help.showModal());

const root = document.documentElement;
const themeStorage = remembered('delta-theme');
if (['dark', 'light'].includes(themeStorage.get())) root.dataset.theme = themeStorage.get();
function toggleTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  themeStorage.set(root.dataset.theme);
}
$('theme').addEventListener('click', toggleTheme);
$('markdown').addEventListener('click', toggleMarkdown);
showMarkdownSwitch();

function move(by) {
  const place = current(), off = articles[place].getBoundingClientRect().top;
  const next = by < 0 && off < 30 ? place : by > 0 && off > barHeight() + 42 ? place : place + by;
  const article = goTo(Math.max(0, Math.min(articles.length - 1, next)));
  if (!article) return;
  settle(article);
  history.replaceState(null, '', hash(run, article.id));
}
function toggle(selector) {
  const list = [...articles[current()].querySelectorAll(selector)], open = list.some(one => !one.open);
  list.forEach(one => { one.open = open; });
}
addEventListener('keydown', event => {
  if (event.target.matches('input,textarea') || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const act = {'/': () => $('query').select(), j: () => move(1), k: () => move(-1), t: toggleTheme, m: toggleMarkdown, '?': () => help.showModal(), e: () => toggle('.call>details'), r: () => toggle('.req'), g: () => scrollTo(0, 0), G: () => { if (articles.length) settle(goTo(articles.length - 1)); }}[event.key];
  if (!act || (!articles.length && 'jker'.includes(event.key))) return;
  event.preventDefault();
  act();
});
addEventListener('beforeprint', () => articles.forEach(fill));

