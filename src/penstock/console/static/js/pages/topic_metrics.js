// How a topic was written and read over time.
import { html } from "../../vendor/htm-preact.js";
import { HistoryChart, RangeChoice } from "../charts.js";
import { bytesPerSecond, countPerSecond } from "../format.js";

export const HistoryTab = ({ name, query }) => {
  const range = query.range ?? "10m";
  const line = (metric, label) => ({ query: { metric, topic: name }, label });
  return html`<div class="stack">
    <div class="row"><${RangeChoice} value=${range} /></div>
    <div class="grid">
      <${HistoryChart}
        title="Bytes"
        unit="bytes"
        range=${range}
        format=${bytesPerSecond}
        lines=${[line("produce_bytes", "written"), line("fetch_bytes", "read")]}
      />
      <${HistoryChart}
        title="Messages"
        range=${range}
        format=${countPerSecond}
        lines=${[line("produce_messages", "written"), line("fetch_messages", "read")]}
      />
    </div>
  </div>`;
};
