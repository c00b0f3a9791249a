import { useDeferredValue, useEffect, useRef, useState } from 'react';
import type { Row } from './row';
import { textOf } from './row';

/** Rows that are looked through before the page may draw. */
const SLICE = 2000;
const LEAST = 2;
/** Between two looks: what is being said changes many times a second. */
const AFTER_MS = 150;

/** Rows that are found; more are not counted. */
export const MOST_FOUND = 10_000;

export interface Found {
  /** What was looked for. */
  words: string;
  /** Indexes of the rows that have it. */
  at: readonly number[];
}

const NOTHING: Found = { words: '', at: [] };

/** The rows that have the words, found bit by bit, and again as more is said. */
export function useFind(rows: readonly Row[], words: string): Found {
  const wanted = useDeferredValue(folded(words.trim()));
  const latest = useRef(rows);
  latest.current = rows;
  const [found, setFound] = useState(NOTHING);
  useEffect(() => {
    if (wanted.length < LEAST) {
      setFound(NOTHING);
      return;
    }
    let isGone = false;
    const look = async () => {
      let looked: readonly Row[] | undefined;
      while (!isGone) {
        await new Promise(resolve => setTimeout(resolve, AFTER_MS));
        const now = latest.current;
        if (now === looked) continue;
        const all: number[] = [];
        for (let from = 0; from < now.length && all.length < MOST_FOUND && !isGone; from += SLICE) {
          now.slice(from, from + SLICE).forEach((row, i) => {
            if (folded(textOf(row)).includes(wanted)) all.push(from + i);
          });
          await new Promise(resolve => setTimeout(resolve));
        }
        looked = now;
        if (!isGone) setFound({ words: wanted, at: all });
      }
    };
    void look();
    return () => {
      isGone = true;
    };
  }, [wanted]);
  return found;
}

/** Small letters, each where it stood: of some the small form is longer, and they stay as they are. */
export function folded(text: string): string {
  const small = text.toLowerCase();
  if (small.length === text.length) return small;
  return Array.from(text, letter => {
    const one = letter.toLowerCase();
    return one.length === letter.length ? one : letter;
  }).join('');
}

/** Marks the words where they are drawn, without touching what is drawn. */
export function useHighlight(root: HTMLElement | null, words: string, drawn: unknown): void {
  useEffect(() => {
    const wanted = folded(words.trim());
    if (!root || !CSS.highlights) return;
    const ranges = wanted.length < LEAST ? [] : rangesOf(root, wanted);
    CSS.highlights.set('found', new Highlight(...ranges));
    return () => void CSS.highlights.delete('found');
  }, [root, words, drawn]);
}

const MOST_MARKS = 500;

function rangesOf(root: HTMLElement, wanted: string): Range[] {
  const ranges: Range[] = [];
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node && ranges.length < MOST_MARKS; node = texts.nextNode()) {
    for (const at of placesOf(node.textContent ?? '', wanted, MOST_MARKS - ranges.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}

/** Where a text has the words, at most so often. */
export function placesOf(text: string, wanted: string, most: number): number[] {
  const [all, places]: [string, number[]] = [folded(text), []];
  for (let at = all.indexOf(wanted); at >= 0 && places.length < most; at = all.indexOf(wanted, at + wanted.length)) places.push(at);
  return places;
}
