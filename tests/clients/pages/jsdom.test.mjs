// useChat({ resume: true }) of each major in jsdom, against the running gateway.
import { after, before, describe, test } from 'node:test';
import { Backend } from './lib/backend.mjs';
import { assertShowsAll } from './lib/judge.mjs';
import { JsdomTab } from './lib/jsdom-tab.mjs';
import { play, recordings } from './lib/recordings.mjs';
import * as scenarios from './scenarios.mjs';

/** One scenario with everything that it waits for. */
const PATIENCE = { timeout: 90_000 };
/** More at once only wait for each other. */
const AT_ONCE = { concurrency: 4 };

const sdks = new Map();
for (const major of [5, 6, 7]) sdks.set(major, await import(`./page/sdk-${major}.mjs`));

describe('pages in jsdom', AT_ONCE, () => {
  let backend;
  before(async () => (backend = await Backend.start()));
  after(() => backend.close());
  const opener = (sdk, options) => session =>
    new JsdomTab(session, sdk, { backend: `http://${backend.address}`, ...options });

  for (const [major, sdk] of sdks) {
    for (const strict of [false, true]) {
      const how = `ai ${major}${strict ? ', StrictMode' : ''}`;
      for (const name of ['reload', 'secondTurn']) {
        test(`${how}: ${name}`, PATIENCE, async () => (await scenarios[name](opener(sdk, { strict }))).close());
      }
    }
  }

  for (const recording of recordings) {
    test(`played while pages of every major watch: ${recording.name}`, PATIENCE, async () => {
      const session = await play(recording);
      const tabs = [...sdks.values()].map(sdk => opener(sdk)(session));
      const source = await session.source();
      for (const tab of tabs) {
        let page = await tab.untilEnded();
        if (recording.hasError) {
          // nobody reads on behind an error that is said while one watches; replayed, only the very last thing is one
          tab.reload();
          page = await tab.untilEnded();
        }
        assertShowsAll(page, source, [`durable-${session.id}`], recording.endsInError ? 'error' : 'ready');
        tab.close();
      }
    });
  }
});
