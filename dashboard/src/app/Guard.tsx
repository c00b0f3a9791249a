import { Component, type ReactNode } from 'react';

interface Props {
  /** What is shown in the place of what cannot be. */
  instead: ReactNode;
  children: ReactNode;
}

/** What cannot be drawn takes nothing else with it. */
export class Guard extends Component<Props, { isBroken: boolean }> {
  override state = { isBroken: false };

  static getDerivedStateFromError() {
    return { isBroken: true };
  }

  override render() {
    return this.state.isBroken ? this.props.instead : this.props.children;
  }
}
