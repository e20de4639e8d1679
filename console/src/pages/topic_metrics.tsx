// Throughput of a topic over time.
import { HistoryChart, type Line, RangeChoice } from "../charts";
import { bytesPerSecond, countPerSecond } from "../format";
import type { Place } from "../router";

const NONE = "No history for this topic: it is new, or not among the busiest.";

export const HistoryTab = ({ name, query }: { name: string; query: Place["query"] }) => {
  const range = query.range ?? "10m";
  const line = (metric: Line["query"]["metric"], label: string): Line => ({ query: { metric, topic: name }, label });
  return (
    <div class="stack">
      <div class="row spread">
        <h2>Throughput</h2>
        <RangeChoice value={range} />
      </div>
      <div class="grid">
        <HistoryChart
          title="Bytes"
          unit="bytes"
          range={range}
          format={bytesPerSecond}
          none={NONE}
          lines={[line("produce_bytes", "produced"), line("fetch_bytes", "consumed")]}
        />
        <HistoryChart
          title="Messages"
          range={range}
          format={countPerSecond}
          none={NONE}
          lines={[line("produce_messages", "produced"), line("fetch_messages", "consumed")]}
        />
      </div>
    </div>
  );
};
