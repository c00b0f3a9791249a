import { describe, expect, test } from 'vitest';
import { ansi } from '../src/content/ansi';
import { isReadable } from '../src/content/bounds';
import { diff } from '../src/content/diff';
import { lexer } from 'marked';

const text = (from: string) => ansi(from).map(run => run.text).join('');

describe('a terminal', () => {
  test('colours become classes, and nothing else of a sequence is seen', () => {
    expect(ansi('\u001b[1;31mred\u001b[0m plain \u001b[38;5;196mbright\u001b[39m')).toEqual([
      { text: 'red', look: 'fg-1 b' },
      { text: ' plain ', look: '' },
      { text: 'bright', look: 'fg-9' },
    ]);
    expect(text('\u001b]0;a title\u0007shown\u001b[2K\u001b[?25l\u001b(B.')).toBe('shown.');
  });

  test('a line that is rewritten is shown as it stood last', () => {
    expect(text('10%\r50%\r100%\nnext\r\n')).toBe('100%\nnext\n');
  });

  test('what is cut off in a sequence, and signs without a look, are not seen', () => {
    expect(text('a\u001b[')).toBe('a');
    expect(text('a\u001bX')).toBe('a');
    expect(text('\u0000a\u0007b\tc')).toBe('ab\tc');
  });
});

describe('a difference', () => {
  const marks = (before: string, after: string) => diff(before, after).map(line => `${line.kind[0]}${line.text}`);

  test('what changed, with what is around it', () => {
    expect(marks('a\nb\nc\n', 'a\nB\nc\nd\n')).toEqual(['sa', 'gb', 'nB', 'sc', 'nd']);
    expect(marks('', 'a\n')).toEqual(['na']);
    expect(marks('a\n', '')).toEqual(['ga']);
    expect(marks('a', 'a')).toEqual(['s']);
  });

  test('far lines are folded', () => {
    const many = Array.from({ length: 50 }, (_, n) => `line ${n}`);
    const shown = diff(many.join('\n'), [...many.slice(0, 25), 'new', ...many.slice(25)].join('\n'));
    expect(shown.filter(line => line.kind === 'skip')).toHaveLength(2);
    expect(shown.filter(line => line.kind === 'new')).toEqual([{ kind: 'new', text: 'new', now: 26 }]);
    expect(shown).toHaveLength(9);
  });

  test('whatever the texts are, both can be read out of it', () => {
    let seed = 7;
    const pick = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    for (let round = 0; round < 300; round++) {
      const one = Array.from({ length: pick(6) }, () => 'abc'[pick(3)]);
      const two = Array.from({ length: pick(6) }, () => 'abc'[pick(3)]);
      const lines = diff(one.join('\n'), two.join('\n')).filter(line => line.kind !== 'skip');
      if (one.join() === two.join()) continue;
      expect(lines.filter(line => line.kind !== 'new').map(line => line.text)).toEqual(one);
      expect(lines.filter(line => line.kind !== 'gone').map(line => line.text)).toEqual(two);
    }
  });
});

describe('Markdown', () => {
  test('what would take long to read is not read', () => {
    for (const text of [
      '> '.repeat(5000) + 'x',
      '>'.repeat(20_000),
      Array.from({ length: 1000 }, (_, n) => `${' '.repeat(2 * n)}- a`).join('\n'),
      '- '.repeat(5000),
      '*a '.repeat(20_000),
      '_a'.repeat(20_000),
      '`a'.repeat(20_000),
      '['.repeat(20_000),
      'a'.repeat(1 << 20),
    ])
      expect(isReadable(text), text.slice(0, 20)).toBe(false);
  });

  test('what is read is read within a moment', () => {
    const sizes = Array.from({ length: 20 }, (_, n) => (20 - n) * 20);
    for (const sign of ['*a ', '_a', '`a', '[a](', '![', '<a', '~~a', '**a ']) {
      const paragraph = sign.repeat(sizes.find(size => isReadable(sign.repeat(size))) ?? 0);
      const text = Array.from({ length: 200 }, (_, n) => `${paragraph}\n\n`.repeat(200 - n)).find(isReadable) ?? '';
      expect(text).not.toBe('');
      const begun = performance.now();
      lexer(text, { gfm: true, breaks: true });
      expect(performance.now() - begun, text.slice(0, 20)).toBeLessThan(2000);
    }
  }, 60_000);

  test('what people and programs write is', () => {
    const code = `\`\`\`c\n${'int *a[] = {&b, &c}; // <**>\n'.repeat(1000)}\`\`\`\n`;
    const list = Array.from({ length: 8 }, (_, n) => `${'  '.repeat(n)}- **item** \`${n}\``).join('\n');
    const table = `| a | b |\n|---|---|\n${'| `x` | *y* |\n'.repeat(100)}`;
    for (const text of ['', 'a', code, list, table, `${code}\n\ntext with *emphasis*, [a link](https://x.io) and \`code\`.\n\n`.repeat(50)])
      expect(isReadable(text), text.slice(0, 20)).toBe(true);
  });
});
