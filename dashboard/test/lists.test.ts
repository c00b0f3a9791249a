import { describe, expect, test } from 'vitest';
import { newestFirst, type Item } from '../src/list/item';
import { Merged, refreshed } from '../src/list/merge';
import { clockOf, lengthOf, rowsAt } from '../src/player/clock';
import type { Row } from '../src/conversation/row';
import { Heights } from '../src/virtual/heights';

const item = (id: string, createdAt: string): Item => ({ id, createdAt, sort: 'agent', kind: 'interactive', title: id, isNamed: true, about: '', phase: 'completed', isArchived: false, isLive: false, turns: 1 });

describe('two lists as one', () => {
  const source = (items: readonly Item[], size: number) => async (cursor: string | undefined) => {
    const from = Number(cursor ?? 0);
    const next = from + size < items.length ? String(from + size) : undefined;
    return { items: items.slice(from, from + size), next };
  };

  test('every item once, newest first, whatever the pages are', async () => {
    const one = Array.from({ length: 40 }, (_, n) => item(`a${n}`, `2026-01-01T00:${String(59 - n).padStart(2, '0')}`));
    const two = Array.from({ length: 7 }, (_, n) => item(`b${n}`, `2026-01-01T00:${String(50 - n * 5).padStart(2, '0')}`));
    for (const size of [1, 3, 50]) {
      const merged = new Merged([source(one, size), source(two, size)]);
      const all: Item[] = [];
      while (!merged.isDone) all.push(...(await merged.take(4)));
      expect(all).toEqual([...one, ...two].sort(newestFirst));
    }
  });

  test('a page without items is no end', async () => {
    const pages = [{ items: [], next: 'x' }, { items: [item('a', '1')], next: undefined }];
    let at = 0;
    expect(await new Merged([async () => pages[at++] as { items: Item[]; next: string | undefined }]).take(5)).toHaveLength(1);
  });

  test('what is looked at again is not there twice', () => {
    const known = [item('b', '2'), item('a', '1')];
    expect(refreshed(known, [{ ...item('a', '1'), phase: 'failed' }, item('c', '3')]).map(one => one.id + one.phase)).toEqual(['ccompleted', 'bcompleted', 'afailed']);
  });
});

describe('heights', () => {
  test('places of rows, also of those that came later or were measured', () => {
    const heights = new Heights();
    const plain: number[] = [];
    let seed = 3;
    const pick = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    for (let round = 0; round < 60; round++) {
      const more = pick(20);
      for (let n = 0; n < more; n++) plain.push(10 + pick(50));
      heights.grow(plain.length, index => plain[index] as number);
      for (let n = 0; n < 5 && plain.length > 0; n++) {
        const at = pick(plain.length);
        plain[at] = pick(100);
        heights.set(at, plain[at] as number);
      }
      const sums = plain.map((_, index) => plain.slice(0, index).reduce((a, b) => a + b, 0));
      expect(heights.total).toBe(plain.reduce((a, b) => a + b, 0));
      for (let n = 0; n < 10 && plain.length > 0; n++) {
        const at = pick(plain.length);
        expect(heights.before(at)).toBe(sums[at]);
        if ((plain[at] as number) > 0) expect(heights.at((sums[at] as number) + 0.5)).toBe(at);
      }
    }
    expect(heights.at(1e9)).toBe(plain.length - 1);
    expect(heights.at(-5)).toBe(0);
  });
});

describe('a replay', () => {
  const rows: Row[] = [
    { key: 'turn-1', turn: 1, kind: 'turn', prompt: { turn: 1, text: 'p' }, at: 0 },
    { key: '1.0', place: '1.0', turn: 1, kind: 'text', text: 'abcdefghij', isOpen: false, at: 1000, endAt: 2000 },
    { key: '1.5', place: '1.5', turn: 1, kind: 'tool', tool: { id: 'c', name: 'x', state: 'done', input: 1, output: 2 }, at: 60_000 },
  ];

  test('long silences are left out', () => {
    const clock = clockOf(rows, []);
    expect([...clock]).toEqual([0, 1000, 3000, 3030]);
    expect(lengthOf(clock)).toBe(3030);
  });

  test('a text comes bit by bit, a call runs before it is done', () => {
    const clock = clockOf(rows, []);
    expect(rowsAt(rows, clock, 500)).toHaveLength(1);
    expect(rowsAt(rows, clock, 2000).at(-1)).toMatchObject({ text: 'abcde' });
    expect(rowsAt(rows, clock, 3001).at(-1)).toMatchObject({ tool: { state: 'running' } });
    expect(rowsAt(rows, clock, 3030)).toEqual(rows);
  });
});
