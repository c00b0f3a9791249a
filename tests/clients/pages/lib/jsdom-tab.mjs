// A page in jsdom: the real hook, a document without a browser, the network of Node.
import { JSDOM } from 'jsdom';
import { origin } from './session.mjs';
import { Tab } from './tab.mjs';

const { window } = new JSDOM('', { url: origin });
// React looks for them when it is loaded
Object.assign(globalThis, { window, document: window.document });
// newer Node has its own
globalThis.navigator ??= window.navigator;
const { mount, shown } = await import('../page/app.mjs');

export class JsdomTab extends Tab {
  #root;
  #options;
  #mounted;

  constructor(session, sdk, options) {
    super();
    this.#options = { session: session.id, ...options, sdk };
    this.#mount();
  }

  #mount() {
    const { sdk, ...where } = this.#options;
    this.#root = window.document.createElement('div');
    window.document.body.append(this.#root);
    this.#mounted = mount(this.#root, sdk, where);
  }

  shown() {
    return shown(this.#root);
  }

  requests() {
    return this.#mounted.requests;
  }

  reload() {
    this.close();
    this.#mount();
  }

  send(prompt) {
    const form = this.#root.querySelector('form');
    form.elements.prompt.value = prompt;
    form.requestSubmit();
  }

  readOn() {
    this.#root.querySelector('#read-on').click();
  }

  close() {
    this.#mounted.unmount();
    this.#root.remove();
  }
}
