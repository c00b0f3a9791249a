import { useMemo, useState } from 'react';
import { count, duration } from '../app/format';
import { Json } from '../content/Json';
import { Terminal } from '../content/Terminal';
import { Badge } from '../list/Badge';
import type { Finding, Node } from './types';

interface Props {
  nodes: readonly Node[];
  findings: readonly Finding[];
  startedAt: string | undefined;
  completedAt: string | undefined;
}

/** Nodes in their order, each with a bar over the time that it took. */
export function Waterfall({ nodes, findings, startedAt, completedAt }: Props) {
  const span = useMemo(() => spanOf(nodes, startedAt, completedAt), [nodes, startedAt, completedAt]);
  const byNode = useMemo(() => {
    const found = new Map<string, Finding[]>();
    for (const finding of findings) if (finding.nodeId) found.set(finding.nodeId, [...(found.get(finding.nodeId) ?? []), finding]);
    return found;
  }, [findings]);
  return (
    <ol className="waterfall" aria-label="Nodes">
      {nodes.map(node => (
        <NodeRow key={node.nodeId} node={node} findings={byNode.get(node.nodeId) ?? []} span={span} />
      ))}
    </ol>
  );
}

type Span = readonly [number, number];

function NodeRow({ node, findings, span }: { node: Node; findings: readonly Finding[]; span: Span }) {
  const [isOpen, setOpen] = useState(false);
  const id = `node-${node.ordinal}-${node.nodeId}`;
  const began = node.startedAt ? Date.parse(node.startedAt) : undefined;
  const ended = node.completedAt ? Date.parse(node.completedAt) : undefined;
  const took = began !== undefined && ended !== undefined ? duration(ended - began) : undefined;
  return (
    <li className="node" data-node={node.nodeId}>
      <button type="button" className="node-top" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
        <span className="node-name">
          {node.nodeId}
          {node.agentId && <span className="dim"> {node.agentVersion ? `${node.agentId} ${node.agentVersion}` : node.agentId}</span>}
        </span>
        <Bar began={began} ended={ended} span={span} status={node.status} />
        <span className="node-side">
          {node.retries > 0 && <span className="dim">{count(node.retries, 'retry', 'retries')} </span>}
          {findings.length > 0 && <span className="dim">{count(findings.length, 'finding')} </span>}
          <span className="dim">{took}</span> {node.status && <Badge word={node.status} />}
        </span>
      </button>
      <div id={id} className="node-body" hidden={!isOpen}>
        {isOpen && (
          <>
            {node.inputs !== undefined && <Json label="Inputs" value={node.inputs} />}
            {node.outputs !== undefined && <Json label="Outputs" value={node.outputs} />}
            {node.error && <Terminal label="Error" text={node.error} />}
            {node.usage !== undefined && <Json label="Usage" value={node.usage} />}
            {findings.map(finding => (
              <Json key={finding.findingId} label={`Finding: ${finding.decision}`} value={finding.body} />
            ))}
            {node.inputs === undefined && node.outputs === undefined && !node.error && findings.length === 0 && <p className="dim">Nothing more was recorded.</p>}
          </>
        )}
      </div>
    </li>
  );
}

const WIDTH = 1000;

function Bar({ began, ended, span, status }: { began: number | undefined; ended: number | undefined; span: Span; status: string | undefined }) {
  const [from, to] = span;
  const scale = WIDTH / Math.max(1, to - from);
  const x = began === undefined ? 0 : (began - from) * scale;
  const width = began === undefined ? 0 : Math.max(4, ((ended ?? to) - began) * scale);
  return (
    <svg className="bar" viewBox={`0 0 ${WIDTH} 10`} preserveAspectRatio="none" aria-hidden="true">
      <rect className={status} x={Math.min(x, WIDTH - 4)} y="0" width={width} height="10" />
    </svg>
  );
}

function spanOf(nodes: readonly Node[], startedAt: string | undefined, completedAt: string | undefined): Span {
  const times = [startedAt, completedAt, ...nodes.flatMap(node => [node.startedAt, node.completedAt])].filter(time => time !== undefined).map(Date.parse);
  // spread over thousands of arguments is more than a call takes
  return times.length === 0 ? [0, 1] : [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))];
}
