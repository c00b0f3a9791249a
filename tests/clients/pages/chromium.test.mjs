// Real Chromium: pages of each major read the gateway across origins, and things happen to them.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Browser, ChromiumTab, MAJORS } from './lib/browser.mjs';
import { Edge } from './lib/edge.mjs';
import { stack } from './lib/session.mjs';
import * as scenarios from './scenarios.mjs';

/** One scenario with everything that it waits for. */
const PATIENCE = { timeout: 120_000 };
/** More at once only wait for each other. */
const AT_ONCE = { concurrency: 5 };
/** Those that mostly wait go first. */
const SCENARIOS = ['offline', 'reload', 'drop', 'drops', 'secondTurn', 'dropSecondTurn', 'twoTabs'];

describe('pages in Chromium', AT_ONCE, () => {
  let browser;
  before(async () => (browser = await Browser.start()));
  after(() => browser.close());

  for (const name of SCENARIOS) {
    for (const major of MAJORS) {
      test(`ai ${major}: ${name}`, PATIENCE, async () => {
        const context = await browser.context();
        const edge = await Edge.before(stack.attachUrl);
        const tabs = [];
        const open = async session => {
          browser.backend.edges.set(session.id, edge);
          // both ways to give a cursor
          const cursorIn = name === 'offline' ? 'header' : 'query';
          tabs.push(await ChromiumTab.open(context, session, { major, cursorIn }));
          return tabs.at(-1);
        };
        try {
          await scenarios[name](open, edge);
          for (const tab of tabs) assert.deepEqual(tab.errors, []);
        } finally {
          await context.close();
          edge.close();
        }
      });
    }
  }
});
