// What a page may hold after a stream, and what it may not.
import { isDeepStrictEqual } from 'node:util';

const isTool = part => part.type.startsWith('tool-') || part.type === 'dynamic-tool';
const isProse = part => part.type === 'text' || part.type === 'reasoning';
const cut = text => (text.length > 400 ? `${text.slice(0, 400)}…` : text);
const show = value => cut(JSON.stringify(value) ?? 'nothing');

/** An error in one line. */
export const told = error => cut(String(error?.stack ?? error).replace(/\s+/g, ' '));

/** Faults of one client with one stream. */
export function faultsOfPage(page, { session, texts, endsInError }) {
  const faults = [];
  const fault = text => void faults.push(text);
  const wanted = endsInError ? 'error' : 'ready';
  if (page.status !== wanted) fault(`status ${page.status}, not ${wanted}: ${told(page.error)}`);
  if (endsInError && page.error?.name !== 'Error') fault(`threw ${told(page.error)}`);
  const [message, ...more] = page.messages;
  if (!message || more.length > 0) {
    fault(`${page.messages.length} messages`);
    return faults;
  }
  if (message.role !== 'assistant' || message.id !== `durable-${session}`) fault(`message ${message.role} ${message.id}`);
  const prose = message.parts.filter(isProse).map(({ type, text }) => ({ type, text }));
  const at = texts.findIndex((text, i) => !isDeepStrictEqual(text, prose[i]));
  if (at >= 0) fault(`text ${at} is ${show(prose[at])}, stored is ${show(texts[at])}`);
  else if (prose.length > texts.length) fault(`a text that nobody spoke: ${show(prose[texts.length])}`);
  for (const part of message.parts) {
    if (isProse(part) && part.state !== 'done') fault(`half-open: ${show(part)}`);
    if (isTool(part) && !part.state.startsWith('output-')) fault(`half-open: ${show(part)}`);
  }
  return faults;
}

/** What of a part may depend on how its stream was folded: nothing that is shown. What a call says of itself is said by its start
 * then, which only some versions listen to. */
function shown(part, startsTell) {
  const { rawInput, ...rest } = part;
  if (!startsTell) for (const told of ['callProviderMetadata', 'title', 'toolMetadata']) delete rest[told];
  return Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
}

/** Faults of a folded page beside the same client's whole one. */
export function faultsOfFolding(page, whole, { finished, startsTell }) {
  const faults = [];
  const [folded, plain] = [page, whole].map(p => (p.messages[0]?.parts ?? []).map(part => shown(part, startsTell)));
  const at = plain.findIndex((part, i) => !isDeepStrictEqual(part, folded[i]));
  if (at >= 0) faults.push(`part ${at} folded is ${show(folded[at])}, whole ${show(plain[at])}`);
  else if (folded.length > plain.length) faults.push(`one part more when folded: ${show(folded[plain.length])}`);
  if (!isDeepStrictEqual(page.messages[0]?.metadata, whole.messages[0]?.metadata)) faults.push('other metadata when folded');
  const again = page.calls.filter(id => finished.has(id));
  if (again.length > 0) faults.push(`a page is asked to run finished calls again: ${show(again)}`);
  return faults;
}

/** Whether other bytes are shown for a stored part than it has. Of a turn's own start and end only the metadata is. */
const isAltered = (shown, stored) => shown !== stored && !/"type":"(start|finish)"/.test(stored ?? '');

/** Faults of the events themselves. */
export function faultsOfEvents(text, { wellFormed, finished, stored }, folded) {
  const faults = [];
  if (!text.endsWith('data: [DONE]\n\n')) faults.push('no [DONE]');
  for (const event of text.split('\n\n')) {
    const { id, data } = /^(?:id: (?<id>.*)\n)?data: (?<data>.*)$/.exec(event)?.groups ?? {};
    if (data === undefined || data === '[DONE]') continue;
    if (wellFormed && !folded && id && isAltered(data, stored.get(id))) faults.push(`${id} is not as stored: ${data}`);
    if (!folded) continue;
    const chunk = JSON.parse(data);
    const call = chunk.type === 'tool-input-available' && !chunk.providerExecuted;
    if (call && finished.has(chunk.toolCallId)) faults.push(`a finished call as a call: ${data}`);
  }
  return faults;
}
