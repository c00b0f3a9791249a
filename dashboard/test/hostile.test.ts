// A world that fails, and programs that say what nobody expects.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Client } from '../src/api/client';
import { Once } from '../src/api/once';
import { Paged } from '../src/api/paged';
import { sentence } from '../src/api/problem';
import type { Message, Turn } from '../src/api/types';
import { count, duration, when } from '../src/app/format';
import { read } from '../src/app/router';
import { ansi } from '../src/content/ansi';
import { pauseOf } from '../src/conversation/pause';
import { EventReader } from '../src/conversation/sse';
import { textOf } from '../src/conversation/row';
import { GatewayTransport } from '../src/conversation/transport';
import { folded, placesOf } from '../src/conversation/useFind';
import type { Item } from '../src/list/item';
import { Merged } from '../src/list/merge';
import { renewed } from '../src/list/useSessions';
import { clockOf, lengthOf } from '../src/player/clock';
import { Live } from '../src/remote/live';
import { MessageRows } from '../src/remote/rows';
import { follow } from '../src/remote/stream';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Lets everything run that waits for no time. */
const settle = async () => {
  for (let n = 0; n < 50; n++) await Promise.resolve();
};

describe('a list', () => {
  test('that fails is not asked again by who scrolls, only by a person', async () => {
    let asked = 0;
    let works = false;
    const list = new Paged<number>(() => async () => {
      asked++;
      if (!works) throw new Error('away');
      return { items: [asked], isDone: false };
    });
    list.again();
    await settle();
    for (let n = 0; n < 100; n++) list.more();
    await settle();
    expect(asked).toBe(1);
    expect(list.shown.error).toEqual(new Error('away'));
    works = true;
    list.retry();
    await settle();
    expect(list.shown).toEqual({ items: [2], isDone: false, isLoading: false, error: undefined, isPaused: false });
    list.more();
    list.more();
    await settle();
    expect(list.shown.items).toEqual([2, 3]);
  });

  test('that is read anew stays until the new is there, and is as long', async () => {
    let version = 'a';
    const pages = () => {
      let at = 0;
      return async () => ({ items: [`${version}${at++}`], isDone: at === 5 });
    };
    const list = new Paged<string>(pages);
    list.again();
    await settle();
    list.more();
    await settle();
    expect(list.shown.items).toEqual(['a0', 'a1']);
    version = 'b';
    list.again();
    expect(list.shown.items).toEqual(['a0', 'a1']);
    await settle();
    expect(list.shown.items).toEqual(['b0', 'b1']);
    list.more();
    await settle();
    expect(list.shown.items).toEqual(['b0', 'b1', 'b2']);
  });

  test('is not overwritten by an older answer', async () => {
    const answers: ((items: string[]) => void)[] = [];
    const list = new Paged<string>(() => () => new Promise(resolve => answers.push(items => resolve({ items, isDone: true }))));
    list.again();
    list.again();
    answers[1]?.(['new']);
    await settle();
    answers[0]?.(['old']);
    await settle();
    expect(list.shown).toEqual({ items: ['new'], isDone: true, isLoading: false, error: undefined, isPaused: false });
  });

  test('that fails when it is read anew keeps what is shown, and is read anew by a person', async () => {
    let fails = false;
    const list = new Paged<string>(() => async () => {
      if (fails) throw new Error('away');
      return { items: ['a'], isDone: true };
    });
    list.again();
    await settle();
    fails = true;
    list.again();
    await settle();
    expect([list.shown.items, list.shown.error]).toEqual([['a'], new Error('away')]);
    fails = false;
    list.retry();
    await settle();
    expect([list.shown.items, list.shown.error, list.shown.isDone]).toEqual([['a'], undefined, true]);
  });
});

