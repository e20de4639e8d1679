// The page that asks for a user and a password, and the end of a session.
import { useState } from "preact/hooks";
import { ApiError, apiPath, errorOf, post } from "./api";
import { Logo } from "./icons";
import { Failure, Field, useId } from "./parts";

export const needsSignIn = (error: Error | null): boolean => error instanceof ApiError && error.status === 401;

export const SignIn = ({ onDone }: { onDone: () => void }) => {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [state, setState] = useState<{ busy: boolean; error: Error | null }>({ busy: false, error: null });
  const [userId, passwordId] = [useId(), useId()];
  const send = async () => {
    setState({ busy: true, error: null });
    try {
      await post(apiPath("/sign-in"), { user, password });
      onDone();
    } catch (error) {
      setPassword("");
      setState({ busy: false, error: errorOf(error) });
    }
  };
  return (
    <main class="sign-in" id="main">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <h1 class="brand">
          <Logo />
          Sign in to Penstock
        </h1>
        <Field id={userId} label="User">
          <input
            id={userId}
            class="input"
            autofocus
            required
            autocomplete="username"
            autocapitalize="none"
            spellcheck={false}
            value={user}
            onInput={(event) => setUser(event.currentTarget.value)}
          />
        </Field>
        <Field id={passwordId} label="Password">
          <input
            id={passwordId}
            class="input"
            type="password"
            required
            autocomplete="current-password"
            value={password}
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </Field>
        <Failure error={state.error} />
        <button type="submit" class="button primary" disabled={state.busy || !user || !password}>
          {state.busy ? "Signing in…" : "Sign in"}
        </button>
        <p class="small muted">The user and password of Kafka clients. A session lasts 12 hours.</p>
      </form>
    </main>
  );
};

/** Ends the session; the next page asks for a user again. */
export async function signOut() {
  await post(apiPath("/sign-out"));
  location.assign("/");
}
