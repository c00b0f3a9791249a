import { createContext, type ReactNode, useCallback, useContext, useMemo, useRef, useState } from 'react';
import { sentence } from '../api/problem';

interface Notice {
  id: number;
  kind: 'said' | 'failed';
  text: string;
}

interface Tell {
  say: (text: string) => void;
  fail: (error: unknown) => void;
}

/** How long a notice that asks for nothing stays. */
const SHOWN_MS = 6000;
const MOST = 3;

const Telling = createContext<Tell>({ say: () => {}, fail: () => {} });

/** Tells the person something, in words that a screen reader says too. */
export const useTell = (): Tell => useContext(Telling);

export function Notices({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<Notice[]>([]);
  const next = useRef(0);
  const drop = useCallback((id: number) => setNotices(all => all.filter(notice => notice.id !== id)), []);
  const add = useCallback(
    (kind: Notice['kind'], text: string) => {
      const id = next.current++;
      setNotices(all => [...all.filter(notice => notice.text !== text), { id, kind, text }].slice(-MOST));
      if (kind === 'said') setTimeout(() => drop(id), SHOWN_MS);
    },
    [drop],
  );
  const tell = useMemo(() => ({ say: (text: string) => add('said', text), fail: (error: unknown) => add('failed', sentence(error)) }), [add]);
  return (
    <Telling value={tell}>
      {children}
      <div className="notices" role="status" aria-live="polite">
        {notices.map(notice => (
          <p key={notice.id} className={`notice ${notice.kind}`}>
            {notice.text}
            <button type="button" className="quiet" aria-label="Dismiss" onClick={() => drop(notice.id)}>
              ×
            </button>
          </p>
        ))}
      </div>
    </Telling>
  );
}
