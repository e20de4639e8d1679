// How a topic was written and read over time.
import { HistoryChart, type Line, RangeChoice } from "../charts";
import { bytesPerSecond, countPerSecond } from "../format";
import type { Place } from "../router";

const NONE = "No history of this topic is in memory: it was made just now, or it is not among the busiest.";

export const HistoryTab = ({ name, query }: { name: string; query: Place["query"] }) => {
  const range = query.range ?? "10m";
  const line = (metric: Line["query"]["metric"], label: string): Line => ({ query: { metric, topic: name }, label });
  return (
    <div class="stack">
      <div class="row">
        <RangeChoice value={range} />
      </div>
      <div class="grid">
        <HistoryChart
          title="Bytes"
          unit="bytes"
          range={range}
          format={bytesPerSecond}
          none={NONE}
          lines={[line("produce_bytes", "written"), line("fetch_bytes", "read")]}
        />
        <HistoryChart
          title="Messages"
          range={range}
          format={countPerSecond}
          none={NONE}
          lines={[line("produce_messages", "written"), line("fetch_messages", "read")]}
        />
      </div>
    </div>
  );
};
