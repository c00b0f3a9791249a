/** Signs that may begin something in Markdown. */
const SIGNS = /[*_`~[\]<>&!@]/g;
/** So many in one paragraph; more of them are no emphasis that anybody wrote, and reading them takes time with their square. */
const MOST_SIGNS = 400;
/** The sum of these squares over a text's paragraphs. */
const MOST_WORK = 4_000_000;
/** So long a paragraph. */
const MOST_TEXT = 100_000;
/** So deep quotes and lists. */
const MOST_DEPTH = 40;
/** So far a line may be moved in. */
const MOST_INDENT = 160;

/** Whether a text can be read as Markdown within a moment; code in fences may be as it likes. */
export function isReadable(text: string): boolean {
  let fence = '';
  let [signs, length, work] = [0, 0, 0];
  for (const line of text.split('\n')) {
    const start = /^[\s>]*/.exec(line)?.[0] ?? '';
    if (start.length > MOST_INDENT || start.split('>').length > MOST_DEPTH) return false;
    if (/^(?:[\s>]*(?:[-*+]|\d{1,9}[.)])\s){40}/.test(line)) return false;
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? '';
    if (fence) {
      if (mark.startsWith(fence)) fence = '';
      continue;
    }
    if (mark) {
      fence = mark;
      continue;
    }
    if (line.trim() === '') {
      work += signs * signs;
      if (work > MOST_WORK) return false;
      [signs, length] = [0, 0];
      continue;
    }
    signs += line.match(SIGNS)?.length ?? 0;
    length += line.length;
    if (signs > MOST_SIGNS || length > MOST_TEXT) return false;
  }
  return true;
}
