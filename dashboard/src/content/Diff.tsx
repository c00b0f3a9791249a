import { memo, useMemo, useState } from 'react';
import { Copy } from './Copy';
import type { Line } from './diff';
import { diff } from './diff';

const SHOWN = 200;
/** Lines that are shown more each time a person asks. */
const STEP = 2000;

const MARKS: Record<Line['kind'], string> = { same: ' ', gone: '−', new: '+', skip: '⋯' };
const WORDS: Record<Line['kind'], string> = { same: '', gone: 'removed: ', new: 'added: ', skip: 'unchanged lines' };

export const Diff = memo(function Diff({ path, before, after }: { path: string; before: string; after: string }) {
  const lines = useMemo(() => diff(before, after), [before, after]);
  const [most, setMost] = useState(SHOWN);
  const [gone, added] = [lines.filter(line => line.kind === 'gone').length, lines.filter(line => line.kind === 'new').length];
  const shown = lines.slice(0, most);
  const left = lines.length - shown.length;
  return (
    <figure className="diff">
      <figcaption className="code-top">
        <span className="path">{path}</span>
        <span>
          <span className="added">+{added}</span> <span className="removed">−{gone}</span>
        </span>
        <Copy text={after} what="new text" />
      </figcaption>
      <div className="diff-body" tabIndex={0} role="group" aria-label={`Change of ${path}`}>
        {shown.map((line, key) => (
          <div key={key} className={`diff-line ${line.kind}`}>
            <span className="diff-no" aria-hidden="true">
              {line.now ?? line.old ?? ''}
            </span>
            <span className="diff-mark" aria-hidden="true">
              {MARKS[line.kind]}
            </span>
            <span className="sr">{WORDS[line.kind]}</span>
            <span className="diff-text">{line.text}</span>
          </div>
        ))}
      </div>
      {lines.length > SHOWN && (
        <button type="button" className="quiet" onClick={() => setMost(left > 0 ? most + STEP : SHOWN)}>
          {left > 0 ? `Show ${Math.min(left, STEP)} more of ${lines.length} lines` : 'Show less'}
        </button>
      )}
    </figure>
  );
});
