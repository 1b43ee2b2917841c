import { html } from "htm/preact";
import type { VNode } from "preact";
import { enterWith, gate } from "./apiClient.js";

function submit(event: SubmitEvent): void {
  event.preventDefault();
  if (!(event.target instanceof HTMLFormElement)) return;
  const token = new FormData(event.target).get("token");
  if (typeof token === "string" && token.trim() !== "") enterWith(token.trim());
}

/** Asks for the token. */
export function Gate(): VNode {
  const wrong = gate.value === "wrong";
  return html`<main class="gate">
    <form class="panel" onSubmit=${submit}>
      <h1>pg-task</h1>
      <p>
        The tasks are shown to those who have the token. It is what <code>pg_http.token</code> says;
        where nothing is said, pg-task's log has the address of this page with it.
      </p>
      <label for="token">Token</label>
      <input
        id="token"
        name="token"
        type="password"
        autocomplete="off"
        autofocus
        required
        aria-invalid=${wrong}
        aria-describedby="token-problem"
      />
      <p id="token-problem" class="problem" role="alert">
        ${wrong ? "That token is not the right one." : ""}
      </p>
      <button class="primary">Open</button>
    </form>
  </main>`;
}
