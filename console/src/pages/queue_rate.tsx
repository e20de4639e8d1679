// A rate over a window. The node remembers rates while it runs: a window that is longer than that has no figure of its own yet.
import type { ComponentType } from "preact";
import type { Schemas } from "../api";
import { CountRate, type Figure, duration } from "../format";
import { useCluster } from "../shell";

type Rates = Schemas["Rates"];
const WINDOW_MS: Record<keyof Rates, number> = { current: 0, "1m": 60e3, "1h": 3600e3, "1d": 86400e3 };

interface WindowRateProps {
  rates: Rates | undefined;
  span: keyof Rates;
  shown?: ComponentType<{ value: Figure }>;
}

export const WindowRate = ({ rates, span, shown: Shown = CountRate }: WindowRateProps) => {
  const cluster = useCluster();
  const up = cluster ? cluster.now_ms - cluster.started_ms : Infinity;
  if (up >= WINDOW_MS[span]) return <Shown value={rates?.[span]} />;
  return (
    <span class="muted" title={`The node has run for ${duration(up)} only`}>
      –
    </span>
  );
};
