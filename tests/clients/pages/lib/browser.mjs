// Chromium, and pages in it. The page's origin is one that the gateway lists; the browser is told where it really is.
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { shown } from '../page/app.mjs';
import { Backend } from './backend.mjs';
import { origin } from './session.mjs';
import { Tab } from './tab.mjs';

/** The majors of the SDK. */
export const MAJORS = [5, 6, 7];

/** What Chromium is called on Debian and elsewhere, as `scripts/setup` looks for it. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

function program() {
  const dirs = process.env.PATH.split(path.delimiter);
  const paths = NAMES.flatMap(name => dirs.map(dir => path.join(dir, name)));
  const found = paths.find(isExecutable);
  if (!found) throw new Error(`none of ${NAMES.join(', ')} is installed`);
  return found;
}

function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A page's script with everything it needs. */
async function bundle(major) {
  const contents = `
    import * as sdk from './sdk-${major}.mjs';
    import { mount } from './app.mjs';
    const where = Object.fromEntries(new URLSearchParams(location.search));
    window.tab = mount(document.getElementById('root'), sdk, { ...where, backend: '' });`;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: new URL('../page', import.meta.url).pathname },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    define: { 'process.env.NODE_ENV': '"production"' },
    logLevel: 'error',
  });
  return outputFiles[0].contents;
}

export class Browser {
  #chromium;

  static async start() {
    const browser = new Browser();
    const scripts = await Promise.all(MAJORS.map(async major => [String(major), await bundle(major)]));
    browser.backend = await Backend.start(new Map(scripts));
    browser.#chromium = await chromium.launch({
      executablePath: program(),
      // root needs it, as do most containers; it shows nothing but our own page
      chromiumSandbox: false,
      args: [`--host-resolver-rules=MAP ${new URL(origin).host} ${browser.backend.address}`],
    });
    return browser;
  }

  /** A person's browser: its tabs share connections and a network. */
  context() {
    return this.#chromium.newContext();
  }

  async close() {
    await this.#chromium?.close();
    this.backend.close();
  }
}

export class ChromiumTab extends Tab {
  /** Errors that nobody caught. */
  errors = [];
  #cdp;
  #page;

  static async open(context, session, { major, cursorIn = 'query' }) {
    const tab = new ChromiumTab();
    tab.#page = await context.newPage();
    tab.#page.on('pageerror', error => tab.errors.push(error.message));
    await tab.#page.goto(`${origin}/?${new URLSearchParams({ session: session.id, sdk: major, cursorIn })}`);
    return tab;
  }

  shown() {
    return this.#page.evaluate(`(${shown})(document)`);
  }

  requests() {
    return this.#page.evaluate('window.tab.requests');
  }

  reload() {
    return this.#page.reload();
  }

  async send(prompt) {
    await this.#page.fill('input', prompt);
    await this.#page.click('button[type=submit]');
  }

  readOn() {
    return this.#page.click('#read-on');
  }

  /** Whether the browser believes that it has a network. */
  isOnline() {
    return this.#page.evaluate('navigator.onLine');
  }

  /** Takes the network away from this tab, or gives it back. */
  async setOffline(offline) {
    // what is emulated belongs to the session, so there is one
    this.#cdp ??= await this.#page.context().newCDPSession(this.#page);
    const noLimits = { latency: 0, downloadThroughput: -1, uploadThroughput: -1 };
    await this.#cdp.send('Network.emulateNetworkConditions', { offline, ...noLimits });
  }
}
