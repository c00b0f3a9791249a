const DAY = 86_400_000;

/** A time as people say it: today without its date. */
export function when(iso: string | undefined, now = Date.now()): string {
  if (!iso) return '';
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return '';
  const clock: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  const isNear = Math.abs(now - at.getTime()) < DAY && new Date(now).getDate() === at.getDate();
  return isNear ? at.toLocaleTimeString(undefined, clock) : at.toLocaleString(undefined, { ...clock, day: 'numeric', month: 'short', year: 'numeric' });
}

export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return '';
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

export const count = (n: number, one: string, many = `${one}s`): string => `${(n || 0).toLocaleString('en')} ${n === 1 ? one : many}`;
