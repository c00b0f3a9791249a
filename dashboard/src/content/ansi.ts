/** A run of characters of one look. */
export interface Run {
  text: string;
  /** Classes of the look. */
  look: string;
}

interface Look {
  fg: string;
  bg: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strike: boolean;
  inverse: boolean;
}

/** Runs of one text: whoever colours each letter is shown the rest in the last colour. */
const MOST_RUNS = 10_000;

const PLAIN: Look = { fg: '', bg: '', bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false };

/** Whatever begins with ESC or the C1 introducer: CSI, OSC and other strings, and two-character sequences. */
const SEQUENCE = /(?:\u001b\[|\u009b)([0-?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]/g;

/** What a terminal would show: colours and weights as runs, rewritten lines as they stood last, everything else left out. */
export function ansi(text: string): Run[] {
  const runs: Run[] = [];
  let look = PLAIN;
  const say = (words: string) => {
    if (words === '') return;
    const classes = classesOf(look);
    const last = runs.at(-1);
    if (last && (last.look === classes || runs.length >= MOST_RUNS)) last.text += words;
    else runs.push({ text: words, look: classes });
  };
  let at = 0;
  const clean = rewritten(text);
  for (const found of clean.matchAll(SEQUENCE)) {
    say(printable(clean.slice(at, found.index)));
    at = found.index + found[0].length;
    if (found[2] === 'm') look = graphic(look, found[1] ?? '');
  }
  say(printable(clean.slice(at)));
  return runs;
}

/** A carriage return begins the line again: what stood there is overwritten. */
function rewritten(text: string): string {
  if (!text.includes('\r')) return text;
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  return lines.map(line => line.slice(line.trimEnd().lastIndexOf('\r') + 1)).join('\n');
}

/** Without control characters that have no look. */
const printable = (text: string): string => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');

function graphic(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map(code => Number(code || 0));
  let next = { ...look };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 9) next.strike = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code === 29) next.strike = false;
    else if (code >= 30 && code <= 37) next.fg = String(code - 30);
    else if (code >= 90 && code <= 97) next.fg = String(code - 90 + 8);
    else if (code === 39) next.fg = '';
    else if (code >= 40 && code <= 47) next.bg = String(code - 40);
    else if (code >= 100 && code <= 107) next.bg = String(code - 100 + 8);
    else if (code === 49) next.bg = '';
    else if (code === 38 || code === 48) {
      const [colour, taken] = extended(codes.slice(i + 1));
      next[code === 38 ? 'fg' : 'bg'] = colour;
      i += taken;
    }
  }
  return next;
}

/** The nearest of the sixteen colours that the page has for both themes. */
function extended(codes: readonly number[]): [string, number] {
  if (codes[0] === 5) {
    const n = codes[1] ?? 0;
    if (n < 16) return [String(n), 2];
    if (n >= 232) return [n < 244 ? '8' : '7', 2];
    const cube = n - 16;
    return [nearest(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51), 2];
  }
  return codes[0] === 2 ? [nearest(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), 4] : ['', 0];
}

function nearest(red: number, green: number, blue: number): string {
  const brightest = Math.max(red, green, blue);
  const bit = (value: number) => (value > brightest / 2 && value > 40 ? 1 : 0);
  return String(bit(red) + bit(green) * 2 + bit(blue) * 4 + (brightest > 200 ? 8 : 0));
}

function classesOf(look: Look): string {
  const [fg, bg] = look.inverse ? [look.bg || 'bg', look.fg || 'fg'] : [look.fg, look.bg];
  const words = [fg && `fg-${fg}`, bg && `bg-${bg}`, look.bold && 'b', look.dim && 'd', look.italic && 'i', look.underline && 'u', look.strike && 's'];
  return words.filter(Boolean).join(' ');
}
