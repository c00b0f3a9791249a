import { duration } from '../app/format';
import type { Row } from '../conversation/row';
import { Ticks } from './Ticks';
import type { Replay } from './useReplay';
import { SPEEDS } from './useReplay';

/** The controls of a replay. */
export function Player({ replay, all }: { replay: Replay; all: readonly Row[] }) {
  const { now, length, isPlaying } = replay;
  const toggle = () => {
    if (!isPlaying && now >= length) replay.seek(0);
    replay.play(!isPlaying);
  };
  const said = `${duration(now)} of ${duration(length)}`;
  return (
    <section className="player" aria-label="Replay">
      <button type="button" className="primary" onClick={toggle}>
        {isPlaying ? 'Pause' : 'Play'}
      </button>
      <div className="player-track">
        <Ticks rows={all} clock={replay.clock} length={length} />
        <input
          type="range"
          aria-label="Time"
          aria-valuetext={said}
          min={0}
          max={Math.max(1, Math.round(length))}
          step={Math.max(1, Math.round(length / 1000))}
          value={Math.round(now)}
          onChange={event => replay.seek(Number(event.target.value))}
        />
      </div>
      <span className="player-time dim">{said}</span>
      <select aria-label="Speed" value={replay.speed} onChange={event => replay.setSpeed(Number(event.target.value))}>
        {SPEEDS.map(speed => (
          <option key={speed} value={speed}>
            {speed}×
          </option>
        ))}
      </select>
      <button type="button" onClick={replay.turnOff}>
        End replay
      </button>
    </section>
  );
}
