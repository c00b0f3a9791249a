const FIRST_MS = 200;
const LONGEST_MS = 5000;

/** How long to wait before something is tried that was in vain so many times. */
export const pauseOf = (times: number): number => (times === 0 ? 0 : Math.min(FIRST_MS * 2 ** (times - 1), LONGEST_MS));
