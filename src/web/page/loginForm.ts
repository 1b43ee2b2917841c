import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { tokenProblem, tryToken } from "./apiClient.js";

export function LoginForm(): VNode {
  const [problem, setProblem] = useState(tokenProblem.value === "wrong" ? "Wrong token." : "");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = "pg-task";
    input.current?.focus();
  }, []);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const token = input.current?.value.trim() ?? "";
    if (token === "" || busy) return;
    setBusy(true);
    setProblem("");
    const refusal = await tryToken(token);
    // If the token was accepted, this form is not shown any more.
    if (refusal === null) return;
    setBusy(false);
    setProblem(refusal);
    input.current?.select();
  };
  return html`<main id="main" class="login">
    <form class="panel" onSubmit=${submit} aria-busy=${busy}>
      <h1>pg-task</h1>
      <p>
        Enter the token to see the tasks. It is the value of
        <code>pg_http.token</code> or${" "}<code>pg_http.readonly</code>. If neither is set, open the address in the log
        of pg-task, which contains the token.
      </p>
      <label for="token">Token</label>
      <input
        ref=${input}
        id="token"
        name="token"
        type="password"
        autocomplete="off"
        required
        aria-invalid=${problem !== ""}
        aria-describedby="token-problem"
      />
      <p id="token-problem" class="problem" role="alert">${problem}</p>
      <button class="primary">Open</button>
    </form>
  </main>`;
}
