import { type KeyboardEvent, useEffect, useRef } from 'react';
import { MOST_FOUND } from './useFind';

interface Props {
  words: string;
  found: number;
  at: number;
  onWords: (words: string) => void;
  onStep: (step: 1 | -1) => void;
  onClose: () => void;
}

export function FindBar({ words, found, at, onWords, onStep, onClose }: Props) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, []);
  const key = (event: KeyboardEvent) => {
    if (event.key === 'Enter') onStep(event.shiftKey ? -1 : 1);
    else if (event.key === 'Escape') onClose();
    else return;
    event.preventDefault();
  };
  return (
    <search className="find">
      <input ref={input} type="search" aria-label="Find in this conversation" placeholder="Find" value={words} onChange={event => onWords(event.target.value)} onKeyDown={key} />
      <span role="status" className="dim">
        {words.trim() !== '' && (found === 0 ? 'Not found' : `${Math.min(at + 1, found)} of ${found < MOST_FOUND ? found : '10 000 or more'}`)}
      </span>
      <button type="button" className="quiet" aria-label="Previous" disabled={found === 0} onClick={() => onStep(-1)}>
        ↑
      </button>
      <button type="button" className="quiet" aria-label="Next" disabled={found === 0} onClick={() => onStep(1)}>
        ↓
      </button>
      <button type="button" className="quiet" aria-label="Close find" onClick={onClose}>
        ×
      </button>
    </search>
  );
}
