// What is done to a deployed pipeline: paused, resumed, stopped, undeployed, its dead letters replayed.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post, remove } from "../api";
import { Confirm, say } from "../dialogs";
import { Ago, integer, sentence } from "../format";
import { forget } from "../live";
import { Notice } from "../parts";
import { useRights } from "../rights";
import { navigate } from "../router";
import type { Deployment } from "./pipeline_state";

interface ActionProps {
  name: string;
  deployment: Deployment;
  onDone: () => void;
}

const RUNS = ["starting", "running", "restarting"];

/** Buttons for what can be done to it in its state; those that would be refused say why. */
export const PipelineActions = ({ name, deployment, onDone }: ActionProps) => {
  const [asked, setAsked] = useState<"stop" | "undeploy" | null>(null);
  const [busy, setBusy] = useState(false);
  const refusal = useRights("cluster")("ALTER");
  const go = async (act: () => Promise<unknown>, done: string) => {
    setBusy(true);
    try {
      await act();
      say(done);
    } catch (error) {
      say(error instanceof Error ? error.message : String(error), "bad");
    } finally {
      setBusy(false);
      onDone();
    }
  };
  const disabled = busy || refusal !== null;
  const close = () => setAsked(null);
  return (
    <>
      {RUNS.includes(deployment.state) ? (
        <>
          <button
            type="button"
            class="button"
            disabled={disabled}
            title={refusal ?? "Stop after the current batch; Spark keeps running"}
            onClick={() => go(() => post(apiPath("/pipelines/{name}/pause", { name })), `${name} pauses after its current batch.`)}
          >
            Pause
          </button>
          <button type="button" class="button" disabled={disabled} title={refusal ?? ""} onClick={() => setAsked("stop")}>
            Stop
          </button>
        </>
      ) : (
        <button
          type="button"
          class="button primary"
          disabled={disabled || deployment.state === "stopping"}
          title={refusal ?? ""}
          onClick={() => go(() => post(apiPath("/pipelines/{name}/resume", { name })), `${name} is started.`)}
        >
          Resume
        </button>
      )}
      <button type="button" class="button danger" disabled={disabled} title={refusal ?? ""} onClick={() => setAsked("undeploy")}>
        Undeploy
      </button>
      {asked === "stop" && (
        <Confirm
          title={`Stop ${name}`}
          verb="Stop"
          danger={false}
          onClose={close}
          touches={
            <p>
              <b>{name}</b> stops after its current batch, and its Spark application with it unless others share it. It stays
              stopped, also after a restart of the node, until it is resumed, and continues from its last commit then.
            </p>
          }
          act={async () => {
            await post(apiPath("/pipelines/{name}/stop", { name }));
            say(`${name} stops after its current batch.`);
            onDone();
          }}
        />
      )}
      {asked === "undeploy" && (
        <Confirm
          title={`Undeploy ${name}`}
          verb="Undeploy"
          typed={name}
          onClose={close}
          touches={
            <p>
              <b>{name}</b> stops, and this node forgets its files and its log. Its target and its offsets stay: deployed again, it
              continues from its last commit.
            </p>
          }
          act={async () => {
            await remove(apiPath("/pipelines/{name}", { name }));
            forget("/pipelines");
            say(`${name} is not deployed any more.`);
            navigate("/pipelines");
          }}
        />
      )}
    </>
  );
};

/** Sends dead letters back to where they came from. */
export const ReplayDeadLetters = ({ name, deployment, onDone }: ActionProps) => {
  const [asked, setAsked] = useState(false);
  const refusal = useRights("cluster")("ALTER");
  return (
    <>
      <button type="button" class="button small" disabled={refusal !== null} title={refusal ?? ""} onClick={() => setAsked(true)}>
        Replay
      </button>
      {asked && (
        <Confirm
          title="Replay dead letters"
          verb="Replay"
          danger={false}
          onClose={() => setAsked(false)}
          touches={
            <p>
              Every dead letter of <b>{deployment.dead_letter_topic}</b> that was not replayed yet is sent to the topic that it came
              from, once, and processed again. Correct the cause first, or it comes back.
            </p>
          }
          act={async () => {
            await post(apiPath("/pipelines/{name}/dead-letters/replay", { name }));
            onDone();
          }}
        />
      )}
    </>
  );
};

/** How far the replay of dead letters is, or how the last one ended. */
export const ReplayProgress = ({ replay }: { replay: Schemas["ReplayView"] | null }) => {
  if (!replay || replay.state === "none") return null;
  const sent = `${integer(replay.replayed)} of ${integer(replay.total)} dead letters`;
  if (replay.state === "running")
    return (
      <div class="replay" role="status">
        <span>Replaying: {replay.total ? `${sent} sent back` : "counting dead letters"}</span>
        <progress max={replay.total || 1} {...(replay.total ? { value: replay.replayed } : {})} aria-label="Dead letters sent back" />
      </div>
    );
  if (replay.state === "failed")
    return (
      <Notice tone="bad" title={`The replay failed after ${sent}`} role="note">
        {sentence(replay.error ?? "")}. Another replay continues after those that were sent.
      </Notice>
    );
  return (
    <p role="status" class="muted replay">
      {integer(replay.replayed)} dead {replay.replayed === 1 ? "letter" : "letters"} sent back <Ago value={replay.ended_ms} />.
    </p>
  );
};
