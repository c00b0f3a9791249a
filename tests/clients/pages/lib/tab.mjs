// What scenarios do with a page, wherever it runs.
import { until } from './level.mjs';
import { linesOf } from './judge.mjs';

/** Characters that a failure tells of a page's messages. */
const SHOWN = 2000;

/** A page that shows one session. Whoever extends it has `shown`, `requests`, `reload`, `send`, `readOn` and `close`. */
export class Tab {
  /** Waits until the page is as wanted and gives what it shows. */
  async until(what, isWanted) {
    let page;
    const told = async () => {
      const { status, error, messages } = page;
      const asked = JSON.stringify(await this.requests());
      return `; status ${status}, error ${error}, asked ${asked}, shown ${JSON.stringify(messages).slice(-SHOWN)}`;
    };
    const look = async () => {
      page = await this.shown();
      return isWanted(page) && page;
    };
    return until(what, look, told);
  }

  /** Waits until it shows so many lines of the demo agent and still expects more; `submitted` is a stream that has said nothing new. */
  async untilInTheMiddle(lines) {
    const isReading = page => page.status === 'streaming' || page.status === 'submitted';
    return this.until(`${lines} lines are shown`, page => isReading(page) && linesOf(page).length >= lines);
  }

  /** Waits until it has read to the end of what has begun. */
  async untilRead(messages = 1) {
    return this.until('the page has read everything', page => page.status === 'ready' && page.messages.length >= messages);
  }

  /** Waits until its stream has ended, well or not. */
  async untilEnded() {
    return this.until('the stream has ended', ({ status, messages }) => messages.length > 0 && /^(ready|error)$/.test(status));
  }

  /** Waits until so many streams were opened. */
  async untilStreams(count) {
    const look = async () => (await this.requests()).filter(request => request.status === 200).length >= count;
    return until(`${count} streams are opened`, look, async () => JSON.stringify(await this.requests()));
  }
}
