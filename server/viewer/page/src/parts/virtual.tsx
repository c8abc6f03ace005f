// A list of any length of which only what is in sight exists. It keeps its place: what one reads
// stays where it is while rows come, grow or are put before it, and it follows the end only while
// one is there.

import { useSignal } from "@preact/signals";
import { Component, type ComponentChild, createRef } from "preact";

/** What others may have the list do. */
export interface Control {
  /** Go to the end and follow it. */
  toEnd: () => void;
  /** Bring a row into sight. */
  toKey: (key: string) => void;
}

interface Props<T> {
  control?: { current: Control | null };
  rows: T[];
  keyOf: (row: T) => string;
  estimate: (row: T) => number;
  render: (row: T, at: number) => ComponentChild;
  label: string;
  id?: string;
  /** Told when the end comes in or out of sight. */
  onEnd?: (atEnd: boolean) => void;
  /** Told when the beginning comes near. */
  onStart?: () => void;
  before?: ComponentChild;
  after?: ComponentChild;
}

const OVERSCAN = 500;
const AT_END = 60;

export class VirtualList<T> extends Component<Props<T>, { top: number; height: number; tick: number }> {
  override state = { top: 0, height: 800, tick: 0 };
  private readonly scroller = createRef<HTMLDivElement>();
  private readonly list = createRef<HTMLOListElement>();
  private readonly heights = new Map<string, number>();
  private offsets: Float64Array = new Float64Array(1);
  private anchor: { key: string; delta: number } | null = null;
  private following = true;
  private head = 0;
  private sizes: ResizeObserver | null = null;
  private ignore = -1;

  override componentDidMount(): void {
    if (this.props.control) this.props.control.current = this;
    this.sizes = new ResizeObserver((entries) => this.measured(entries));
    this.sizes.observe(this.scroller.current!);
    this.observeRows();
    this.settle();
  }

  override componentWillUnmount(): void {
    this.sizes?.disconnect();
  }

  override componentDidUpdate(): void {
    this.observeRows();
    this.settle();
  }

  toEnd(): void {
    this.following = true;
    this.settle();
    this.setState({ tick: this.state.tick + 1 });
  }

  toKey(key: string): void {
    const at = this.props.rows.findIndex((row) => this.props.keyOf(row) === key);
    if (at < 0) return;
    this.following = false;
    this.anchor = { key, delta: -40 };
    this.settle();
    this.setState({ tick: this.state.tick + 1 });
  }

  private observeRows(): void {
    for (const one of this.list.current?.children ?? []) this.sizes?.observe(one);
  }

  private measured(entries: ResizeObserverEntry[]): void {
    let changed = false;
    let height = this.state.height;
    for (const { target } of entries) {
      if (target === this.scroller.current) {
        height = target.clientHeight;
        continue;
      }
      const key = (target as HTMLElement).dataset.key;
      if (key === undefined || !target.isConnected) continue;
      const now = target.getBoundingClientRect().height;
      if (Math.abs((this.heights.get(key) ?? -1) - now) < 0.5) continue;
      this.heights.set(key, now);
      changed = true;
    }
    if (changed || height !== this.state.height)
      this.setState({ height, tick: this.state.tick + 1 });
  }

  private measure(): void {
    const { rows, keyOf, estimate } = this.props;
    const offsets = new Float64Array(rows.length + 1);
    rows.forEach((row, at) => {
      offsets[at + 1] = offsets[at]! + (this.heights.get(keyOf(row)) ?? estimate(row));
    });
    this.offsets = offsets;
  }

  /** Put the scroller where one was reading. */
  private settle(): void {
    const scroller = this.scroller.current;
    if (!scroller || !scroller.clientHeight) return;
    this.head = this.list.current!.parentElement!.offsetTop;
    let wanted: number | undefined;
    if (this.following) wanted = scroller.scrollHeight - scroller.clientHeight;
    else if (this.anchor) {
      const at = this.props.rows.findIndex((row) => this.props.keyOf(row) === this.anchor!.key);
      if (at >= 0) wanted = this.head + this.offsets[at]! + this.anchor.delta;
    }
    if (wanted !== undefined && Math.abs(scroller.scrollTop - wanted) > 1) {
      scroller.scrollTop = wanted;
      this.ignore = scroller.scrollTop;
      if (Math.abs(this.state.top - scroller.scrollTop) > OVERSCAN / 2)
        this.setState({ top: scroller.scrollTop });
    }
    this.props.onEnd?.(this.isAtEnd());
  }

  private isAtEnd(): boolean {
    const scroller = this.scroller.current!;
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < AT_END;
  }

  private readonly scrolled = (): void => {
    const scroller = this.scroller.current!;
    const top = scroller.scrollTop;
    const own = Math.abs(top - this.ignore) < 1;
    this.ignore = -1;
    if (!own) {
      this.following = this.isAtEnd();
      const at = this.find(top - this.head);
      const row = this.props.rows[at];
      this.anchor = row
        ? { key: this.props.keyOf(row), delta: top - this.head - this.offsets[at]! }
        : null;
      this.props.onEnd?.(this.following);
      if (top < 1_500) this.props.onStart?.();
    }
    if (top !== this.state.top) this.setState({ top });
  };

  /** Return which row is at a height. */
  private find(y: number): number {
    let low = 0;
    let high = this.props.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsets[middle + 1]! <= y) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, Math.max(0, this.props.rows.length - 1));
  }

  override render() {
    const { rows, keyOf, render, label, id, before, after } = this.props;
    this.measure();
    const total = this.offsets[rows.length]!;
    const top = this.following ? Math.max(0, total - this.state.height) : this.state.top - this.head;
    const first = rows.length ? this.find(top - OVERSCAN) : 0;
    const last = rows.length ? this.find(top + this.state.height + OVERSCAN) : -1;
    return (
      <div
        class="scroller"
        ref={this.scroller}
        onScroll={this.scrolled}
        tabIndex={0}
        role="region"
        aria-label={label}
      >
        <div class="column">
          {before}
          <div class="spacer" style={{ height: `${total}px` }}>
            <ol
              id={id}
              ref={this.list}
              style={{ transform: `translateY(${this.offsets[first] ?? 0}px)` }}
            >
              {rows.slice(first, last + 1).map((row, at) => {
                const key = keyOf(row);
                return (
                  <li
                    key={key}
                    data-key={key}
                    aria-posinset={first + at + 1}
                    aria-setsize={rows.length}
                  >
                    {render(row, first + at)}
                  </li>
                );
              })}
            </ol>
          </div>
          {after}
        </div>
      </div>
    );
  }
}

/** Whether something is open, kept while its row goes out of sight and comes back. */
const opened = new Map<string, boolean>();

export function useOpened(key: string, first: boolean): [boolean, (open: boolean) => void] {
  const tick = useSignal(0);
  void tick.value;
  return [
    opened.get(key) ?? first,
    (open) => {
      opened.set(key, open);
      tick.value += 1;
    },
  ];
}
