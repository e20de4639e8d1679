// The clusters of this console: this one, and those that its settings name. Each has its own address, users and session; going to
// another one leaves this page for the same page there.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Schemas, apiPath } from "./api";
import { Icon } from "./icons";
import { useLive } from "./live";
import { Badge } from "./parts";
import { href, useLocation } from "./router";

type Peer = Schemas["PeerView"];

// What is true of one cluster only: a message, and a place in a list.
const OF_ONE_CLUSTER = ["open", "at", "start"];

const STATES: Record<Peer["state"], [text: string, tone: "good" | "warn" | "bad" | ""]> = {
  up: ["up", "good"],
  starting: ["not ready", "warn"],
  away: ["away", "bad"],
  unknown: ["not checked", ""],
};

const PeerItem = ({ peer }: { peer: Peer }) => {
  const { path, query } = useLocation();
  const kept = Object.fromEntries(Object.entries(query).filter(([key]) => !OF_ONE_CLUSTER.includes(key)));
  const target = peer.url + href(path, kept);
  const [text, tone] = STATES[peer.state];
  return (
    <li>
      <a href={target} title={peer.message || `The same page at ${peer.url}`}>
        <span class="clip">{peer.name}</span>
        <Badge tone={tone}>{text}</Badge>
      </a>
      {peer.state === "away" && (
        <p class="small bad-text" role="alert">
          {peer.message}
        </p>
      )}
    </li>
  );
};

/** Opens a list of the clusters; it is not there where the settings name no other one. */
export const ClusterSwitch = ({ name }: { name: string }) => {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const { data, error } = useLive(apiPath("/peers"), {}, { every: open ? 5000 : 60000 });
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: Event) => {
      if (!(event.target instanceof Node) || !box.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  if (!data?.items.length) return null;
  return (
    <div
      class="clusters"
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.stopPropagation();
        setOpen(false);
        box.current?.querySelector("button")?.focus();
      }}
    >
      <button type="button" class="button" aria-expanded={open} aria-label={`Cluster ${name}, choose another`} onClick={() => setOpen(!open)}>
        <span class="clip">{name}</span>
        <Icon name="right" turned />
      </button>
      {open && (
        <ul class="cluster-list" aria-label="Clusters">
          <li>
            <span class="current" aria-current="true">
              <span class="clip">{name}</span>
              <span class="small muted">this one</span>
            </span>
          </li>
          {data.items.map((peer) => (
            <PeerItem key={peer.name} peer={peer} />
          ))}
          {error && <li class="small bad-text">{error.message}</li>}
        </ul>
      )}
    </div>
  );
};
