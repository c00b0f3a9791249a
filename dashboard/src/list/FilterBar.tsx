import { useEffect, useRef, useState } from 'react';
import { PHASES } from '../api/types';
import type { Filters } from './filters';
import { NO_FILTERS } from './filters';

/** Between the last key and the search. */
const TYPED_MS = 300;

export function FilterBar({ filters, onChange }: { filters: Filters; onChange: (filters: Filters) => void }) {
  const set = (part: Partial<Filters>) => onChange({ ...filters, ...part });
  const isNarrowed = filters !== NO_FILTERS;
  return (
    <search className="filters">
      <Typed label="Words in titles and prompts" value={filters.words} onTyped={words => set({ words })} className="wide" type="search" />
      <Choice label="Phase" value={filters.phase} onChange={phase => set({ phase })} options={[['', 'Any phase'], ...PHASES.map(phase => [phase, phase] as const)]} />
      <Choice
        label="Where"
        value={filters.sort}
        onChange={sort => set({ sort: sort as Filters['sort'] })}
        options={[
          ['', 'Anywhere'],
          ['agent', 'In sandboxes'],
          ['remote', 'On machines'],
        ]}
      />
      <Choice
        label="Kind"
        value={filters.kind}
        onChange={kind => set({ kind: kind as Filters['kind'] })}
        options={[
          ['', 'Any kind'],
          ['interactive', 'Interactive'],
          ['autonomous', 'Autonomous'],
        ]}
      />
      <Choice
        label="Archive"
        value={filters.archived}
        onChange={archived => set({ archived: archived as Filters['archived'] })}
        options={[
          ['false', 'Not archived'],
          ['true', 'Archived'],
          ['all', 'All'],
        ]}
      />
      <details className="more-filters">
        <summary>More</summary>
        <Typed label="Repository" value={filters.repo} onTyped={repo => set({ repo })} />
        <label>
          From
          <input type="date" value={filters.from} onChange={event => set({ from: event.target.value })} />
        </label>
        <label>
          To
          <input type="date" value={filters.to} onChange={event => set({ to: event.target.value })} />
        </label>
      </details>
      {isNarrowed && (
        <button type="button" className="quiet" onClick={() => onChange(NO_FILTERS)}>
          Clear
        </button>
      )}
    </search>
  );
}

function Choice(props: { label: string; value: string; options: readonly (readonly [string, string])[]; onChange: (value: string) => void }) {
  return (
    <select aria-label={props.label} value={props.value} onChange={event => props.onChange(event.target.value)}>
      {props.options.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
}

/** A field that tells what was typed when the person pauses. */
function Typed(props: { label: string; value: string; onTyped: (text: string) => void; className?: string; type?: string }) {
  const [text, setText] = useState(props.value);
  const told = useRef(props.value);
  const { onTyped, value } = props;
  if (value !== told.current) {
    told.current = value;
    if (value !== text) setText(value);
  }
  const tell = useRef(onTyped);
  tell.current = onTyped;
  useEffect(() => {
    if (text === told.current) return;
    const timer = setTimeout(() => {
      told.current = text;
      tell.current(text);
    }, TYPED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <input
      type={props.type ?? 'text'}
      className={props.className}
      aria-label={props.label}
      placeholder={props.label}
      value={text}
      onChange={event => setText(event.target.value)}
    />
  );
}
