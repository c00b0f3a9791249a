const TONES: Record<string, string> = {
  complete: 'good',
  completed: 'good',
  failed: 'bad',
  error: 'bad',
  truncated: 'warn',
  open: 'live',
  running: 'live',
  active: 'live',
  creating: 'live',
  redispatching: 'live',
  ending: 'live',
  canceling: 'warn',
  paused: 'warn',
  shadow: 'warn',
  blocked: 'bad',
};

/** A state as a word; its colour only repeats it. */
export function Badge({ word, title }: { word: string; title?: string | undefined }) {
  return (
    <span className={`badge ${TONES[word] ?? ''}`} title={title}>
      {word}
    </span>
  );
}
