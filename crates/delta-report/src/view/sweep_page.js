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
// Characters that a terminal or a browser would act on are shown by a mark.
const clean = text => String(text).replace(/[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  c => c === '\n' || c === '\t' ? ' ' : '\ufffd');

// ---- numbers ----------------------------------------------------------------------------------------------------

const fixed = (n, digits = 2) => n.toFixed(digits).replace('-', '−');
// A difference of two scores is between -1 and 1, whatever Student's t says.
const signed = n => (n > 0 ? '+' : '') + fixed(Math.max(-1, Math.min(1, n)));
const usd = n => n === 0 ? '0' : n >= 0.1 ? fixed(n) : n >= 0.0001 ? fixed(n, 4) : n.toExponential(1);
const count = n => n.toLocaleString('en-US');
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? '' : 's'}`;
function seconds(s) {
  if (s < 1) return Math.round(s * 1000) + ' ms';
  if (s < 10) return fixed(s, 1) + ' s';
  if (s < 120) return Math.round(s) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  return fixed(s / 3600, 1) + ' h';
}
function withInterval(value, interval, text = fixed) {
  return h('span', {}, text(value), interval ? h('span', { class: 'dim' }, ` [${text(interval[0])}, ${text(interval[1])}]`) : '');
}
const collator = new Intl.Collator('en', { numeric: true });
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === '') return 1;
  if (b === null || b === '') return -1;
  return typeof a === 'string' ? collator.compare(a, b) : a - b;
}
// Missing values come last in both directions.
function sortBy(list, value, up) {
  const keyed = list.map(one => [value(one), one]);
  const isMissing = key => key === null || key === '';
  keyed.sort(([a], [b]) => isMissing(a) || isMissing(b) ? compare(a, b) : compare(a, b) * (up ? 1 : -1));
  return keyed.map(([, one]) => one);
}

// ---- runs: one array each, with the names in tables ---------------------------------------------------------------

const named = index => index === null ? '' : data.names[index];
const runs = data.runs.map(([id, agent, model, input, group, repeat, params, status, score, pass, missing, kind, note, iterations,
  time, cost, tokens, page]) => ({ id, agent: named(agent), model: named(model), input: named(input), group: named(group), repeat,
  params: data.params[params].map(([name, value]) => `${name}=${value}`).join(' '), values: data.params[params], status, score, pass, missing,
  kind: named(kind), note: named(note), iterations, time, cost, tokens, page }));
for (const run of runs) {
  run.outcome = run.kind || run.status || 'not run';
  run.words = [run.id, run.input, run.group, run.params, run.kind, run.note].join('\n').toLowerCase();
}
// The value of a key of a table, such as `model` or `param.style`.
function field(run, key) {
  if (!key.startsWith('param.')) return run[key];
  const found = run.values.find(([name]) => 'param.' + name === key);
  return found ? found[1] : '';
}

// ---- overview -----------------------------------------------------------------------------------------------------

function showFigures() {
  const number = test => runs.filter(test).length;
  const costs = runs.filter(run => run.cost !== null);
  const unknown = number(run => run.status && run.cost === null);
  const cost = costs.reduce((sum, run) => sum + run.cost, 0);
  const figures = [
    [count(runs.length), 'runs planned'], [count(number(run => run.status)), 'with a result'],
    [count(number(run => run.score !== null)), 'with a score'], [count(number(run => run.pass)), 'passed'],
    [count(number(run => run.score !== null && !run.pass)), 'did not pass'], [count(number(run => run.score === null)), 'without a score'],
    [costs.length ? '$ ' + usd(cost) : '–', costs.length && unknown ? `cost, unknown for ${plural(unknown, 'run')}` : 'cost'],
  ];
  $('figures').append(h('dl', { class: 'figures' }, figures.map(([value, name]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))));
}

// ---- scores -------------------------------------------------------------------------------------------------------

// An axis from 0 to 1 with a point and its interval, or from -1 to 1 for a difference. Positions are shares of the width,
// so that a point is round in a plot of any width.
function intervalPlot(value, interval, low, bounds) {
  const x = at => `${(2 + Math.max(0, Math.min(1, (at - low) / (1 - low))) * 96).toFixed(2)}%`;
  const plot = svg('svg', { class: 'plot', 'aria-hidden': 'true' });
  const line = (name, from, to, top, bottom) => plot.append(svg('line', { class: name, x1: x(from), x2: x(to), y1: top, y2: bottom }));
  for (const mark of low < 0 ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) line(mark === 0 && low < 0 ? 'axis zero' : 'axis', mark, mark, 2, 20);
  if (bounds) line('bounds', bounds[0], bounds[1], 17, 17);
  if (interval) line('range', interval[0], interval[1], 11, 11);
  if (value !== null) plot.append(svg('circle', { cx: x(value), cy: 11, r: 4 }));
  return plot;
}
const incomplete = (bounds, text = fixed) => bounds ? h('div', { class: 'warn', title: 'If every missing run had the worst score, and the best' },
  `incomplete: ${text(bounds[0])} to ${text(bounds[1])}`) : '';
function head(...names) {
  return h('thead', {}, h('tr', {}, names.map(name => h('th', { class: name.startsWith('#') ? 'num' : null }, name.replace('#', '')))));
}
const keyText = key => clean(key.map(([, value]) => value).join(' '));
const less = { cost_usd: 'costs less', tokens: 'uses fewer tokens' };
const domination = row => row.dominated ? `dominated by ${keyText(row.dominated.by)}` : '';
// What a row is marked with: a race has stopped it, or another one dominates it.
function marks(row) {
  const { stopped, dominated } = row;
  return [stopped ? h('div', { class: 'dim' }, `stopped at look ${stopped.look[0]} of ${stopped.look[1]}: worse than ${clean(stopped.leader)}`) : '',
    dominated ? h('div', { class: 'warn', title: `${keyText(dominated.by)} ${less[dominated.less]}, and a drop of ${fixed(dominated.max_drop)} is excluded` }, domination(row)) : ''];
}
function rowsTable(table) {
  const mean = (amount, text) => h('td', { class: 'num' }, amount ? text(amount.mean.value) : '–');
  const body = table.rows.map(row => {
    const value = row.key[0][1], missing = Object.entries(row.missing).map(([why, n]) => `, ${count(n)} ${clean(why)}`).join('');
    const chances = row.pass || [], last = chances[chances.length - 1];
    const chance = ({ k, any, all, inputs }) => `Of ${k} runs, one passes with ${fixed(any)} and all with ${fixed(all)}; ${plural(inputs, 'input')} with ${k} runs or more`;
    return h('tr', {}, h('td', { class: 'name', title: clean(value) }, link(clean(value), () => filterBy({ [table.by]: value }))),
      h('td', { class: 'wide' }, row.score ? withInterval(row.score.value, row.score.interval) : '–',
        intervalPlot(row.score ? row.score.value : null, row.score && row.score.interval, 0, row.bounds)),
      h('td', { class: 'covered' }, `${count(row.graded)} of ${count(row.planned)}`, missing ? h('span', { class: 'dim' }, missing) : '', incomplete(row.bounds), marks(row)),
      mean(row.cost_usd, usd), mean(row.tokens, n => count(Math.round(n))), mean(row.seconds, seconds),
      h('td', { class: 'num', title: chances.map(chance).join('\n') || null }, last ? [`${fixed(last.any)}, ${fixed(last.all)}`, h('span', { class: 'dim' }, ` k = ${last.k}`)] : '–'));
  });
  return h('div', { class: 'card' }, h('table', {}, head(clean(table.by), 'score, 95 % interval', 'runs with a score', '#USD a run', '#tokens', '#time', '#pass@k, ^k'), h('tbody', {}, body)));
}
function pairsTable(table) {
  if (!table.comparisons) return h('p', { class: 'dim' }, 'Too many values to compare each two of them: `delta sweep compare --only` compares some.');
  if (!table.comparisons.length) return '';
  const body = table.comparisons.map(pair => {
    const p = pair.adjusted_p === null || pair.adjusted_p === undefined ? '–' : pair.adjusted_p < 0.0001 ? '< 0.0001' : fixed(pair.adjusted_p, 4);
    const detectable = !pair.detectable ? '' : pair.detectable > 1 ? '; too few inputs' : `; from ${fixed(pair.detectable)} on it would be`;
    // What is missing could turn the difference around.
    const isOpen = pair.bounds && pair.bounds[0] < 0 && pair.bounds[1] > 0;
    const verdict = pair.shown ? h('span', { class: isOpen ? 'warn' : 'good' }, `${clean(pair.difference > 0 ? pair.first : pair.second)} is better${isOpen ? ' on what has a score' : ''}`) :
      h('span', { class: 'dim' }, 'no difference shown' + detectable);
    const name = `${clean(pair.first)} − ${clean(pair.second)}`;
    return h('tr', {}, h('td', { class: 'pair' }, name),
      h('td', { class: 'wide' }, pair.pairs ? withInterval(pair.difference, pair.interval, signed) : '–',
        intervalPlot(pair.pairs ? pair.difference : null, pair.interval, -1, pair.bounds)),
      h('td', { class: 'covered' }, pair.pairs === pair.planned ? count(pair.pairs) : `${count(pair.pairs)} of ${count(pair.planned)}`, incomplete(pair.bounds, signed)),
      h('td', { class: 'num', title: pair.test ? `${pair.test}, adjusted for all comparisons of the table (Holm)` : null }, p), h('td', {}, verdict));
  });
  return h('div', { class: 'card' }, h('table', {}, head('difference', 'mean of the pairs, 95 % interval', 'pairs', '#p', ''), h('tbody', {}, body)));
}
// A row for each input, a column for each value of the first key that is compared.
let inputOrder = { column: -1, up: true }, inputsShown = 50;
function inputsTable(table) {
  const columns = table.rows.map(row => row.key[0][1]).slice(0, 12), rows = new Map();
  for (const run of runs) {
    const row = rows.get(run.input) || rows.set(run.input, { input: run.input, group: run.group, cells: columns.map(() => ({ sum: 0, n: 0, all: 0 })) }).get(run.input);
    const cell = row.cells[columns.indexOf(field(run, table.by))];
    if (!cell) continue;
    cell.all++;
    if (run.score !== null) { cell.n++; cell.sum += run.score; }
  }
  const mean = cell => cell.n ? cell.sum / cell.n : null;
  const overall = row => { const scored = row.cells.filter(cell => cell.n); return scored.length ? scored.reduce((sum, cell) => sum + mean(cell), 0) / scored.length : null; };
  const place = h('div', { class: 'card' });
  const show = () => {
    const value = row => inputOrder.column === -2 ? row.input : inputOrder.column === -1 ? overall(row) : mean(row.cells[inputOrder.column]);
    const sorted = sortBy([...rows.values()], value, inputOrder.up);
    const title = (name, column, kind) => sortHeader(clean(name), kind, inputOrder.column === column && inputOrder.up, inputOrder.column === column, () => {
      inputOrder = { column, up: inputOrder.column === column ? !inputOrder.up : true };
      show();
    });
    const body = sorted.slice(0, inputsShown).map(row => h('tr', {},
      h('td', { class: 'name' }, link(clean(row.input), () => filterBy({ input: row.input })), row.group ? h('span', { class: 'dim' }, ' ' + clean(row.group)) : ''),
      row.cells.map((cell, index) => h('td', { class: 'num' }, cell.n ? link(fixed(mean(cell)), () => filterBy({ input: row.input, [table.by]: columns[index] }), mean(cell) === 1 ? 'good' : mean(cell) === 0 ? 'bad' : '') : h('span', { class: 'dim' }, '–'),
        cell.n < cell.all ? h('span', { class: 'warn' }, ` ${cell.n} of ${cell.all}`) : '')),
      h('td', { class: 'num' }, overall(row) === null ? '–' : fixed(overall(row)))));
    const titles = h('thead', {}, h('tr', {}, title('input', -2, ''), columns.map((name, index) => title(name, index, 'num')), title('mean', -1, 'num')));
    place.replaceChildren(h('table', {}, titles, h('tbody', {}, body)), moreButton(sorted.length - inputsShown, 200, by => { inputsShown += by; show(); }));
  };
  show();
  return place;
}
function showScores() {
  const place = h('div');
  const views = data.tables.map(table => [table.by, () => [rowsTable(table), pairsTable(table)]]);
  if (new Set(runs.map(run => run.input)).size > 1 && data.tables.length) views.push(['input', () => [inputsTable(data.tables[0])]]);
  const show = chosen => {
    buttons.forEach((button, index) => button.setAttribute('aria-pressed', index === chosen));
    place.replaceChildren(...views[chosen][1]().filter(Boolean));
  };
  const buttons = views.map(([name], index) => h('button', { onclick: () => show(index) }, clean('by ' + name)));
  const graded = data.grader ? `graded by ${clean(data.grader)}` : 'no grader: COMPLETED is 1';
  $('scores').append(h('h2', {}, 'Scores'), h('div', { class: 'row' }, buttons, h('span', { class: 'dim' }, graded)), place);
  if (views.length) show(0);
}

// ---- cost against score -------------------------------------------------------------------------------------------

// A plot is as wide as its place, so that its text has one size on every screen.
function chart(height, label) {
  const width = Math.max(280, Math.min(720, $('figures').clientWidth - 34));
  const plot = svg('svg', { class: 'chart', width, height, role: 'img', 'aria-label': label });
  const line = (x1, y1, x2, y2, name) => plot.append(svg('line', { x1, y1, x2, y2, class: name || '' }));
  const text = (x, y, words, anchor, name) => plot.append(svg('text', { x, y, 'text-anchor': anchor, class: name || '' }, words));
  return { plot, width, line, text };
}
// The lines of scores from 0 to 1, between these heights.
function scoreLines({ line, text, width }, y) {
  for (const score of [0, 0.25, 0.5, 0.75, 1]) {
    line(50, y(score), width - 30, y(score));
    text(42, y(score) + 4, fixed(score), 'end');
  }
}
function showCosts() {
  const priced = data.combinations.filter(row => row.score && row.cost_usd && row.cost_usd.mean.value > 0);
  const isPriced = priced.length > 1;
  const amount = row => isPriced ? row.cost_usd.mean.value : row.tokens.mean.value;
  const undrawn = isPriced ? data.combinations.filter(row => row.score && !priced.includes(row)) : [];
  const points = (isPriced ? priced : data.combinations.filter(row => row.score && row.tokens && row.tokens.mean.value > 0)).slice(0, 60);
  if (points.length < 2) return;
  const name = isPriced ? 'USD a run' : 'tokens a run', drawn = chart(316, `Score against ${name}`), { plot, width, line } = drawn;
  const costs = points.map(row => Math.log10(amount(row)));
  const middle = (Math.min(...costs) + Math.max(...costs)) / 2, reach = Math.max(0.5, (Math.max(...costs) - Math.min(...costs)) * 0.6);
  const low = middle - reach, high = middle + reach, x = log => 50 + (log - low) / (high - low) * (width - 80), y = score => 270 - score * 240;
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power++) ticks.push(...[1, 2, 5].map(n => n * 10 ** power).filter(n => Math.log10(n) >= low && Math.log10(n) <= high));
  for (const tick of ticks.length > width / 80 ? ticks.filter(n => Math.abs(Math.log10(n) % 1) < 1e-9) : ticks) {
    line(x(Math.log10(tick)), 30, x(Math.log10(tick)), 270);
    drawn.text(x(Math.log10(tick)), 288, isPriced ? '$ ' + usd(tick) : count(tick), 'middle');
  }
  scoreLines(drawn, y);
  const taken = points.map((row, index) => [x(costs[index]) - 6, x(costs[index]) + 6, y(row.score.value)]);
  for (const [index, row] of points.entries()) {
    const at = x(costs[index]), height = y(row.score.value), text = keyText(row.key), mark = row.dominated ? ' dominated' : '';
    if (row.score.interval) line(at, y(row.score.interval[0]), at, y(row.score.interval[1]), 'ci' + mark);
    const short = text.length > 28 ? text.slice(0, 27) + '…' : text, space = short.length * 6.2, isLeft = at + 10 + space > width - 8;
    const left = isLeft ? at - 9 - space : at + 9;
    // Next to the point, or else above or below it.
    const free = [0, -13, 13].find(by => left > 44 && !taken.some(([from, to, top]) => Math.abs(top - height - by) < 12 && left < to && left + space > from));
    plot.append(svg('circle', { cx: at, cy: height, r: 4.5, class: mark.trim() }, svg('title', {},
      `${text}: ${fixed(row.score.value)}, ${isPriced ? '$ ' + usd(amount(row)) : count(Math.round(amount(row))) + ' tokens'} a run${mark ? ', ' + domination(row) : ''}`)));
    if (free === undefined) continue;
    drawn.text(isLeft ? at - 9 : at + 9, height + free + 4, short, isLeft ? 'end' : 'start', 'name' + mark);
    taken.push([left, left + space, height + free]);
  }
  drawn.text(width / 2 + 10, 310, `${name} (logarithmic)`, 'middle');
  const dominated = points.filter(row => row.dominated);
  $('costs').replaceChildren(h('h2', {}, isPriced ? 'Cost against score' : 'Tokens against score'), h('div', { class: 'card' }, plot,
    dominated.length ? h('p', { class: 'dim' }, `Hollow: another one ${less[dominated[0].dominated.less]}, and a drop of ${fixed(dominated[0].dominated.max_drop)} is excluded.`) : '',
    undrawn.length ? h('p', { class: 'dim' }, 'Without a cost: ' + undrawn.slice(0, 20).map(row => `${keyText(row.key)} ${fixed(row.score.value)}`).join(', ')) : ''));
}

// ---- the verdict of the gate ----------------------------------------------------------------------------------------

// The difference with its ends, 0, and the drop that PASS excludes.
function differencePlot({ difference, low, high, max_drop }) {
  const reach = Math.min(1, Math.max(2 * max_drop, Math.abs(low), Math.abs(high)) * 1.1);
  const { plot, width, line, text } = chart(52, 'The difference of the scores');
  const x = at => width / 2 + Math.max(-1, Math.min(1, at / reach)) * (width / 2 - 30);
  for (const [at, name] of [[-max_drop, 'limit'], [0, 'zero']]) {
    line(x(at), 4, x(at), 32, name);
    text(at ? x(at) + 10 : x(at), 47, at ? `drop of ${fixed(max_drop)}` : '0', at ? 'end' : 'middle');
  }
  line(x(low), 18, x(high), 18, 'ci');
  plot.append(svg('circle', { cx: x(difference), cy: 18, r: 4.5 }));
  return plot;
}
function showGate() {
  if (!data.gate) return;
  const cards = data.gate.verdicts.map(verdict => {
    const [head, ...rest] = verdict.text.split('\n').map(clean);
    return h('div', { class: 'card' }, h('div', { class: 'row' }, h('span', { class: 'chip ' + verdict.verdict }, verdict.verdict), h('span', { class: 'dim' }, head.split(/ {2,}/).slice(1).join(' · '))),
      rest.map((line, index) => h('p', { class: index ? 'verdict dim' : 'verdict head' }, line.replace(/^(PASS|FAIL|INCONCLUSIVE) +/, ''))),
      verdict.difference === null || verdict.difference === undefined ? '' : differencePlot(verdict));
  });
  $('gate').replaceChildren(h('h2', {}, `Verdict of the gate, ${data.gate.at.slice(0, 16).replace('T', ' ')} UTC`), ...cards);
}

// ---- where runs were lost -------------------------------------------------------------------------------------------

// The mean score of the forks after each iteration; the iteration in which the run was lost has a band.
function curvePlot({ points, iterations, lost }) {
  const drawn = chart(200, 'The score of forks after each iteration'), { plot, width, line, text } = drawn;
  const y = score => 160 - score * 140, x = at => 64 + at / Math.max(1, iterations - 1) * (width - 108);
  if (lost) plot.append(svg('rect', { class: 'step', x: x(lost.iteration - 1), width: x(lost.iteration) - x(lost.iteration - 1), y: 14, height: 146 }));
  scoreLines(drawn, y);
  plot.append(svg('polyline', { points: points.map(point => `${x(point.after)},${y(point.score)}`).join(' ') }));
  let free = 0;
  for (const point of points) {
    const isLost = lost && lost.iteration === point.after;
    line(x(point.after), y(point.low), x(point.after), y(point.high), 'ci');
    plot.append(svg('circle', { cx: x(point.after), cy: y(point.score), r: 4.5, class: isLost ? 'lost' : '' },
      svg('title', {}, `after ${point.after}: ${fixed(point.score)} [${fixed(point.low)}, ${fixed(point.high)}], ${point.passed} of ${plural(point.forks, 'fork')} passed`)));
    if (x(point.after) < free) continue;
    text(x(point.after), 177, String(point.after), 'middle');
    free = x(point.after) + 18;
  }
  text(width / 2 + 10, 195, 'forked after iteration', 'middle');
  return plot;
}
function showLosses() {
  if (!data.losses.length) return;
  const cards = data.losses.slice(0, 50).map(loss => {
    const run = runs.find(({ id }) => id === loss.run);
    const call = loss.lost && loss.lost.call ? h('span', { class: 'mono' }, clean(loss.lost.call)) : '';
    return h('div', { class: 'card' }, h('div', { class: 'row' }, h('b', {}, runLink(run)), h('span', { class: 'dim' }, clean([run.model, run.agent].join(', '))), call),
      h('p', { class: 'verdict' }, clean(loss.text)), curvePlot(loss));
  });
  $('losses').replaceChildren(h('h2', {}, 'Where runs were lost'), ...cards);
}

// ---- failures -------------------------------------------------------------------------------------------------------

function showFailures() {
  // By the kind of error or by the grader: the reasons of two runs are seldom the same text.
  const groups = new Map();
  for (const run of runs.filter(run => run.kind)) {
    (groups.get(run.kind) || groups.set(run.kind, { kind: run.kind, runs: [] }).get(run.kind)).runs.push(run);
  }
  if (!groups.size) return;
  const by = data.tables.length ? data.tables[0].by : 'model';
  const sorted = [...groups.values()].sort((a, b) => b.runs.length - a.runs.length);
  const place = h('div', { class: 'card' });
  const show = limit => place.replaceChildren(...sorted.slice(0, limit).map(group => failureGroup(group, by)),
    moreButton(sorted.length - limit, 100, more => show(limit + more)));
  $('failures').append(h('h2', {}, 'Failures'), place);
  show(20);
}
function failureGroup(group, by) {
  const values = new Map();
  for (const run of group.runs) values.set(field(run, by), (values.get(field(run, by)) || 0) + 1);
  const split = [...values].slice(0, 6).map(([value, n]) => `${clean(value)} ${count(n)}`).join(', ') + (values.size > 6 ? ', …' : '');
  const notes = new Map();
  for (const run of group.runs) notes.set(run.note, (notes.get(run.note) || 0) + 1);
  const [[note]] = [...notes].sort(([, a], [, b]) => b - a), others = notes.size > 1 ? ` and ${plural(notes.size - 1, 'other reason')}` : '';
  const grader = data.grader && ['not passed', 'ungraded'].includes(group.kind) ? ` by ${clean(data.grader)}` : '';
  const details = h('details', { class: 'failure' }, h('summary', {}, h('b', { class: 'num' }, count(group.runs.length)), h('span', { class: 'kind' }, clean(group.kind) + grader),
    h('span', { class: 'note' }, clean(note).slice(0, 200) + others), h('span', { class: 'dim split' }, split)));
  // Made when it is opened: a group may have thousands of runs.
  details.addEventListener('toggle', () => {
    if (details.childElementCount > 1) return;
    const items = group.runs.slice(0, 12).map(run => h('li', {}, runLink(run), h('span', { class: 'dim' }, ` ${clean([run.model, run.agent, run.params].filter(Boolean).join(' · '))} · repeat ${run.repeat}`), run.note ? h('div', { class: 'dim' }, clean(run.note)) : ''));
    details.append(h('ul', {}, items), h('button', { onclick: () => filterBy({ failure: group.kind }) }, `show ${plural(group.runs.length, 'run')} in the table`));
  });
  return details;
}

// ---- runs -----------------------------------------------------------------------------------------------------------

const PAGE = 100;
const SCORES = { passed: run => run.pass, 'not passed': run => run.score !== null && !run.pass, 'no score': run => run.score === null };
let filters = {}, sorting = { key: 'n', up: true }, shown = PAGE, found = runs;
const COLUMNS = [['input', 'input'], ['group', 'group'], ['agent', 'agent'], ['model', 'model'], ['params', 'parameters'], ['repeat', 'repeat'],
  ['outcome', 'outcome'], ['score', 'score'], ['iterations', 'iterations'], ['time', 'time'], ['tokens', 'tokens'], ['cost', 'USD']]
  .filter(([key]) => key === 'outcome' || key === 'input' || key === 'score' || (key === 'agent' || key === 'model' ? distinct(key).length > 1 : runs.some(run => run[key] !== null && run[key] !== '')));
const NUMBERS = ['repeat', 'score', 'iterations', 'time', 'tokens', 'cost'];

function distinct(key) {
  return [...new Set(runs.map(run => field(run, key)))].filter(Boolean).sort(collator.compare);
}
function link(text, act, name) {
  return h('button', { class: ('link ' + (name || '')).trim(), onclick: act }, text);
}
function sortHeader(name, kind, up, isSorted, act) {
  return h('th', { class: kind || null, 'aria-sort': isSorted ? (up ? 'ascending' : 'descending') : null }, h('button', { onclick: act }, name + (isSorted ? (up ? ' ↑' : ' ↓') : '')));
}
function moreButton(rest, step, act) {
  return rest > 0 ? h('p', {}, h('button', { onclick: () => act(step) }, `show ${count(Math.min(rest, step))} more of ${count(rest)}`)) : '';
}
function filterBy(chosen) {
  filters = chosen;
  showControls();
  search();
  $('runs').scrollIntoView();
}
function matcher() {
  const text = (filters.text || '').toLowerCase().trim();
  const exact = Object.entries(filters).filter(([key, value]) => value && !['text', 'score', 'failure'].includes(key));
  return run => (!text || run.words.includes(text)) && exact.every(([key, value]) => field(run, key) === value) &&
    (!filters.score || SCORES[filters.score](run)) && (!filters.failure || run.kind === filters.failure);
}
function search() {
  found = runs.filter(matcher());
  if (sorting.key !== 'n') found = sortBy(found, run => run[sorting.key], sorting.up);
  shown = PAGE;
  showList();
  keepState();
}
// The filters are in the address, so that they are there again after a look at a run, and can be sent to others.
function keepState() {
  const words = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
  if (sorting.key !== 'n') words.set('sort', (sorting.up ? '' : '-') + sorting.key);
  const hash = words.toString();
  if (hash !== location.hash.slice(1)) history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search);
}
function readState() {
  const words = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const key = (words.sort || 'n').replace(/^-/, '');
  sorting = { key: COLUMNS.some(([name]) => name === key) ? key : 'n', up: !(words.sort || '').startsWith('-') };
  delete words.sort;
  filters = Object.fromEntries(Object.entries(words).filter(([name, value]) => name === 'score' ? value in SCORES :
    ['text', 'failure', 'outcome', 'input', 'group', 'agent', 'model'].includes(name) || name.startsWith('param.')));
}
const runPage = run => run.page ? './' + [...data.pages.split('/'), run.id + '.html'].map(encodeURIComponent).join('/') : null;
function runLink(run) {
  return run.page ? h('a', { href: runPage(run) }, clean(run.input)) : link(clean(run.input), event => showRun(event.target, run));
}
// Below the row or the item of a run: what is known of it, and how to see all of it.
function showRun(button, run) {
  const at = button.closest('tr,li,.row'), next = at.nextElementSibling;
  if (next && next.classList.contains('about')) return next.remove();
  const shard = run.id.slice(run.id.lastIndexOf('.') + 1).slice(0, 2);
  const command = `delta view ${run.id} -w '${`${data.dir}/runs/${shard}/${run.id}`.replaceAll("'", "'\\''")}' --open`;
  const copy = h('button', { onclick: () => {
    const done = label => { copy.textContent = label; };
    navigator.clipboard ? navigator.clipboard.writeText(command).then(() => done('copied'), () => done('not copied')) : done('not copied');
  } }, 'copy');
  const inside = [h('div', { class: 'mono' }, run.id), run.note ? h('p', {}, h('b', {}, clean(run.kind) + ': '), clean(run.note)) : '',
    run.status ? h('div', { class: 'row' }, h('code', { class: 'mono' }, clean(command)), copy) : h('p', { class: 'dim' }, 'It was not run.')];
  at.after(at.tagName === 'TR' ? h('tr', { class: 'about' }, h('td', { colspan: COLUMNS.length }, inside)) : h(at.tagName === 'LI' ? 'li' : 'div', { class: 'about' }, inside));
}
function runRow(run) {
  const cells = { score: run.score === null ? h('span', { class: 'dim' }, clean(run.missing || '–')) : h('span', { class: run.pass ? 'good' : '' }, fixed(run.score)),
    input: runLink(run), outcome: h('span', { class: 'chip ' + (run.kind === 'not passed' ? 'FAILED' : run.status || ''), title: run.note ? clean(run.note) : null }, clean(run.outcome)),
    time: run.time === null ? '' : seconds(run.time), tokens: run.tokens === null ? '' : count(run.tokens), cost: run.cost === null ? '' : usd(run.cost) };
  const text = key => cells[key] !== undefined ? cells[key] : run[key] === null ? '' : clean(run[key]);
  return h('tr', {}, COLUMNS.map(([key]) => h('td', { class: NUMBERS.includes(key) ? 'num' : null, title: ['input', 'params'].includes(key) ? clean(run[key]) : null }, text(key))));
}
function showList() {
  const titles = COLUMNS.map(([key, name]) => sortHeader(name, NUMBERS.includes(key) ? 'num' : '', sorting.up, sorting.key === key, () => {
    const first = !NUMBERS.includes(key) || key === 'repeat';
    // Up, down, and back to the order of the plan.
    sorting = sorting.key !== key ? { key, up: first } : sorting.up === first ? { key, up: !first } : { key: 'n', up: true };
    search();
  }));
  $('count').textContent = found.length === runs.length ? plural(runs.length, 'run') : `${count(found.length)} of ${plural(runs.length, 'run')}`;
  const body = found.length ? found.slice(0, shown).map(runRow) : h('tr', {}, h('td', { colspan: COLUMNS.length, class: 'dim' }, 'No run matches.'));
  $('list').replaceChildren(h('table', {}, h('thead', {}, h('tr', {}, titles)), h('tbody', {}, body)), moreButton(found.length - shown, PAGE * 10, by => { shown += by; showList(); }));
}
function choice(name, label, values) {
  return h('select', { 'aria-label': label, onchange: event => { filters[name] = event.target.value; search(); } },
    h('option', { value: '' }, 'any ' + clean(label)), values.map(value => h('option', { value, selected: filters[name] === value }, clean(value).slice(0, 60))));
}
function showControls() {
  const input = h('input', { id: 'filter', type: 'search', placeholder: 'Filter by input, id, error …', 'aria-label': 'Filter runs',
    oninput: event => { filters.text = event.target.value; search(); } });
  input.value = filters.text || '';
  const params = data.tables.map(table => table.by).filter(by => by.startsWith('param.'));
  const keys = ['model', 'agent', 'group', 'outcome', ...params].filter(key => { const n = distinct(key).length; return n > 1 && n <= 500; });
  const chips = Object.entries(filters).filter(([key, value]) => value && !['text', 'score', ...keys].includes(key)).map(([key, value]) =>
    h('button', { class: 'chosen', title: 'Remove this filter', onclick: () => { delete filters[key]; showControls(); search(); } }, `${clean(key)}: ${clean(value).slice(0, 60)} ×`));
  $('controls').replaceChildren(input, ...keys.map(key => choice(key, key.replace('param.', ''), distinct(key))), choice('score', 'score', Object.keys(SCORES)),
    ...chips, h('span', { id: 'count', class: 'dim', 'aria-live': 'polite' }));
}

// ---- start ------------------------------------------------------------------------------------------------------------

$('name').textContent = clean(data.name);
$('made').textContent = data.made_at.slice(0, 16).replace('T', ' ') + ' UTC';
$('made').title = clean(`${data.dir}, delta ${data.version}`);
$('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme === 'dark' || !document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
});
// As wide as their place.
function showCharts() {
  showGate();
  showCosts();
  showLosses();
}
showFigures();
showScores();
showCharts();
addEventListener('resize', showCharts);
showFailures();
$('runs').append(h('h2', {}, 'Runs'), h('div', { class: 'row', id: 'controls' }), h('div', { class: 'card', id: 'list' }));
function start() {
  readState();
  showControls();
  search();
}
addEventListener('hashchange', start);
start();
