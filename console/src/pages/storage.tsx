// Storage groups and their VDisks by fail domain: health, missing parts and free space.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post } from "../api";
import { Confirm, say } from "../dialogs";
import { Bytes, Count, Moment, ago, bytes, integer, percent, plural } from "../format";
import { useLive } from "../live";
import { Bone, Card, Facts, Failure, Meter, Notice, OtherFiles, PageHead, State, Tile, type Tone } from "../parts";
import { useRights } from "../rights";

type VDisk = Schemas["VDiskView"];
type Group = Schemas["GroupView"];

const WORST: Group["state"][] = ["lost", "read-only", "degraded", "healthy"];
const SURVIVES: Partial<Record<string, string>> = {
  none: "One copy on one disk: it survives a crash of the process and of the machine, not the loss of the disk.",
  "mirror-3": "A whole copy on each of three fail domains: any one of them may be lost.",
  "block-4-2": "Four data parts and two parity parts on eight fail domains: any two of them may be lost.",
  "mirror-3-dc": "Three whole copies in three realms: one realm and one more domain may be lost.",
};
const STATE_TEXTS: Partial<Record<Group["state"], string>> = {
  degraded: "Some VDisks are missing; everything can still be read and written",
  "read-only": "Too few VDisks to write; stored data can be read",
  lost: "Too few VDisks: some blobs cannot be read",
};
const TONES: Record<VDisk["state"], Tone> = {
  serving: "good",
  healing: "warn",
  damaged: "bad",
  full: "warn",
  failing: "bad",
  out: "bad",
};

/** The end of a path, which is what tells disks apart. */
const endOf = (path: string) => (path.length > 24 ? `…/${path.split("/").slice(-2).join("/")}` : path);

const VDiskItem = ({ vdisk }: { vdisk: VDisk }) => (
  <li class={`vdisk ${TONES[vdisk.state]}`}>
    <div class="row spread">
      <strong title={vdisk.id}>
        VDisk {vdisk.order}
        {vdisk.node !== null && <span class="muted"> on node {vdisk.node}</span>}
      </strong>
      <State of={vdisk.state === "serving" && vdisk.to_heal > 0 ? "healing" : vdisk.state} />
    </div>
    <div class="mono clip small muted" title={vdisk.path}>
      {endOf(vdisk.path)}
    </div>
    <dl class="vdisk-facts">
      <div title="bytes of its files, including garbage">
        <dt>used</dt>
        <dd>
          <Bytes value={vdisk.used} />
        </dd>
      </div>
      <div>
        <dt>live</dt>
        <dd>
          <Bytes value={vdisk.live} />
        </dd>
      </div>
      <div>
        <dt>chunks</dt>
        <dd>
          <Count value={vdisk.chunks} />
        </dd>
      </div>
      <div>
        <dt>parts</dt>
        <dd>
          <Count value={vdisk.parts} />
        </dd>
      </div>
    </dl>
    {vdisk.to_heal > 0 && <div class="small warn-text">{plural(vdisk.to_heal, "part")} to restore</div>}
    {vdisk.damaged > 0 && <div class="small bad-text">{plural(vdisk.damaged, "damaged part")}</div>}
    {vdisk.losses.length > 0 && (
      <details class="small">
        <summary>{plural(vdisk.losses.length, "loss", "losses")} found</summary>
        <ul>
          {vdisk.losses.map((loss) => (
            <li key={loss} class="wrap">
              {loss}
            </li>
          ))}
        </ul>
      </details>
    )}
  </li>
);

/** VDisks in rows of fail realms and columns of fail domains. */
const Domains = ({ vdisks }: { vdisks: VDisk[] }) => {
  const realms = new Map<number, Map<number, VDisk[]>>();
  for (const vdisk of vdisks) {
    const realm = realms.get(vdisk.fail_realm) ?? new Map<number, VDisk[]>();
    realms.set(vdisk.fail_realm, realm);
    realm.set(vdisk.fail_domain, [...(realm.get(vdisk.fail_domain) ?? []), vdisk]);
  }
  const DomainHead = realms.size > 1 ? "h4" : "h3";
  return (
    <div class="realms">
      {[...realms].map(([realm, domains]) => (
        <section key={realm} class="realm" aria-label={`Fail realm ${realm}`}>
          {realms.size > 1 && <h3>Fail realm {realm}</h3>}
          <div class="domains" style={{ "--columns": Math.min(domains.size, 4) }}>
            {[...domains].map(([domain, disks]) => (
              <section key={domain} class="domain" aria-label={`Fail domain ${domain}`}>
                <DomainHead>Fail domain {domain}</DomainHead>
                <ul>
                  {disks.map((vdisk) => (
                    <VDiskItem key={vdisk.order} vdisk={vdisk} />
                  ))}
                </ul>
              </section>
            ))}
          </div>
        </section>
      ))}
    </div>
  );
};

const scrubText = ({ is_running: isRunning, last_ms: last, found, chunks }: Schemas["ScrubView"]): ComponentChildren => [
  isRunning ? (
    <>
      <strong>running now</strong>,{" "}
    </>
  ) : (
    ""
  ),
  last ? (
    <>
      finished at <Moment value={last} /> ({ago(last)}),{" "}
    </>
  ) : (
    "not finished since the node started, "
  ),
  `${plural(chunks, "chunk")} read, `,
  found ? <strong class="bad-text">{plural(found, "damaged part")} found</strong> : "nothing damaged",
];

