/** A value as JSON; of what is nested too deep to be written, a word. */
export function jsonOf(value: unknown, indent?: number): string {
  try {
    return JSON.stringify(value, null, indent) ?? '';
  } catch {
    return '(nested too deep to be shown)';
  }
}
