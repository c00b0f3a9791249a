// Chromium, and the dashboard in it.
import { accessSync, constants } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { chromium } from 'playwright-core';
import { PATIENCE_MS, until } from './level.mjs';

/** What Chromium is called on Debian and elsewhere, as `scripts/setup` looks for it. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const SHOTS = process.env.BEX_DASHBOARD_SHOTS ?? path.resolve(import.meta.dirname, '../../../../target/dashboard');
/** Each request of the page waits for a time of its own up to this: a scenario that counts on one answer being there before another fails. */
const SLOW_MS = Number(process.env.BEX_DASHBOARD_SLOW_MS ?? 0);
const WIDE = { width: 1280, height: 800 };

function program() {
  const paths = NAMES.flatMap(name => process.env.PATH.split(path.delimiter).map(dir => path.join(dir, name)));
  const found = paths.find(file => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  if (!found) throw new Error(`none of ${NAMES.join(', ')} is installed`);
  return found;
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.chromium = await chromium.launch({
      executablePath: program(),
      // root needs it, as do most containers; it shows nothing but our own page
      chromiumSandbox: false,
      args: ['--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'],
    });
    await mkdir(SHOTS, { recursive: true });
    return browser;
  }

  close() {
    return this.chromium.close();
  }

  /** A tab of a browser of its own, signed in. */
  async open(stack, at = '', { token = stack.dev.apiToken, ...options } = {}) {
    const context = await this.chromium.newContext({ viewport: WIDE, permissions: ['clipboard-read', 'clipboard-write'], acceptDownloads: true, ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    if (SLOW_MS > 0) await context.route('**/v1/**', slowly);
    return Tab.open(context, stack, at, token);
  }
}

async function slowly(route) {
  await pause(Math.random() * SLOW_MS);
  // a page that is left takes its requests with it
  await route.continue().catch(() => {});
}

export class Tab {
  /** What went wrong in the page and nobody said. */
  faults = [];

  static async open(context, stack, at, token) {
    const tab = new Tab();
    tab.context = context;
    tab.stack = stack;
    tab.token = token;
    tab.page = await context.newPage();
    tab.page.on('pageerror', error => tab.faults.push(error.message));
    tab.page.on('console', message => {
      // a policy that was broken is told as an error; lost networks and refusals are too, and are what is tested
      if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(message.text())) tab.faults.push(message.text());
    });
    await tab.page.goto(stack.dev.dashboardUrl + at);
    await tab.signIn();
    return tab;
  }

  async signIn() {
    await this.page.fill('[name=token]', this.token);
    await this.page.fill('[name=workspace]', this.stack.dev.workspaceId);
    await this.page.getByRole('button', { name: 'Sign in' }).click();
    await this.page.locator('.frame').waitFor();
  }

  async reload() {
    await this.page.reload();
    await this.signIn();
  }

  /** Another tab of the same person. */
  async another(at) {
    return Tab.open(this.context, this.stack, at, this.token);
  }

  close() {
    return this.context.close();
  }

  async shot(name) {
    await this.page.screenshot({ path: path.join(SHOTS, `${name}.png`), animations: 'disabled' });
  }

  /** Takes the network away from this browser, or gives it back. */
  async setOffline(offline) {
    await this.context.setOffline(offline);
  }

  /** Waits until the page shows these words. */
  async sees(words, patience) {
    await until(`the page shows ${words}`, () => this.has(words), { patience, told: () => this.text() });
  }

  /** Waits until what is read in the page is this. */
  async reads(what, look, wanted) {
    let found;
    const same = async () => isDeepStrictEqual((found = await look()), wanted);
    await until(`${what}: ${JSON.stringify(wanted)}`, same, { told: () => `instead of ${JSON.stringify(found)}` });
  }

  /** Waits until so many elements fit this selector. */
  async counts(selector, wanted) {
    await this.reads(selector, () => this.page.locator(selector).count(), wanted);
  }

  async has(words) {
    return (await this.text()).includes(words);
  }

  async text() {
    // between two pages there is none
    return this.page.evaluate(() => document.body.innerText).catch(() => '');
  }

  /** Says something, if the page lets one now; what it does not let through stays typed and is taken back. */
  async say(text) {
    const area = this.page.getByLabel('Say something to the agent');
    if (!(await area.isVisible().catch(() => false))) return;
    await area.fill(text);
    await area.press('Enter');
  }

  /** Whether the time line has so many turns. */
  async rowsHave(turns) {
    return (await this.page.locator('.outline-turn').count()) >= turns;
  }

  /** What the conversation shows from its start to its end, row by row, as a reader who scrolls through it sees it. */
  async rows() {
    // a tab behind another is drawn once a second
    await this.page.bringToFront();
    return this.page.evaluate(readThrough);
  }

  /** Whether the stream is at its end, as far as a person sees. */
  async isCalm() {
    return this.page.evaluate(() => !document.querySelector('.prompt.sending') && document.querySelector('.list')?.getAttribute('aria-busy') !== 'true');
  }
}

async function readThrough() {
  const list = document.querySelector('.conversation-main > .list');
  const frames = n => new Promise(resolve => (n === 0 ? resolve() : requestAnimationFrame(() => frames(n - 1).then(resolve))));
  const found = new Map();
  const take = () => {
    for (const row of list.querySelectorAll('.list-row')) {
      const item = row.firstElementChild;
      const { kind, turn, place } = item.dataset;
      const content = item.querySelector('.md, [data-prompt], .tool-title, .banner, .note, .plan') ?? item;
      found.set(Number(row.dataset.index), {
        kind,
        turn: Number(turn),
        place,
        call: item.querySelector('[data-call]')?.dataset.call,
        text: content.innerText,
      });
    }
  };
  list.scrollTop = 0;
  await frames(3);
  take();
  while (list.scrollTop + list.clientHeight < list.scrollHeight - 2) {
    const before = list.scrollTop;
    list.scrollTop += list.clientHeight;
    await frames(3);
    take();
    if (list.scrollTop === before) break;
  }
  const count = found.size === 0 ? 0 : Math.max(...found.keys()) + 1;
  return Array.from({ length: count }, (_, index) => found.get(index) ?? { kind: 'missing', index });
}
