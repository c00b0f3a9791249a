import { jsonOf } from './text';

const MARKS: Record<string, [string, string]> = {
  completed: ['✓', 'done'],
  in_progress: ['◐', 'being worked on'],
  pending: ['○', 'to do'],
};

interface Entry {
  content?: unknown;
  status?: unknown;
}

const word = (value: unknown, other: string): string => (typeof value === 'string' ? value : value === undefined || value === null ? other : jsonOf(value));

/** A plan as a check-list. */
export function Plan({ entries }: { entries: unknown }) {
  if (!Array.isArray(entries)) return null;
  return (
    <ul className="plan" aria-label="Plan">
      {(entries as (Entry | null | undefined)[]).map((entry, key) => {
        const status = word(entry?.status, 'pending');
        const [mark, meaning] = MARKS[status] ?? ['○', status];
        return (
          <li key={key} className={status}>
            <span aria-hidden="true">{mark}</span>
            <span className="sr">{meaning}: </span>
            {word(entry?.content, '')}
          </li>
        );
      })}
    </ul>
  );
}
