import { useEffect, useRef } from 'react';

export type Deed = 'next' | 'previous' | 'nextTurn' | 'previousTurn' | 'first' | 'last' | 'open' | 'find' | 'help' | 'play' | 'copyLink';

const KEYS: Record<string, Deed> = {
  j: 'next',
  k: 'previous',
  ']': 'nextTurn',
  '[': 'previousTurn',
  g: 'first',
  G: 'last',
  o: 'open',
  '/': 'find',
  '?': 'help',
  p: 'play',
  l: 'copyLink',
};

export const HELP: readonly (readonly [string, string])[] = [
  ['j, k', 'next, previous entry'],
  [']  [', 'next, previous turn'],
  ['g, G', 'to the start, to the end'],
  ['o', 'open or fold the entry'],
  ['l', 'copy a link to the entry'],
  ['/', 'find'],
  ['p', 'replay: play, pause'],
  ['?', 'these keys'],
];

/** Keys of one letter, while nobody types. A person may turn them off: speech input and slips would press them. */
export function useKeys(isOn: boolean, act: (deed: Deed) => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (!isOn) return;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const target = event.target as HTMLElement;
      if (target.closest('input, textarea, select, [contenteditable]') || document.querySelector('dialog[open]')) return;
      const deed = KEYS[event.key];
      if (!deed) return;
      event.preventDefault();
      latest.current(deed);
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, [isOn]);
}
