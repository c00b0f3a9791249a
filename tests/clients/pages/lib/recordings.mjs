// The shared recordings of real models' streams, played by drivers.
import { copyFile, readFile, readdir } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { Session, stack } from './session.mjs';

/** A recording is played in about so many seconds. */
const SECONDS = 3;

/** Every recording; none, with a notice, where the folder does not exist. In CI nothing is skipped. */
export const recordings = await find();

async function find() {
  const dir = folder();
  if (!dir) {
    if (process.env.CI === 'true') throw new Error('shared/data/ui-streams is missing, and in CI nothing is skipped');
    console.error('skipped: there is no shared/data/ui-streams beside this repository');
    return [];
  }
  const names = (await readdir(dir)).filter(name => name.endsWith('.sse')).sort();
  return Promise.all(names.map(async name => about(path.join(dir, name))));
}

function folder() {
  for (let dir = import.meta.dirname; dir !== path.dirname(dir); dir = path.dirname(dir)) {
    const shared = path.join(dir, 'shared/data/ui-streams');
    if (existsSync(shared)) return shared;
  }
}

async function about(file) {
  const lines = (await readFile(file, 'utf8')).split(/\r?\n/).filter(line => line.startsWith('data: {'));
  const types = lines.map(line => JSON.parse(line.slice('data: '.length)).type);
  const endsInError = types.at(-1) === 'error';
  return { file, name: path.basename(file), parts: lines.length, hasError: types.includes('error'), endsInError };
}

/** A session whose driver plays a recording at its own pace. */
export async function play({ file, name, parts }) {
  await copyFile(file, path.join(stack.playDir, name));
  const pace = Math.max(1, Math.ceil(parts / SECONDS));
  return Session.create('play', { profile: 'play', args: [name, String(pace)] });
}
