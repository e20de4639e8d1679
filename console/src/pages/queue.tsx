// One queue, by the name of its topic or by its path.
import { PageHead } from "../parts";
import { pathOf, useLocation } from "../router";
import { QueueView } from "./queue_view";

export default function Queue() {
  const { segments } = useLocation();
  const name = segments[1] ?? "";
  return (
    <div class="page">
      <PageHead
        title={name}
        crumbs={
          <>
            <a href="/queues">Queues</a> /
          </>
        }
      >
        {!name.startsWith("//") && (
          <a class="button" href={pathOf("topics", name)}>
            Its messages
          </a>
        )}
      </PageHead>
      <QueueView name={name} />
    </div>
  );
}
