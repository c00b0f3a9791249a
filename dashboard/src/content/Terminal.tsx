import { memo, useMemo, useState } from 'react';
import { bytes } from '../app/format';
import { ansi } from './ansi';
import { Copy } from './Copy';

/** Characters shown at once; a person may ask for all. */
const SHOWN = 12_000;
const MOST = 400_000;

/** Output as a terminal shows it. Long output begins with its end, where the outcome stands. */
export const Terminal = memo(function Terminal({ text, label = 'Output' }: { text: string; label?: string }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > SHOWN;
  const shown = isCut ? text.slice(isWhole ? -MOST : -SHOWN) : text;
  const runs = useMemo(() => ansi(shown), [shown]);
  return (
    <div className="terminal">
      <div className="code-top">
        <span>{label}</span>
        {isCut && (
          <button type="button" className="quiet" onClick={() => setWhole(!isWhole)}>
            {isWhole ? 'Show less' : text.length > MOST ? `Show the last ${bytes(MOST)} of ${bytes(text.length)}` : `Show all ${bytes(text.length)}`}
          </button>
        )}
        <Copy text={text} what="output" />
      </div>
      <pre tabIndex={0} aria-label={label}>
        {runs.map((run, key) => (run.look ? <span key={key} className={run.look}>{run.text}</span> : run.text))}
      </pre>
    </div>
  );
});
