import { memo, useState } from 'react';
import { bytes } from '../app/format';
import { Copy } from './Copy';
import { jsonOf } from './text';

const SHOWN = 6000;
const MOST = 400_000;

/** Any value, as text where it is one. */
export const Json = memo(function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === 'string' ? value : jsonOf(value, 2);
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > SHOWN;
  return (
    <div className="code">
      <div className="code-top">
        <span>{label}</span>
        {isCut && (
          <button type="button" className="quiet" onClick={() => setWhole(!isWhole)}>
            {isWhole ? 'Show less' : text.length > MOST ? `Show ${bytes(MOST)} of ${bytes(text.length)}` : `Show all ${bytes(text.length)}`}
          </button>
        )}
        <Copy text={text} what={label.toLowerCase()} />
      </div>
      <pre tabIndex={0} aria-label={label}>
        <code>{isCut ? text.slice(0, isWhole ? MOST : SHOWN) : text}</code>
      </pre>
    </div>
  );
});
