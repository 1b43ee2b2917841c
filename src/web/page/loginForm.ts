import { html } from "htm/preact";
import type { VNode } from "preact";
import { saveToken, tokenProblem } from "./apiClient.js";

function submit(event: SubmitEvent): void {
  event.preventDefault();
  if (!(event.target instanceof HTMLFormElement)) return;
  const token = new FormData(event.target).get("token");
  if (typeof token === "string" && token.trim() !== "") saveToken(token.trim());
}

export function LoginForm(): VNode {
  const isWrong = tokenProblem.value === "wrong";
  return html`<main class="login">
    <form class="panel" onSubmit=${submit}>
      <h1>pg-task</h1>
      <p>
        Enter the token to see the tasks. It is the value of <code>pg_http.token</code> or
        <code>pg_http.readonly</code>. If neither is set, open the address in the log of pg-task, which contains the
        token.
      </p>
      <label for="token">Token</label>
      <input
        id="token"
        name="token"
        type="password"
        autocomplete="off"
        autofocus
        required
        aria-invalid=${isWrong}
        aria-describedby="token-problem"
      />
      <p id="token-problem" class="problem" role="alert">${isWrong ? "Wrong token." : ""}</p>
      <button class="primary">Open</button>
    </form>
  </main>`;
}