describe('two lists as one', () => {
  const item = (n: number): Item => ({ id: `a${n}`, createdAt: String(1000 - n), sort: 'agent', kind: 'interactive', title: '', isNamed: false, about: '', phase: '', isArchived: false, isLive: false, turns: 0 });

  test('lose nothing when a page fails in the middle', async () => {
    const fails = new Set([1, 2]);
    let asked = 0;
    const merged = new Merged([
      async cursor => {
        const from = Number(cursor ?? 0);
        if (fails.delete(asked++)) throw new Error('away');
        return { items: [item(from), item(from + 1)], next: from + 2 < 10 ? String(from + 2) : undefined };
      },
    ]);
    const all: Item[] = [];
    while (!merged.isDone) all.push(...(await merged.take(5).catch(() => [])));
    expect(all.map(one => one.id)).toEqual(Array.from({ length: 10 }, (_, n) => `a${n}`));
  });

  test('keep what the newest page says nothing of', () => {
    const [a, b, c, d] = [item(1), item(2), item(3), item(4)];
    const ids = (items: readonly Item[]) => items.map(one => one.id).join();
    expect(ids(renewed([b, c, d], [a, b], false))).toBe('a1,a2,a3,a4');
    expect(ids(renewed([a, b, c, d], [a, c], false))).toBe('a1,a3,a4');
    expect(ids(renewed([a, b, c, d], [a, c], true))).toBe('a1,a3');
    expect(ids(renewed([a, b], [], false))).toBe('a1,a2');
    expect(ids(renewed([a, b], [], true))).toBe('');
  });

  test('of which a filter leaves nothing are looked through a few pages at a time', async () => {
    let asked = 0;
    const begin = () => {
      const merged = new Merged([async () => ({ items: [], next: String(asked++) })]);
      return async () => ({ items: await merged.take(50), isDone: merged.isDone });
    };
    const list = new Paged<Item>(begin);
    list.again();
    await settle();
    for (let n = 0; n < 20; n++) list.more();
    await settle();
    expect([asked, list.shown.isPaused]).toEqual([10, true]);
    list.retry();
    await settle();
    expect(asked).toBe(20);
  });
});

describe('addresses', () => {
  test.each(['/ui/sessions/%E0%A4%A', '/ui/sessions/%', '/ui/executions/%zz'])('%s leads to what is not there', path => {
    expect(read(path)).toMatchObject({ id: path.split('/').at(-1) });
  });

  test('others are what they say', () => {
    expect(read('/ui/executions/a%2Fb')).toEqual({ page: 'execution', id: 'a/b' });
    expect(read('/ui/a/b/c')).toEqual({ page: 'nowhere' });
  });
});

describe('answers', () => {
  test.each(['<html>gateway timeout</html>', 'null', '', '17'])('%j is none of the service', async body => {
    vi.stubGlobal('fetch', async () => new Response(body, { status: 200 }));
    const failed = await new Client('t', 'w').get('/v1/executions').catch(error => error);
    expect(sentence(failed)).toBe('The answer cannot be read: it is not the service’s.');
  });

  test('an ask is the same until it is answered or changed', () => {
    const once = new Once();
    const first = once.keyOf({ a: 1 });
    expect(once.keyOf({ a: 1 })).toBe(first);
    expect(once.keyOf({ a: 2 })).not.toBe(first);
    const again = once.keyOf({ a: 2 });
    once.answered();
    expect(once.keyOf({ a: 2 })).not.toBe(again);
  });
});

const ODD: readonly unknown[] = [null, 17, true, 'text', [], [[1]], {}, { type: null }, { type: 7 }, { type: {} }, { type: 'text' }, { type: 'text', text: 3 }, { type: 'text', text: null }];
const CALLS: readonly unknown[] = [{ type: 'tool_use' }, { type: 'tool_use', id: 1, name: null, input: null }, { type: 'tool_result', tool_use_id: null, content: [null, 1, { text: 2 }], is_error: true }];

