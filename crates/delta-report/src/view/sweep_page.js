// The page of `delta sweep view`. All text of a run becomes text nodes; data never becomes markup.

const $ = id => document.getElementById(id);
const data = JSON.parse($('data').textContent);
$('data').remove();

// ---- making elements --------------------------------------------------------------------------------------------

function h(tag, props, ...inside) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...inside.flat(Infinity).filter(one => one !== undefined && one !== null && one !== '' && one !== false));
  return el;
}
function svg(tag, props, ...inside) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in props) el.setAttribute(name, props[name]);
  el.append(...inside);
  return el;
}
// Characters that a terminal or a browser would act on are shown by their names.
const clean = text => String(text).replace(/[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  c => c === '\n' || c === '\t' ? ' ' : '␦');

// ---- numbers ----------------------------------------------------------------------------------------------------

const fixed = (n, digits = 2) => n.toFixed(digits).replace('-', '−');
const usd = n => n === 0 ? '0' : n >= 0.1 ? fixed(n) : n >= 0.0001 ? fixed(n, 4) : n.toExponential(1);
const count = n => n.toLocaleString('en-US');
function seconds(s) {
  if (s < 10) return fixed(s, 1) + ' s';
  if (s < 120) return Math.round(s) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  return fixed(s / 3600, 1) + ' h';
}
const withInterval = number => !number ? '–' :
  fixed(number.value) + (number.interval ? ` [${fixed(number.interval[0])}, ${fixed(number.interval[1])}]` : '');

// ---- runs: one array each, with the names in tables ---------------------------------------------------------------

const runs = data.runs.map(([id, agent, model, input, group, repeat, params, status, score, pass, missing, kind, message, iterations,
  time, cost, tokens, page]) => ({ id, agent: data.names[agent], model: data.names[model], input: data.names[input],
  group: group === null ? '' : data.names[group], repeat, params: data.params[params], status, score, pass, missing,
  kind, message, iterations, time, cost, tokens, page }));

// ---- overview -----------------------------------------------------------------------------------------------------

function showFigures() {
  const settled = runs.filter(run => run.status && !['not run'].includes(run.missing)).length;
  const cost = runs.reduce((sum, run) => sum + (run.cost || 0), 0);
  const scored = runs.filter(run => run.score !== null).length;
  const figures = [
    [count(runs.length), 'runs planned'], [count(settled), 'with a result'], [count(scored), 'with a score'],
    [count(runs.filter(run => run.pass).length), 'passed'],
    [count(runs.filter(run => run.status === 'FAILED').length), 'failed'],
    [runs.some(run => run.cost !== null) ? '$ ' + usd(cost) : '–', 'cost'],
  ];
  $('figures').append(h('dl', { class: 'figures' }, figures.map(([value, name]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))));
}

// ---- scores -------------------------------------------------------------------------------------------------------

// An axis from 0 to 1 with a point and its interval, or from -1 to 1 for a difference.
function intervalPlot(number, low, bounds) {
  const x = value => 4 + (value - low) / (1 - low) * 292;
  const plot = svg('svg', { class: 'plot', viewBox: '0 0 300 22', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  for (const mark of low < 0 ? [-1, 0, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    plot.append(svg('line', { class: 'axis', x1: x(mark), x2: x(mark), y1: 2, y2: 20 }));
  }
  if (bounds) plot.append(svg('line', { class: 'bounds', x1: x(bounds[0]), x2: x(bounds[1]), y1: 17, y2: 17 }));
  if (number && number.interval) {
    plot.append(svg('line', { class: 'range', x1: x(number.interval[0]), x2: x(number.interval[1]), y1: 11, y2: 11 }));
  }
  if (number) plot.append(svg('circle', { cx: x(number.value), cy: 11, r: 4 }));
  return plot;
}
function coverage(row) {
  const missing = Object.entries(row.missing).map(([why, n]) => `, ${count(n)} ${clean(why)}`).join('');
  const text = [`${count(row.graded)} of ${count(row.planned)}${missing}`];
  if (row.bounds) text.push(h('div', { class: 'warn' }, `incomplete: ${fixed(row.bounds[0])} to ${fixed(row.bounds[1])}`));
  return text;
}
function rowsTable(table) {
  const head = h('tr', {}, h('th', {}, table.by), h('th', {}, 'score, 95 % interval'), h('th', {}, ''), h('th', {}, 'runs with a score'),
    h('th', { class: 'num' }, 'USD a run'), h('th', { class: 'num' }, 'tokens a run'), h('th', { class: 'num' }, 'time a run'),
    h('th', { class: 'num' }, 'pass@k'));
  const body = table.rows.map(row => h('tr', {},
    h('td', {}, h('a', { href: '#runs', onclick: () => filterBy(table.by, row.key[0][1]) }, clean(row.key[0][1]))),
    h('td', { class: 'num' }, withInterval(row.score)), h('td', { class: 'wide' }, intervalPlot(row.score, 0, row.bounds)),
    h('td', {}, coverage(row)),
    h('td', { class: 'num' }, row.cost_usd ? usd(row.cost_usd.mean.value) : '–'),
    h('td', { class: 'num' }, row.tokens ? count(Math.round(row.tokens.mean.value)) : '–'),
    h('td', { class: 'num' }, row.seconds ? seconds(row.seconds.mean.value) : '–'),
    h('td', { class: 'num' }, (row.pass || []).map(chance => `@${chance.k} ${fixed(chance.any)}`).join('  ') || '–')));
  return h('div', { class: 'card' }, h('table', {}, h('thead', {}, head), h('tbody', {}, body)));
}
function pairsTable(table) {
  if (!table.comparisons.length) return '';
  const head = h('tr', {}, h('th', {}, 'difference'), h('th', {}, 'paired, 95 % interval'), h('th', {}, ''), h('th', { class: 'num' }, 'inputs'),
    h('th', { class: 'num' }, 'p, adjusted'), h('th', {}, ''));
  const body = table.comparisons.map(pair => {
    const number = pair.pairs ? { value: pair.difference, interval: pair.interval } : null;
    const p = pair.adjusted_p === null || pair.adjusted_p === undefined ? '–' : pair.adjusted_p < 0.0001 ? '< 0.0001' : fixed(pair.adjusted_p, 4);
    const verdict = pair.shown ? h('span', { class: 'good' }, 'shown') :
      h('span', { class: 'dim' }, 'no difference shown' + (pair.detectable ? `; from ${fixed(pair.detectable)} on it would be` : ''));
    return h('tr', {}, h('td', {}, `${clean(pair.first)} − ${clean(pair.second)}`), h('td', { class: 'num' }, withInterval(number)),
      h('td', { class: 'wide' }, intervalPlot(number, -1)), h('td', { class: 'num' }, pair.pairs), h('td', { class: 'num' }, p), h('td', {}, verdict));
  });
  return h('div', { class: 'card' }, h('table', {}, h('thead', {}, head), h('tbody', {}, body)));
}
function showScores() {
  if (!data.tables.length) return;
  const place = h('div');
  const show = chosen => {
    buttons.forEach((button, index) => button.setAttribute('aria-pressed', index === chosen));
    place.replaceChildren(rowsTable(data.tables[chosen]), pairsTable(data.tables[chosen]));
  };
  const buttons = data.tables.map((table, index) => h('button', { onclick: () => show(index) }, table.by));
  const graded = data.grader ? `graded by ${data.grader}` : 'no grader: COMPLETED is 1';
  $('scores').append(h('h2', {}, 'Scores'), h('div', { class: 'row' }, buttons, h('span', { class: 'dim' }, graded)), place);
  show(0);
}

// ---- cost against score -------------------------------------------------------------------------------------------

function showCosts() {
  const points = data.combinations.filter(row => row.score && row.cost_usd && row.cost_usd.mean.value > 0);
  if (points.length < 2) return;
  const costs = points.map(row => Math.log10(row.cost_usd.mean.value));
  const low = Math.floor(Math.min(...costs)), high = Math.max(low + 1, Math.ceil(Math.max(...costs)));
  const x = log => 50 + (log - low) / (high - low) * 560, y = score => 270 - score * 240;
  const plot = svg('svg', { id: 'scatter', viewBox: '0 0 720 310', role: 'img', 'aria-label': 'Cost against score' });
  for (let log = low; log <= high; log++) {
    plot.append(svg('line', { x1: x(log), x2: x(log), y1: 30, y2: 270 }),
      svg('text', { x: x(log), y: 288, 'text-anchor': 'middle' }, '$ ' + usd(10 ** log)));
  }
  for (const score of [0, 0.5, 1]) {
    plot.append(svg('line', { x1: 50, x2: 610, y1: y(score), y2: y(score) }), svg('text', { x: 42, y: y(score) + 4, 'text-anchor': 'end' }, fixed(score, 1)));
  }
  points.forEach((row, index) => {
    const at = x(costs[index]);
    if (row.score.interval) plot.append(svg('line', { class: 'ci', x1: at, x2: at, y1: y(row.score.interval[0]), y2: y(row.score.interval[1]) }));
    plot.append(svg('circle', { cx: at, cy: y(row.score.value), r: 4.5 }),
      svg('text', { class: 'name', x: at + 9, y: y(row.score.value) + 4 }, clean(row.key.map(([, value]) => value).join(' '))));
  });
  plot.append(svg('text', { x: 330, y: 306, 'text-anchor': 'middle' }, 'USD a run (logarithmic)'));
  $('costs').append(h('h2', {}, 'Cost against score'), h('div', { class: 'card' }, plot));
}

// ---- failures -------------------------------------------------------------------------------------------------------

function showFailures() {
  const groups = new Map();
  for (const run of runs.filter(run => run.kind)) {
    const key = run.kind + '\n' + run.message;
    const group = groups.get(key) || groups.set(key, { kind: run.kind, message: run.message, n: 0 }).get(key);
    group.n++;
  }
  if (!groups.size) return;
  const sorted = [...groups.values()].sort((a, b) => b.n - a.n).slice(0, 30);
  const body = sorted.map(group => h('tr', {}, h('td', { class: 'num' }, count(group.n)), h('td', {}, group.kind),
    h('td', {}, h('a', { href: '#runs', onclick: () => filterBy('text', group.message) }, clean(group.message).slice(0, 140)))));
  const more = groups.size > sorted.length ? h('p', { class: 'dim' }, `and ${groups.size - sorted.length} more kinds`) : '';
  $('failures').append(h('h2', {}, 'Failures'), h('div', { class: 'card' }, h('table', {}, h('tbody', {}, body)), more));
}

// ---- runs -----------------------------------------------------------------------------------------------------------

const PAGE = 200;
const filters = { text: '', agent: '', model: '', status: '', score: '' };
let sorting = { key: 'n', up: true }, shown = PAGE, found = runs;
const COLUMNS = [['input', 'input'], ['agent', 'agent'], ['model', 'model'], ['params', 'parameters'], ['repeat', 'repeat'], ['status', 'status'],
  ['score', 'score'], ['iterations', 'iterations'], ['time', 'time'], ['tokens', 'tokens'], ['cost', 'USD']];
const NUMBERS = ['repeat', 'score', 'iterations', 'time', 'tokens', 'cost'];

function filterBy(key, value) {
  for (const name in filters) filters[name] = '';
  if (key in filters) filters[key] = value; else filters.text = value;
  showControls();
  search();
}
function matches(run) {
  if (filters.agent && run.agent !== filters.agent || filters.model && run.model !== filters.model) return false;
  if (filters.status && run.status !== filters.status) return false;
  if (filters.score === 'passed' && !run.pass || filters.score === 'not passed' && (run.score === null || run.pass)) return false;
  if (filters.score === 'no score' && run.score !== null) return false;
  if (!filters.text) return true;
  return `${run.id}\n${run.input}\n${run.group}\n${run.params}\n${run.kind}\n${run.message}`.toLowerCase().includes(filters.text.toLowerCase());
}
function search() {
  found = runs.filter(matches);
  if (sorting.key !== 'n') {
    const value = run => run[sorting.key], sign = sorting.up ? 1 : -1;
    found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === y) return 0;
      if (x === null || x === '') return 1;
      if (y === null || y === '') return -1;
      return (x < y ? -1 : 1) * sign;
    });
  }
  shown = PAGE;
  showList();
}
function runRow(run) {
  const name = run.page ? h('a', { href: run.page }, clean(run.input)) : clean(run.input);
  const status = run.status ? h('span', { class: 'chip ' + run.status, title: clean(run.message || '') }, run.kind || run.status) : h('span', { class: 'dim' }, 'not run');
  const cells = { input: name, agent: clean(run.agent), model: clean(run.model), params: clean(run.params), repeat: run.repeat, status,
    score: run.score === null ? h('span', { class: 'dim' }, clean(run.missing || '–')) : fixed(run.score),
    iterations: run.iterations ?? '', time: run.time === null ? '' : seconds(run.time), tokens: run.tokens === null ? '' : count(run.tokens),
    cost: run.cost === null ? '' : usd(run.cost) };
  return h('tr', { title: run.id }, COLUMNS.filter(([key]) => hasColumn(key)).map(([key]) =>
    h('td', { class: NUMBERS.includes(key) ? 'num' : null }, cells[key])), h('td', {}, h('button', { title: 'Copy the command that shows the run',
    onclick: event => copyCommand(event.target, run) }, 'copy')));
}
const hasColumn = key => key !== 'params' || data.params.some(text => text !== '');
function copyCommand(button, run) {
  const shard = run.id.slice(run.id.lastIndexOf('.') + 1).slice(0, 2);
  const text = `delta view ${run.id} -w '${`${data.dir}/runs/${shard}/${run.id}`.replaceAll("'", "'\\''")}' --open`;
  const done = label => { button.textContent = label; setTimeout(() => { button.textContent = 'copy'; }, 1500); };
  if (!navigator.clipboard) return window.prompt('The command', text);
  navigator.clipboard.writeText(text).then(() => done('copied'), () => window.prompt('The command', text));
}
function showList() {
  const head = h('tr', {}, COLUMNS.filter(([key]) => hasColumn(key)).map(([key, name]) => h('th', {
    class: NUMBERS.includes(key) ? 'num' : null, 'aria-sort': sorting.key === key ? (sorting.up ? 'ascending' : 'descending') : null },
  h('button', { onclick: () => { sorting = { key, up: sorting.key === key ? !sorting.up : !NUMBERS.slice(1).includes(key) }; search(); } },
    name + (sorting.key === key ? (sorting.up ? ' ↑' : ' ↓') : '')))), h('th', {}, ''));
  const rest = found.length - shown;
  const more = rest > 0 ? h('p', {}, h('button', { onclick: () => { shown += PAGE * 5; showList(); } },
    `show ${count(Math.min(rest, PAGE * 5))} more of ${count(rest)}`)) : '';
  $('count').textContent = found.length === runs.length ? count(runs.length) + ' runs' : `${count(found.length)} of ${count(runs.length)} runs`;
  $('list').replaceChildren(h('table', {}, h('thead', {}, head), h('tbody', {}, found.slice(0, shown).map(runRow))), more);
}
function choice(name, values) {
  return h('select', { 'aria-label': name, onchange: event => { filters[name] = event.target.value; search(); } },
    h('option', { value: '' }, 'any ' + name), values.map(value => h('option', { value, selected: filters[name] === value }, clean(value))));
}
function showControls() {
  const distinct = key => [...new Set(runs.map(run => run[key]))].filter(Boolean).sort();
  const input = h('input', { id: 'filter', type: 'search', placeholder: 'Filter by input, id, error …', 'aria-label': 'Filter runs',
    oninput: event => { filters.text = event.target.value; search(); } });
  input.value = filters.text;
  const controls = [input];
  for (const key of ['model', 'agent', 'status']) if (distinct(key).length > 1) controls.push(choice(key, distinct(key)));
  controls.push(choice('score', ['passed', 'not passed', 'no score']), h('span', { id: 'count', class: 'dim' }));
  $('controls').replaceChildren(...controls);
}

// ---- start ------------------------------------------------------------------------------------------------------------

$('name').textContent = clean(data.name);
$('made').textContent = data.made_at.slice(0, 16).replace('T', ' ') + ' UTC';
$('theme').addEventListener('click', () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === 'dark' ||
    !document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
});
showFigures();
showScores();
showCosts();
showFailures();
$('runs').append(h('h2', {}, 'Runs'), h('div', { class: 'row', id: 'controls' }), h('div', { class: 'card', id: 'list' }));
showControls();
search();
