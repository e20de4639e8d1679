// A list of messages, each of which opens to all there is to know of it.
import { html, useState } from "../preact.js";
import { API, apiPath, request } from "../api.js";
import { Bytes, Moment, bytes, integer } from "../format.js";
import { Icon } from "../icons.js";
import { CopyButton, Facts, Failure, Notice } from "../parts.js";
import { setQuery } from "../router.js";
import { useCluster } from "../shell.js";
import { messageCommand, messageProgram } from "../snippets.js";
import { Value, asText, parseExactly, preview } from "../values.js";

const idOf = ({ partition, offset }) => `${partition}-${offset}`;

const Headers = ({ headers }) =>
  headers.length === 0
    ? html`<p class="muted">No headers.</p>`
    : html`<table class="table compact">
        <caption class="spoken">
          Headers
        </caption>
        <thead>
          <tr>
            <th scope="col">Header</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          ${headers.map(
            ({ name, value }, index) =>
              html`<tr key=${index}>
                <td class="mono">${name}</td>
                <td class="mono wrap">${preview(value, 2000)}</td>
              </tr>`,
          )}
        </tbody>
      </table>`;

const Opened = ({ topic, message }) => {
  const cluster = useCluster();
  const [whole, setWhole] = useState(null);
  const [error, setError] = useState(null);
  const shown = whole ?? message;
  const path = apiPath("topics", topic, "messages", String(message.partition), String(message.offset));
  const showAll = async () => {
    try {
      setWhole(await request("GET", path, { parse: parseExactly }));
    } catch (failure) {
      setError(failure);
    }
  };
  const cut = shown.value.truncated || shown.key.truncated;
  return html`<div class="opened">
    <div class="opened-side">
      <${Facts}
        of=${[
          ["Partition", integer(shown.partition)],
          ["Offset", html`<span class="num">${integer(shown.offset)}</span>`],
          ["Time", html`<${Moment} value=${shown.timestamp} millis />`],
          ["Set by", shown.timestamp_type === "append" ? "the broker" : "the producer"],
          ["Size", html`<${Bytes} value=${shown.size} />`],
          [
            "Key",
            shown.key.kind === "null"
              ? html`<span class="muted">none</span>`
              : html`<code class="wrap">${preview(shown.key, 2000)}</code>`,
          ],
          shown.payload && ["Payload", html`<code class="wrap">${shown.payload.object_name}</code>`],
        ]}
      />
      <${Headers} headers=${shown.headers} />
    </div>
    <div class="opened-main">
      <div class="row">
        <strong>Value</strong
        ><span class="muted small"
          >${shown.value.kind === "null" ? "none: a tombstone in a compacted topic" : `${shown.value.kind}, ${bytes(shown.value.size)}`}</span
        >
        <span class="push"></span>
        ${
          shown.value.kind !== "null" &&
          html`<${CopyButton} text=${() => asText(shown.value)} label="Copy value" />
            <a class="button small" href=${`${API}${path}/value`} download>Download</a>`
        }
        <${CopyButton} text=${() => messageCommand(cluster, topic, message)} label="As command" /><${CopyButton}
          text=${() => messageProgram(cluster, topic, message)}
          label="As Python"
        />
      </div>
      <${Value} of=${shown.value} label=${`Value at offset ${shown.offset}`} />
      ${cut && html`<${Notice}>Only the beginning is shown. ${!whole && html`<button type="button" class="button small" onClick=${showAll}>Show all</button>`}${whole && "Download it to have all of it."}<//>`}
      <${Failure} error=${error} />
    </div>
  </div>`;
};

const Row = ({ topic, message, isOpen, several }) => {
  const id = idOf(message);
  const toggle = () => setQuery({ open: isOpen ? null : id });
  return [
    html`<tr
      class=${`data message ${isOpen ? "open" : ""}`}
      key=${id}
      onClick=${(event) => {
        if (!event.target.closest("button") && !getSelection().toString()) toggle();
      }}
    >
      <td class="toggle">
        <button
          type="button"
          class="button plain small"
          data-row
          aria-expanded=${String(isOpen)}
          aria-label=${`Message ${message.offset} of partition ${message.partition}`}
          onClick=${toggle}
        >
          <${Icon} name="right" turned=${isOpen} />
        </button>
      </td>
      <td class="nowrap"><${Moment} value=${message.timestamp} millis /></td>
      <td class=${`end wide-only ${several ? "" : "muted"}`}>${message.partition}</td>
      <td class="end">${integer(message.offset)}</td>
      <td class="wide-only">
        <span class=${`mono clip key ${message.key.kind === "null" ? "muted" : ""}`}>${preview(message.key, 80)}</span>
      </td>
      <td class="preview">
        <span class=${`mono clip ${message.value.kind === "null" ? "muted" : ""}`}>${preview(message.value)}</span>
      </td>
      <td class="end wide-only"><${Bytes} value=${message.size} /></td>
    </tr>`,
    isOpen &&
      html`<tr class="opened-row" key=${`${id}-open`}>
        <td colspan="7"><${Opened} topic=${topic} message=${message} /></td>
      </tr>`,
  ];
};

export const MessageTable = ({ topic, items, open }) => {
  const several = new Set(items.map(({ partition }) => partition)).size > 1;
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label="Messages">
    <table class="table messages">
      <caption class="spoken">
        Messages of ${topic}
      </caption>
      <thead>
        <tr>
          <th scope="col" class="toggle"><span class="spoken">Open</span></th>
          <th scope="col">Time</th>
          <th scope="col" class="end wide-only">Partition</th>
          <th scope="col" class="end">Offset</th>
          <th scope="col" class="wide-only">Key</th>
          <th scope="col">Value</th>
          <th scope="col" class="end wide-only">Size</th>
        </tr>
      </thead>
      <tbody>
        ${items.map((message) => html`<${Row} key=${idOf(message)} topic=${topic} message=${message} isOpen=${open === idOf(message)} several=${several} />`)}
      </tbody>
    </table>
  </div>`;
};
