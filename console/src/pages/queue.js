// One queue, by the name of its topic or by its path.
import { html } from "../preact.js";
import { PageHead } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { QueueView } from "./queue_view.js";

export default function Queue() {
  const { segments } = useLocation();
  const name = segments[1];
  return html`<div class="page">
    <${PageHead} title=${name} crumbs=${html`<a href="/queues">Queues</a> /`}
      >${!name.startsWith("//") && html`<a class="button" href=${pathOf("topics", name)}>Its messages</a>`}<//
    ><${QueueView} name=${name} />
  </div>`;
}
