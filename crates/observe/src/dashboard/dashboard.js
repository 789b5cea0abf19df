'use strict';
// The dashboard: takes the whole cluster twice a second from `watch`, what was before from `history`, and shows both.
(() => {
  const $ = (id) => document.getElementById(id);
  const STAGES = ['send', 'hold', 'order', 'wait', 'engine'];

  // ---- how values are written ----

  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, '');
  const unknown = (value) => value === null || value === undefined || !Number.isFinite(value);
  const write = {
    count: (v) => (unknown(v) ? '–' : v >= 1e6 ? digits(v / 1e6) + ' M' : v >= 1e4 ? digits(v / 1e3) + ' k' : digits(v)),
    rate: (v) => (unknown(v) ? '–' : write.count(v) + '/s'),
    share: (v) => (unknown(v) ? '–' : Math.round(v * 100) + ' %'),
    bytes: (v) => {
      if (unknown(v)) return '–';
      const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
      let place = 0;
      while (v >= 1024 && place < units.length - 1) { v /= 1024; place += 1; }
      return digits(v) + ' ' + units[place];
    },
    time: (v) => {
      if (unknown(v)) return '–';
      if (v < 1e-3) return digits(v * 1e6) + ' µs';
      if (v < 1) return digits(v * 1e3) + ' ms';
      if (v < 120) return digits(v) + ' s';
      if (v < 7200) return digits(v / 60) + ' min';
      if (v < 172800) return digits(v / 3600) + ' h';
      return digits(v / 86400) + ' d';
    },
    clock: (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }),
  };

  // ---- making elements ----

  const element = (kind, properties = {}, ...children) => {
    const node = document.createElement(kind);
    for (const [name, value] of Object.entries(properties)) {
      if (name === 'class') node.className = value;
      else if (name === 'text') node.textContent = value;
      else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };
  // Leaves what is equal alone: a selection or the focus stays, and nothing is read out twice.
  const put = (node, children) => {
    const key = children.map((child) => child.outerHTML || child).join('');
    if (node.dataset.key === key) return;
    node.dataset.key = key;
    node.replaceChildren(...children);
  };
  const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const table = (node, head, rows) => {
    const cell = (kind, content) => {
      const given = typeof content === 'object' && content !== null ? content : { text: String(content) };
      const { children = [], scope, ...rest } = given;
      const out = element(kind, rest, ...children);
      if (scope) out.scope = scope;
      return out;
    };
    const line = (cells, first) => element('tr', {}, ...cells.map((content, n) => {
      const made = cell(first || n === 0 ? 'th' : 'td', content);
      if (made.tagName === 'TH') made.scope = first ? 'col' : 'row';
      return made;
    }));
    put(node, [element('thead', {}, line(head, true)), element('tbody', {}, ...rows.map((row) => line(row, false)))]);
  };
  const right = (text) => ({ text, class: 'number' });

  // ---- what is known ----

  const known = { names: [], columns: [], times: [], rows: new Map(), step: 1, changes: [], cluster: null };
  const hidden = new Set();
  let frozen = false;
  let chosen = null;
  let percentile = 'p99';
  let stageOf = null;
  const seconds = () => Number($('range').value);

  const place = (name) => known.columns.indexOf(name);
  const colour = (name) => known.names.indexOf(name) % 8;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const takeHistory = (history) => {
    known.columns = history.columns;
    known.times = history.times;
    known.step = history.step;
    known.rows = new Map(Object.entries(history.nodes));
    known.changes = history.changes;
    learn([...known.rows.keys()]);
  };
  const learn = (names) => {
    const all = [...new Set([...known.names, ...names])].sort();
    if (all.join() !== known.names.join()) {
      known.names = all;
      buildLegend();
      buildCharts();
    }
  };
  let loading = false;
  const load = async () => {
    if (loading) return;
    loading = true;
    try {
      const reply = await fetch('history?seconds=' + seconds());
      if (reply.ok) { takeHistory(await reply.json()); drawCharts(); showChanges(); }
    } catch {
      // The stream says that the monitor is away, and asks again.
    } finally {
      loading = false;
    }
  };

  const append = (cluster) => {
    const last = known.times[known.times.length - 1];
    if (known.step !== 1) {
      if (last === undefined || cluster.time - last >= known.step) load();
      return;
    }
    if (last !== undefined && cluster.time - last > 5) { load(); return; }
    if (last !== undefined && Math.floor(cluster.time) <= Math.floor(last)) return;
    known.times.push(cluster.time);
    for (const name of Object.keys(cluster.row)) {
      if (!known.rows.has(name)) known.rows.set(name, cluster.columns.map(() => new Array(known.times.length - 1).fill(null)));
    }
    for (const [name, columns] of known.rows) {
      const row = cluster.row[name];
      columns.forEach((values, n) => values.push(row ? row[n] : null));
    }
    while (known.times.length > seconds()) {
      known.times.shift();
      for (const columns of known.rows.values()) columns.forEach((values) => values.shift());
    }
    learn(Object.keys(cluster.row));
  };

  // ---- charts ----

  const perNode = (column, dashed) => () => known.names.filter((name) => !hidden.has(name)).map((name) => ({ label: name, name, column, dashed, colour: colour(name) }));
  const both = (thin, thick) => () => known.names.filter((name) => !hidden.has(name)).flatMap((name) => [
    { label: name + ' p99', name, column: thick, colour: colour(name) },
    { label: name + ' p50', name, column: thin, dashed: true, colour: colour(name) },
  ]);
  const CHARTS = [
    { id: 'commits', title: 'Commits per second, one on the other', lines: perNode('commits'), write: write.rate, stacked: true },
    { id: 'latency', title: 'Commit latency: p99, and p50 dashed', lines: both('total_p50', 'total_p99'), write: write.time, log: true },
    {
      id: 'stages', title: 'Commit latency by stage', write: write.time, log: true,
      lines: () => STAGES.map((stage, n) => ({ label: stage, name: stageOf || known.names[0], column: stage + '_' + percentile, colour: n })),
    },
    { id: 'syncs', title: 'Syncs of the log: p99, and p50 dashed', lines: both('sync_p50', 'sync_p99'), write: write.time, log: true },
    { id: 'backlog', title: 'Backlog: write sets that wait to be applied', lines: perNode('queue'), write: write.count },
    { id: 'lag', title: 'Age of what is applied (p99), in steps of 50 ms', lines: perNode('lag_p99'), write: write.time },
    { id: 'held', title: 'Writers held back by flow control', lines: perNode('held'), write: write.share },
    { id: 'conflicts', title: 'Conflicts per second', lines: perNode('conflicts'), write: write.rate },
    { id: 'delay', title: 'Delay of the group thread (p99): a machine without free processors', lines: perNode('delay_p99'), write: write.time, log: true },
    { id: 'away', title: 'Time until a full copy', lines: perNode('away'), write: write.time, log: true },
  ];
  const built = new Map();

  const valuesOf = (line) => {
    const columns = known.rows.get(line.name);
    const values = columns && columns[place(line.column)];
    return values || new Array(known.times.length).fill(null);
  };
  const dataOf = (chart, lines) => {
    const raw = lines.map(valuesOf);
    if (!chart.stacked) return [known.times, ...(chart.log ? raw.map((values) => values.map((v) => (v > 0 ? v : null))) : raw)];
    const sum = new Array(known.times.length).fill(0);
    // The first node lies at the bottom; the fill of each later one is painted before it.
    const stack = raw.map((values) => values.map((v, n) => (v === null ? null : (sum[n] += v))));
    return [known.times, ...stack.reverse()];
  };
  // A line through every chart for each thing that happened.
  const drawChanges = (u) => {
    const from = u.scales.x.min;
    const to = u.scales.x.max;
    u.ctx.save();
    for (const change of known.changes) {
      if (change.time < from || change.time > to) continue;
      const x = Math.round(u.valToPos(change.time, 'x', true));
      u.ctx.beginPath();
      u.ctx.strokeStyle = css(change.number === chosen ? '--down' : change.kind === 'verdict' || change.kind === 'health' ? '--degraded' : '--faint');
      u.ctx.lineWidth = (change.number === chosen ? 3 : 1) * devicePixelRatio;
      u.ctx.setLineDash(change.number === chosen ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
      u.ctx.moveTo(x, u.bbox.top);
      u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  };
  const buildChart = (chart) => {
    const plot = $('plot-' + chart.id);
    const old = built.get(chart.id);
    if (old) old.u.destroy();
    let lines = chart.lines();
    const ordered = chart.stacked ? [...lines].reverse() : lines;
    const axis = { stroke: css('--faint'), grid: { stroke: css('--line'), width: 1 }, ticks: { stroke: css('--line'), width: 1 } };
    const options = {
      width: Math.max(plot.clientWidth, 200),
      height: 190,
      legend: { show: false },
      cursor: { sync: { key: 'trireme' }, y: false, drag: { setScale: false, x: false, y: false } },
      scales: {
        x: { time: true },
        y: chart.log
          ? { distr: 3, range: (u, min, max) => (unknown(min) || min <= 0 ? [1e-5, 1] : uPlot.rangeLog(min, max, 10, true)) }
          : { range: (u, min, max) => [0, unknown(max) || max <= 0 ? 1 : max * 1.1] },
      },
      axes: [axis, { ...axis, size: 64, values: (u, splits) => splits.map((v) => (v === null ? null : chart.write(v))) }],
      series: [{}, ...ordered.map((line) => ({
        label: line.label,
        stroke: css('--n' + line.colour),
        width: line.dashed ? 1 : 1.5,
        dash: line.dashed ? [4, 3] : undefined,
        fill: chart.stacked ? css('--n' + line.colour) + '66' : undefined,
        points: { show: false },
        spanGaps: false,
      }))],
      hooks: { draw: [drawChanges], setCursor: [(u) => readOut(chart, u)] },
    };
    const u = new uPlot(options, dataOf(chart, lines), plot);
    u.root.setAttribute('aria-hidden', 'true');
    built.set(chart.id, { u, lines });
    describe(chart);
  };
  const buildCharts = () => CHARTS.forEach(buildChart);
  const drawCharts = () => {
    if (known.times.length === 0) return;
    const end = known.times[known.times.length - 1];
    // A monitor that was started a moment ago has less to draw.
    const begin = Math.max(end - seconds(), Math.min(known.times[0], end - 60));
    for (const chart of CHARTS) {
      const { u, lines } = built.get(chart.id) || {};
      if (!u) continue;
      u.batch(() => {
        u.setData(dataOf(chart, lines), false);
        // The other scale follows from the data.
        u.setScale('x', { min: begin, max: end });
      });
      $('plot-' + chart.id).dataset.drawn = String(u.scales.x.max ?? '');
      describe(chart);
    }
  };
  const textAt = (chart, at) => {
    const lines = built.get(chart.id).lines;
    return lines.map((line) => line.label + ' ' + chart.write(valuesOf(line)[at])).join(', ');
  };
  // The newest values: for those who do not see the lines, and as the line below them.
  const describe = (chart) => {
    const { u, lines } = built.get(chart.id);
    const plot = $('plot-' + chart.id);
    const all = lines.map(valuesOf);
    let last = known.times.length - 1;
    plot.dataset.points = String(all.reduce((sum, values) => sum + values.filter((v) => v !== null).length, 0));
    plot.dataset.last = JSON.stringify(all.map((values) => values[last] ?? null));
    const most = (values) => values.reduce((top, v) => (v !== null && (top === null || v > top) ? v : top), null);
    plot.dataset.most = JSON.stringify(Object.fromEntries(lines.map((line, n) => [line.label, most(all[n])])));
    const text = last < 0 ? 'nothing yet' : 'now: ' + textAt(chart, last);
    plot.setAttribute('aria-label', chart.title + '; ' + text + '. Arrow keys read earlier values.');
    if (unknown(u.cursor.idx)) say($('read-' + chart.id), text);
  };
  const readOut = (chart, u) => {
    const at = u.cursor.idx;
    if (unknown(at) || at >= known.times.length) return;
    say($('read-' + chart.id), write.clock(known.times[at]) + ': ' + textAt(chart, at));
  };
  const keys = (chart) => (event) => {
    const u = built.get(chart.id).u;
    const last = known.times.length - 1;
    const at = unknown(u.cursor.idx) ? last : u.cursor.idx;
    const far = Math.max(1, Math.round(last / 20));
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - far, PageDown: at + far, Home: 0, End: last }[event.key];
    if (event.key === 'Escape') { u.setCursor({ left: -10, top: -10 }); describe(chart); return; }
    if (to === undefined || last < 0) return;
    event.preventDefault();
    const index = Math.min(last, Math.max(0, to));
    u.setCursor({ left: Math.max(0, u.valToPos(known.times[index], 'x')), top: 1 });
  };
  const makeFigures = () => {
    for (const chart of CHARTS) {
      const caption = element('figcaption', {}, element('h2', { text: chart.title, id: 'h-' + chart.id }));
      if (chart.id === 'stages') {
        const which = element('select', { id: 'stage-node', 'aria-label': 'Node whose stages are drawn', onchange: (e) => { stageOf = e.target.value; buildChart(chart); drawCharts(); } });
        const part = element('select', { id: 'stage-part', 'aria-label': 'Which commits', onchange: (e) => { percentile = e.target.value; buildChart(chart); drawCharts(); } },
          element('option', { value: 'p99', text: 'p99' }), element('option', { value: 'p50', text: 'p50' }));
        // Here a colour is a stage, and not a node as in the other charts.
        const marks = STAGES.map((stage, n) => element('span', {}, element('span', { class: 'mark n' + n, 'aria-hidden': 'true' }), stage));
        caption.append(element('span', {}, which, ' ', part), element('span', { id: 'stage-marks', class: 'marks' }, ...marks));
      }
      const plot = element('div', { id: 'plot-' + chart.id, class: 'plot', tabindex: '0', role: 'img', 'aria-label': chart.title, onkeydown: keys(chart) });
      $('charts').append(element('figure', {}, caption, plot, element('output', { id: 'read-' + chart.id, 'aria-live': 'off' })));
      // While the chart has the focus its values are read out.
      plot.addEventListener('focus', () => $('read-' + chart.id).setAttribute('aria-live', 'polite'));
      plot.addEventListener('blur', () => $('read-' + chart.id).setAttribute('aria-live', 'off'));
      new ResizeObserver(() => {
        const made = built.get(chart.id);
        if (made && plot.clientWidth > 0 && plot.clientWidth !== made.u.width) made.u.setSize({ width: plot.clientWidth, height: 190 });
      }).observe(plot);
    }
  };
  const buildLegend = () => {
    const one = (name) => element('button', {
      type: 'button', 'aria-pressed': String(!hidden.has(name)),
      onclick: (event) => {
        if (!hidden.delete(name)) hidden.add(name);
        event.currentTarget.setAttribute('aria-pressed', String(!hidden.has(name)));
        buildCharts();
        drawCharts();
      },
    }, element('span', { class: 'mark n' + colour(name), 'aria-hidden': 'true' }), name);
    $('legend').replaceChildren(...known.names.map(one));
    if (!known.names.includes(stageOf)) stageOf = known.cluster?.here ?? known.names[0];
    $('stage-node').replaceChildren(...known.names.map((name) => {
      const option = element('option', { value: name, text: name });
      option.selected = name === stageOf;
      return option;
    }));
  };

  // ---- panels ----

  const WORDS = { well: 'well', degraded: 'degraded', down: 'down' };
  const showBanner = (cluster) => {
    const banner = $('banner');
    const className = 'banner ' + cluster.level;
    if (banner.className !== className) banner.className = className;
    say($('level'), WORDS[cluster.level] || cluster.level);
    const [first = 'Nothing is known.', ...rest] = cluster.sentences;
    say($('verdict'), first + '.');
    put($('sentences'), rest.map((text) => element('li', { text: text + '.' })));
    const it = cluster.clusters[0];
    const name = it ? it.name : 'no cluster';
    say($('title'), 'Cluster ' + name);
    document.title = (cluster.level === 'well' ? '' : cluster.level.toUpperCase() + ' – ') + name + ' – Trireme';
    const facts = [];
    if (it) {
      facts.push(it.provider, it.primary ? 'primary' : 'not primary');
      if (it.members !== null) facts.push(it.members + ' members');
      if (it.votes) facts.push('failures tolerated: ' + it.votes.failures_survived);
      if (it.sequencer !== null) facts.push('sequencer: ' + (it.sequencer || 'being elected'));
      if (it.term !== null) facts.push('term ' + it.term);
      if (it.durability) facts.push('durability ' + it.durability);
      if (it.uuid) facts.push('history ' + it.uuid);
    }
    say($('facts'), facts.join(' · '));
    say($('from'), 'Told by the monitor beside ' + (cluster.here || 'no node') + ', ' + write.clock(cluster.time) + '.');
    put($('notes'), cluster.notes.map((text) => element('li', { text: text + '.' })));
    $('notes-section').hidden = cluster.notes.length === 0;
  };
  const showMembers = (cluster) => {
    const why = cluster.nodes.some((node) => node.why);
    const head = ['Node', 'Health', 'State', 'Role', right('Votes'), right('Commits'), right('p50'), right('p99'), right('Sync p99'), right('Backlog'), right('Behind'), right('Seqno'), 'Version', 'Address', ...(why ? ['Why'] : [])];
    table($('members'), head, cluster.nodes.map((node) => [
      { children: [element('span', { class: 'mark n' + Math.max(0, colour(node.name)), 'aria-hidden': 'true' }), node.name] },
      { children: [element('span', { class: 'tag ' + node.health, text: node.health })] },
      node.state ?? '–',
      node.role ?? (node.primary ? 'primary' : '–'),
      right(String(node.votes ?? '–')),
      right(write.rate(node.rates.commits)),
      right(write.time(node.times.total?.p50)),
      right(write.time(node.times.total?.p99)),
      right(write.time(node.times.sync?.p99)),
      right(write.count(node.queue)),
      right(write.count(node.behind)),
      right(unknown(node.seqno) ? '–' : String(node.seqno)),
      (node.provider ? node.provider + ' ' : '') + (node.version ?? ''),
      node.address ?? '–',
      ...(why ? [{ text: node.why ?? '', class: 'why' }] : []),
    ]));
  };
  const REASONS = { behind: 'has more to apply than it can', stands: 'applies nothing', unknown: 'for an unknown reason' };
  const showThrottle = (cluster) => {
    const names = cluster.nodes.map((node) => node.name);
    const causes = [...new Set([...names, ...cluster.throttle.map((cell) => cell.by || 'unknown')])];
    table($('throttle'), ['', ...causes.map((name) => right(name))], names.map((name) => [name, ...causes.map((by) => {
      const cells = cluster.throttle.filter((cell) => cell.node === name && (cell.by || 'unknown') === by);
      const share = cells.reduce((sum, cell) => sum + cell.share, 0);
      const minute = cells.reduce((sum, cell) => sum + cell.minute, 0);
      if (share < 0.005 && minute < 0.005) return right(name === by ? '' : '0');
      const why = [...new Set(cells.map((cell) => cell.reason))].join(', ');
      return { text: (share < 0.005 ? '' : write.share(share) + ' ') + why + ', ' + write.time(minute) + ' in a minute', class: share > 0.05 ? 'number hot' : 'number' };
    })]));
    const words = cluster.slow.map((slow) => slow.node + (slow.rate === 0 ? ' applies nothing' : ' lets the group write ' + write.rate(slow.rate))
      + (unknown(slow.backlog) ? '' : ', ' + write.count(slow.backlog) + ' write sets behind') + '.');
    const waits = [...new Set(cluster.throttle.filter((cell) => cell.share > 0.05).map((cell) => (cell.by || 'somebody') + ' ' + (REASONS[cell.reason] || cell.reason)))];
    if (waits.length > 0) words.unshift('Writers wait: ' + waits.join('; ') + '.');
    cluster.nodes.filter((node) => node.gave_up).forEach((node) => words.push(node.name + ' applies nothing and slows nobody any more.'));
    say($('throttle-words'), words.join(' ') || 'Nobody waits.');
  };
  const showTrips = (cluster) => {
    const names = cluster.nodes.map((node) => node.name);
    table($('trips'), ['', ...names.map((name) => right(name))], names.map((name) => [name, ...names.map((to) => {
      if (name === to) return right('');
      const cell = cluster.round_trips.find((trip) => trip.from === name && trip.to === to);
      return right(cell ? write.time(cell.p50) + ' / ' + write.time(cell.p99) : 'unknown');
    })]));
  };
  const showLog = (cluster) => {
    const head = ['Node', right('Log'), right('May take'), right('Entries'), right('Written'), right('Until a full copy')];
    table($('log'), head, cluster.nodes.map((node) => [
      node.name,
      right(write.bytes(node.log_bytes)),
      right(write.bytes(node.log_max_bytes)),
      right(unknown(node.log_first) || unknown(node.log_last) ? '–' : write.count(Math.max(0, node.log_last - node.log_first + 1))),
      right(unknown(node.rates.received_bytes) ? '–' : write.bytes(node.rates.received_bytes + (node.rates.sent_bytes || 0)) + '/s'),
      right(write.time(node.away_seconds)),
    ]));
  };
  const showTransfers = (cluster) => {
    const now = cluster.nodes.filter((node) => node.state && node.state !== 'Synced' && node.health !== 'gone').map((node) => {
      const long = unknown(node.state_since) ? '' : ' for ' + write.time(Math.max(0, Math.round(cluster.time - node.state_since)));
      const behind = node.behind > 0 ? ', ' + write.count(node.behind) + ' write sets behind' : '';
      return element('li', { text: node.name + ' is ' + node.state + long + behind + '.' });
    });
    const done = known.changes.filter((change) => change.kind === 'state').slice(-8).reverse();
    const past = done.map((change) => element('li', { text: write.clock(change.time) + ' ' + change.text + '.' }));
    put($('transfers'), [...(now.length > 0 ? now : [element('li', { text: 'None at present.' })]), ...past]);
  };
  const showChanges = () => {
    const one = (change) => element('li', { value: String(change.number) }, element('button', {
      type: 'button', 'aria-pressed': String(change.number === chosen), 'data-number': String(change.number),
      onclick: () => { chosen = chosen === change.number ? null : change.number; showChanges(); drawCharts(); document.querySelector('[data-number="' + change.number + '"]')?.focus(); },
    }, element('time', { datetime: new Date(change.time * 1000).toISOString(), text: write.clock(change.time) }), change.text));
    const shown = known.changes.slice(-200).reverse();
    put($('changes'), shown.length > 0 ? shown.map(one) : [element('li', { text: 'Nothing yet.' })]);
  };
  const takeChanges = (changes) => {
    const last = known.changes.length > 0 ? known.changes[known.changes.length - 1].number : 0;
    // A monitor that was started again counts from one.
    if (changes.length > 0 && changes[changes.length - 1].number < last) known.changes = [];
    const fresh = changes.filter((change) => known.changes.every((old) => old.number < change.number));
    if (fresh.length > 0) known.changes = [...known.changes, ...fresh].slice(-1000);
    return fresh.length > 0;
  };

  const show = (cluster) => {
    known.cluster = cluster;
    append(cluster);
    const fresh = takeChanges(cluster.changes);
    if (frozen) return;
    showBanner(cluster);
    showMembers(cluster);
    showThrottle(cluster);
    showTrips(cluster);
    showLog(cluster);
    showTransfers(cluster);
    if (fresh || !$('changes').dataset.key) showChanges();
    drawCharts();
  };

  // ---- the connection ----

  const connect = () => {
    const source = new EventSource('watch');
    source.addEventListener('open', load);
    source.addEventListener('cluster', (event) => {
      document.documentElement.dataset.frames = String(Number(document.documentElement.dataset.frames || 0) + 1);
      show(JSON.parse(event.data));
    });
    source.addEventListener('error', () => {
      $('banner').className = 'banner lost';
      say($('level'), 'no connection');
      say($('verdict'), 'The monitor does not answer: what is shown is old. It is tried again.');
      // The browser tries again by itself, unless the answer was an error.
      if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 3000); }
    });
  };

  const range = (() => { try { return localStorage.getItem('range'); } catch { return null; } })();
  if (range && [...$('range').options].some((option) => option.value === range)) $('range').value = range;
  $('range').addEventListener('change', () => {
    try { localStorage.setItem('range', $('range').value); } catch { /* a browser without memory */ }
    load();
  });
  $('freeze').addEventListener('click', () => {
    frozen = !frozen;
    $('freeze').setAttribute('aria-pressed', String(frozen));
    say($('freeze'), frozen ? 'Frozen: go on' : 'Freeze');
    if (!frozen && known.cluster) show(known.cluster);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { buildCharts(); drawCharts(); });
  makeFigures();
  connect();
})();
