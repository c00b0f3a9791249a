// Reads jobs from standard input, a line of JSON each: a session's stream and what is stored of it. Every client reads it whole
// and folded; the verdict is a line of JSON.
import { createInterface } from 'node:readline';
import { loadClients, resume } from './clients.mjs';
import { faultsOfEvents, faultsOfFolding, faultsOfPage, told } from './judge.mjs';
import { bytesByCursor, finishedCalls, textsOf } from './stored.mjs';

/** A time is the least of so many: the machine may do other things. */
const TRIES = 3;
/** What a folded replay of twenty thousand deltas may take a page, from its request to its last word, on a machine that does nothing else. */
const FOLDED_MS = 500;
/** Whether the machine is free to be measured; otherwise only what folding saves is judged. */
const MEASURED = process.env.BEX_CLIENTS_MEASURED === 'true';

const clients = await loadClients();

for await (const line of createInterface({ input: process.stdin })) {
  const verdict = await judge(JSON.parse(line));
  process.stdout.write(`${JSON.stringify(verdict)}\n`);
}

async function judge(job) {
  const about = {
    ...job,
    texts: textsOf(job.turns),
    finished: finishedCalls(job.turns),
    stored: bytesByCursor(job.turns),
  };
  const verdict = { runs: 0, faults: [], notes: [] };
  for (const client of clients) {
    if (job.timed && !client.isNewest) continue;
    const whole = await read(client, about, 'whole', verdict);
    const folded = await read(client, about, 'folded', verdict);
    if (!whole || !folded) continue;
    for (const fault of faultsOfFolding(folded, whole, { ...client, ...about })) {
      verdict.faults.push(`ai ${client.version} folded: ${fault}`);
    }
    if (job.timed) {
      const least = Math.min(folded.ms, ...(await timesOf(client, about, verdict)));
      const [took, without] = [least, whole.ms].map(ms => `${ms.toFixed(0)} ms`);
      verdict.notes.push(`ai ${client.version} with ?compact=1 ${took} (floor: under ${FOLDED_MS} ms), without ${without}`);
      const bound = MEASURED ? FOLDED_MS : whole.ms / 2;
      if (least >= bound) verdict.faults.push(`ai ${client.version} with ?compact=1 takes ${took}, without ${without}`);
    }
  }
  return verdict;
}

/** What further folded reads take. */
async function timesOf(client, about, verdict) {
  const times = [];
  for (let i = 1; i < TRIES; i += 1) times.push((await read(client, about, 'folded', verdict))?.ms ?? Infinity);
  return times;
}

/** One client, one stream; `undefined` when it threw. */
async function read(client, about, how, verdict) {
  const query = [client.query, how === 'folded' ? 'compact=1' : ''].filter(Boolean).join('&');
  const fault = text => verdict.faults.push(`ai ${client.version} ${how}: ${text}`);
  let events = Promise.resolve('');
  const fetched = async (_url, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set('x-bex-agent-ticket', about.tickets.pop());
    const response = await fetch(`${about.url}?${query}`, { ...init, headers });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    events = response.clone().text();
    return response;
  };
  verdict.runs += 1;
  try {
    const asked = performance.now();
    const page = await resume(client, fetched);
    page.ms = performance.now() - asked;
    faultsOfPage(page, about).forEach(fault);
    // an error is the last thing a client reads, and it may be cut off behind it
    if (!about.endsInError) faultsOfEvents(await events, about, how === 'folded').forEach(fault);
    return page;
  } catch (error) {
    fault(`threw ${told(error)}`);
    return undefined;
  }
}
