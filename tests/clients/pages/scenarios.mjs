// What happens to pages. Each is given how to open one, and ends with the proof that everything is shown, once, in order.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { assertLines, assertShowsAll, linesOf } from './lib/judge.mjs';
import { until } from './lib/level.mjs';
import { Session } from './lib/session.mjs';

/** How long a phone is in the lift. */
const OFFLINE_MS = 20_000;

const wholeId = session => `durable-${session.id}`;
const turnId = (session, turn) => `durable-${session.id}-${turn}`;

/** Checks that a page asked the gateway so and was never refused: `GET`, `POST`, each with `+cursor` where it had one, and
 * `lost` where the network kept the answer. */
async function assertAsked(tab, wanted) {
  const requests = await tab.requests();
  const told = requests.map(({ method, cursor, status = 'lost' }) => `${method}${cursor ? '+cursor' : ''} ${status}`);
  assert.deepEqual(told, wanted);
}

/** Reloaded in mid-answer, and once more at the end: an empty list and no cursor. */
export async function reload(open) {
  const session = await Session.create('Tidy parts=200 gate=go');
  const tab = await open(session);
  await tab.untilInTheMiddle(100);
  await tab.reload();
  await tab.untilInTheMiddle(100);
  await assertAsked(tab, ['GET 200']);
  await session.openGate('go');
  const page = await tab.untilRead();
  const source = await session.source();
  assertShowsAll(page, source, [wholeId(session)]);
  assertLines(page, [200]);
  await tab.reload();
  assertShowsAll(await tab.untilRead(), source, [wholeId(session)]);
  return tab;
}

/** A second turn by the page's own POST; then there is nothing to read on; then a reload shows both turns in one message. */
export async function secondTurn(open, { inTheMiddle = async () => [] } = {}) {
  const session = await Session.create('Tidy parts=40');
  const tab = await open(session);
  await tab.untilRead();
  await tab.send('Again parts=200 gate=go');
  await tab.untilInTheMiddle(140);
  const between = await inTheMiddle(tab, session);
  await session.openGate('go');
  const page = await tab.untilRead(3);
  const source = await session.source();
  const [first, prompt, second] = page.messages;
  assert.equal(prompt.role, 'user');
  assert.equal(prompt.parts[0].text, 'Again parts=200 gate=go');
  assertShowsAll(page, source, [wholeId(session), prompt.id, turnId(session, 2)]);
  assertLines({ messages: [first] }, [40]);
  assertLines({ messages: [second] }, [200]);

  await tab.readOn();
  await until('the last request is answered', async () => (await tab.requests()).at(-1).status === 204);
  await assertAsked(tab, ['GET 200', 'POST 200', ...between, 'GET+cursor 204']);
  assert.deepEqual(await tab.untilRead(3), page);

  await tab.reload();
  assertShowsAll(await tab.untilRead(), source, [wholeId(session)]);
  return tab;
}

/** The network is lost in mid-answer: the page keeps its list and reads on behind its cursor. */
export async function drop(open, edge) {
  const session = await Session.create('Tidy parts=200 gate=go');
  const tab = await open(session);
  await tab.untilInTheMiddle(100);
  edge.cut();
  await tab.untilStreams(2);
  await session.openGate('go');
  const page = await tab.untilRead();
  assertShowsAll(page, await session.source(), [wholeId(session)]);
  assertLines(page, [200]);
  await assertAsked(tab, ['GET 200', 'GET+cursor 200']);
  return tab;
}

/** The network is lost again and again while the agent speaks as fast as it can. What the browser had not handed over then is
 * lost with it, so the cursor must be that of what the page shows. */
export async function drops(open, edge) {
  const session = await Session.create('Tidy parts=900 gate=go');
  const tab = await open(session);
  await tab.untilInTheMiddle(450);
  edge.cutAfter(10_000, 3);
  await session.openGate('go');
  const page = await tab.untilRead();
  assertShowsAll(page, await session.source(), [wholeId(session)]);
  assertLines(page, [900]);
  await assertAsked(tab, ['GET 200', ...Array(3).fill('GET+cursor 200')]);
  return tab;
}

/** In the middle of a POST's answer. */
export async function dropSecondTurn(open, edge) {
  const inTheMiddle = async tab => {
    edge.cut();
    await tab.untilStreams(3);
    return ['GET+cursor 200'];
  };
  return secondTurn(open, { inTheMiddle });
}

/** Two tabs see the same; one of them asks, the other reads on. */
export async function twoTabs(open) {
  const session = await Session.create('Tidy parts=100 gate=one');
  const asking = await open(session);
  await asking.untilInTheMiddle(50);
  const other = await open(session);
  await other.untilInTheMiddle(50);
  await session.openGate('one');
  for (const tab of [asking, other]) {
    assertLines(await tab.untilRead(), [100]);
  }

  await asking.send('Again parts=100 gate=two');
  await asking.untilInTheMiddle(150);
  await other.readOn();
  await other.untilInTheMiddle(150);
  await session.openGate('two');
  const pages = [await asking.untilRead(3), await other.untilRead(2)];
  const source = await session.source();
  const idsOf = page => page.messages.map(message => message.id);
  assert.deepEqual(idsOf(pages[0]).toSpliced(1, 1), [wholeId(session), turnId(session, 2)]);
  assert.equal(pages[1].messages.length, 2);
  for (const page of pages) {
    assertShowsAll(page, source, idsOf(page));
    assertLines(page, [100, 100]);
  }
  await other.reload();
  assertShowsAll(await other.untilRead(), source, [wholeId(session)]);
  return asking;
}

/** Offline for a while, in which the agent goes on, and back before it ends. */
export async function offline(open, edge) {
  const session = await Session.create('Tidy parts=120 pace=8 gate=go');
  const tab = await open(session);
  await tab.untilInTheMiddle(5);
  await tab.setOffline(true);
  // Chromium's emulation refuses what is new and lets an open stream go on
  edge.cut();
  const left = await tab.until('the page is cut off', page => page.status === 'error');
  await pause(OFFLINE_MS);
  assert.equal(await tab.isOnline(), false);
  assert.deepEqual(linesOf(await tab.shown()), linesOf(left));
  await tab.setOffline(false);
  await tab.untilInTheMiddle(60);
  await session.openGate('go');
  const page = await tab.untilRead();
  assertShowsAll(page, await session.source(), [wholeId(session)]);
  assertLines(page, [120]);
  const [first, ...more] = (await tab.requests()).map(request => request.cursor);
  assert.equal(first, null);
  assert.ok(more.length >= 1 && more.every(Boolean), 'each time with a cursor');
  return tab;
}
