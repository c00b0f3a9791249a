// What the stored chunks say, worked out without the gateway's state machine: which texts there must be, and which calls are
// through.

const isText = value => typeof value === 'string';
/** What is no Unicode or holds a NUL names nothing that could be stored. */
const isId = value => isText(value) && value.isWellFormed() && !value.includes('\0');
const ENDS_RUNS = new Set(['start-step', 'finish-step', 'finish', 'abort', 'error']);
const ANSWERS = new Set(['tool-output-available', 'tool-output-error', 'tool-output-denied', 'tool-input-error']);

/** The chunks of a turn in order, with `null` where parts are known to be missing. */
function* chunksOf(turn) {
  let next = 0;
  for (const [index, text] of turn) {
    if (index > next) yield null;
    next = index + 1;
    // what nests too deep for clients is shown to them as a text, and is part of nothing
    if (!/\[{512}/.test(text)) yield JSON.parse(text);
  }
}

/** Every text and reasoning in the order in which it began, as its deltas join. */
export function textsOf(turns) {
  const texts = [];
  for (const turn of turns) {
    const open = new Map();
    for (const chunk of chunksOf(turn)) {
      if (chunk === null || ENDS_RUNS.has(chunk.type)) {
        open.clear();
        continue;
      }
      const [, type, what] = /^(text|reasoning)-(start|delta|end)$/.exec(chunk.type) ?? [];
      if (!type || !isId(chunk.id) || (what === 'delta' && !isText(chunk.delta))) continue;
      const key = `${type} ${chunk.id}`;
      if (what === 'end') {
        open.delete(key);
        continue;
      }
      if (what === 'start' || !open.has(key)) {
        const run = { type, text: '' };
        texts.push(run);
        open.set(key, run);
      }
      if (what === 'delta') open.get(key).text += chunk.delta;
    }
  }
  return texts;
}

/** Calls that are always answered before their step ends: of no other id may a page be asked to run a tool. */
export function finishedCalls(turns) {
  const finished = new Set();
  const unfinished = new Set();
  for (const turn of turns) {
    const called = new Set();
    const leave = () => {
      called.forEach(id => unfinished.add(id));
      called.clear();
    };
    for (const chunk of chunksOf(turn)) {
      if (chunk === null || ENDS_RUNS.has(chunk.type)) leave();
      else if (!isId(chunk.toolCallId)) continue;
      else if (chunk.type === 'tool-input-available') called.add(chunk.toolCallId);
      else if (ANSWERS.has(chunk.type) && called.delete(chunk.toolCallId)) finished.add(chunk.toolCallId);
    }
    leave();
  }
  return new Set([...finished].filter(id => !unfinished.has(id)));
}

/** Stored bytes by their cursor. */
export function bytesByCursor(turns) {
  return new Map(turns.flatMap((turn, t) => turn.map(([index, text]) => [`${t + 1}.${index}`, text])));
}
