import { Component, type ComponentChild, type FunctionComponent, h } from "preact";

/** Return a component that is made anew only when one of its attributes is another one. */
export function memo<P extends object>(
  render: (props: P) => ComponentChild,
): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const names = new Set([...Object.keys(next), ...Object.keys(this.props)]) as Set<keyof P>;
      return [...names].some((name) => next[name] !== this.props[name]);
    }
    override render() {
      return h(render as FunctionComponent<P>, this.props as P);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
