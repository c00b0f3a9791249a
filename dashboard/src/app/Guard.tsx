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

  /** Other content is another try: it may be half of something that is still being said. */
  override componentDidUpdate(before: Props) {
    if (this.state.isBroken && before.children !== this.props.children) this.setState({ isBroken: false });
  }

  override render() {
    return this.state.isBroken ? this.props.instead : this.props.children;
  }
}
