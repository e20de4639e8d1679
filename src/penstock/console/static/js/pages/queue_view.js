// What the Queue Agent knows of a queue: rates, registrations, vital consumers, trimming.
import { html } from "../../vendor/htm-preact.js";
import { apiPath } from "../api.js";
import { Ago, Bytes, BytesRate, Count, CountRate, integer } from "../format.js";
import { useLive } from "../live.js";
import { Badge, Card, Empty, Facts, Failure, Notice, State } from "../parts.js";
import { pathOf } from "../router.js";
import { Table } from "../tables.js";

const SPANS = [["current", "now"], ["1m", "1 min"], ["1h", "1 h"], ["1d", "1 d"]];

/** Rates over several spans, one line for each kind. */
export const Rates = ({ rows, bytes: weights, label }) => html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label}><table class="table"><caption class="spoken">${label}</caption>
  <thead><tr><th scope="col"><span class="spoken">What</span></th>${SPANS.map(([key, text]) => html`<th key=${key} scope="col" class="end">${text}</th>`)}</tr></thead>
  <tbody><tr><th scope="row">Rows</th>${SPANS.map(([key]) => html`<td key=${key} class="end"><${CountRate} value=${rows?.[key]} /></td>`)}</tr>
  <tr><th scope="row">Data</th>${SPANS.map(([key]) => html`<td key=${key} class="end"><${BytesRate} value=${weights?.[key]} /></td>`)}</tr></tbody></table></div>`;

export const QueueView = ({ name }) => {
  const { data, error, refresh } = useLive(apiPath("queues", name));
  return html`<div class="stack"><${Failure} error=${error} again=${refresh} what="The queue" />${data && html`<pre>${JSON.stringify(data, null, 2)}</pre>`}</div>`;
};