describe('what a remote program says', () => {
  test('nested as deep as it likes is a word', () => {
    const deep = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`);
    const made = new MessageRows();
    made.block({ type: 'tool_use', id: 't', name: 'Bash' }, { key: 'a', turn: 1 });
    made.block({ type: 'tool_result', tool_use_id: 't', is_error: true, content: [deep] }, { key: 'b', turn: 1 });
    made.block({ type: 'odd', deep }, { key: 'c', turn: 1 });
    for (const row of made.rows) expect(textOf(row)).toContain('nested too deep');
  });

  test('at no time is replayed all the same', () => {
    const made = new MessageRows();
    for (const [n, at] of ['no time', '2026-12-01T00:00:00Z', null].entries()) made.add({ id: `m${n}`, role: 'user', content: 'x', at, position: n } as unknown as Message);
    expect(Number.isFinite(lengthOf(clockOf(made.rows, [])))).toBe(true);
    const odd = [{ key: 'a', turn: 1, kind: 'text', text: 'x', isOpen: false, at: Number.NaN }] as const;
    expect(Number.isFinite(lengthOf(clockOf(odd, [{ turn: 1, createdAt: 'x' } as unknown as Turn])))).toBe(true);
  });

  test('in any form becomes rows that can be shown and searched', () => {
    const made = new MessageRows();
    for (const contentBlocks of [[...ODD, ...CALLS], null, 'no list', { a: 1 }]) {
      for (const role of ['assistant', 'user', 'system']) {
        for (const content of ['', 'words', null, 5, { a: 1 }]) {
          made.add({ id: `m${made.rows.length}`, role, content, contentBlocks, position: 1, at: 'no time' } as unknown as Message);
        }
      }
    }
    expect(made.rows.length).toBeGreaterThan(100);
    for (const row of made.rows) expect(typeof textOf(row)).toBe('string');
  });

  test('live in any form as well', () => {
    const live = new Live();
    const content = [...ODD, ...CALLS];
    for (const message of [{ content }, { content: null }, null, 'x', [1]]) {
      for (const type of ['assistant', 'user', 3]) live.output(`${JSON.stringify({ type, message })}\n`);
    }
    live.output('{"broken\n[1]\nplain\n');
    for (const row of live.rows()) expect(typeof textOf(row)).toBe('string');
    for (const data of [null, 1, 'x', [], { request: null }, { id: 4 }, { id: 'a', tool: { x: 1 } }]) live.ask(data);
    expect([...live.asked.values()].map(asked => asked.tool)).toEqual(['{"x":1}']);
  });

  test('is shown until its messages were read', () => {
    const live = new Live();
    const say = (text: string) => live.output(`${JSON.stringify({ type: 'assistant', message: { content: text } })}\n`);
    say('one');
    live.output('plain\n');
    const first = live.settle();
    say('two');
    expect(live.rows().map(textOf)).toEqual(['one', 'plain\n', 'two']);
    live.forget(first);
    expect(live.rows().map(textOf)).toEqual(['two']);
    live.settle();
    live.forget(first);
    expect(live.rows().map(textOf)).toEqual(['two']);
  });

  test('without an end is held in bounds', () => {
    const live = new Live();
    for (let n = 0; n < 64; n++) live.output('x'.repeat(256 * 1024));
    const [row] = live.rows();
    expect(row && textOf(row).length).toBeLessThanOrEqual(20_000);
    for (let n = 0; n < 5000; n++) live.output(`\n{"type":"assistant","message":{"content":"line ${n}"}}\n`);
    expect(live.rows().length).toBeLessThanOrEqual(2001);
    expect(live.rows().length).toBeGreaterThan(2000);
    for (let n = 0; n < 500; n++) live.ask({ id: `r${n}` });
    expect([...live.asked.keys()]).toEqual(Array.from({ length: 50 }, (_, n) => `r${n + 450}`));
  });
});

/** A body of these pieces. */
const body = (...pieces: string[]) =>
  new ReadableStream<Uint8Array>({
    start(to) {
      for (const piece of pieces) to.enqueue(new TextEncoder().encode(piece));
      to.close();
    },
  });

describe('streams', () => {
  const client = { readTicket: async () => ({ ticket: 't', streamUrl: 'https://gateway.test/stream' }) } as unknown as Client;

  test('an event without an end ends the connection, not the page', async () => {
    const piece = new Uint8Array(1024 * 1024).fill(120);
    let left = 100;
    const endless = new ReadableStream<Uint8Array>({ pull: to => (left-- > 0 ? to.enqueue(piece) : to.close()) });
    await expect(new EventReader(endless).next()).rejects.toThrow('too long for this page');
    expect(left).toBeGreaterThan(20);
  });

  test('events that come in any pieces are whole', async () => {
    const text = 'id: 1\ndata: {"a":1}\n\nid: 2\ndata: {"b":"é"}\n\n';
    const bytes = new TextEncoder().encode(text);
    for (let size = 1; size < 9; size++) {
      const cut = new ReadableStream<Uint8Array>({
        start(to) {
          for (let at = 0; at < bytes.length; at += size) to.enqueue(bytes.slice(at, at + size));
          to.close();
        },
      });
      const reader = new EventReader(cut);
      expect([await reader.next(), await reader.next(), await reader.next()]).toEqual([{ id: '1', data: '{"a":1}' }, { id: '2', data: '{"b":"é"}' }, undefined]);
    }
  });

  test('what cannot be read of a remote session is passed over, and not asked for again', async () => {
    vi.useFakeTimers();
    const ends = new AbortController();
    const asked: string[] = [];
    const heard: unknown[] = [];
    vi.stubGlobal('fetch', async (url: URL) => {
      asked.push(url.search);
      if (asked.length === 2) ends.abort();
      return new Response(body('id: 7\ndata: {broken\n\n', 'id: 8\ndata: null\n\n', 'id: 9\ndata: {"type":"stdout","data":"x"}\n\n'));
    });
    const following = follow(client, 'rms-1', undefined, event => heard.push(event), () => {}, ends.signal);
    await vi.advanceTimersByTimeAsync(300);
    await vi.advanceTimersByTimeAsync(300);
    await following;
    expect(asked).toEqual(['', '?after=9']);
    expect(heard[0]).toEqual({ type: 'stdout', data: 'x' });
  });

  test('a stream that ends at once is asked for again after longer and longer pauses', async () => {
    vi.useFakeTimers();
    vi.stubGlobal('window', { addEventListener() {}, removeEventListener() {} });
    vi.stubGlobal('navigator', { onLine: true });
    let asked = 0;
    vi.stubGlobal('fetch', async () => {
      asked++;
      return new Response(body(': nothing\n\n'));
    });
    const transport = new GatewayTransport(client, 'ags-1', { onLink() {}, onTurn() {}, onHealed() {} });
    const ends = new AbortController();
    const stream = await transport.reconnectToStream({ abortSignal: ends.signal });
    const reading = stream?.getReader().read().catch(() => {});
    await vi.advanceTimersByTimeAsync(60_000);
    // six pauses until they are five seconds, and then one each
    expect(asked).toBeGreaterThan(10);
    expect(asked).toBeLessThan(20);
    ends.abort();
    await vi.advanceTimersByTimeAsync(6000);
    await reading;
  });

  test('an event that cannot be read is passed over, and what follows is said', async () => {
    vi.stubGlobal('window', { addEventListener() {}, removeEventListener() {} });
    vi.stubGlobal('navigator', { onLine: true });
    const events = ['id: 1.1\ndata: {broken\n\n', 'id: 1.2\ndata: 17\n\n', 'id: 1.3\ndata: {"type":"data-user-prompt","data":null}\n\n', 'id: 1.4\ndata: {"type":"text-start","id":"t"}\n\n', 'data: [DONE]\n\n'];
    let asked = 0;
    vi.stubGlobal('fetch', async () => {
      asked++;
      return new Response(body(...events));
    });
    const transport = new GatewayTransport(client, 'ags-1', { onLink() {}, onTurn() {}, onHealed() {} });
    const reader = (await transport.reconnectToStream({}))?.getReader();
    const said: string[] = [];
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) said.push(next.value.type);
    expect([asked, said.at(-1)]).toEqual([1, 'text-start']);
  });

  test('a refusal that stays ends a remote stream', async () => {
    for (const status of [400, 403, 404]) {
      let asked = 0;
      vi.stubGlobal('fetch', async () => {
        asked++;
        return new Response('no', { status });
      });
      const links: string[] = [];
      await follow(client, 'rms-1', undefined, () => {}, link => links.push(link), new AbortController().signal);
      expect([asked, links.at(-1)]).toEqual([1, 'idle']);
    }
  });

  test('pauses grow to five seconds', () => {
    expect([0, 1, 2, 3, 6, 60].map(pauseOf)).toEqual([0, 200, 400, 800, 5000, 5000]);
  });
});

describe('texts', () => {
  test('what is no time and no number is said as nothing', () => {
    expect([when('no time'), duration(Number.NaN), count(undefined as unknown as number, 'turn')]).toEqual(['', '', '0 turns']);
  });

  test('letters whose small form is longer move nothing', () => {
    const text = 'İİİ Needle ß';
    expect(folded(text)).toHaveLength(text.length);
    expect(placesOf(text, 'needle', 10)).toEqual([4]);
    expect(placesOf('İ', 'i', 10)).toEqual([]);
  });

  test('no more places are looked for than are shown', () => {
    expect(placesOf('a'.repeat(1_000_000), 'aa', 500)).toHaveLength(500);
  });

  test('a colour for every letter is bounded', () => {
    const text = Array.from({ length: 50_000 }, (_, n) => `\u001b[3${n % 8}mx`).join('');
    const runs = ansi(text);
    expect(runs.length).toBeLessThanOrEqual(10_000);
    expect(runs.map(run => run.text).join('')).toHaveLength(50_000);
  });
});
