// A new, empty topic with the partitions and settings of another.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post } from "../api";
import { FormDialog, say } from "../dialogs";
import { forget, useLive } from "../live";
import { Command, Field, useId } from "../parts";
import { useRights } from "../rights";
import { navigate, pathOf } from "../router";
import { useCluster } from "../shell";
import { command, quoted } from "../snippets";
import { shownText } from "./config_values";

export const CloneTopic = ({ topic, onClose }: { topic: Schemas["TopicView"]; onClose: () => void }) => {
  const [form, setForm] = useState({ name: `${topic.name}-copy`, partitions: String(topic.partitions), rules: false });
  const [nameId, partitionsId] = [useId(), useId()];
  const config = useLive(apiPath("/topics/{name}/config", { name: topic.name }), {}, { every: 0 });
  const own = (config.data?.items ?? []).filter(({ source }) => source === "topic");
  const cluster = useCluster();
  const mayAlter = useRights("cluster")("ALTER") === null;
  const name = form.name.trim();
  const clone = async () => {
    const made = await post(apiPath("/topics/{name}/clone", { name: topic.name }), {
      name,
      partitions: Number(form.partitions),
      access_rules: form.rules,
    });
    forget("/topics");
    say(`Topic ${name} was created${made.access_rules ? ` with ${made.access_rules} access rules` : ""}.`);
    navigate(pathOf("topics", name));
  };
  return (
    <FormDialog
      title={`Clone topic ${topic.name}`}
      verb="Clone"
      ready={name !== "" && Number(form.partitions) >= 1}
      send={clone}
      onClose={onClose}
    >
      <Field id={nameId} label="Name of the new topic">
        <input
          id={nameId}
          class="input mono"
          data-first
          autocomplete="off"
          spellcheck={false}
          maxlength={249}
          value={form.name}
          onInput={(event) => setForm({ ...form, name: event.currentTarget.value })}
        />
      </Field>
      <Field id={partitionsId} label="Partitions" hint={`${topic.name} has ${topic.partitions}. With the same number, a key stays in its partition.`}>
        <input
          id={partitionsId}
          class="input"
          type="number"
          min="1"
          max="100000"
          value={form.partitions}
          onInput={(event) => setForm({ ...form, partitions: event.currentTarget.value })}
        />
      </Field>
      <div class="field">
        <span class="label">Settings</span>
        {own.length ? (
          <ul class="plain-list">
            {own.map((setting) => (
              <li key={setting.name}>
                <code>{setting.name}</code> {shownText(setting, setting.value)}
              </li>
            ))}
          </ul>
        ) : (
          <span class="muted">{config.data ? "All are defaults." : "…"}</span>
        )}
      </div>
      {cluster?.security.sasl && (
        <label class="check" title={mayAlter ? undefined : "You may not ALTER the cluster, which adding access rules needs"}>
          <input
            type="checkbox"
            checked={form.rules}
            disabled={!mayAlter}
            onChange={(event) => setForm({ ...form, rules: event.currentTarget.checked })}
          />
          Copy the access rules that name {topic.name}
        </label>
      )}
      <div class="field">
        <span class="hint">The new topic is empty. To copy the messages as well, run after that:</span>
        <Command
          text={command(cluster, `penstock topic copy ${quoted(topic.name)} ${quoted(name || "NAME")}`)}
          label="Command that copies the messages"
        />
      </div>
    </FormDialog>
  );
};
