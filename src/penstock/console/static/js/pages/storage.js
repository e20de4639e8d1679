// Groups and their VDisks, drawn by fail domain: what is well, what is missing, what is being healed, and how much room there is.
import { html, useState } from "../../vendor/htm-preact.js";
import { post } from "../api.js";
import { Confirm, say } from "../dialogs.js";
import { Bytes, Count, Moment, ago, bytes, integer, percent, plural } from "../format.js";
import { useLive } from "../live.js";
import { Bone, Card, Facts, Failure, Meter, Notice, PageHead, State, Tile } from "../parts.js";

const WORST = ["lost", "read-only", "degraded", "healing", "healthy"];
const SURVIVES = {
  none: "One copy on one disk: it survives a crash of the process and of the machine, not the loss of the disk.",
  "block-4-2": "Four data parts and two parity parts on eight fail domains: any two of them may be lost.",
  "mirror-3-dc": "Three whole copies in three realms: one realm and one more domain may be lost.",
};

const toneOf = (state) => ({ healthy: "good", ready: "good", ok: "good", serving: "good", broken: "bad", lost: "bad", missing: "bad", failed: "bad", "read-only": "warn" }[state] ?? "warn");

const VDisk = ({ vdisk }) => {
  const isHealing = vdisk.to_heal > 0;
  return html`<li class=${`vdisk ${toneOf(vdisk.state)}`}>
    <div class="row spread"><strong>VDisk ${vdisk.order}</strong><${State} of=${isHealing && toneOf(vdisk.state) === "good" ? "healing" : vdisk.state} /></div>
    <div class="mono clip small muted" title=${vdisk.path}>${vdisk.path}</div>
    <dl class="vdisk-facts">
      <div><dt>used</dt><dd><${Bytes} value=${vdisk.used} /></dd></div>
      <div><dt>chunks</dt><dd><${Count} value=${vdisk.chunks} /></dd></div>
      <div><dt>parts</dt><dd><${Count} value=${vdisk.parts} /></dd></div>
      <div class=${isHealing ? "warn-text" : ""}><dt>to heal</dt><dd><${Count} value=${vdisk.to_heal} /></dd></div>
    </dl>
  </li>`;
};

/** VDisks in rows of fail realms and columns of fail domains. */
const Domains = ({ vdisks }) => {
  const realms = new Map();
  for (const vdisk of vdisks) {
    const realm = realms.get(vdisk.fail_realm) ?? new Map();
    realms.set(vdisk.fail_realm, realm);
    realm.set(vdisk.fail_domain, [...(realm.get(vdisk.fail_domain) ?? []), vdisk]);
  }
  return html`<div class="realms">${[...realms].map(([realm, domains]) => html`<section key=${realm} class="realm" aria-label=${`Fail realm ${realm}`}>
    ${realms.size > 1 && html`<h3>Fail realm ${realm}</h3>`}
    <div class="domains">${[...domains].map(([domain, disks]) => html`<section key=${domain} class="domain" aria-label=${`Fail domain ${domain}`}><h4>Fail domain ${domain}</h4><ul>${disks.map((vdisk) => html`<${VDisk} key=${vdisk.order} vdisk=${vdisk} />`)}</ul></section>`)}</div>
  </section>`)}</div>`;
};

const Group = ({ group }) => {
  const total = group.used + group.free;
  const toHeal = group.vdisks.reduce((sum, { to_heal }) => sum + (to_heal ?? 0), 0);
  const scrub = group.scrub;
  return html`<${Card} title=${`Group ${group.id}`} actions=${html`<${State} of=${group.state} />`}><div class="stack">
    ${group.state !== "healthy" && html`<${Notice} tone=${group.state === "degraded" ? "warn" : "bad"} title=${{ degraded: "Some VDisks are missing; everything is still readable and writable", "read-only": "Too few VDisks to write; what is stored can be read", lost: "Too few VDisks: some blobs cannot be read" }[group.state]}>
      Bring the disk back, or put an empty directory in its place and start again: it is filled from the others.<//>`}
    ${group.state === "healthy" && toHeal > 0 && html`<${Notice} tone="warn">${plural(toHeal, "part")} are being restored from the others.<//>`}
    <div class="group-head"><${Facts} of=${[["Erasure", group.erasure], ["Survives", SURVIVES[group.erasure] ?? "–"],
      ["Last scrub", scrub?.last_ms ? html`<${Moment} value=${scrub.last_ms} /> (${ago(scrub.last_ms)}), ${scrub.found ? html`<strong class="bad-text">${plural(scrub.found, "damaged part")} found</strong>` : "nothing damaged"}` : html`<span class="muted">none since the start</span>`]]} />
      <div class="space"><div class="row spread"><span>${bytes(group.used)} used</span><span class="muted">${bytes(group.free)} free</span></div><${Meter} share=${total ? group.used / total : null} label=${`Space used in group ${group.id}`} /></div></div>
    <${Domains} vdisks=${group.vdisks} />
  </div><//>`;
};

export default function Storage() {
  const { data, error, refresh } = useLive("/storage", {}, { every: 3000 });
  const [asking, setAsking] = useState(false);
  const groups = data?.groups ?? [];
  const sum = (key) => groups.reduce((total, group) => total + (group[key] ?? 0), 0);
  const vdisks = groups.flatMap((group) => group.vdisks);
  const worst = WORST.find((state) => groups.some((group) => group.state === state));
  const toHeal = vdisks.reduce((total, { to_heal }) => total + (to_heal ?? 0), 0);
  return html`<div class="page"><${PageHead} title="Storage" note="Blobs, spread over VDisks in groups.">${data && html`<button type="button" class="button" onClick=${() => setAsking(true)}>Scrub now…</button>`}<//>
    <${Failure} error=${error} again=${refresh} what="The storage" />
    <div class="tiles">
      <${Tile} label="State" note=${plural(groups.length, "group")}>${data ? html`<span class="state-figure">${worst ?? "–"}</span>` : html`<${Bone} />`}<//>
      <${Tile} label="Used" note=${data ? `${percent(sum("used") / (sum("used") + sum("free") || 1))} of the disks` : null}>${data ? html`<${Bytes} value=${sum("used")} />` : html`<${Bone} />`}<//>
      <${Tile} label="Free">${data ? html`<${Bytes} value=${sum("free")} />` : html`<${Bone} />`}<//>
      <${Tile} label="VDisks" note=${data ? `${vdisks.filter(({ state }) => toneOf(state) !== "good").length} not well` : null}>${data ? integer(vdisks.length) : html`<${Bone} />`}<//>
      <${Tile} label="To heal" note="parts to be restored">${data ? html`<${Count} value=${toHeal} />` : html`<${Bone} />`}<//>
    </div>
    ${groups.map((group) => html`<${Group} key=${group.id} group=${group} />`)}
    ${asking && html`<${Confirm} title="Scrub the storage?" danger=${false} verb="Start the scrub" onClose=${() => setAsking(false)} act=${async () => { await post("/storage/scrub", {}); say("The scrub has begun."); refresh(); }}
      touches=${html`All ${plural(vdisks.length, "VDisk")} are read from beginning to end (${bytes(sum("used"))}) and every part is checked; damaged ones are restored from the others. Nothing is deleted. Reading takes some of the disks' time meanwhile.`} />`}
  </div>`;
}
