const MARKS: Record<string, [string, string]> = {
  completed: ['✓', 'done'],
  in_progress: ['◐', 'being worked on'],
  pending: ['○', 'to do'],
};

interface Entry {
  content?: unknown;
  status?: unknown;
}

/** A plan as a check-list. */
export function Plan({ entries }: { entries: unknown }) {
  if (!Array.isArray(entries)) return null;
  return (
    <ul className="plan" aria-label="Plan">
      {(entries as Entry[]).map((entry, key) => {
        const status = String(entry.status ?? 'pending');
        const [mark, word] = MARKS[status] ?? ['○', status];
        return (
          <li key={key} className={status}>
            <span aria-hidden="true">{mark}</span>
            <span className="sr">{word}: </span>
            {String(entry.content ?? '')}
          </li>
        );
      })}
    </ul>
  );
}
