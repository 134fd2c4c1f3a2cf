// The Markdown of messages, as elements of the kinds that `Markdown` below lists, with text nodes in them.
'use strict';

// Where a link may lead; `delta view` lists no others as links.
const LINK_SCHEMES = ['http:', 'https:', 'mailto:'];
const CELL_ALIGNMENTS = ['', 'left', 'centre', 'right'];

// A switch that is remembered, if the browser remembers anything for this page.
function remembered(name) {
  return {
    get: () => { try { return localStorage.getItem(name); } catch { return null; } },
    set: value => { try { localStorage.setItem(name, value); } catch { /* storage is blocked */ } },
  };
}
const markdownStorage = remembered('delta-markdown');
let isRendered = markdownStorage.get() !== 'off';

// Builds the elements of a text from the steps that `delta view` found in it, with the numbers of its `StepKind`.
class Markdown {
  constructor(source, steps) {
    this.source = source;
    this.steps = steps;
    this.at = 0;
    this.root = document.createElement('div');
    this.stack = [this.root];
  }
  next() { return this.steps[this.at++]; }
  top() { return this.stack[this.stack.length - 1]; }
  add(el) { this.top().append(el); }
  open(tag, kind) {
    const el = document.createElement(tag);
    if (kind) el.className = kind;
    this.add(el);
    this.stack.push(el);
    return el;
  }
  close() {
    const el = this.stack.pop();
    if (el.target_text === undefined) return;
    // Where a link leads is read, not guessed from its text.
    const after = [el.target_text !== el.textContent && el.target_text, el.title_text && '"' + el.title_text + '"'].filter(Boolean).join(' ');
    if (after) this.add(h('span', {class: 'target-text'}, ' (' + after + ')'));
  }
  openTarget(tag, kind, isLink) {
    const target = String(this.next()), title = this.next();
    const url = isLink && URL.canParse(target) ? new URL(target) : null;
    const el = this.open(url && LINK_SCHEMES.includes(url.protocol) ? 'a' : tag, kind);
    if (el.tagName === 'A') {
      el.setAttribute('href', target);
      el.setAttribute('rel', 'noreferrer noopener');
      el.setAttribute('target', '_blank');
    }
    el.target_text = target;
    el.title_text = title;
  }
  build() {
    while (this.at < this.steps.length && this.stack.length) this.step(this.next());
    return this.root;
  }
  step(kind) {
    switch (kind) {
      case 0: return this.close();
      case 1: { const start = this.next(); return this.add(textNode(this.source.slice(start, start + this.next()))); }
      case 2: return this.add(textNode(String(this.next())));
      case 3: return this.add('\n');
      case 4: return this.add(document.createElement('hr'));
      case 5: return this.add(h('span', {class: 'box'}, this.next() ? '☑ ' : '☐ '));
      case 10: return this.open('p');
      case 11: { const level = Math.min(Math.max(this.next(), 1), 6), el = this.open('p', 'h h' + level); el.setAttribute('role', 'heading'); return el.setAttribute('aria-level', level + 2); }
      case 12: return this.open('blockquote');
      case 13: { const info = this.next(), el = this.open('pre'); return info && el.append(h('span', {class: 'language'}, info + '\n')); }
      case 14: return this.open('ul');
      case 15: return this.open('ol').setAttribute('start', this.next());
      case 16: return this.open('li');
      case 17: { this.open('div', 'wide'); const box = this.stack.pop(), el = document.createElement('table'); box.append(el); return this.stack.push(el); }
      case 18: return this.open('tr', 'head');
      case 19: return this.open('tr');
      case 20: { const align = CELL_ALIGNMENTS[this.next()]; return this.open(this.top().className === 'head' ? 'th' : 'td', align); }
      case 21: return this.open('em');
      case 22: return this.open('strong');
      case 23: return this.open('del');
      case 24: return this.open('code');
      case 25: return this.openTarget('span', 'link', true);
      case 26: return this.openTarget('span', 'link', false);
      case 27: this.openTarget('span', 'picture', false); return this.add('image: ');
      default: throw new Error('unknown step ' + kind);
    }
  }
}

const BLOCKS = new Set(['P', 'BLOCKQUOTE', 'PRE', 'UL', 'OL', 'LI', 'HR', 'TR', 'TH', 'TD', 'TABLE']);
// The text nodes of an element with their offsets, and their whole text, in which blocks are apart.
function flatten(el) {
  const walker = document.createTreeWalker(el, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT), nodes = [];
  let whole = '';
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.nodeType === Node.TEXT_NODE) { nodes.push([whole.length, node]); whole += node.data; }
    else if (BLOCKS.has(node.tagName)) whole += '\n';
  }
  return {nodes, whole};
}
// A message as the page shows it, for the search.
const readText = (whole, steps) => isRendered && steps ? flatten(new Markdown(whole, steps).build()).whole : whole;

// A message: its Markdown rendered, or the text as it is.
function prose(whole, steps, {lines}) {
  const box = h('div', {class: 'prose'});
  box.draw = () => {
    const isWhole = box.isWhole || false;
    if (!isRendered || !steps) box.replaceChildren(text(whole, {lines, prose: true}));
    else {
      const inner = new Markdown(whole, steps).build(), shown = h('div', {class: 'text'}, inner);
      inner.className = 't md';
      if (!isWhole && (whole.length > lines * 240 || whole.split('\n', lines + 3).length > lines + 2)) {
        inner.style.maxHeight = lines * 1.6 + 'em';
        inner.classList.add('cut');
        const button = h('button', {type: 'button', class: 'all', onclick: () => { inner.style.maxHeight = ''; inner.classList.remove('cut'); button.remove(); }}, 'show all · ' + bytes(new Blob([whole]).size));
        shown.append(button);
      }
      box.replaceChildren(shown);
    }
    const button = box.querySelector('button.all');
    if (button) button.addEventListener('click', () => { box.isWhole = true; });
    if (button && isWhole) button.click();
  };
  box.draw();
  return box;
}
function showMarkdownSwitch() {
  $('markdown').setAttribute('aria-pressed', String(!isRendered));
}
// Draws the messages in the other way, and keeps what is being read in its place.
function toggleMarkdown() {
  const anchor = scrollY > 0 && articles.length ? articles[current()] : null;
  const before = anchor && anchor.getBoundingClientRect().top;
  isRendered = !isRendered;
  markdownStorage.set(isRendered ? 'on' : 'off');
  showMarkdownSwitch();
  document.querySelectorAll('.prose').forEach(box => box.draw());
  for (const one of data.runs) {
    one.iterations.forEach(it => { it.units = undefined; });
    one.restUnits = undefined;
  }
  if (needle) search();
  if (anchor) scrollBy(0, anchor.getBoundingClientRect().top - before);
}

