import { describe, expect, test } from 'vitest';
import type { UIMessage } from 'ai';
import { Blocks } from '../src/conversation/blocks';
import { Places } from '../src/conversation/chunks';
import { indexOf, reaches } from '../src/conversation/places';
import type { Row } from '../src/conversation/row';
import { Rows } from '../src/conversation/rows';
import { EventReader } from '../src/conversation/sse';

describe('blocks of a text', () => {
  const TEXT = `# Head\n\npara one\nline two\n\n\`\`\`js\nlet a;\n\nlet b;\n\`\`\`\n\n- x\n\n- y\nlast`;

  test('cut at gaps, never within a fence', () => {
    expect(new Blocks().of(TEXT).map(block => block.trim())).toEqual(['# Head', 'para one\nline two', '```js\nlet a;\n\nlet b;\n```', '- x', '- y\nlast']);
  });

  test('the same whether it comes at once or sign by sign', () => {
    const grown = new Blocks();
    let last: string[] = [];
    for (let n = 1; n <= TEXT.length; n++) last = grown.of(TEXT.slice(0, n));
    expect(last).toEqual(new Blocks().of(TEXT));
  });

  test('a text without gaps is cut too, a cut fence goes on', () => {
    const lines = Array.from({ length: 500 }, (_, n) => `line ${n} of a long text\n`).join('');
    const blocks = new Blocks().of(lines);
    expect(blocks.length).toBeGreaterThan(3);
    expect(blocks.join('')).toBe(lines);
    const fenced = new Blocks().of(`\`\`\`sh\n${lines}\`\`\`\n`);
    expect(fenced.every(block => block.startsWith('```sh\n') && block.trimEnd().endsWith('```'))).toBe(true);
    expect(Math.max(...new Blocks().of('x'.repeat(50_000)).map(block => block.length))).toBeLessThanOrEqual(8000);
  });
});

describe('an event stream', () => {
  const events = async (pieces: readonly Uint8Array[]) => {
    const reader = new EventReader(new ReadableStream({ start: to => (pieces.forEach(piece => to.enqueue(piece)), to.close()) }));
    const all = [];
    for (let event = await reader.next(); event; event = await reader.next()) all.push(event);
    return all;
  };
  const bytes = new TextEncoder().encode(': stream-open\n\nid: 1.0\ndata: {"a":"é"}\n\n: keep\n\nid: 1.1\n\ndata: [DONE]\n\ndata: half');

  test('whole events only, however they are cut', async () => {
    const wanted = [
      { id: '1.0', data: '{"a":"é"}' },
      { id: '1.1', data: undefined },
      { id: undefined, data: '[DONE]' },
    ];
    expect(await events([bytes])).toEqual(wanted);
    expect(await events([...bytes].map(byte => Uint8Array.of(byte)))).toEqual(wanted);
  });
});

describe('places', () => {
  test('each turn is a message of its own, a call a step of its own unless another is being typed', () => {
    const places = new Places('ags-a');
    const types = (chunk: Parameters<Places['note']>[0], place?: string) => places.note(chunk, place).map(noted => noted.type);
    expect(places.note({ type: 'data-user-prompt', data: { turn: 3 } }, undefined)[0]).toEqual({ type: 'start', messageId: 'durable-ags-a-3' });
    expect(types({ type: 'tool-input-start', toolCallId: 'a' }, '3.0')).toEqual(['start-step', 'tool-input-start']);
    expect(types({ type: 'tool-input-start', toolCallId: 'b' }, '3.1')).toEqual(['tool-input-start']);
    places.note({ type: 'tool-input-available', toolCallId: 'a' }, '3.2');
    places.note({ type: 'tool-input-available', toolCallId: 'b' }, '3.3');
    expect(types({ type: 'tool-input-start', toolCallId: 'c' }, '3.4')).toEqual(['start-step', 'tool-input-start']);
  });

  test('a text that is begun again keeps its place', () => {
    const places = new Places('ags-a');
    places.note({ type: 'text-start', id: 't' }, '1.4');
    const [again] = places.note({ type: 'text-start', id: 't' }, undefined);
    expect(again).toMatchObject({ providerMetadata: { page: { place: '1.4' } } });
  });

  test('a part within a text leads to the text', () => {
    const rows = [row('1.0'), row('1.30'), row('1.30'), row('1.44'), row('2.3')];
    expect(indexOf(rows, '1.37')).toBe(1);
    expect(indexOf(rows, '1.44')).toBe(3);
    expect(indexOf(rows, '3.0')).toBe(-1);
    expect(indexOf(rows, 'nonsense')).toBe(-1);
    expect(reaches(rows, '2.3')).toBe(true);
    expect(reaches(rows, '2.4')).toBe(false);
  });
});

const row = (place: string): Row => ({ key: place, turn: Number(place.split('.')[0]), place, kind: 'text', text: place, isOpen: false });

describe('rows', () => {
  const prompt = (turn: number, text: string) => ({ type: 'data-user-prompt', data: { turn, text } }) as const;
  const user = (id: string, text: string): UIMessage => ({ id, role: 'user', parts: [{ type: 'text', text }] });

  test('what was typed gives way to the durable prompt and is never there twice', () => {
    const rows = new Rows();
    const asked = user('u', 'do it');
    expect(rows.of([asked]).map(one => one.kind)).toEqual(['echo']);
    const answer: UIMessage = { id: 'a', role: 'assistant', parts: [] };
    expect(rows.of([asked, answer]).map(one => one.kind)).toEqual(['echo']);
    answer.parts.push(prompt(1, 'do it'));
    expect(rows.of([asked, answer]).map(one => one.kind)).toEqual(['turn']);
  });

  test('a part that is written into is shown as it is now', () => {
    const rows = new Rows();
    const text = { type: 'text', text: 'a', state: 'streaming' } as { type: 'text'; text: string; state: 'streaming' | 'done' };
    const message: UIMessage = { id: 'a', role: 'assistant', parts: [prompt(1, 'p'), text] };
    rows.of([message]);
    text.text = 'a b';
    text.state = 'done';
    expect(rows.of([message]).at(-1)).toMatchObject({ kind: 'text', text: 'a b', isOpen: false });
  });

  test('calls end by the time that what follows begins', () => {
    const call = (id: string, at: string) =>
      ({ type: 'dynamic-tool', toolName: 'x', toolCallId: id, state: 'output-available', input: {}, output: 1, callProviderMetadata: { bex: { at } } }) as const;
    const message: UIMessage = { id: 'a', role: 'assistant', parts: [call('1', '2026-01-01T00:00:00.000Z'), call('2', '2026-01-01T00:00:01.500Z')] };
    const [first, second] = new Rows().of([message]);
    expect(first?.kind === 'tool' && first.tool.endedBy).toBe(Date.parse('2026-01-01T00:00:01.500Z'));
    expect(second?.kind === 'tool' && second.tool.endedBy).toBe(undefined);
  });
});
