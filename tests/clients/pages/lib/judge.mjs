// Whether a page shows what was said: everything, once, in order.
import assert from 'node:assert/strict';
import { textsOf } from '../../ai-sdk/stored.mjs';

const isProse = part => part.type === 'text' || part.type === 'reasoning';

/** Checks a page that has read to the end; `ids` are those of its messages. */
export function assertShowsAll({ status, error, messages }, source, ids, wanted = 'ready') {
  assert.equal(status, wanted, error);
  assert.deepEqual(messages.map(message => message.id), ids);
  const parts = messages.filter(message => message.role === 'assistant').flatMap(message => message.parts);
  const prose = parts.filter(isProse);
  assert.deepEqual(prose.map(({ type, text }) => ({ type, text })), textsOf(source));
  const calls = parts.filter(part => part.type === 'tool');
  assert.deepEqual(calls.map(part => part.call), callsOf(source));
  for (const part of prose) assert.equal(part.state, 'done', `half-open: ${part.text}`);
  for (const part of calls) assert.match(part.state, /^output-/, `half-open: ${part.call}`);
  const prompts = parts.filter(part => part.type === 'data-user-prompt').map(part => Number(part.turn));
  assert.deepEqual(prompts, source.map((_, i) => i + 1));
}

function callsOf(source) {
  const chunks = source.flat().map(([, text]) => JSON.parse(text));
  return [...new Set(chunks.map(chunk => chunk.toolCallId).filter(Boolean))];
}

/** The numbers of the demo agent's lines that a page shows. */
export function linesOf({ messages }) {
  const texts = messages.flatMap(message => message.parts).filter(part => part.type === 'text');
  return texts.flatMap(({ text }) => [...text.matchAll(/^Line (\d+) of /gm)].map(([, n]) => Number(n)));
}

/** Checks that the lines of each turn were said from first to last. `counts` has the lines of each turn. */
export function assertLines(page, counts) {
  assert.deepEqual(linesOf(page), counts.flatMap(count => Array.from({ length: count }, (_, i) => i + 1)));
}
