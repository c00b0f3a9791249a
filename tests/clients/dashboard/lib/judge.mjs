// Whether a page shows what is stored: every line, every call, every prompt, once and in order.
import assert from 'node:assert/strict';

const lines = text => text.split('\n').map(line => line.trim()).filter(Boolean);

/** What a whole page would show of a transcript. */
export function expected(parts, turns) {
  const all = [];
  const texts = new Map();
  let turn = 0;
  const begin = next => {
    while (turn < next) {
      turn += 1;
      all.push({ kind: 'turn', turn, lines: lines(turns[turn - 1].prompt) });
    }
  };
  for (const { turn: of, part } of parts) {
    begin(of);
    if (part.type === 'text-start') {
      const text = { kind: 'text', turn, lines: '' };
      texts.set(part.id, text);
      all.push(text);
    } else if (part.type === 'text-delta') texts.get(part.id).lines += part.delta;
    else if (part.type === 'tool-input-start') all.push({ kind: 'tool', turn, call: part.toolCallId });
  }
  begin(turns.length);
  for (const one of all) if (typeof one.lines === 'string') one.lines = lines(one.lines);
  return all;
}

/** What the page's rows say, blocks of one text together. */
export function shown(rows) {
  const all = [];
  let text;
  for (const row of rows) {
    assert.notEqual(row.kind, 'missing', `row ${row.index} was never drawn`);
    if (row.kind === 'text') {
      if (!text || text.place !== row.place) all.push((text = { kind: 'text', turn: row.turn, place: row.place, lines: [] }));
      text.lines.push(...lines(row.text));
      continue;
    }
    text = undefined;
    if (row.kind === 'turn') all.push({ kind: 'turn', turn: row.turn, lines: lines(row.text.replace(/^Asked:/, '')) });
    if (row.kind === 'echo') all.push({ kind: 'echo', turn: row.turn, lines: lines(row.text) });
    if (row.kind === 'tool') all.push({ kind: 'tool', turn: row.turn, call: row.call });
  }
  return all.map(({ place, ...rest }) => rest);
}

/** The page shows all of the transcript, once and in order. */
export async function assertShows(tab, stack, session) {
  const turns = await stack.settled(session);
  const parts = await stack.stored(session);
  assert.deepEqual(shown(await tab.rows()), expected(parts, turns));
}
