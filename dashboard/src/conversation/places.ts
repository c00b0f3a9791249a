import type { Row } from './row';
import { placeOf } from './row';

/** The row in which a part stands: parts within a text have no row of their own. */
export function indexOf(rows: readonly Row[], place: string): number {
  const [turn, part] = placeOf(place) ?? [];
  if (turn === undefined || part === undefined) return -1;
  let best = -1;
  let bestPart = -1;
  for (let i = 0; i < rows.length; i++) {
    const at = placeOf(rows[i]?.place);
    // of a text's blocks the first
    if (at && at[0] === turn && at[1] <= part && at[1] > bestPart) [best, bestPart] = [i, at[1]];
  }
  return best;
}

/** Whether the rows reach that far, so that no later row can be meant. */
export function reaches(rows: readonly Row[], place: string): boolean {
  const wanted = placeOf(place);
  for (let i = rows.length - 1; wanted && i >= 0; i--) {
    const at = placeOf(rows[i]?.place);
    if (at) return at[0] > wanted[0] || (at[0] === wanted[0] && at[1] >= wanted[1]);
  }
  return false;
}