/** What the bytes of the files are: messages once, then all that comes on top of them. */
const SpaceCard = ({ storage }: { storage: Schemas["StorageView"] }) => {
  const vdisks = storage.groups.flatMap((group) => group.vdisks);
  const used = vdisks.reduce((total, vdisk) => total + vdisk.used, 0);
  const live = Math.min(used, Math.max(storage.topic_bytes, vdisks.reduce((total, vdisk) => total + vdisk.live, 0)));
  return (
    <Card title="What the space is used for">
      <Facts
        of={[
          ["Messages", <><Bytes value={storage.topic_bytes} /> as topics show them</>],
          [
            "Overhead",
            <>
              <Bytes value={live - storage.topic_bytes} /> of copies or parity, indexes, committed offsets and internal state
            </>,
          ],
          [
            "Garbage",
            <>
              <Bytes value={used - live} /> deleted or replaced; freed when all of a chunk is garbage, or when it is rewritten
            </>,
          ],
        ]}
      />
    </Card>
  );
};

const GroupCard = ({ group }: { group: Group }) => (
  <Card title={`Group ${group.name}`} actions={<State of={group.state} />}>
    <div class="stack">
      {STATE_TEXTS[group.state] && (
        <Notice tone={group.state === "degraded" ? "warn" : "bad"} title={STATE_TEXTS[group.state]}>
          Bring the disk back, or replace it with an empty directory and restart the node: it is rebuilt from the others.
        </Notice>
      )}
      <div class="group-head">
        <Facts
          of={[
            ["Erasure", group.erasure],
            ["Survives", SURVIVES[group.erasure] ?? "–"],
            ["Scrub", scrubText(group.scrub)],
            ["Restored", `${plural(group.restored, "part")} since the node started`],
          ]}
        />
        <div class="space">
          <div class="row spread">
            <span>{bytes(group.used)} used by Penstock</span>
            <span class="muted">
              {group.total ? `${bytes(group.free)} free of ${bytes(group.total)}` : "being measured"}
            </span>
          </div>
          <Meter
            share={group.total ? 1 - group.free / group.total : null}
            own={group.total ? group.used / group.total : 0}
            label={`Space used on the disks of group ${group.name}`}
          />
          {group.total > 0 && <OtherFiles {...group} />}
        </div>
      </div>
      <Domains vdisks={group.vdisks} />
    </div>
  </Card>
);

export default function Storage() {
  const { data, error, refresh } = useLive(apiPath("/storage"));
  const [asking, setAsking] = useState(false);
  const refused = useRights("cluster")("ALTER");
  const groups = data?.groups ?? [];
  const sum = (key: "used" | "free" | "total") => groups.reduce((total, group) => total + group[key], 0);
  const vdisks = groups.flatMap((group) => group.vdisks);
  const worst = WORST.find((state) => groups.some((group) => group.state === state));
  const toHeal = vdisks.reduce((total, { to_heal: parts }) => total + parts, 0);
  const notWell = vdisks.filter(({ state }) => state !== "serving").length;
  const known = (value: ComponentChildren) => (data ? value : <Bone />);
  return (
    <div class="page">
      <PageHead title="Storage" note="Storage groups and their VDisks.">
        {data && (
          <button
            type="button"
            class="button"
            disabled={Boolean(refused)}
            title={refused ?? undefined}
            onClick={() => setAsking(true)}
          >
            Scrub now…
          </button>
        )}
      </PageHead>
      <Failure error={error} again={refresh} what="The storage" />
      <div class="tiles">
        <Tile label="State" note={data ? plural(groups.length, "group") : null}>
          {known(<span class="state-figure">{worst ?? "–"}</span>)}
        </Tile>
        <Tile label="Used" note="by Penstock">
          {known(<Bytes value={sum("used")} />)}
        </Tile>
        <Tile
          label="Free"
          note={sum("total") ? `${percent(sum("free") / sum("total"))} of the disks` : data ? "being measured" : null}
        >
          {known(<Bytes value={sum("total") ? sum("free") : null} />)}
        </Tile>
        <Tile label="VDisks" note={data ? (notWell ? `${integer(notWell)} not healthy` : "all healthy") : null}>
          {known(integer(vdisks.length))}
        </Tile>
        <Tile label="To restore" note="parts missing on a VDisk">
          {known(<Count value={toHeal} />)}
        </Tile>
      </div>
      {data && <SpaceCard storage={data} />}
      {groups.map((group) => (
        <GroupCard key={group.id} group={group} />
      ))}
      {asking && (
        <Confirm
          title="Scrub the storage?"
          danger={false}
          verb="Start scrub"
          onClose={() => setAsking(false)}
          act={async () => {
            const begun = await post(apiPath("/storage/scrub"));
            say(begun.started ? "The scrub has started." : "A scrub is already running.");
            refresh();
          }}
          touches={
            <>
              This reads {vdisks.length === 1 ? "the VDisk" : `all ${integer(vdisks.length)} VDisks`} ({bytes(sum("used"))}) and
              verifies every part; damaged parts are {vdisks.length === 1 ? "reported" : "restored from the others"}. Nothing is deleted. It uses some of the disks' bandwidth meanwhile.
            </>
          }
        />
      )}
    </div>
  );
}
