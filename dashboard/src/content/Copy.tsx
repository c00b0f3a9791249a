import { useState } from 'react';

const SAID_MS = 1500;

export function Copy({ text, what = 'text' }: { text: string | (() => string); what?: string }) {
  const [said, setSaid] = useState<string>();
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === 'string' ? text : text());
      setSaid('Copied');
    } catch {
      setSaid('Not allowed');
    }
    setTimeout(() => setSaid(undefined), SAID_MS);
  };
  return (
    <button type="button" className="quiet copy" aria-label={said ?? `Copy ${what}`} onClick={copy}>
      {said ?? 'Copy'}
    </button>
  );
}
